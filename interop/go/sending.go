package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
)

const mebibyte = 1 << 20

func sendSync(b *bench, r *report) {
	queues := b.topic("sync", 4)
	topic := queues[0].Topic
	results := b.send(queues, letters(topic, 0, 80)...)
	var wrong []string
	for number, sent := range results {
		if sent.Status != primitive.SendOK || sent.QueueOffset != int64(number/4) ||
			sent.MessageQueue.QueueId != number%4 {
			wrong = append(wrong, sent.String())
		}
	}
	r.none("each send is OK and takes the next place of its queue", wrong)
	got := b.readUntil(80, queues...)
	r.none("all are there once", difference(0, 80, got))
	r.none("content is as sent", flaws(topic, got, letterTag))
	wrong = nil
	for _, message := range got {
		sent := results[numberOf(message)]
		if sent.QueueOffset != message.QueueOffset || sent.MsgID != message.MsgId ||
			sent.OffsetMsgID != message.OffsetMsgId {
			wrong = append(wrong, fmt.Sprintf("%v but %v", sent, message))
		}
	}
	r.none("place and ids are those of the answer", wrong)
}

func sendAsync(b *bench, r *report) {
	queues := b.topic("async", 4)
	topic := queues[0].Topic
	const count = 200
	var answered sync.WaitGroup
	var mutex sync.Mutex
	ids := map[string]bool{}
	var wrong []string
	answered.Add(count)
	for number, message := range letters(topic, 0, count) {
		message.Queue = queues[number%4]
		must(b.producer.SendAsync(context.Background(),
			func(_ context.Context, sent *primitive.SendResult, err error) {
				defer answered.Done()
				mutex.Lock()
				defer mutex.Unlock()
				if err != nil || sent.Status != primitive.SendOK {
					wrong = append(wrong, fmt.Sprint(sent, err))
					return
				}
				ids[sent.MsgID] = true
			}, message))
	}
	answered.Wait()
	r.none("no send failed", wrong)
	r.equal("every answer has its own id", count, len(ids))
	got := b.readUntil(count, queues...)
	r.none("all are there once", difference(0, count, got))
	r.none("content is as sent", flaws(topic, got, letterTag))
}

func sendOneWay(b *bench, r *report) {
	queues := b.topic("oneway", 2)
	topic := queues[0].Topic
	for _, message := range letters(topic, 0, 60) {
		message.Queue = queues[1]
		must(b.producer.SendOneWay(context.Background(), message))
	}
	got := b.readUntil(60, queues[1])
	r.none("all are there once", difference(0, 60, got))
	r.none("content is as sent", flaws(topic, got, letterTag))
}

func sendBatch(b *bench, r *report) {
	queues := b.topic("batch", 2)
	topic := queues[0].Topic
	batch := letters(topic, 0, 32)
	for _, message := range batch {
		message.Queue = queues[0]
	}
	sent, err := b.producer.SendSync(context.Background(), batch...)
	must(err)
	r.equal("the batch is OK", primitive.SendOK, sent.Status)
	r.equal("its place is that of its first message", int64(0), sent.QueueOffset)
	r.equal("it has an offset id for each", 32, len(strings.Split(sent.OffsetMsgID, ",")))
	got := b.readUntil(32, queues[0])
	r.none("all are there once", difference(0, 32, got))
	r.none("content is as sent", flaws(topic, got, letterTag))
	var wrong []string
	for place, message := range got {
		if numberOf(message) != place || message.QueueOffset != int64(place) {
			wrong = append(wrong, fmt.Sprintf("%d at %d", numberOf(message), message.QueueOffset))
		}
	}
	r.none("in the order of the batch", wrong)
}

func bigMessage(b *bench, r *report) {
	queues := b.topic("big", 1)
	topic := queues[0].Topic
	limit := make([]byte, 4*mebibyte)
	_, _ = rand.New(rand.NewSource(4)).Read(limit)
	b.send(queues, primitive.NewMessage(topic, limit))
	tooBig := primitive.NewMessage(topic, make([]byte, 4*mebibyte+1))
	tooBig.Queue = queues[0]
	_, err := b.producer.SendSync(context.Background(), tooBig)
	r.check("one byte more than 4 MiB is refused", err != nil, "it was accepted")
	got := b.readUntil(1, queues...)
	r.equal("one message", 1, len(got))
	r.check("the 4 MiB are as sent", bytes.Equal(limit, got[0].Body), "")
	member := b.join(b.name("big-group"), "big-member", topic, "*", false, accept)
	defer member.leave()
	r.check("a push consumer gets them", within(40*time.Second, func() bool {
		return member.count() == 1 && bytes.Equal(limit, member.all()[0].Body)
	}), "")
}

func chinese(b *bench, r *report) {
	queues := b.topic("chinese", 2)
	topic := queues[0].Topic
	for number := 0; number < 10; number++ {
		b.send(queues[:1], chineseMessage(topic, number))
	}
	got := b.readUntil(10, queues[0])
	r.equal("all are there", 10, len(got))
	var wrong []string
	for number, message := range got {
		sent := chineseMessage(topic, number)
		for _, name := range []string{"编号", "表情", "latin", "KEYS", "TAGS"} {
			if message.GetProperty(name) != sent.GetProperty(name) {
				wrong = append(wrong, message.String())
			}
		}
		if !bytes.Equal(message.Body, sent.Body) {
			wrong = append(wrong, message.String())
		}
	}
	r.none("body, tags, keys and properties are as sent", wrong)
}

func chineseMessage(topic string, number int) *primitive.Message {
	message := primitive.NewMessage(topic, []byte(fmt.Sprintf("内容 %d 🚀 naïve", number)))
	message.WithTag("标签甲").WithKeys([]string{fmt.Sprintf("订单-%d", number), "公共钥匙"})
	message.WithProperty("编号", fmt.Sprintf("第%d号", number))
	message.WithProperty("表情", "😀🎉")
	message.WithProperty("latin", "Ünïcödé €")
	return message
}
