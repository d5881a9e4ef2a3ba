package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
)

const (
	timerLateMs = 4000 // RocketMQ reads a slot after its second has ended
	farMs       = 4 * 24 * 3_600_000
	seconds     = "TIMER_DELAY_SEC"
	delayMs     = "TIMER_DELAY_MS"
	deliverMs   = "TIMER_DELIVER_MS"
)

// timed is a message: its delay, and the property that sets it. A deliverMs counts from now.
type timed struct {
	dueMs      int64
	properties map[string]int64
}

// timers sends each property, two at once, past times, and values that are refused.
func timers(b *bench, r *report) {
	queues := b.topic("timers", 1)
	topic := queues[0].Topic
	cases := []timed{
		{3000, map[string]int64{deliverMs: 3000}},
		{3000, map[string]int64{delayMs: 3000}},
		{3000, map[string]int64{seconds: 3}},
		{2000, map[string]int64{seconds: 2, delayMs: 60_000, deliverMs: 60_000}},
		{2000, map[string]int64{delayMs: 2000, deliverMs: 60_000}},
		{0, map[string]int64{deliverMs: -10_000}},
		{0, map[string]int64{delayMs: 0}},
	}
	due := map[int]int64{}
	for number, one := range cases {
		message, now := letter(topic, number, letterTag(number)), time.Now().UnixMilli()
		for name, value := range one.properties {
			if name == deliverMs {
				value += now
			}
			message.WithProperty(name, strconv.FormatInt(value, 10))
		}
		due[number] = now + one.dueMs
		b.send(queues, message)
	}
	var wrong []string
	for name, text := range map[string]string{
		deliverMs: strconv.FormatInt(time.Now().UnixMilli()+farMs, 10),
		delayMs:   "soon",
		seconds:   strconv.Itoa(farMs / 1000),
	} {
		message := letter(topic, 1000, letterTag(1000))
		message.Queue = queues[0]
		message.WithProperty(name, text)
		result, err := b.producer.SendSync(context.Background(), message)
		if err == nil && result.Status == primitive.SendOK {
			wrong = append(wrong, name+" "+text)
		}
	}
	r.none("what is too far ahead, or no number, is refused", wrong)
	b.readUntil(len(cases), queues...)
	time.Sleep(quiet)
	got := b.readUntil(0, queues...)
	r.none("each comes once", difference(0, len(cases), got))
	r.none("content is as sent", flaws(topic, got, letterTag))
	wrong = nil
	for _, message := range got {
		late := message.StoreTimestamp - due[numberOf(message)]
		if late < 0 || late > timerLateMs {
			wrong = append(wrong, fmt.Sprintf("%d came %d ms behind its time", numberOf(message), late))
		}
	}
	r.none("each at its time", wrong)
}
