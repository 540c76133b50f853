// The Go side of the benchmarks: one measurement per run.
//
//	requeue-bench-go SYSTEM WORKLOAD SECONDS
//
// prints {"value":…,"unit":"ns"}. Workloads have the names and the work of their
// Rust counterparts in ../src/workloads.
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
	seconds, err := strconv.ParseFloat(os.Args[3], 64)
	if err != nil {
		fail("seconds %q: %v", os.Args[3], err)
	}
	value, unit := measure(os.Args[1], os.Args[2], time.Duration(seconds*float64(time.Second)))
	line, err := json.Marshal(map[string]any{"value": value, "unit": unit})
	if err != nil {
		fail("%v", err)
	}
	fmt.Println(string(line))
}

func measure(system, workload string, budget time.Duration) (float64, string) {
	if workload == "timer-bytes" {
		return timerBytes(newDelaying, 1_000_000), "bytes"
	}
	var ns float64
	switch system {
	case "client-go":
		ns = clientGo(workload, budget)
	case "controller-runtime":
		ns = controllerRuntime(workload, budget)
	default:
		fail("unknown system %q", system)
	}
	return ns, "ns"
}

// A workload uses the same layer as its Rust counterpart, and no more.
func clientGo(workload string, budget time.Duration) float64 {
	switch workload {
	case "cycle-1":
		return cycle(newPlain(), 1, budget)
	case "cycle-1k":
		return cycle(newPlain(), 1000, budget)
	case "cycle-100k":
		return cycle(newPlain(), 100_000, budget)
	case "cycle-1k-fused":
		return cycleDoneThenGet(newPlain(), 1000, budget)
	case "cycle-1k-metrics":
		return cycle(newMetered(), 1000, budget)
	case "dedupe-hot":
		return dedupe(newPlain(), 1, budget)
	case "dedupe-cold":
		return dedupe(newPlain(), 100_000, budget)
	case "contended-2x2":
		return contended(newPlain(), 2, 2, budget)
	case "contended-8x8", "contended-tokio":
		return contended(newPlain(), 8, 8, budget)
	case "wake":
		return wake(newPlain(), newPlain(), budget)
	case "add-after-1m":
		return addAfter(newDelaying, 1_000_000, budget)
	case "reschedule-1m":
		return reschedule(newDelaying, 1_000_000, budget)
	case "lateness":
		return lateness(newDelaying, budget)
	case "retry-loop":
		return retryLoop(newLimiting(5*time.Millisecond, 1000*time.Second), 100_000, budget)
	}
	fail("client-go has no workload %q", workload)
	return 0
}

func controllerRuntime(workload string, budget time.Duration) float64 {
	switch workload {
	case "priority-cycle":
		return priorityCycle(1000, budget)
	case "priority-contended":
		return contended(newPrioritized(), 2, 2, budget)
	case "priority-add-after":
		return addAfter(func() delayingQueue { return newPrioritized() }, 1_000_000, budget)
	case "worker-threads", "worker-tokio":
		return worker(1, budget)
	case "worker-threads-4", "worker-tokio-4":
		return worker(4, budget)
	}
	fail("controller-runtime has no workload %q", workload)
	return 0
}

func fail(format string, values ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", values...)
	os.Exit(1)
}
