package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const (
	enduringSenders = 4
	// Pause between two sends of a sender: the test has to remember each send.
	enduringPause = 2 * time.Millisecond
)

// throughKills sends without pause while brokers die, and records the acknowledged messages.
// Arguments: the file for the records, and the file that ends the program.
func throughKills(b *bench, r *report) {
	topic := b.topic("kills", 4)[0].Topic
	sender, err := rocketmq.NewProducer(producer.WithNsResolver(b.resolver()),
		producer.WithGroupName(b.name("kills")), producer.WithInstanceName(b.name("kills")))
	must(err)
	must(sender.Start())
	defer func() { _ = sender.Shutdown() }()
	out, err := os.Create(r.arguments[0])
	must(err)
	defer func() { _ = out.Close() }()
	var numbers, acknowledged atomic.Int64
	var writing sync.Mutex
	var running sync.WaitGroup
	for i := 0; i < enduringSenders; i++ {
		running.Add(1)
		go func() {
			defer running.Done()
			for !exists(r.arguments[1]) {
				time.Sleep(enduringPause)
				number, begun := numbers.Add(1), time.Now().UnixMilli()
				body := []byte(fmt.Sprintf("%d letter", number))
				sent, err := sender.SendSync(context.Background(), primitive.NewMessage(topic, body))
				if err != nil || sent.Status != primitive.SendOK {
					continue
				}
				acknowledged.Add(1)
				writing.Lock()
				_, _ = fmt.Fprintln(out, begun, time.Now().UnixMilli(), sent.MessageQueue.QueueId,
					sent.QueueOffset, number)
				writing.Unlock()
			}
		}()
	}
	running.Wait()
	r.check("sends were acknowledged", acknowledged.Load() > 0, "none")
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
