// Command interop runs scenarios of RocketMQ's Go clients side by side against one broker group.
//
// Arguments: NAMESRV BROKER PREFIX SCENARIO[:ARGUMENT[,ARGUMENT]]... where PREFIX starts every topic
// and group name of the run, for the client of remoting; `grpc` ENDPOINTS SCENARIO... for gRPC's
// client (proxied.go). Each check is one JSON line; the exit code is 0 if all checks passed.
package main

import (
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/apache/rocketmq-client-go/v2/rlog"
)

type scenario func(bench *bench, report *report)

var scenarios = map[string]scenario{
	"send-sync":           sendSync,
	"send-async":          sendAsync,
	"send-oneway":         sendOneWay,
	"send-batch":          sendBatch,
	"big-message":         bigMessage,
	"chinese":             chinese,
	"push-cluster":        pushCluster,
	"push-broadcast":      pushBroadcast,
	"tag-filter":          tagFilter,
	"ordered":             ordered,
	"retry-dlq":           retryThenDeadLetter,
	"delay":               delay,
	"pull":                pull,
	"transactions":        transactions,
	"transactions-living": livingTransactions,
	"timers":              timers,
	"sql-filter":          sqlFilter,
	"through-kills":       throughKills,
}

func main() {
	if os.Args[1] == "grpc" {
		os.Exit(proxied(os.Args[2], os.Args[3:]))
	}
	rlog.SetLogLevel("warn")
	if err := rlog.SetOutputPath("rocketmq-client-go.log"); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	bench, err := newBench(os.Args[1], os.Args[2], os.Args[3])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	var running sync.WaitGroup
	reports := make([]*report, len(os.Args)-4)
	for i, name := range os.Args[4:] {
		reports[i] = newReport(name)
		running.Add(1)
		go func(report *report) {
			defer running.Done()
			run(bench, report)
		}(reports[i])
	}
	running.Wait()
	bench.close()
	for _, report := range reports {
		if report.failed > 0 {
			os.Exit(1)
		}
	}
}

func run(bench *bench, report *report) {
	defer report.done()
	defer crashed(report)
	body, known := scenarios[report.scenario]
	if !known {
		panic("no scenario of this name; there are " + strings.Join(os.Args[4:], " "))
	}
	body(bench, report)
}

// crashed turns a panic of the scenario that defers it into a failed check.
func crashed(report *report) {
	if problem := recover(); problem != nil {
		report.check("runs to its end", false, fmt.Sprint(problem))
	}
}
