package requeue

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

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
	body := changes{}
	claim.addTo(body)
	var response struct {
		Jobs   []Job       `json:"jobs"`
		Errors []KindError `json:"errors"`
	}
	err := c.do(ctx, request{method: http.MethodPost, path: path("claim"), body: body, wait: claim.Wait}, &response)
	if err != nil {
		return nil, err
	}
	claimed := &Claimed{Jobs: make([]*Job, len(response.Jobs)), Errors: response.Errors}
	for i := range response.Jobs {
		response.Jobs[i].codec = c.codec
		claimed.Jobs[i] = &response.Jobs[i]
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
