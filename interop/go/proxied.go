package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	client "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

// RocketMQ's Go client of gRPC: topics and groups have the names `go-SCENARIO` and must exist.

const (
	proxiedCount    = 40
	proxiedDelivery = 45 * time.Second
	proxiedQuiet    = 3 * time.Second
	proxiedAwait    = 3 * time.Second
	fifoGroups      = 4
)

var colours = []string{"red", "green", "blue"}

var proxiedScenarios = map[string]func(p *proxy, r *report){
	"simple":      (*proxy).simple,
	"push":        (*proxy).push,
	"tags":        (*proxy).tags,
	"sql":         (*proxy).sql,
	"fifo":        (*proxy).fifo,
	"delay":       (*proxy).delay,
	"transaction": (*proxy).transaction,
}

// proxy makes the clients of a scenario.
type proxy struct {
	endpoints, topic string
}

// proxied runs scenarios, and returns the exit code.
func proxied(endpoints string, names []string) int {
	os.Setenv("rocketmq.client.logRoot", ".")
	os.Setenv("rocketmq.client.logLevel", "warn")
	client.ResetLogger()
	var running sync.WaitGroup
	reports := make([]*report, len(names))
	for i, name := range names {
		reports[i] = newReport(name)
		running.Add(1)
		go func(report *report) {
			defer running.Done()
			defer report.done()
			defer crashed(report)
			proxiedScenarios[report.scenario](&proxy{endpoints, "go-" + report.scenario}, report)
		}(reports[i])
	}
	running.Wait()
	for _, report := range reports {
		if report.failed > 0 {
			return 1
		}
	}
	return 0
}

// viewed holds the messages that a listener has received.
type viewed struct {
	mutex sync.Mutex
	views []*client.MessageView
	at    []time.Time
}

func (v *viewed) add(views ...*client.MessageView) {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	for _, view := range views {
		v.views, v.at = append(v.views, view), append(v.at, time.Now())
	}
}

func (v *viewed) all() []*client.MessageView {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	return slices.Clone(v.views)
}

// numbers returns the numbers of the messages, in the order of arrival.
func (v *viewed) numbers() []int {
	found := []int{}
	for _, view := range v.all() {
		found = append(found, bodyNumber(view))
	}
	return found
}

func (v *viewed) sorted() []int {
	found := v.numbers()
	slices.Sort(found)
	return found
}

func (v *viewed) distinct() []int {
	return slices.Compact(v.sorted())
}

func bodyNumber(view *client.MessageView) int {
	number, err := strconv.Atoi(string(view.GetBody()))
	must(err)
	return number
}

func upTo(count int, passes func(number int) bool) []int {
	found := []int{}
	for number := range count {
		if passes(number) {
			found = append(found, number)
		}
	}
	return found
}

func every(int) bool { return true }

func (p *proxy) config(group string) *client.Config {
	none := &credentials.SessionCredentials{}
	return &client.Config{Endpoint: p.endpoints, ConsumerGroup: group, Credentials: none}
}

func (p *proxy) producer(options ...client.ProducerOption) client.Producer {
	options = append(options, client.WithTopics(p.topic))
	producer, err := client.NewProducer(p.config(""), options...)
	must(err)
	must(producer.Start())
	return producer
}

// pusher starts a push consumer; handling fails for messages for which `refuses` returns true.
func (p *proxy) pusher(
	expression *client.FilterExpression, refuses func(view *client.MessageView) bool,
) (*viewed, client.PushConsumer) {
	came := &viewed{}
	listener := &client.FuncMessageListener{Consume: func(view *client.MessageView) client.ConsumerResult {
		refused := refuses(view)
		came.add(view)
		if refused {
			return client.FAILURE
		}
		return client.SUCCESS
	}}
	consumer, err := client.NewPushConsumer(p.config(p.topic),
		client.WithPushAwaitDuration(proxiedAwait), client.WithPushMessageListener(listener),
		client.WithPushSubscriptionExpressions(map[string]*client.FilterExpression{p.topic: expression}))
	must(err)
	must(consumer.Start())
	return came, consumer
}

func accepts(*client.MessageView) bool { return false }

func (p *proxy) message(number int) *client.Message {
	message := &client.Message{Topic: p.topic, Body: []byte(strconv.Itoa(number))}
	message.SetTag(colours[number%len(colours)])
	message.SetKeys(fmt.Sprintf("key-%d", number))
	message.AddProperty("number", strconv.Itoa(number))
	return message
}

func send(producer client.Producer, message *client.Message) *client.SendReceipt {
	receipts, err := producer.Send(context.Background(), message)
	must(err)
	return receipts[0]
}

func sendAll(p *proxy, producer client.Producer) []string {
	ids := []string{}
	for number := range proxiedCount {
		ids = append(ids, send(producer, p.message(number)).MessageID)
	}
	slices.Sort(ids)
	return ids
}

func waitUntil(came *viewed, count int) {
	within(proxiedDelivery, func() bool { return len(came.all()) >= count })
}
