package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const (
	transactionKinds = 6
	transactionQuiet = 5 * time.Second
)

// numbered ends number i of a topic according to i % 6: immediately, or at the first or second
// check.
type numbered struct {
	mutex sync.Mutex
	asked map[int]int
}

func (n *numbered) ExecuteLocalTransaction(message *primitive.Message) primitive.LocalTransactionState {
	switch numberOf(&primitive.MessageExt{Message: *message}) % transactionKinds {
	case 0, 5:
		return primitive.CommitMessageState
	case 1:
		return primitive.RollbackMessageState
	}
	return primitive.UnknowState
}

func (n *numbered) CheckLocalTransaction(message *primitive.MessageExt) primitive.LocalTransactionState {
	number := numberOf(message)
	n.mutex.Lock()
	defer n.mutex.Unlock()
	n.asked[number]++
	switch number % transactionKinds {
	case 2:
		return primitive.CommitMessageState
	case 4:
		if n.asked[number] < 2 {
			return primitive.UnknowState
		}
		return primitive.CommitMessageState
	}
	return primitive.RollbackMessageState
}

func (n *numbered) times(number int) int {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	return n.asked[number]
}

// transactions ends messages with commit, rollback and unknown, in all ways.
func transactions(b *bench, r *report) {
	queues := b.topic("transactions", 2)
	topic, listener := queues[0].Topic, &numbered{asked: map[int]int{}}
	group := b.name("tx-group")
	sender, err := rocketmq.NewTransactionProducer(listener, producer.WithNsResolver(b.resolver()),
		producer.WithGroupName(group), producer.WithInstanceName(group),
		producer.WithSendMsgTimeout(10*time.Second))
	must(err)
	must(sender.Start())
	defer func() { _ = sender.Shutdown() }()
	const count = 8 * transactionKinds
	for _, message := range letters(topic, 0, count) {
		_, err := sender.SendMessageInTransaction(context.Background(), message)
		must(err)
	}
	b.readUntil(4*count/transactionKinds, queues...)
	within(20*time.Second, func() bool {
		asked := 0
		for number := 4; number < count; number += transactionKinds {
			if listener.times(number) > 1 {
				asked++
			}
		}
		return asked == count/transactionKinds
	})
	time.Sleep(transactionQuiet)
	times := map[int]int{}
	got := b.readUntil(0, queues...)
	for _, message := range got {
		times[numberOf(message)]++
		// RocketMQ loses the flag of a half message that it checks.
		message.Flag = int32(numberOf(message))
	}
	var wrong []string
	for number := 0; number < count; number++ {
		wanted := 1
		if kind := number % transactionKinds; kind == 1 || kind == 3 {
			wanted = 0
		}
		if times[number] != wanted {
			wrong = append(wrong, fmt.Sprintf("%d came %d times", number, times[number]))
		}
	}
	r.none("what is to be shown is there once", wrong)
	r.none("content is as sent", flaws(topic, got, letterTag))
	wrong = nil
	for number := 0; number < count; number++ {
		wanted := map[int]int{2: 1, 3: 1, 4: 2}[number%transactionKinds]
		if asked := listener.times(number); asked != wanted {
			wrong = append(wrong, fmt.Sprintf("%d was asked about %d times", number, asked))
		}
	}
	r.none("only what is not known is asked about, until it is", wrong)
}
