package requeue

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"
)

// WorkerOptions configures a [Worker]. Fields with their zero value have their default.
//
// The worker calls OnFailure, OnDead, OnLost and OnError one after the other. They should return
// quickly. It also logs what it reports.
type WorkerOptions struct {
	// Name identifies the worker. It is shown with the jobs that it holds. The default consists of the
	// name of the machine and the id of the process.
	Name string
	// Concurrency is the maximum number of handlers that run at the same time. The default is 10.
	Concurrency int
	// Lease is the length of the leases. It determines how soon another worker takes over if this one
	// dies. Handlers may run for longer, because leases are extended. The default is 30 s.
	Lease time.Duration
	// Grace is how long running handlers may continue after the worker was asked to stop. The default
	// is 30 s. A negative value means that they are stopped immediately.
	Grace time.Duration
	// Logger is where the worker logs. The default is [slog.Default].
	Logger *slog.Logger
	// OnFailure is called after a failed attempt was settled. next is what happens with the job.
	OnFailure func(job *Job, err error, next Next)
	// OnDead is called when a job is dead, after OnFailure.
	OnDead func(job *Job, err error)
	// OnLost is called when the lease of a job was lost: another worker may run the job.
	OnLost func(job *Job)
	// OnError is called when a request of the worker failed. The worker repeats it.
	OnError func(err error)
}

// Next is what happens with a job after a failed attempt.
type Next string

// What happens with a job after a failed attempt.
const (
	// NextRetry: the job is retried.
	NextRetry Next = "retry"
	// NextDead: the job is dead.
	NextDead Next = "dead"
	// NextUnknown: the response to the settlement was lost, so it is one of the two.
	NextUnknown Next = "unknown"
)

// HandlerFunc runs a job. If it returns nil, the job is acked; if it returns an error or panics, the
// job is retried after the backoff of its kind. [RetryAfter], [GiveUp] and [RequeueAfter] are errors
// with other effects.
//
// The context is cancelled if the handler should stop, with the reason as its [context.Cause]:
// [ErrLeaseLost], [ErrCancelled], [ErrTimeout] or [ErrShutdown]. The handler occupies its slot until it
// returns. After a lost lease, what it returns is discarded. A handler that is stopped by a shutdown
// should return the error of the context; its job is then retried immediately.
type HandlerFunc func(ctx context.Context, job *Job) error

// HandlerOption configures a handler.
type HandlerOption func(*handler)

// Timeout limits how long a handler may run. After that its context is cancelled, and the job is
// retried when it has returned. 0 means no limit, which is the default.
func Timeout(timeout time.Duration) HandlerOption {
	return func(h *handler) { h.timeout = timeout }
}

type handler struct {
	run     HandlerFunc
	timeout time.Duration
}

// Worker claims jobs and runs handlers. Create it with [NewWorker], register handlers, and call
// [Worker.Run] or [Worker.RunUntilSignal].
type Worker struct {
	client   *Client
	options  WorkerOptions
	handlers map[string]handler
}

// NewWorker returns a worker that has no handlers yet.
func NewWorker(client *Client, options WorkerOptions) *Worker {
	if options.Name == "" {
		host, _ := os.Hostname()
		options.Name = cut(fmt.Sprintf("%d@%s", os.Getpid(), host), 128)
	}
	if options.Concurrency <= 0 {
		options.Concurrency = 10
	}
	if options.Lease <= 0 {
		options.Lease = 30 * time.Second
	}
	if options.Grace == 0 {
		options.Grace = 30 * time.Second
	}
	if options.Logger == nil {
		options.Logger = slog.Default()
	}
	// The worker repeats its requests itself: until when depends on leases.
	single := *client
	single.retryFor = 0
	return &Worker{client: &single, options: options, handlers: map[string]handler{}}
}

// Handle registers the handler of a kind. All handlers must be registered before the worker runs.
// Handle panics if the kind already has one.
func (w *Worker) Handle(kind string, run HandlerFunc, options ...HandlerOption) {
	if _, exists := w.handlers[kind]; exists {
		panic(fmt.Sprintf("requeue: the kind %q already has a handler", kind))
	}
	handler := handler{run: run}
	for _, option := range options {
		option(&handler)
	}
	w.handlers[kind] = handler
}

// JobOf is a job with its decoded body.
type JobOf[T any] struct {
	*Job
	// Body is the decoded body. The bytes are in Job.Body.
	Body T
}

// Handle registers a handler that gets the body of its jobs decoded. A job whose body cannot be decoded
// is buried: correct its body with a put, which revives it. Handle panics if the kind already has a
// handler.
func Handle[T any](w *Worker, kind string, run func(ctx context.Context, job *JobOf[T]) error, options ...HandlerOption) {
	w.Handle(kind, func(ctx context.Context, job *Job) error {
		typed := &JobOf[T]{Job: job}
		if err := job.Decode(&typed.Body); err != nil {
			return GiveUp(fmt.Sprintf("kind %s: %v", job.Kind, err))
		}
		return run(ctx, typed)
	}, options...)
}
