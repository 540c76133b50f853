package main

import (
	"runtime"
	"time"
)

// The number of operations between two reads of the clock.
const batch = 1024

// A meter times batches of operations, after a warm-up.
type meter struct {
	budget    time.Duration
	started   time.Time
	measuring bool
	ops       int
	elapsed   time.Duration
}

// Returns whether to run one more batch of ops operations.
func (m *meter) more(ops int) bool {
	now := time.Now()
	if m.started.IsZero() {
		m.started = now
		return true
	}
	m.ops += ops
	m.elapsed = now.Sub(m.started)
	if !m.measuring {
		if m.elapsed >= warmUp(m.budget) {
			*m = meter{budget: m.budget, started: now, measuring: true}
		}
		return true
	}
	return m.elapsed < m.budget
}

func (m *meter) nsPerOp() float64 {
	return float64(m.elapsed.Nanoseconds()) / float64(m.ops)
}

func warmUp(budget time.Duration) time.Duration {
	return max(budget/4, 30*time.Millisecond)
}

// Repeats a pass of n operations, which times itself, until the budget is spent;
// returns nanoseconds per operation.
func passes(n int, budget time.Duration, pass func() time.Duration) float64 {
	var elapsed time.Duration
	ops := 0
	for ops == 0 || elapsed < budget {
		runtime.GC() // what the last pass left behind is not this one's
		elapsed += pass()
		ops += n
	}
	return float64(elapsed.Nanoseconds()) / float64(ops)
}
