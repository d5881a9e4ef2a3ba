package main

import (
	"context"
	"fmt"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

func pull(b *bench, r *report) {
	queues := b.topic("pull", 1)
	topic := queues[0].Topic
	reader := b.newReader(topic, "*")
	arrived := make(chan *primitive.PullResult)
	go func() {
		result, err := reader.PullFrom(context.Background(), queues[0], 0, 32)
		must(err)
		arrived <- result
	}()
	select {
	case early := <-arrived:
		r.check("a pull of an empty queue waits", false, early.String())
	case <-time.After(time.Second):
		r.check("a pull of an empty queue waits", true, "")
		b.send(queues, letters(topic, 0, 1)...)
		r.none("until a message comes", difference(0, 1, (<-arrived).GetMessageExts()))
	}
	b.send(queues, letters(topic, 1, 50)...)
	var ten *primitive.PullResult
	var err error
	await("the last message", 10*time.Second, func() bool {
		ten, err = reader.PullFrom(context.Background(), queues[0], 5, 10)
		must(err)
		return ten.MaxOffset == 50
	})
	r.none("ten from the requested offset", difference(5, 15, ten.GetMessageExts()))
	r.equal("the next offset is given", int64(15), ten.NextBeginOffset)
	beyond, err := reader.PullFrom(context.Background(), queues[0], 90, 10)
	must(err)
	r.equal("beyond the end the offset is illegal", primitive.PullOffsetIllegal, beyond.Status)
	r.equal("and the right one is given", int64(50), beyond.NextBeginOffset)
	_ = reader.Shutdown()
	poll(b, r, topic)
}

// poll uses the other mode of this client's pull consumer: shared queues and acknowledgement.
func poll(b *bench, r *report, topic string) {
	group := b.name("poll-group")
	start := func(instance string) rocketmq.PullConsumer {
		reader, err := rocketmq.NewPullConsumer(consumer.WithNsResolver(b.resolver()),
			consumer.WithGroupName(group), consumer.WithInstance(b.name(instance)),
			consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
		must(err)
		must(reader.Subscribe(topic, consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}))
		must(reader.Start())
		return reader
	}
	first := start("poll-1")
	var got []*primitive.MessageExt
	within(deliveryLimit, func() bool {
		request, err := first.Poll(context.Background(), time.Second)
		if err == nil {
			got = append(got, request.GetMsgList()...)
			first.ACK(context.Background(), request, consumer.ConsumeSuccess)
		}
		return len(got) >= 50
	})
	r.none("polling brings all once", difference(0, 50, got))
	r.none("content is as sent", flaws(topic, got, letterTag))
	must(first.PersistOffset(context.Background(), topic))
	_ = first.Shutdown()
	second := start("poll-2")
	defer func() { _ = second.Shutdown() }()
	request, err := second.Poll(context.Background(), 3*time.Second)
	r.check("a later member finds them done", err != nil, fmt.Sprint(request))
}
