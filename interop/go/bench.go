package main

import (
	"context"
	"fmt"
	"math"
	"sort"
	"sync/atomic"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

type topicAdmin interface {
	CreateTopic(ctx context.Context, opts ...admin.OptionCreate) error
	FetchPublishMessageQueues(ctx context.Context, topic string) ([]*primitive.MessageQueue, error)
	Close() error
}

// bench holds the state that the scenarios of a run share.
type bench struct {
	namesrv  string
	broker   string
	prefix   string
	admin    topicAdmin
	producer rocketmq.Producer
	readers  atomic.Int64
}

func newBench(namesrv, broker, prefix string) (*bench, error) {
	b := &bench{namesrv: namesrv, broker: broker, prefix: prefix}
	tool, err := admin.NewAdmin(admin.WithResolver(b.resolver()))
	if err != nil {
		return nil, err
	}
	b.admin = tool
	b.producer, err = rocketmq.NewProducer(producer.WithNsResolver(b.resolver()),
		producer.WithGroupName(b.name("producer")), producer.WithInstanceName(b.name("producer")),
		producer.WithQueueSelector(producer.NewManualQueueSelector()),
		producer.WithSendMsgTimeout(10*time.Second), producer.WithRetry(0),
		producer.WithCompressMsgBodyOverHowmuch(math.MaxInt32))
	if err != nil {
		return nil, err
	}
	return b, b.producer.Start()
}

func (b *bench) close() {
	_ = b.producer.Shutdown()
	_ = b.admin.Close()
}

func (b *bench) resolver() primitive.NsResolver {
	return primitive.NewPassthroughResolver([]string{b.namesrv})
}

func (b *bench) name(suffix string) string {
	return b.prefix + "-" + suffix
}

// topic creates a topic of this run and returns its queues by id.
func (b *bench) topic(suffix string, queues int) []*primitive.MessageQueue {
	topic := b.name(suffix)
	must(b.admin.CreateTopic(context.Background(), admin.WithTopicCreate(topic),
		admin.WithBrokerAddrCreate(b.broker), admin.WithReadQueueNums(queues),
		admin.WithWriteQueueNums(queues)))
	var found []*primitive.MessageQueue
	await("the route of "+topic, 15*time.Second, func() bool {
		found = b.queues(topic)
		return len(found) == queues
	})
	return found
}

func (b *bench) queues(topic string) []*primitive.MessageQueue {
	found, err := b.admin.FetchPublishMessageQueues(context.Background(), topic)
	if err != nil {
		return nil
	}
	sort.Slice(found, func(i, j int) bool { return found[i].QueueId < found[j].QueueId })
	return found
}

// send sends the messages one after the other; the queue is number modulo the number of queues.
func (b *bench) send(queues []*primitive.MessageQueue, messages ...*primitive.Message) []*primitive.SendResult {
	var results []*primitive.SendResult
	for i, message := range messages {
		message.Queue = queues[i%len(queues)]
		result, err := b.producer.SendSync(context.Background(), message)
		must(err)
		results = append(results, result)
	}
	return results
}

// newReader starts a pull consumer of a single topic; the caller shuts it down.
func (b *bench) newReader(topic, tags string) rocketmq.PullConsumer {
	group := b.name(fmt.Sprintf("reader-%d", b.readers.Add(1)))
	reader, err := rocketmq.NewPullConsumer(consumer.WithNsResolver(b.resolver()),
		consumer.WithGroupName(group), consumer.WithInstance(group))
	must(err)
	must(reader.Subscribe(topic, consumer.MessageSelector{Type: consumer.TAG, Expression: tags}))
	must(reader.Start())
	return reader
}

// readUntil pulls the given queues of a topic until they hold that number of messages. No queue may
// stay empty: this client's pull waits at the end of a queue.
func (b *bench) readUntil(count int, queues ...*primitive.MessageQueue) []*primitive.MessageExt {
	reader := b.newReader(queues[0].Topic, "*")
	defer func() { _ = reader.Shutdown() }()
	var all []*primitive.MessageExt
	within(20*time.Second, func() bool {
		all = nil
		for _, queue := range queues {
			all = append(all, readQueue(reader, queue)...)
		}
		return len(all) >= count
	})
	return all
}

func readQueue(reader rocketmq.PullConsumer, queue *primitive.MessageQueue) []*primitive.MessageExt {
	var all []*primitive.MessageExt
	for at, end := int64(0), int64(1); at < end; {
		result, err := reader.PullFrom(context.Background(), queue, at, 32)
		must(err)
		all = append(all, result.GetMessageExts()...)
		at, end = result.NextBeginOffset, result.MaxOffset
	}
	return all
}

func within(limit time.Duration, condition func() bool) bool {
	deadline := time.Now().Add(limit)
	for !condition() {
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(20 * time.Millisecond)
	}
	return true
}

func await(what string, limit time.Duration, condition func() bool) {
	if !within(limit, condition) {
		panic(fmt.Sprintf("%s did not come within %v", what, limit))
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
