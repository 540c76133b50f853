package requeue

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

const (
	// maxBatch is how many entries the server accepts in a batch.
	maxBatch = 1000
	// maxResults limits the results in a request. The server accepts 16 MiB.
	maxResults = 8 << 20
	// interval is the shortest time between the starts of two requests. A busy worker then settles more
	// jobs per request; one that has time settles each job immediately.
	interval = 2 * time.Millisecond
	// maxPause limits the pause before a settlement is repeated.
	maxPause = time.Second
)

// unsettled is a job whose handler has ended and that is not settled yet.
type unsettled struct {
	ending
	job *Job
	// cancelled is whether the job is known to be cancelled, so that its lease may be gone.
	cancelled bool
	// until is when the worker gives up: a lease after the first attempt to settle the job.
	until time.Time
	// again is when the settlement is sent again, and pause how long that was delayed.
	again time.Time
	pause time.Duration
	// uncertain is whether the outcome of an earlier request is unknown.
	uncertain bool
}

// settler settles jobs. There is one request at a time: jobs that end while it is in flight are
// collected for the next.
type settler struct {
	run *run

	mu sync.Mutex
	// fresh are the jobs that were not sent yet, oldest first.
	fresh []*unsettled
	// repeated are the jobs whose settlement is to be repeated.
	repeated []*unsettled
	// count is the number of jobs that are not settled yet, including those in flight.
	count  int
	closed bool
	// wake has an element if there is something new to do.
	wake chan struct{}
}

func newSettler(run *run) *settler {
	return &settler{run: run, wake: make(chan struct{}, 1)}
}

// add settles a job.
func (s *settler) add(u *unsettled) {
	u.until = time.Now().Add(s.run.options.Lease)
	s.mu.Lock()
	s.fresh = append(s.fresh, u)
	s.count++
	s.mu.Unlock()
	notify(s.wake)
}

// close lets loop return as soon as all jobs are settled.
func (s *settler) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	notify(s.wake)
}

// backlog returns how many jobs are not settled yet.
func (s *settler) backlog() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count
}

// loop settles jobs until the settler is closed and all are settled.
func (s *settler) loop() {
	for {
		batch, next, over := s.take(time.Now())
		if over {
			return
		}
		if len(batch) > 0 {
			began := time.Now()
			s.settle(batch)
			time.Sleep(interval - time.Since(began))
			continue
		}
		if next.IsZero() {
			<-s.wake
			continue
		}
		timer := time.NewTimer(time.Until(next))
		select {
		case <-s.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// take returns the jobs to settle now. If there are none, it returns when the next is due to be
// repeated, and whether the settler is done.
func (s *settler) take(now time.Time) (batch []*unsettled, next time.Time, over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	size := 0
	// add adds a job to the batch, unless the batch is full.
	add := func(u *unsettled) bool {
		if result := u.settlement.Job.result; result != nil {
			size += result.size()
		}
		if len(batch) == maxBatch || size > maxResults {
			return false
		}
		batch = append(batch, u)
		return true
	}
	waiting := s.repeated[:0]
	for _, u := range s.repeated {
		if now.Before(u.again) || !add(u) {
			waiting = append(waiting, u)
			if next.IsZero() || u.again.Before(next) {
				next = u.again
			}
		}
	}
	s.repeated = waiting
	taken := 0
	for taken < len(s.fresh) && add(s.fresh[taken]) {
		taken++
	}
	s.fresh = slices.Delete(s.fresh, 0, taken)
	return batch, next, s.closed && len(batch) == 0 && len(s.repeated) == 0
}

// settle sends one request.
func (s *settler) settle(batch []*unsettled) {
	// A request that hangs must leave time to repeat it.
	ctx, cancel := context.WithTimeout(context.Background(), max(s.run.options.Lease/3, 5*time.Second))
	defer cancel()
	settlements := make([]Settlement, len(batch))
	for i, u := range batch {
		settlements[i] = u.settlement
	}
	results, err := s.run.client.Settle(ctx, settlements)
	if err != nil {
		s.run.report.error("settle jobs", err)
	}
	now := time.Now()
	var repeated []*unsettled
	for i, u := range batch {
		result := SettleResult{Err: err}
		if err == nil {
			result = results[i]
		}
		if s.conclude(u, result, err != nil, now) {
			repeated = append(repeated, u)
		}
	}
	s.mu.Lock()
	s.repeated = append(s.repeated, repeated...)
	s.count -= len(batch) - len(repeated)
	s.mu.Unlock()
	s.run.slots.settled()
}

// conclude reports the result of a settlement. whole is whether the whole request failed. It returns
// whether the settlement is to be repeated.
func (s *settler) conclude(u *unsettled, result SettleResult, whole bool, now time.Time) (again bool) {
	switch {
	case result.Err == nil:
		if u.failure != nil && result.Outcome == SettledDead {
			s.run.report.failure(u.job, u.failure, NextDead)
		} else if u.failure != nil && result.Outcome == SettledRetry {
			s.run.report.failure(u.job, u.failure, NextRetry)
		}
		return false
	case errors.Is(result.Err, ErrLeaseLost):
		s.lost(u)
		return false
	case errors.Is(result.Err, ErrOutcomeUnknown):
		u.uncertain = true
	case errors.Is(result.Err, ErrNotDone) || whole:
		// A rejection of the whole request is not about this job: the token may have expired.
	default:
		return s.rejected(u, result.Err)
	}
	if !now.Before(u.until) {
		s.lost(u)
		return false
	}
	u.pause = min(max(u.pause*2, firstPause), maxPause)
	u.again = now.Add(vary(u.pause))
	return true
}

// lost reports a job whose lease is gone, unless an earlier request may have settled it.
func (s *settler) lost(u *unsettled) {
	if u.uncertain && u.failure != nil {
		s.run.report.failure(u.job, u.failure, NextUnknown)
	} else if !u.uncertain && !u.cancelled {
		s.run.report.lost(u.job)
	}
}

// rejected handles a settlement that the server will never accept, such as a delay beyond its limit. It
// returns whether there is another: the job is retried, with the problem as its error, so that it does
// not have to wait for the end of its lease.
func (s *settler) rejected(u *unsettled, err error) (again bool) {
	s.run.report.error("settle a job", err)
	if u.settlement.Verb == VerbRelease || u.settlement.Verb == VerbRetry && u.settlement.Delay == nil {
		return false
	}
	u.ending = failed(u.job, err)
	return true
}

// notify adds an element to a channel with room for one, unless it has one.
func notify(channel chan struct{}) {
	select {
	case channel <- struct{}{}:
	default:
	}
}
