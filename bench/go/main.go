// The Go side of the benchmarks: one measurement per run.
//
//	requeue-bench-go SYSTEM WORKLOAD SECONDS
//
// prints {"value":…,"unit":"ns"}. Workloads have the names and the work of their
// Rust twins in ../src/workloads.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"time"
)

func main() {
	if len(os.Args) != 4 {
		fail("usage: requeue-bench-go SYSTEM WORKLOAD SECONDS")
	}
	queues, ok := systems[os.Args[1]]
	if !ok {
		fail("unknown system %q", os.Args[1])
	}
	seconds, err := strconv.ParseFloat(os.Args[3], 64)
	if err != nil {
		fail("seconds %q: %v", os.Args[3], err)
	}
	value, unit := measure(queues, os.Args[2], time.Duration(seconds*float64(time.Second)))
	line, err := json.Marshal(map[string]any{"value": value, "unit": unit})
	if err != nil {
		fail("%v", err)
	}
	fmt.Println(string(line))
}

func measure(queues constructors, workload string, budget time.Duration) (float64, string) {
	switch workload {
	case "cycle-1":
		return cycle(queues.plain(), 1, budget), "ns"
	case "cycle-1k":
		return cycle(queues.plain(), 1000, budget), "ns"
	case "cycle-100k":
		return cycle(queues.plain(), 100_000, budget), "ns"
	case "cycle-1k-fused":
		return cycleDoneThenGet(queues.plain(), 1000, budget), "ns"
	case "cycle-1k-metrics":
		return cycle(queues.metered(), 1000, budget), "ns"
	case "dedupe-hot":
		return dedupe(queues.plain(), 1, budget), "ns"
	case "dedupe-cold":
		return dedupe(queues.plain(), 100_000, budget), "ns"
	case "contended-2x2":
		return contended(queues.plain(), 2, 2, budget), "ns"
	case "contended-8x8", "contended-tokio":
		return contended(queues.plain(), 8, 8, budget), "ns"
	case "wake":
		return wake(queues.plain(), queues.plain(), budget), "ns"
	case "add-after-1m":
		return addAfter(queues.delaying, 1_000_000, budget), "ns"
	case "reschedule-1m":
		return reschedule(queues.delaying, 1_000_000, budget), "ns"
	case "timer-bytes":
		return timerBytes(queues.delaying, 1_000_000), "bytes"
	case "lateness":
		return lateness(queues.delaying, budget), "ns"
	case "retry-loop":
		return retryLoop(queues.limiting(5*time.Millisecond, 1000*time.Second), 100_000, budget), "ns"
	}
	fail("unknown workload %q", workload)
	return 0, ""
}

func fail(format string, values ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", values...)
	os.Exit(1)
}
