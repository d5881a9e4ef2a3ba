package main

import (
	"context"
	"sync/atomic"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// member is a push consumer that keeps its received messages.
type member struct {
	box
	consumer rocketmq.PushConsumer
	topic    string
	shared   atomic.Int64
}

type listener func(context.Context, *primitive.MessageExt) consumer.ConsumeResult

func accept(context.Context, *primitive.MessageExt) consumer.ConsumeResult {
	return consumer.ConsumeSuccess
}

// join starts a member; only messages the listener accepts are kept, unless keepAll.
func (b *bench) join(group, instance, topic, tags string, keepAll bool, judge listener,
	options ...consumer.Option) *member {
	m := &member{topic: topic}
	options = append([]consumer.Option{
		consumer.WithNsResolver(b.resolver()), consumer.WithGroupName(group),
		consumer.WithInstance(b.name(instance)), consumer.WithStrategy(m.allocate),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithConsumeMessageBatchMaxSize(1),
	}, options...)
	push, err := rocketmq.NewPushConsumer(options...)
	must(err)
	m.consumer = push
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: tags}
	must(push.Subscribe(topic, selector, func(ctx context.Context,
		messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, message := range messages {
			result := judge(ctx, message)
			if keepAll || result == consumer.ConsumeSuccess {
				m.add(message)
			}
			if result != consumer.ConsumeSuccess {
				return result, nil
			}
		}
		return consumer.ConsumeSuccess, nil
	}))
	must(push.Start())
	return m
}

// allocate is the client's own strategy; it also records the number of this member's queues.
func (m *member) allocate(group, client string, queues []*primitive.MessageQueue,
	clients []string) []*primitive.MessageQueue {
	mine := consumer.AllocateByAveragely(group, client, queues, clients)
	if len(queues) > 0 && queues[0].Topic == m.topic {
		m.shared.Store(int64(len(mine)))
	}
	return mine
}

func (m *member) leave() {
	_ = m.consumer.Shutdown()
}
