package requeue

import (
	"context"
	"errors"
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

const (
	// pauseAfterError is the pause before a claim is repeated.
	pauseAfterError = time.Second
	// waitForJobs is how long a request waits for jobs.
	waitForJobs = 30 * time.Second
	// stopTime is how long handlers have to return after they were stopped, and a claim after the
	// worker was asked to stop.
	stopTime = 5 * time.Second
)

// run is a worker that is running.
type run struct {
	client   *Client
	options  *WorkerOptions
	handlers map[string]handler
	kinds    []string
	leases   *leases
	slots    *slots
	settler  *settler
	report   *report
}

// Run claims jobs and runs their handlers until ctx is cancelled. Then it claims no more jobs and waits
// for up to Grace for running handlers, whose jobs are settled as usual. After that it stops the
// handlers, and waits for up to 5 s.
//
// The context of a handler has the values of ctx, but is not cancelled with it.
//
// Run returns the number of jobs whose handlers were stopped by the shutdown. It returns an error if
// the first claim is rejected, for example because the token is invalid, or if there are no handlers.
func (w *Worker) Run(ctx context.Context) (stopped int, err error) {
	return w.run(ctx, make(chan struct{}))
}

// run is Run, which stops handlers when hurry is closed, even if Grace is not over.
func (w *Worker) run(ctx context.Context, hurry <-chan struct{}) (stopped int, err error) {
	if len(w.handlers) == 0 {
		return 0, errors.New("requeue: the worker has no handlers")
	}
	r := &run{
		client: w.client, options: &w.options, handlers: w.handlers,
		leases: newLeases(w.options.Lease), slots: newSlots(w.options.Concurrency),
		report: &report{options: &w.options},
	}
	r.settler = newSettler(r)
	for kind := range w.handlers {
		r.kinds = append(r.kinds, kind)
	}
	slices.Sort(r.kinds)

	keeping, stopKeeping := context.WithCancel(context.Background())
	var background sync.WaitGroup
	background.Add(2)
	go func() { defer background.Done(); r.keep(keeping) }()
	go func() { defer background.Done(); r.settler.loop() }()

	claiming, stopClaiming := context.WithCancel(context.WithoutCancel(ctx))
	defer context.AfterFunc(ctx, func() {
		select {
		case <-hurry:
		case <-time.After(stopTime):
		case <-claiming.Done():
		}
		stopClaiming()
	})()
	err = r.claimLoop(ctx, claiming)
	stopClaiming()
	stopped = r.shutdown(hurry)
	stopKeeping()
	r.settler.close()
	background.Wait()
	return stopped, err
}

// shutdown waits for running handlers, and stops those that take too long. It returns how many were
// stopped.
func (r *run) shutdown(hurry <-chan struct{}) int {
	grace, endGrace := context.WithTimeout(context.Background(), r.options.Grace)
	defer endGrace()
	go func() {
		select {
		case <-hurry:
			endGrace()
		case <-grace.Done():
		}
	}()
	r.slots.wait(grace)
	if r.slots.idle() {
		return 0
	}
	stopped := r.leases.stopAll(ErrShutdown)
	stopping, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	r.slots.wait(stopping)
	r.leases.abandon()
	return stopped
}

// claimLoop claims jobs and starts their handlers until ctx is cancelled. It returns an error if the
// first claim is rejected.
//
// A claim that is in flight when ctx is cancelled continues, because the jobs of a lost response would
// stay leased. It is interrupted only by the end of claiming.
func (r *run) claimLoop(ctx, claiming context.Context) error {
	succeeded := false
	for {
		free := r.slots.take(ctx, r.settles)
		if free == 0 {
			return nil
		}
		sent := time.Now()
		claimed, err := r.client.Claim(claiming, Claim{
			Kinds: r.kinds, Worker: r.options.Name, Max: free, Lease: r.options.Lease,
		})
		if err != nil {
			r.slots.give(free)
			if !succeeded && isRejected(err) {
				return err
			}
			r.report.error("claim jobs", err)
			sleep(ctx, pauseAfterError)
			continue
		}
		succeeded = true
		r.slots.give(free - len(claimed.Jobs))
		for _, problem := range claimed.Errors {
			r.report.error("claim jobs", problem)
		}
		for _, job := range claimed.Jobs {
			if ctx.Err() == nil {
				r.start(ctx, job, sent)
			} else {
				r.settler.add(&unsettled{job: job, ending: ending{settlement: Settlement{Job: job, Verb: VerbRelease}}})
				r.slots.give(1)
			}
		}
		if len(claimed.Jobs) < free {
			r.waitForJobs(ctx, len(claimed.Errors) > 0)
		}
	}
}

// settles returns whether few enough jobs wait to be settled. If the server does not accept
// settlements, the worker must not continue to run jobs: all that are not settled run again.
func (r *run) settles() bool {
	return r.settler.backlog() < min(10*r.options.Concurrency, maxBatch)
}

// waitForJobs waits until a claim may return a job.
func (r *run) waitForJobs(ctx context.Context, failing bool) {
	if failing {
		sleep(ctx, pauseAfterError)
		return
	}
	if err := r.client.Wait(ctx, r.kinds, waitForJobs); err != nil && ctx.Err() == nil {
		r.report.error("wait for jobs", err)
		sleep(ctx, pauseAfterError)
	}
}

func isRejected(err error) bool {
	return !errors.Is(err, ErrNotDone) && !errors.Is(err, ErrOutcomeUnknown)
}

// start runs the handler of a job. The slot of the job is already taken.
func (r *run) start(ctx context.Context, job *Job, sent time.Time) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	running := &running{job: job, cancel: cancel}
	handler, known := r.handlers[job.Kind]
	if !known {
		handler.run = func(context.Context, *Job) error { return GiveUp("there is no handler for kind " + job.Kind) }
	}
	running.handler = handler
	r.leases.add(running, sent)
	go r.execute(ctx, running)
}

// execute calls the handler, in a goroutine of its own.
func (r *run) execute(ctx context.Context, running *running) {
	if timeout := running.handler.timeout; timeout > 0 {
		timer := time.AfterFunc(timeout, func() { r.leases.stop(running, ErrTimeout) })
		defer timer.Stop()
	}
	// A handler that calls runtime.Goexit does not return here, but deferred functions run.
	err := errGoexit
	defer func() {
		if value := recover(); value != nil {
			err = &panicError{value: value, stack: debug.Stack()}
		}
		r.finish(running, err)
	}()
	err = running.handler.run(ctx, running.job)
}

// finish settles a job whose handler has ended.
func (r *run) finish(running *running, err error) {
	stop, known := r.leases.remove(running)
	if !known {
		// The worker has stopped without this job.
		return
	}
	running.cancel(nil)
	if stop != ErrLeaseLost {
		ending := decide(running.job, stop, running.handler.timeout, err)
		r.settler.add(&unsettled{job: running.job, ending: ending, cancelled: stop == ErrCancelled})
	}
	r.slots.give(1)
}
