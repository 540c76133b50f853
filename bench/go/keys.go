package main

import (
	"fmt"
	"time"
)

// splitmix64: the same numbers in Go, Rust and Java, with three lines each.
type numbers uint64

func (r *numbers) next() uint64 {
	*r += 0x9E3779B97F4A7C15
	z := uint64(*r)
	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
	z = (z ^ (z >> 27)) * 0x94D049BB133111EB
	return z ^ (z >> 31)
}

// The keys of all systems, in a different order from their order in memory.
func makeKeys(n int) []string {
	r := numbers(42)
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("namespace-%d/pod-%06x-%04d", i%97, r.next()%(1<<24), i)
	}
	for i := n - 1; i > 0; i-- {
		j := r.next() % uint64(i+1)
		keys[i], keys[j] = keys[j], keys[i]
	}
	return keys
}

// Delays in [from, from + spread).
func makeDelays(n int, from, spread time.Duration) []time.Duration {
	r := numbers(7)
	delays := make([]time.Duration, n)
	for i := range delays {
		delays[i] = from + time.Duration(r.next()%uint64(spread))
	}
	return delays
}
