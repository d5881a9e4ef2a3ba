package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// The client rebalances every 20 s unless a notice makes it do so earlier.
const (
	shareLimit    = 60 * time.Second
	deliveryLimit = 40 * time.Second
	quiet         = 1500 * time.Millisecond
)

func pushCluster(b *bench, r *report) {
	queues := b.topic("cluster", 8)
	topic, group := queues[0].Topic, b.name("cluster-group")
	first := b.join(group, "cluster-1", topic, "*", false, accept)
	second := b.join(group, "cluster-2", topic, "*", false, accept)
	r.check("two members share the queues", within(shareLimit, func() bool {
		return first.shared.Load() == 4 && second.shared.Load() == 4
	}), fmt.Sprint(first.shared.Load(), " and ", second.shared.Load()))
	time.Sleep(quiet)
	b.send(queues, letters(topic, 0, 160)...)
	r.check("all come", within(deliveryLimit, func() bool {
		return first.count()+second.count() >= 160
	}), fmt.Sprint(first.count(), " and ", second.count()))
	time.Sleep(quiet)
	r.equal("half to the first", 80, first.count())
	r.equal("half to the second", 80, second.count())
	second.leave()
	r.check("the first takes over the queues of the one that left", within(shareLimit,
		func() bool { return first.shared.Load() == 8 }), fmt.Sprint(first.shared.Load()))
	b.send(queues, letters(topic, 160, 200)...)
	r.check("it gets all that follows", within(deliveryLimit, func() bool {
		return first.count() == 120
	}), fmt.Sprint(first.count()))
	time.Sleep(quiet)
	all := append(first.all(), second.all()...)
	r.none("nothing lost or doubled", difference(0, 200, all))
	r.none("content is as sent", flaws(topic, all, letterTag))
	first.leave()
	third := b.join(group, "cluster-3", topic, "*", false, accept)
	defer third.leave()
	r.check("a later member gets all queues", within(shareLimit, func() bool {
		return third.shared.Load() == 8
	}), "")
	time.Sleep(quiet)
	r.equal("and nothing of the past", 0, third.count())
}

func pushBroadcast(b *bench, r *report) {
	queues := b.topic("broadcast", 4)
	topic, group := queues[0].Topic, b.name("broadcast-group")
	model := consumer.WithConsumerModel(consumer.BroadCasting)
	first := b.join(group, "broadcast-1", topic, "*", false, accept, model)
	defer first.leave()
	second := b.join(group, "broadcast-2", topic, "*", false, accept, model)
	defer second.leave()
	// A broadcasting member of this client asks for the end of each queue at its first pull.
	time.Sleep(2 * quiet)
	b.send(queues, letters(topic, 0, 80)...)
	r.check("each gets all", within(deliveryLimit, func() bool {
		return first.count() >= 80 && second.count() >= 80
	}), fmt.Sprint(first.count(), " and ", second.count()))
	time.Sleep(quiet)
	r.none("the first each once", difference(0, 80, first.all()))
	r.none("the second each once", difference(0, 80, second.all()))
	r.none("content is as sent", flaws(topic, second.all(), letterTag))
}

func tagFilter(b *bench, r *report) {
	queues := b.topic("tags", 2)
	topic := queues[0].Topic
	names := []string{"TagA", "TagB", "Aa", "BB", ""}
	tag := func(number int) string { return names[number%len(names)] }
	for number := 0; number < 100; number++ {
		b.send(queues[number%2:], letter(topic, number, tag(number)))
	}
	some := b.join(b.name("tags-some"), "tags-1", topic, "TagA || Aa", false, accept)
	defer some.leave()
	r.check("all that match come", within(deliveryLimit, func() bool {
		return some.count() >= 40
	}), fmt.Sprint(some.count()))
	time.Sleep(quiet)
	counts := map[string]int{}
	for _, message := range some.all() {
		counts[message.GetTags()]++
	}
	r.equal("exactly the two tags come", map[string]int{"TagA": 20, "Aa": 20}, counts)
	r.none("content is as sent", flaws(topic, some.all(), tag))
	reader := b.newReader(topic, "NoSuchTag")
	defer func() { _ = reader.Shutdown() }()
	result, err := reader.PullFrom(context.Background(), queues[0], 0, 32)
	must(err)
	r.equal("a tag that no message has: no match", primitive.PullNoMsgMatched, result.Status)
}

func ordered(b *bench, r *report) {
	queues := b.topic("ordered", 4)
	topic, group := queues[0].Topic, b.name("ordered-group")
	const keys, each = 12, 20
	var mutex sync.Mutex
	seen := map[int][]int{}
	var suspended atomic.Int64
	judge := func(_ context.Context, message *primitive.MessageExt) consumer.ConsumeResult {
		number := numberOf(message)
		if number == 5*keys+3 && suspended.Add(1) <= 2 {
			return consumer.SuspendCurrentQueueAMoment
		}
		mutex.Lock()
		defer mutex.Unlock()
		seen[number%keys] = append(seen[number%keys], number/keys)
		return consumer.ConsumeSuccess
	}
	order := consumer.WithConsumerOrder(true)
	pause := consumer.WithSuspendCurrentQueueTimeMillis(200 * time.Millisecond)
	join := func(instance string) *member {
		return b.join(group, instance, topic, "*", false, judge, order, pause)
	}
	// One after the other: this client passes a queue to a new member only rounds of 20 s later.
	first := join("ordered-1")
	half := keys * each / 2
	b.send(queues, letters(topic, 0, half)...)
	r.check("the first half comes", within(deliveryLimit, func() bool {
		return first.count() >= half
	}), fmt.Sprint(first.count()))
	time.Sleep(quiet)
	first.leave()
	second := join("ordered-2")
	defer second.leave()
	b.send(queues, letters(topic, half, keys*each)...)
	r.check("the second half comes, the locks are free", within(deliveryLimit, func() bool {
		return second.count() >= half
	}), fmt.Sprint(second.count()))
	time.Sleep(quiet)
	all := append(first.all(), second.all()...)
	r.none("nothing lost or doubled", difference(0, keys*each, all))
	r.none("content is as sent", flaws(topic, all, letterTag))
	r.none("each key in its order", disorder(seen, each))
	r.equal("a suspended message comes again first", int64(3), suspended.Load())
}

func disorder(seen map[int][]int, each int) []string {
	var wrong []string
	for key, order := range seen {
		for place, number := range order {
			if place != number || len(order) != each {
				wrong = append(wrong, fmt.Sprint("key ", key, ": ", order))
				break
			}
		}
	}
	return wrong
}
