package main

import (
	"context"
	"fmt"
	"time"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

const timerSlackMs = 150

// Of ten messages, the first is always refused and the second twice; two retries are allowed.
func retryThenDeadLetter(b *bench, r *report) {
	queues := b.topic("retry", 2)
	topic, group := queues[0].Topic, b.name("retry-group")
	// This client finds the group's retry topic only at its start or half a minute later, so a
	// first member makes the broker create the topic.
	b.join(group, "retry-0", topic, "*", false, accept).leave()
	await("the retry topic", 15*time.Second, func() bool {
		return len(b.queues("%RETRY%"+group)) > 0
	})
	judge := func(ctx context.Context, message *primitive.MessageExt) consumer.ConsumeResult {
		number := numberOf(message)
		if number == 0 || number == 1 && message.ReconsumeTimes < 2 {
			if concurrent, ok := primitive.GetConcurrentlyCtx(ctx); ok {
				concurrent.DelayLevelWhenNextConsume = 1
			}
			return consumer.ConsumeRetryLater
		}
		return consumer.ConsumeSuccess
	}
	member := b.join(group, "retry-1", topic, "*", true, judge, consumer.WithMaxReconsumeTimes(2))
	defer member.leave()
	sent := b.send(queues, letters(topic, 0, 10)...)
	r.check("14 deliveries come", within(60*time.Second, func() bool {
		return member.count() >= 14
	}), fmt.Sprint(member.count()))
	r.check("the dead letter topic is there", within(20*time.Second, func() bool {
		return len(b.queues("%DLQ%"+group)) > 0
	}), "")
	dead := b.readUntil(1, b.queues("%DLQ%"+group)...)
	time.Sleep(quiet)
	r.equal("no more deliveries than 14", 14, member.count())
	r.none("deliveries are as sent", flaws(topic, member.all(), letterTag))
	tries := map[int]map[int32]bool{}
	for _, message := range member.all() {
		number := numberOf(message)
		if tries[number] == nil {
			tries[number] = map[int32]bool{}
		}
		tries[number][message.ReconsumeTimes] = true
	}
	r.equal("the first two are tried three times, counted", []int{3, 3, 1},
		[]int{len(tries[0]), len(tries[1]), len(tries[2])})
	r.equal("one dead letter", 1, len(dead))
	r.none("it is the refused message", append(difference(0, 1, dead),
		flaws(topic, dead, letterTag)...))
	r.equal("it names where the first lay", sent[0].OffsetMsgID,
		dead[0].GetProperty("ORIGIN_MESSAGE_ID"))
}

func delay(b *bench, r *report) {
	queues := b.topic("delay", 2)
	topic := queues[0].Topic
	member := b.join(b.name("delay-group"), "delay-1", topic, "*", false, accept)
	defer member.leave()
	for number, message := range letters(topic, 0, 9) {
		b.send(queues, message.WithDelayTimeLevel(number%3))
	}
	r.check("all come", within(deliveryLimit, func() bool { return member.count() >= 9 }),
		fmt.Sprint(member.count()))
	time.Sleep(time.Second)
	r.none("each once", difference(0, 9, member.all()))
	r.none("content is as sent", flaws(topic, member.all(), letterTag))
	least := []int64{0, 1000, 5000}
	var wrong []string
	for _, message := range member.all() {
		waited := message.StoreTimestamp - message.BornTimestamp
		level := least[numberOf(message)%3]
		if waited < level-timerSlackMs || waited > level+4000 {
			wrong = append(wrong, fmt.Sprintf("%d after %d ms", numberOf(message), waited))
		}
	}
	r.none("each at its time", wrong)
}
