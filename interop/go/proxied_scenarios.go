package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	client "github.com/apache/rocketmq-clients/golang/v5"
)

// simple: acknowledged messages are not redelivered; the others are, after the changed time.
func (p *proxy) simple(r *report) {
	producer := p.producer()
	defer producer.GracefulStop()
	consumer, err := client.NewSimpleConsumer(p.config(p.topic),
		client.WithSimpleAwaitDuration(proxiedAwait),
		client.WithSimpleSubscriptionExpressions(
			map[string]*client.FilterExpression{p.topic: client.SUB_ALL}))
	must(err)
	must(consumer.Start())
	defer consumer.GracefulStop()
	ids := sendAll(p, producer)
	came, again := &viewed{}, &viewed{}
	receive := func(into *viewed) {
		// This client reports an empty queue as an error.
		views, _ := consumer.Receive(context.Background(), 16, 90*time.Second)
		into.add(views...)
		for _, view := range views {
			if bodyNumber(view) != 5 || into == again {
				must(consumer.Ack(context.Background(), view))
			}
		}
	}
	within(proxiedDelivery, func() bool { receive(came); return len(came.all()) >= proxiedCount })
	r.equal("each comes once", upTo(proxiedCount, every), came.sorted())
	found := []string{}
	for _, view := range came.all() {
		found = append(found, view.GetMessageId())
	}
	slices.Sort(found)
	r.equal("by the ids that sends returned", ids, found)
	left := slices.Index(came.numbers(), 5)
	changed := time.Now()
	must(consumer.ChangeInvisibleDuration(came.all()[left], 10*time.Second))
	within(proxiedDelivery, func() bool { receive(again); return len(again.all()) > 0 })
	waited := time.Since(changed).Seconds()
	r.equal("what is left comes again", []int{5}, again.numbers())
	r.check("after the changed time", waited >= 9.5 && waited < 45, fmt.Sprint(waited))
}

// push: all messages arrive, and a message that is refused once arrives again, with all attributes.
func (p *proxy) push(r *report) {
	producer := p.producer()
	defer producer.GracefulStop()
	came, consumer := p.pusher(client.SUB_ALL, func(view *client.MessageView) bool {
		return bodyNumber(view) == 7 && view.GetDeliveryAttempt() == 1
	})
	defer consumer.GracefulStop()
	sendAll(p, producer)
	waitUntil(came, proxiedCount+1)
	r.equal("each of them", upTo(proxiedCount, every), came.distinct())
	tries := []int32{}
	for _, view := range came.all() {
		if bodyNumber(view) == 7 {
			tries = append(tries, view.GetDeliveryAttempt())
		}
	}
	r.equal("attempts are counted", []int32{1, 2}, tries)
	one := came.all()[slices.Index(came.numbers(), 4)]
	r.equal("with its tag, property, key and topic",
		[]any{"green", "4", []string{"key-4"}, p.topic},
		[]any{*one.GetTag(), one.GetProperties()["number"], one.GetKeys(), one.GetTopic()})
}

// filtered: the messages that pass the filter arrive.
func (p *proxy) filtered(r *report, expression *client.FilterExpression, passes func(number int) bool) {
	producer := p.producer()
	defer producer.GracefulStop()
	came, consumer := p.pusher(expression, accepts)
	defer consumer.GracefulStop()
	sendAll(p, producer)
	passing := upTo(proxiedCount, passes)
	waitUntil(came, len(passing))
	time.Sleep(proxiedQuiet)
	r.equal("those that pass come", passing, came.sorted())
}

func (p *proxy) tags(r *report) {
	p.filtered(r, client.NewFilterExpression("red || blue"), func(number int) bool { return number%3 != 1 })
}

func (p *proxy) sql(r *report) {
	expression := client.NewFilterExpressionWithType("number > 9 AND TAGS <> 'red'", client.SQL92)
	p.filtered(r, expression, func(number int) bool { return number > 9 && number%3 != 0 })
}

// fifo: each message group arrives in order.
func (p *proxy) fifo(r *report) {
	producer := p.producer()
	defer producer.GracefulStop()
	came, consumer := p.pusher(client.SUB_ALL, accepts)
	defer consumer.GracefulStop()
	for number := range proxiedCount {
		message := p.message(number)
		message.SetMessageGroup(fmt.Sprintf("group-%d", number%fifoGroups))
		send(producer, message)
	}
	waitUntil(came, proxiedCount)
	for group := range fifoGroups {
		own := func(number int) bool { return number%fifoGroups == group }
		found := slices.DeleteFunc(came.numbers(), func(number int) bool { return !own(number) })
		r.equal(fmt.Sprintf("group %d in its order", group), upTo(proxiedCount, own), found)
	}
}

// delay: a message arrives at its delivery time, a recalled message never.
func (p *proxy) delay(r *report) {
	producer := p.producer()
	defer producer.GracefulStop()
	came, consumer := p.pusher(client.SUB_ALL, accepts)
	defer consumer.GracefulStop()
	due := time.Now().Add(6 * time.Second)
	handle := ""
	for number := range 5 {
		message := p.message(number)
		message.SetDelayTimestamp(due)
		handle = send(producer, message).RecallHandle
	}
	_, err := producer.Recall(context.Background(), p.topic, handle)
	must(err)
	waitUntil(came, 4)
	late := time.Since(due).Seconds()
	time.Sleep(proxiedQuiet)
	r.equal("all come but the recalled one", []int{0, 1, 2, 3}, came.sorted())
	r.check("when they are due", late > -1 && late < 5, fmt.Sprint(late))
}

// transaction: a commit shows the message, a rollback does not; open transactions are checked.
func (p *proxy) transaction(r *report) {
	var mutex sync.Mutex
	asked := map[int]bool{}
	open := func() []int {
		mutex.Lock()
		defer mutex.Unlock()
		return upTo(proxiedCount, func(number int) bool { return asked[number] })
	}
	producer := p.producer(client.WithTransactionChecker(&client.TransactionChecker{
		Check: func(view *client.MessageView) client.TransactionResolution {
			mutex.Lock()
			defer mutex.Unlock()
			asked[bodyNumber(view)] = true
			if bodyNumber(view)%2 == 0 {
				return client.COMMIT
			}
			return client.ROLLBACK
		},
	}))
	defer producer.GracefulStop()
	came, consumer := p.pusher(client.SUB_ALL, accepts)
	defer consumer.GracefulStop()
	for number := range 4 {
		opened := producer.BeginTransaction()
		_, err := producer.SendWithTransaction(context.Background(), p.message(number), opened)
		must(err)
		if number == 0 {
			must(opened.Commit())
		} else if number == 1 {
			must(opened.RollBack())
		}
	}
	within(proxiedDelivery, func() bool { return len(open()) >= 2 && len(came.distinct()) >= 2 })
	time.Sleep(proxiedQuiet)
	r.equal("what is committed comes", []int{0, 2}, came.distinct())
	r.equal("what is open is asked about", []int{2, 3}, open())
}
