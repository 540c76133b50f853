package requeue

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// Job is a job that was claimed. It belongs to the caller until its lease ends. A test of a handler may
// construct one.
type Job struct {
	// Kind and ID identify the job.
	Kind, ID string
	// Body is the body as it was put. Use Decode to decode it.
	Body Body
	// Attempt is the number of this attempt: 1, plus one for each failure.
	Attempt int
	// Generation identifies the put that the job results from. Use kind, id and generation as an
	// idempotency key.
	Generation uint64
	// Fence is the fencing token, which increases with every lease of the kind. Pass it to the systems
	// that you write to, and reject writes with a lower one there.
	Fence uint64
	// Priority is 0 to 9.
	Priority int
	// Due is the time at which the job was due, and CreatedAt that of its first put.
	Due, CreatedAt time.Time
	// LeaseEndsAt is the time at which the lease expires, unless it is extended.
	LeaseEndsAt time.Time
	// Receipt proves the lease. It is opaque.
	Receipt string

	codec  Codec
	result *wireBody
}

// Decode stores the body in the value that target points to, with the codec of the client.
func (j *Job) Decode(target any) error { return j.Body.Decode(j.useCodec(), target) }

// useCodec returns the codec of the client, or JSON if the job was not claimed by one.
func (j *Job) useCodec() Codec {
	if j.codec == nil {
		return JSON{}
	}
	return j.codec
}

// maxResult is the largest result that the server accepts.
const maxResult = 64 << 10

// SetResult sets the result with which the job is acked. It is kept with the done job if the kind
// keeps done jobs. The value is encoded like the body of a job. SetResult fails if the value cannot be
// encoded, or is larger than 64 KiB. It must not be called concurrently.
func (j *Job) SetResult(value any) error {
	result, err := encodeBody(j.useCodec(), value)
	if err != nil {
		return err
	}
	if size := result.size(); size > maxResult {
		return invalid("result", fmt.Sprintf("the result has %d bytes; the limit is %d", size, maxResult))
	}
	j.result = &result
	return nil
}

// Claim specifies which jobs to claim. Fields with their zero value are not set.
type Claim struct {
	// Kinds are the kinds to claim jobs of.
	Kinds []string
	// Worker is the name of the worker, which is shown with the jobs that it holds.
	Worker string
	// Max is the maximum number of jobs, up to 1000. The default is 1.
	Max int
	// Lease is the duration of the leases. The default is the setting of the kind.
	Lease time.Duration
	// Wait is how long to wait if no job is ready, up to a minute. The default is not to wait.
	Wait time.Duration
}

// Claimed is the result of a claim.
type Claimed struct {
	// Jobs are the claimed jobs. They may be none.
	Jobs []*Job
	// Errors are the errors of kinds that failed, for example because their Redis node is down. The jobs
	// of the other kinds are claimed nevertheless.
	Errors []KindError
}

// KindError is the problem of one kind in a claim.
type KindError struct {
	// Kind is the kind that failed.
	Kind string `json:"kind"`
	// Problem is why it failed.
	Problem *Problem `json:"error"`
}

// Error returns the kind and the problem.
func (e KindError) Error() string { return fmt.Sprintf("kind %s: %v", e.Kind, e.Problem) }

// Unwrap returns the problem.
func (e KindError) Unwrap() error { return e.Problem }

// Claim leases ready jobs to the caller. Most programs use a [Worker] instead, which also extends the
// leases.
//
// A claim is not repeated if its outcome is unknown. The jobs of the lost response become ready again
// when their leases expire, which counts as an attempt.
func (c *Client) Claim(ctx context.Context, claim Claim) (*Claimed, error) {
	if err := checkKinds(claim.Kinds); err != nil {
		return nil, err
	}
	body := map[string]any{"kinds": claim.Kinds}
	if claim.Worker != "" {
		body["worker"] = claim.Worker
	}
	if claim.Max != 0 {
		body["max"] = claim.Max
	}
	if claim.Lease != 0 {
		body["lease"] = formatDuration(claim.Lease)
	}
	if claim.Wait != 0 {
		body["wait"] = formatDuration(claim.Wait)
	}
	var response struct {
		Jobs   []wireClaimed `json:"jobs"`
		Errors []KindError   `json:"errors"`
	}
	err := c.do(ctx, request{method: http.MethodPost, path: path("claim"), body: body, wait: claim.Wait}, &response)
	if err != nil {
		return nil, err
	}
	claimed := &Claimed{Jobs: make([]*Job, 0, len(response.Jobs)), Errors: response.Errors}
	for _, wire := range response.Jobs {
		job, err := wire.job(c.codec)
		if err != nil {
			return nil, &connectionError{ErrOutcomeUnknown, "cannot read the response of " + c.server, err}
		}
		claimed.Jobs = append(claimed.Jobs, job)
	}
	return claimed, nil
}

// Wait returns when a claim of these kinds may return a job, or when the time is over: up to a minute.
// It claims nothing, so that it can be interrupted without losing a job.
func (c *Client) Wait(ctx context.Context, kinds []string, wait time.Duration) error {
	if err := checkKinds(kinds); err != nil {
		return err
	}
	body := map[string]any{"kinds": kinds, "wait": formatDuration(wait)}
	return c.do(ctx, request{method: http.MethodPost, path: path("wait"), body: body, wait: wait, repeatable: true}, nil)
}

// wireClaimed is a claimed job in a response.
type wireClaimed struct {
	Receipt string `json:"receipt"`
	Kind    string `json:"kind"`
	ID      string `json:"id"`
	wireBody
	Due         time.Time `json:"due"`
	Priority    int       `json:"priority"`
	Generation  uint64    `json:"generation"`
	Fence       uint64    `json:"fence"`
	Attempt     int       `json:"attempt"`
	LeaseEndsAt time.Time `json:"lease_ends_at"`
	CreatedAt   time.Time `json:"created_at"`
}

func (w wireClaimed) job(codec Codec) (*Job, error) {
	body, err := w.wireBody.decode()
	if err != nil {
		return nil, err
	}
	return &Job{
		Kind: w.Kind, ID: w.ID, Body: body, Attempt: w.Attempt, Generation: w.Generation, Fence: w.Fence,
		Priority: w.Priority, Due: w.Due, CreatedAt: w.CreatedAt, LeaseEndsAt: w.LeaseEndsAt,
		Receipt: w.Receipt, codec: codec,
	}, nil
}
