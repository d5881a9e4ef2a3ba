package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// sqlFilter has a push consumer choose by properties, among existing messages and new ones.
func sqlFilter(b *bench, r *report) {
	queues := b.topic("sql", 2)
	topic := queues[0].Topic
	send := func(from, to int) {
		for number := from; number < to; number++ {
			message := letter(topic, number, letterTag(number))
			message.WithProperty("a", strconv.Itoa(number))
			if number%2 == 0 {
				message.WithProperty("even", "true")
			}
			b.send(queues[number%2:], message)
		}
	}
	send(0, 60)
	var kept box
	push, err := rocketmq.NewPushConsumer(
		consumer.WithNsResolver(b.resolver()), consumer.WithGroupName(b.name("sql-group")),
		consumer.WithInstance(b.name("sql")),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	must(err)
	selector := consumer.MessageSelector{
		Type:       consumer.SQL92,
		Expression: "a BETWEEN 50 AND 69 AND even = TRUE OR a IN ('7') AND even IS NULL",
	}
	must(push.Subscribe(topic, selector, func(_ context.Context,
		messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, message := range messages {
			kept.add(message)
		}
		return consumer.ConsumeSuccess, nil
	}))
	must(push.Start())
	defer func() { _ = push.Shutdown() }()
	r.check("what matches comes", within(deliveryLimit, func() bool {
		return kept.count() >= 6
	}), fmt.Sprint(kept.count()))
	send(60, 90)
	r.check("and what is sent while it waits", within(deliveryLimit, func() bool {
		return kept.count() >= 11
	}), fmt.Sprint(kept.count()))
	time.Sleep(quiet)
	var wrong []string
	for _, message := range kept.all() {
		number := numberOf(message)
		if number != 7 && (number < 50 || number > 69 || number%2 != 0) {
			wrong = append(wrong, strconv.Itoa(number))
		}
	}
	r.none("nothing else", wrong)
	r.equal("each once", 11, kept.count())
}
