package requeue

import (
	"context"
	"sync"
	"time"
)

// running is a job whose handler runs.
type running struct {
	job     *Job
	handler handler
	// cancel stops the handler, with the reason.
	cancel context.CancelCauseFunc

	// The fields below are guarded by the mutex of leases.

	// endsAt is when the lease ends by the clock of the worker: counted from the time at which the
	// request was sent, so never later than at the server.
	endsAt time.Time
	// extendAt is when the lease is to be extended.
	extendAt time.Time
	// stopped is why the handler was stopped, or nil.
	stopped error
}

// leases are the leases of the running jobs of a worker. They decide what to extend and what is lost;
// keeper sends the requests.
//
//	         extendAt            endsAt
//	held ────────────▶ extended ────────▶ lost
//	  │                    │
//	  └─ lost, cancelled ──┴─ the handler returns ─▶ removed
type leases struct {
	length time.Duration

	mu sync.Mutex
	// held are the jobs whose leases are extended. A job that was lost or cancelled is not among them,
	// even if its handler still runs.
	held map[*running]struct{}
	// running are all jobs whose handlers run.
	running map[*running]struct{}
}

func newLeases(length time.Duration) *leases {
	return &leases{length: length, held: map[*running]struct{}{}, running: map[*running]struct{}{}}
}

// add adds a job that was claimed by a request sent at this time.
func (l *leases) add(r *running, sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renew(r, sent)
	l.held[r] = struct{}{}
	l.running[r] = struct{}{}
}

func (l *leases) renew(r *running, sent time.Time) {
	r.endsAt = sent.Add(l.length)
	r.extendAt = sent.Add(l.length / 3)
}

// remove removes a job whose handler has returned, and returns why it was stopped, or nil. From then
// on, no extension affects it. known is false if the job was abandoned before.
func (l *leases) remove(r *running) (stopped error, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, known = l.running[r]
	delete(l.held, r)
	delete(l.running, r)
	return r.stopped, known
}

// abandon removes all jobs: those whose handlers have not returned in time. Their leases expire.
func (l *leases) abandon() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.held)
	clear(l.running)
}

// stop stops the handler of a job. A reason of the server replaces one of the worker: a lost lease is
// final, and the job of a handler that has timed out may be cancelled.
func (l *leases) stop(r *running, reason error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopLocked(r, reason)
}

func (l *leases) stopLocked(r *running, reason error) {
	if reason == ErrLeaseLost || reason == ErrCancelled {
		delete(l.held, r)
		r.stopped = reason
	} else if r.stopped == nil {
		r.stopped = reason
	}
	r.cancel(reason)
}

// stopAll stops all handlers, and returns how many there are.
func (l *leases) stopAll(reason error) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	for r := range l.running {
		l.stopLocked(r, reason)
	}
	return len(l.running)
}

// check returns the jobs whose leases are to be extended, and those whose leases have ended by the
// clock of the worker. The latter are stopped. It also returns when to check again.
func (l *leases) check(now time.Time) (due, lost []*running, next time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// At the latest after a tenth of a lease, to notice new jobs.
	next = now.Add(l.length / 10)
	for r := range l.held {
		switch {
		case !now.Before(r.endsAt):
			l.stopLocked(r, ErrLeaseLost)
			lost = append(lost, r)
			continue
		case !now.Before(r.extendAt):
			due = append(due, r)
		case r.extendAt.Before(next):
			next = r.extendAt
		}
		if r.endsAt.Before(next) {
			next = r.endsAt
		}
	}
	return due, lost, next
}

// extended applies the result of an extension that was sent at this time. It returns whether the lease
// of a running job was lost.
func (l *leases) extended(r *running, sent, now time.Time, outcome SettleOutcome, lost bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, held := l.held[r]; !held {
		// The handler has returned in the meantime, and the job may be settled already.
		return false
	}
	switch {
	case lost:
		l.stopLocked(r, ErrLeaseLost)
		return true
	case outcome == SettledCancelled:
		l.stopLocked(r, ErrCancelled)
	case outcome == SettledExtended:
		l.renew(r, sent)
	default:
		// Try again every tenth of the lease.
		r.extendAt = now.Add(l.length / 10)
	}
	return false
}
