package requeue

import (
	"context"
	"runtime"
	"sync"
)

// slots are the places for running handlers.
type slots struct {
	mu   sync.Mutex
	free int
	size int
	// changed has an element if a slot may have become free, or a job was settled.
	changed chan struct{}
}

func newSlots(size int) *slots {
	return &slots{free: size, size: size, changed: make(chan struct{}, 1)}
}

// take takes all free slots, and returns how many. It waits until there is one and ready returns true.
// It returns 0 if the context ends.
func (s *slots) take(ctx context.Context, ready func() bool) int {
	for ctx.Err() == nil {
		if ready() {
			s.gather()
			s.mu.Lock()
			free := min(s.free, maxBatch)
			s.free -= free
			s.mu.Unlock()
			if free > 0 {
				return free
			}
		}
		select {
		case <-ctx.Done():
		case <-s.changed:
		}
	}
	return 0
}

// gather lets handlers that are about to return do so, as long as that frees slots. Otherwise, a
// worker with short handlers would claim its jobs one by one: after each claim, it would find that the
// first handler has returned.
func (s *slots) gather() {
	for before := -1; ; {
		s.mu.Lock()
		free := s.free
		s.mu.Unlock()
		if free == before || free == s.size {
			return
		}
		before = free
		runtime.Gosched()
	}
}

// give returns slots.
func (s *slots) give(count int) {
	s.mu.Lock()
	s.free += count
	s.mu.Unlock()
	notify(s.changed)
}

// settled wakes take: there may be fewer jobs to settle.
func (s *slots) settled() { notify(s.changed) }

// idle returns whether no handler runs.
func (s *slots) idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.free == s.size
}

// wait waits until no handler runs, or the context ends.
func (s *slots) wait(ctx context.Context) {
	for !s.idle() {
		select {
		case <-ctx.Done():
			return
		case <-s.changed:
		}
	}
}
