package main

import (
	"time"

	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)

// Three priorities. AddOpts takes their addresses, which cost nothing here.
var priorities = [3]int{0, 1, 2}

// A priorityqueue whose keys have one of three priorities each, by their last digit.
type prioritized struct {
	priorityqueue.PriorityQueue[string]
}

// Without a name it has no metrics.
func newPrioritized() prioritized {
	return prioritized{priorityqueue.New[string]("")}
}

func priorityOf(key string) *int {
	return &priorities[key[len(key)-1]%3]
}

func (q prioritized) Add(key string) {
	q.AddWithOpts(priorityqueue.AddOpts{Priority: priorityOf(key)}, key)
}

func (q prioritized) AddAfter(key string, delay time.Duration) {
	q.AddWithOpts(priorityqueue.AddOpts{After: delay, Priority: priorityOf(key)}, key)
}

// Like cycle, but each add uses another priority: if a key kept its own, only those with
// the highest would cycle.
func priorityCycle(n int, budget time.Duration) float64 {
	q := newPrioritized()
	next := 0
	add := func(key string) {
		q.AddWithOpts(priorityqueue.AddOpts{Priority: &priorities[next]}, key)
		next = (next + 1) % len(priorities)
	}
	for _, key := range makeKeys(n) {
		add(key)
	}
	m := meter{budget: budget}
	for m.more(batch) {
		for range batch {
			key, _ := q.Get()
			q.Done(key)
			add(key)
		}
	}
	return m.nsPerOp()
}
