package main

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"sync"
	"time"
)

const detailMax = 2000

var printing sync.Mutex

// report prints the checks of a scenario, each at once as one JSON line.
type report struct {
	scenario  string
	arguments []string
	started   time.Time
	failed    int
}

func newReport(spec string) *report {
	name, arguments, _ := strings.Cut(spec, ":")
	return &report{scenario: name, arguments: strings.Split(arguments, ","), started: time.Now()}
}

func (r *report) check(what string, ok bool, detail string) {
	if ok {
		detail = ""
	} else {
		r.failed++
	}
	r.print("check", what, ok, detail)
}

func (r *report) equal(what string, expected, actual any) {
	r.check(what, reflect.DeepEqual(expected, actual),
		fmt.Sprintf("expected %v, got %v", expected, actual))
}

// none checks that no flaw was collected and shows the first few.
func (r *report) none(what string, flaws []string) {
	r.check(what, len(flaws) == 0, fmt.Sprintf("%d flaws, first %v", len(flaws),
		flaws[:min(5, len(flaws))]))
}

func (r *report) done() {
	r.print("done", "the scenario ended", r.failed == 0, "")
}

func (r *report) print(kind, what string, ok bool, detail string) {
	line, err := json.Marshal(map[string]any{
		"scenario": r.scenario, "kind": kind, "what": what, "ok": ok,
		"after_ms": time.Since(r.started).Milliseconds(),
		"detail":   detail[:min(detailMax, len(detail))],
	})
	if err != nil {
		panic(err)
	}
	printing.Lock()
	defer printing.Unlock()
	fmt.Fprintln(os.Stdout, string(line))
}
