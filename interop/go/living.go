package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const (
	livingKinds = 4
	// A broker of RocketMQ writes a message twice if its transaction ends during a check.
	lateCheck = 1500 * time.Millisecond
	// This client sends its group to a broker every 30 s, and a broker that has just started knows
	// no group before.
	livingPatience = 90 * time.Second
)

// living keeps its transactions open while their broker dies. i % 4 determines the end of number i:
// 0 is committed and 1 rolled back while no broker receives it, 2 is unknown then, and 3 is
// committed when a broker runs again.
type living struct {
	stored     sync.WaitGroup
	dead, back string
	mutex      sync.Mutex
	ended      map[int]time.Time
	asked      map[int]bool
}

func (l *living) ExecuteLocalTransaction(message *primitive.Message) primitive.LocalTransactionState {
	number := numberOf(&primitive.MessageExt{Message: *message})
	l.stored.Done()
	file := l.dead
	if number%livingKinds == 3 {
		file = l.back
	}
	waitFor(file)
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.ended[number] = time.Now()
	switch number % livingKinds {
	case 1:
		return primitive.RollbackMessageState
	case 2:
		return primitive.UnknowState
	}
	return primitive.CommitMessageState
}

func (l *living) CheckLocalTransaction(message *primitive.MessageExt) primitive.LocalTransactionState {
	number := numberOf(message)
	l.mutex.Lock()
	defer l.mutex.Unlock()
	ended, is := l.ended[number]
	if !is || number%livingKinds == 3 && time.Since(ended) < lateCheck {
		return primitive.UnknowState
	}
	l.asked[number] = true
	if number%livingKinds == 1 {
		return primitive.RollbackMessageState
	}
	return primitive.CommitMessageState
}

// unasked returns the ends that no broker received and that were never checked.
func (l *living) unasked(count int) []string {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	var found []string
	for number := 0; number < count; number++ {
		if number%livingKinds != 3 && !l.asked[number] {
			found = append(found, fmt.Sprintf("nothing was asked about %d", number))
		}
	}
	return found
}

func waitFor(file string) {
	for !exists(file) {
		time.Sleep(20 * time.Millisecond)
	}
}

// livingTransactions is the Java client's scenario of the same name. Arguments: the number of
// transactions, the file to create when all half messages are stored, the files that report that
// the broker is dead, and that it runs again; "once", or "more" if a message may be committed
// again.
func livingTransactions(b *bench, r *report) {
	count, err := strconv.Atoi(r.arguments[0])
	must(err)
	queues := b.topic("living", 1)
	listener := &living{dead: r.arguments[2], back: r.arguments[3],
		ended: map[int]time.Time{}, asked: map[int]bool{}}
	listener.stored.Add(count)
	group := b.name("living-group")
	sender, err := rocketmq.NewTransactionProducer(listener, producer.WithNsResolver(b.resolver()),
		producer.WithGroupName(group), producer.WithInstanceName(group))
	must(err)
	must(sender.Start())
	defer func() { _ = sender.Shutdown() }()
	failures := make(chan string, count)
	var sending sync.WaitGroup
	for _, message := range letters(queues[0].Topic, 0, count) {
		sending.Add(1)
		go func(message *primitive.Message) {
			defer sending.Done()
			if _, err := sender.SendMessageInTransaction(context.Background(), message); err != nil {
				failures <- err.Error()
			}
		}(message)
	}
	listener.stored.Wait()
	must(os.WriteFile(r.arguments[1], nil, 0o644))
	waitFor(listener.back)
	sending.Wait()
	close(failures)
	var wrong []string
	for failure := range failures {
		wrong = append(wrong, failure)
	}
	r.none("no send fails although its end is lost", wrong)
	within(livingPatience, func() bool {
		time.Sleep(time.Second)
		times := b.timesOf(queues)
		for number := 0; number < count; number++ {
			if number%livingKinds != 1 && times[number] == 0 {
				return false
			}
		}
		return len(listener.unasked(count)) == 0
	})
	r.none("what no broker heard of is asked about", listener.unasked(count))
	time.Sleep(lateCheck)
	wrong = nil
	times, once := b.timesOf(queues), r.arguments[4] == "once"
	for number := 0; number < count; number++ {
		wanted := 1
		if number%livingKinds == 1 {
			wanted = 0
		}
		if times[number] < wanted || times[number] > wanted && (once || wanted == 0) {
			wrong = append(wrong, fmt.Sprintf("%d came %d times", number, times[number]))
		}
	}
	r.none("what was committed is there, and nothing else", wrong)
}

// timesOf counts the messages in queues by their numbers; it returns no counts while readers are
// not served yet.
func (b *bench) timesOf(queues []*primitive.MessageQueue) (times map[int]int) {
	times = map[int]int{}
	defer func() {
		if recover() != nil {
			times = map[int]int{}
		}
	}()
	for _, message := range b.readUntil(0, queues...) {
		times[numberOf(message)]++
	}
	return times
}
