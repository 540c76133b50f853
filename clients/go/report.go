package requeue

import (
	"fmt"
	"log/slog"
	"sync"
)

// report logs what happens to jobs, and calls the functions of the user.
type report struct {
	options *WorkerOptions
	// mu makes the calls one after the other.
	mu sync.Mutex
}

func (r *report) failure(job *Job, err error, next Next) {
	attributes := append(about(job), slog.Int("attempt", job.Attempt), slog.Any("error", err), slog.String("next", string(next)))
	if panicked, ok := err.(*panicError); ok {
		attributes = append(attributes, slog.String("stack", string(panicked.stack)))
	}
	r.options.Logger.Warn("requeue: attempt failed", attributes...)
	if r.options.OnFailure != nil {
		r.call(func() { r.options.OnFailure(job, err, next) })
	}
	if next != NextDead {
		return
	}
	r.options.Logger.Error("requeue: job is dead", about(job)...)
	if r.options.OnDead != nil {
		r.call(func() { r.options.OnDead(job, err) })
	}
}

func (r *report) lost(job *Job) {
	r.options.Logger.Warn("requeue: lease lost", about(job)...)
	if r.options.OnLost != nil {
		r.call(func() { r.options.OnLost(job) })
	}
}

func (r *report) error(what string, err error) {
	err = fmt.Errorf("%s: %w", what, err)
	r.options.Logger.Warn("requeue: request failed", slog.Any("error", err))
	if r.options.OnError != nil {
		r.call(func() { r.options.OnError(err) })
	}
}

// call calls a function of the user. Its panic must not end the worker, which has jobs to settle.
func (r *report) call(function func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer func() {
		if value := recover(); value != nil {
			r.options.Logger.Error("requeue: a callback panicked", slog.Any("panic", value))
		}
	}()
	function()
}

func about(job *Job) []any {
	return []any{slog.String("kind", job.Kind), slog.String("id", job.ID)}
}
