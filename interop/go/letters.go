package main

import (
	"bytes"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"sync"

	"github.com/apache/rocketmq-client-go/v2/primitive"
)

var tagNames = []string{"TagA", "TagB", "TagC"}

// letterBody depends only on the number, so the receiver can check the body by itself.
func letterBody(topic string, number int) []byte {
	body := []byte(fmt.Sprintf("%s letter %d ", topic, number))
	noise := uint32(number)*2654435761 + 12345
	for i := 0; i < number*37%300; i++ {
		noise = noise*1664525 + 1013904223
		body = append(body, byte(noise>>24))
	}
	return body
}

func letterTag(number int) string {
	return tagNames[number%len(tagNames)]
}

func letter(topic string, number int, tag string) *primitive.Message {
	message := primitive.NewMessage(topic, letterBody(topic, number))
	if tag != "" {
		message.WithTag(tag)
	}
	message.WithKeys([]string{fmt.Sprintf("key-%d", number)})
	message.WithProperty("number", strconv.Itoa(number))
	message.WithProperty("label", fmt.Sprintf("the label of %d", number))
	message.Flag = int32(number)
	return message
}

func letters(topic string, from, to int) []*primitive.Message {
	var all []*primitive.Message
	for number := from; number < to; number++ {
		all = append(all, letter(topic, number, letterTag(number)))
	}
	return all
}

func numberOf(message *primitive.MessageExt) int {
	number, err := strconv.Atoi(message.GetProperty("number"))
	if err != nil {
		return -1
	}
	return number
}

// flaws describes the faults of received letters; tag returns the tag each was sent with.
func flaws(topic string, got []*primitive.MessageExt, tag func(int) string) []string {
	var found []string
	for _, message := range got {
		number := numberOf(message)
		ok := number >= 0 && bytes.Equal(message.Body, letterBody(topic, number)) &&
			message.GetTags() == tag(number) &&
			strings.TrimSpace(message.GetKeys()) == fmt.Sprintf("key-%d", number) &&
			message.GetProperty("label") == fmt.Sprintf("the label of %d", number) &&
			message.Flag == int32(number)
		if !ok {
			found = append(found, message.String())
		}
	}
	return found
}

// difference describes how the numbers from..to-1 differ from the received ones.
func difference(from, to int, got []*primitive.MessageExt) []string {
	counts := map[int]int{}
	for _, message := range got {
		counts[numberOf(message)]++
	}
	var found []string
	for number := from; number < to; number++ {
		if counts[number] != 1 {
			found = append(found, fmt.Sprintf("%d came %d times", number, counts[number]))
		}
		delete(counts, number)
	}
	for number, count := range counts {
		found = append(found, fmt.Sprintf("not expected %d x%d", number, count))
	}
	sort.Strings(found)
	return found
}

// box collects messages from several goroutines.
type box struct {
	mutex    sync.Mutex
	messages []*primitive.MessageExt
}

func (b *box) add(messages ...*primitive.MessageExt) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.messages = append(b.messages, messages...)
}

func (b *box) all() []*primitive.MessageExt {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return append([]*primitive.MessageExt(nil), b.messages...)
}

func (b *box) count() int {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return len(b.messages)
}
