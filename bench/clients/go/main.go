// Jobs per second of a worker with an empty handler: requeue's client for Go, and asynq.
//
//	drain --system requeue|asynq --jobs N --concurrency C
//
// Puts N empty jobs, and then runs a worker until all of them are removed from the queue. Prints one
// line of JSON with the seconds from the start of the first handler until then, and the CPU time of
// this process in between. The servers must be running: REQUEUE_SERVER, and REDIS_URL for asynq.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// system is a queue with a worker.
type system interface {
	// put puts this many empty jobs.
	put(jobs int)
	// run runs a worker and calls handled for each job, until all jobs are removed.
	run(jobs, concurrency int, handled func())
}

func main() {
	name := flag.String("system", "requeue", "requeue or asynq")
	jobs := flag.Int("jobs", 20_000, "number of jobs")
	concurrency := flag.Int("concurrency", 10, "number of handlers that run at the same time")
	flag.Parse()
	var system system
	switch *name {
	case "requeue":
		system = newRequeue()
	case "asynq":
		system = newAsynq()
	default:
		fmt.Fprintf(os.Stderr, "there is no system %q\n", *name)
		os.Exit(2)
	}
	system.put(*jobs)

	var (
		once  sync.Once
		began time.Time
		used  time.Duration
	)
	system.run(*jobs, *concurrency, func() {
		once.Do(func() { began, used = time.Now(), processorTime() })
	})
	seconds, processor := time.Since(began).Seconds(), (processorTime() - used).Seconds()
	check(json.NewEncoder(os.Stdout).Encode(map[string]any{
		"system": *name, "jobs": *jobs, "seconds": seconds, "cpu_seconds": processor,
	}))
}

// countDown returns a function that calls done when it is called for the last of the jobs.
func countDown(jobs int, done func()) func() {
	var left atomic.Int64
	left.Store(int64(jobs))
	return func() {
		if left.Add(-1) == 0 {
			done()
		}
	}
}

// processorTime returns the CPU time of this process.
func processorTime() time.Duration {
	var usage syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
