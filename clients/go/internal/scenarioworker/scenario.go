package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"requeue.invalid/requeue"
)

// instruction is the body of a job.
type instruction struct {
	Do      string          `json:"do"`
	Result  json.RawMessage `json:"result"`
	Error   string          `json:"error"`
	Reason  string          `json:"reason"`
	Attempt int             `json:"attempt"`
	Delay   *duration       `json:"delay"`
	For     duration        `json:"for"`

	// What to reschedule.
	ID              string          `json:"id"`
	Priority        *int            `json:"priority"`
	Body            json.RawMessage `json:"body"`
	IfOwnGeneration bool            `json:"if_own_generation"`
}

type scenario struct {
	client *requeue.Client
	mu     sync.Mutex
	// requeued are the ids of jobs that have been requeued by this process.
	requeued map[string]bool
}

func (s *scenario) handle(ctx context.Context, job *requeue.JobOf[instruction]) error {
	say("start", event{"id": job.ID, "attempt": job.Attempt, "generation": job.Generation, "fence": job.Fence})
	how, err := s.follow(ctx, job)
	if how != "" {
		say("end", event{"id": job.ID, "how": how})
	}
	return err
}

// follow does what the body says. It returns how the handler ends, or nothing if it was stopped.
func (s *scenario) follow(ctx context.Context, job *requeue.JobOf[instruction]) (how string, err error) {
	switch do := job.Body; do.Do {
	case "return":
		if do.Result != nil {
			err = job.SetResult(do.Result)
		}
		return "return", err
	case "fail":
		return "fail", errors.New(do.Error)
	case "fail_before":
		if job.Attempt < do.Attempt {
			return "fail", fmt.Errorf("attempt %d of %d", job.Attempt, do.Attempt)
		}
		return "return", nil
	case "panic":
		say("end", event{"id": job.ID, "how": "fail"})
		panic("the handler panics")
	case "give_up":
		return "give_up", requeue.GiveUp(do.Reason)
	case "requeue_after":
		if s.first(job.ID) {
			return "requeue_after", requeue.RequeueAfter(time.Duration(*do.Delay))
		}
		return "return", nil
	case "retry_after":
		if job.Attempt == 1 {
			return "retry_after", requeue.RetryAfter(time.Duration(*do.Delay), errors.New(do.Error))
		}
		return "return", nil
	case "reschedule":
		result, err := s.reschedule(ctx, job)
		if err != nil {
			return "fail", err
		}
		say("rescheduled", event{"id": do.ID, "result": result})
		return "return", nil
	case "sleep":
		return sleep(ctx, job.ID, time.After(time.Duration(do.For)))
	case "block":
		return sleep(ctx, job.ID, nil)
	case "stubborn":
		end := time.After(time.Duration(do.For))
		if how, err := sleep(ctx, job.ID, end); err == nil {
			return how, nil
		}
		<-end
		return "return", nil
	default:
		return "give_up", requeue.GiveUp(fmt.Sprintf("there is no instruction %q", do.Do))
	}
}

// reschedule reschedules another job. It returns the outcome, or the name of the problem.
func (s *scenario) reschedule(ctx context.Context, job *requeue.JobOf[instruction]) (string, error) {
	do, change := job.Body, requeue.Reschedule{}
	if do.Delay != nil {
		change.Delay = requeue.Set(time.Duration(*do.Delay))
	}
	if do.Priority != nil {
		change.Priority = requeue.Set(*do.Priority)
	}
	if do.Body != nil {
		change.Body = requeue.Set[any](do.Body)
	}
	if do.IfOwnGeneration {
		change.IfGeneration = job.Generation
	}
	result, err := s.client.Reschedule(ctx, job.Kind, do.ID, change)
	if problem := (*requeue.Problem)(nil); errors.As(err, &problem) {
		return string(problem.Name), nil
	}
	return string(result.Outcome), err
}

// first returns whether this is the first run of the job in this process.
func (s *scenario) first(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.requeued[id]
	s.requeued[id] = true
	return !before
}

// sleep returns at the end, or when the handler is stopped.
func sleep(ctx context.Context, id string, end <-chan time.Time) (how string, err error) {
	select {
	case <-end:
		return "return", nil
	case <-ctx.Done():
		say("stopped", event{"id": id, "why": why(context.Cause(ctx))})
		return "", ctx.Err()
	}
}

func why(cause error) string {
	for why, reason := range map[string]error{
		"lease-lost": requeue.ErrLeaseLost, "cancelled": requeue.ErrCancelled,
		"timeout": requeue.ErrTimeout, "shutdown": requeue.ErrShutdown,
	} {
		if errors.Is(cause, reason) {
			return why
		}
	}
	return "unknown"
}
