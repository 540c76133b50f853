package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"time"
)

// client-go's AddAfter hands keys to a goroutine and returns. A last key that is
// due immediately comes out only after all before it have been received; without it the
// work would not be counted.
func absorb(q delayingQueue, sentinel string) {
	q.AddAfter(sentinel, 1)
	key, _ := q.Get()
	if key != sentinel {
		panic(fmt.Sprintf("%q became due during the measurement", key))
	}
	q.Done(key)
}

func addAll(q delayingQueue, keys []string, delays []time.Duration, sentinel string) {
	for i, key := range keys {
		q.AddAfter(key, delays[i])
	}
	absorb(q, sentinel)
}

// n timers that become due long after the end, and the same with 9/10 of the delay.
func timers(n int) (keys []string, delays, sooner []time.Duration) {
	delays = makeDelays(n, time.Minute, time.Hour)
	sooner = make([]time.Duration, n)
	for i, delay := range delays {
		sooner[i] = delay / 10 * 9
	}
	return makeKeys(n), delays, sooner
}

func addAfter(newQueue func() delayingQueue, n int, budget time.Duration) float64 {
	keys, delays, _ := timers(n)
	pass := func(n int) time.Duration {
		q := newQueue()
		defer q.ShutDown()
		started := time.Now()
		addAll(q, keys[:n], delays[:n], "all added")
		return time.Since(started)
	}
	pass(n / 10)
	return passes(n, budget, func() time.Duration { return pass(n) })
}

func reschedule(newQueue func() delayingQueue, n int, budget time.Duration) float64 {
	keys, delays, sooner := timers(n)
	pass := func(n int) time.Duration {
		q := newQueue()
		defer q.ShutDown()
		addAll(q, keys[:n], delays[:n], "all added")
		started := time.Now()
		addAll(q, keys[:n], sooner[:n], "all moved")
		return time.Since(started)
	}
	pass(n / 10)
	return passes(n, budget, func() time.Duration { return pass(n) })
}

// Live heap per pending timer; the keys exist before.
func timerBytes(newQueue func() delayingQueue, n int) float64 {
	keys, delays, _ := timers(n)
	before := heap()
	q := newQueue()
	addAll(q, keys, delays, "all added")
	after := heap()
	runtime.KeepAlive(q)
	runtime.KeepAlive(keys)
	runtime.KeepAlive(delays)
	return float64(after-before) / float64(n)
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	debug.FreeOSMemory()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// The median of how late a getter receives a timer, at 2000 timers per second.
func lateness(newQueue func() delayingQueue, budget time.Duration) float64 {
	medianLateness(newQueue(), 100*time.Millisecond) // warm-up
	return medianLateness(newQueue(), budget)
}

func medianLateness(q delayingQueue, over time.Duration) float64 {
	n := max(int(over/(500*time.Microsecond)), 1)
	keys := makeKeys(n)
	delays := makeDelays(n, 50*time.Millisecond, over)
	due := make(map[string]time.Time, n)
	type arrival struct {
		key string
		at  time.Time
	}
	arrivals := make([]arrival, 0, n)
	finished := make(chan struct{})
	go func() {
		for range n {
			key, _ := q.Get()
			arrivals = append(arrivals, arrival{key, time.Now()})
			q.Done(key)
		}
		close(finished)
	}()
	for i, key := range keys {
		due[key] = time.Now().Add(delays[i])
		q.AddAfter(key, delays[i])
	}
	<-finished
	late := make([]int64, n)
	for i, arrival := range arrivals {
		late[i] = arrival.at.Sub(due[arrival.key]).Nanoseconds()
	}
	slices.Sort(late)
	return float64(late[n/2])
}

// A worker that fails each key once, and succeeds when it comes back.
func retryLoop(q limitingQueue, n int, budget time.Duration) float64 {
	for _, key := range makeKeys(n) {
		q.Add(key)
	}
	m := meter{budget: budget}
	for m.more(batch) {
		for range batch {
			key, _ := q.Get()
			if q.NumRequeues(key) == 0 {
				q.AddRateLimited(key)
			} else {
				q.Forget(key)
				q.Add(key)
			}
			q.Done(key)
		}
	}
	return m.nsPerOp()
}
