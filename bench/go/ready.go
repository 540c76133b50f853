package main

import (
	"sync/atomic"
	"time"
)

// n keys cycle: get, done, add.
func cycle(q plainQueue, n int, budget time.Duration) float64 {
	for _, key := range makeKeys(n) {
		q.Add(key)
	}
	m := meter{budget: budget}
	for m.more(batch) {
		for range batch {
			key, _ := q.Get()
			q.Done(key)
			q.Add(key)
		}
	}
	return m.nsPerOp()
}

// Like cycle, in the order of a worker that finishes a key and gets the next one.
func cycleDoneThenGet(q plainQueue, n int, budget time.Duration) float64 {
	for _, key := range makeKeys(n) {
		q.Add(key)
	}
	key, _ := q.Get()
	m := meter{budget: budget}
	for m.more(batch) {
		for range batch {
			done := key
			q.Done(done)
			key, _ = q.Get()
			q.Add(done)
		}
	}
	return m.nsPerOp()
}

// Adds keys that are already ready.
func dedupe(q plainQueue, n int, budget time.Duration) float64 {
	keys := makeKeys(n)
	for _, key := range keys {
		q.Add(key)
	}
	next := 0
	m := meter{budget: budget}
	for m.more(batch) {
		for range batch {
			q.Add(keys[next])
			next++
			if next == n {
				next = 0
			}
		}
	}
	return m.nsPerOp()
}

// Counts finished keys, and notifies the receiver when a round of all keys is over.
type tally struct {
	keys  int64
	count atomic.Int64
	round chan struct{}
}

func newTally(keys int64) *tally {
	return &tally{keys: keys, round: make(chan struct{}, 1)}
}

func (t *tally) finished() {
	if t.count.Add(1)%t.keys == 0 {
		t.round <- struct{}{}
	}
}

// Producers add 100k keys once each, while consumers get and finish them.
func contended(q plainQueue, producers, consumers int, budget time.Duration) float64 {
	const n = 100_000
	keys := makeKeys(n)
	count := newTally(n)
	for range consumers {
		go func() {
			for {
				key, shutDown := q.Get()
				if shutDown {
					return
				}
				q.Done(key)
				count.finished()
			}
		}()
	}
	m := meter{budget: budget}
	for m.more(n) {
		for p := range producers {
			go func() {
				for i := p; i < n; i += producers {
					q.Add(keys[i])
				}
			}()
		}
		<-count.round
	}
	return m.nsPerOp()
}

// One key goes back and forth between two goroutines through two queues.
func wake(there, back plainQueue, budget time.Duration) float64 {
	go func() {
		for {
			key, _ := there.Get()
			there.Done(key)
			back.Add(key)
		}
	}()
	key := makeKeys(1)[0]
	m := meter{budget: budget}
	for m.more(batch) {
		for range batch {
			there.Add(key)
			key, _ := back.Get()
			back.Done(key)
		}
	}
	return m.nsPerOp()
}
