package requeue

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// The reasons why the context of a handler is cancelled, besides [ErrLeaseLost]. [context.Cause]
// returns them.
var (
	// ErrCancelled: the job was cancelled. It is removed when the handler returns.
	ErrCancelled = errors.New("requeue: the job was cancelled")
	// ErrTimeout: the handler has taken longer than its timeout. The job is retried.
	ErrTimeout = errors.New("requeue: the handler has timed out")
	// ErrShutdown: the worker is shutting down, and the time for running handlers is over.
	ErrShutdown = errors.New("requeue: the worker was shut down")
)

// GiveUpError is the error that [GiveUp] returns.
type GiveUpError struct {
	// Reason is kept with the dead job.
	Reason string
}

// Error returns the reason.
func (e *GiveUpError) Error() string { return e.Reason }

// GiveUp returns an error for a handler that finds that trying again is pointless: the job is dead.
// The error may be wrapped.
func GiveUp(reason string) error { return &GiveUpError{Reason: reason} }

// RetryAfterError is the error that [RetryAfter] returns.
type RetryAfterError struct {
	// Delay is the delay until the next attempt.
	Delay time.Duration
	// Err is why this attempt failed.
	Err error
}

// Error returns the text of the error that caused the retry.
func (e *RetryAfterError) Error() string {
	if e.Err == nil {
		return "retry after " + e.Delay.String()
	}
	return e.Err.Error()
}

// Unwrap returns the error that caused the retry.
func (e *RetryAfterError) Unwrap() error { return e.Err }

// RetryAfter returns an error for a handler that fails with err and wants the next attempt after this
// delay, instead of the backoff of the kind. The error may be wrapped.
func RetryAfter(delay time.Duration, err error) error {
	return &RetryAfterError{Delay: delay, Err: err}
}

// RequeueAfterError is the error that [RequeueAfter] returns.
type RequeueAfterError struct {
	// Delay is the delay until the job runs again.
	Delay time.Duration
}

// Error describes when the job runs again.
func (e *RequeueAfterError) Error() string { return "requeue after " + e.Delay.String() }

// RequeueAfter returns an error for a handler that wants to run again later, for example to poll. It
// counts as success: no attempt is counted. The error may be wrapped.
func RequeueAfter(delay time.Duration) error { return &RequeueAfterError{Delay: delay} }

// panicError is the failure of a handler that panicked.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

// errGoexit is the failure of a handler that called runtime.Goexit.
var errGoexit = errors.New("the handler ended its goroutine (runtime.Goexit)")

// ending is how a job ends, as decided from what its handler did.
type ending struct {
	settlement Settlement
	// failure is why the attempt failed. It is nil if the attempt did not fail.
	failure error
}

// decide returns how to settle a job whose handler returned err. stop is why the handler was stopped,
// or nil. It is not called after a lost lease: such a job is not settled.
func decide(job *Job, stop error, timeout time.Duration, err error) ending {
	switch {
	case stop == ErrCancelled:
		// The ack removes the job.
		return ending{settlement: Settlement{Job: &Job{Receipt: job.Receipt}, Verb: VerbAck}}
	case stop == ErrTimeout:
		return failed(job, fmt.Errorf("timed out after %v", timeout))
	case stop == ErrShutdown && (errors.Is(err, context.Canceled) || errors.Is(err, ErrShutdown)):
		ending := failed(job, errors.New("the worker was shut down"))
		ending.settlement.Delay = new(time.Duration)
		return ending
	case err == nil:
		return ending{settlement: Settlement{Job: job, Verb: VerbAck}}
	}
	var (
		giveUp  *GiveUpError
		retry   *RetryAfterError
		requeue *RequeueAfterError
	)
	switch {
	case errors.As(err, &giveUp):
		ending := failed(job, err)
		ending.settlement.Verb = VerbBury
		return ending
	case errors.As(err, &retry):
		ending := failed(job, err)
		ending.settlement.Delay = &retry.Delay
		return ending
	case errors.As(err, &requeue):
		return ending{settlement: Settlement{Job: job, Verb: VerbRequeue, Delay: &requeue.Delay}}
	}
	return failed(job, err)
}

func failed(job *Job, err error) ending {
	text := err.Error()
	if text == "" {
		// Without a text, it would look like an expired lease.
		text = fmt.Sprintf("%T", err)
	}
	return ending{settlement: Settlement{Job: job, Verb: VerbRetry, Error: text}, failure: err}
}
