package requeue

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// PutJob is a job to create or update. Fields with their zero value are not set.
type PutJob struct {
	// Kind and ID identify the job.
	Kind, ID string
	// Body is encoded by the codec of the client, by default as JSON. A [Body] is sent as it is. Nil
	// is an empty body.
	Body any
	// Due is the time at which the job is due. The zero Time means now. A time in the past also means
	// now.
	Due time.Time
	// Delay is the time until the job is due, instead of Due.
	Delay time.Duration
	// Priority is 0 to 9. Of the ready jobs of a kind, those with a higher priority are claimed first.
	Priority int
	// Mode is what happens if the job is already pending. The default is [Replace].
	Mode PutMode
	// MaxWait is required with [Debounce]: the due time is never later than this after the first put.
	MaxWait time.Duration
	// IfAbsent fails with [ErrExists] if the job exists in any state but done.
	IfAbsent bool
	// IfNew fails with [ErrExists] if the job exists in any state, including done.
	IfNew bool
	// IfGeneration fails with [ErrOtherGeneration] unless this is the newest generation of the job.
	IfGeneration uint64
}

// PutMode is what a put does if the job is already pending.
type PutMode string

// The modes of a put.
const (
	// Replace replaces body, due time and priority.
	Replace PutMode = "replace"
	// Earliest replaces the body and keeps the earlier due time and the higher priority.
	Earliest PutMode = "earliest"
	// Keep changes nothing.
	Keep PutMode = "keep"
	// Debounce replaces the body and postpones the job, up to MaxWait.
	Debounce PutMode = "debounce"
)

// PutOutcome is what a put did.
type PutOutcome string

// The outcomes of a put.
const (
	// Created: a new job was created.
	Created PutOutcome = "created"
	// Updated: a waiting or ready job was updated.
	Updated PutOutcome = "updated"
	// Coalesced: the job is leased, and the put is its successor, which runs once afterwards.
	Coalesced PutOutcome = "coalesced"
	// Revived: a dead job is pending again.
	Revived PutOutcome = "revived"
	// Kept: the job exists, and the mode is [Keep].
	Kept PutOutcome = "kept"
)

// PutResult is the result of a put.
type PutResult struct {
	// Outcome is what the put did.
	Outcome PutOutcome `json:"outcome"`
	// Generation is the generation of the put, or that of the existing job if it was kept.
	Generation uint64 `json:"generation"`
	// Err is the problem of this entry of a batch, or nil. [Client.Put] returns it as its error, and
	// [Client.PutMany] in a [*BatchError].
	Err error `json:"-"`
}

// Put creates a job, or replaces its body, due time and priority if it exists. To change only some of
// these, use [Client.Reschedule].
//
// A put without a condition is repeated if its outcome is unknown. If the job was done in between, it
// then runs a second time; to rule that out, keep done jobs and use IfNew.
func (c *Client) Put(ctx context.Context, job PutJob) (PutResult, error) {
	wire, err := c.encodePut("", job)
	if err != nil {
		return PutResult{}, err
	}
	wire.Kind, wire.ID = "", "" // They are in the path.
	var result PutResult
	err = c.do(ctx, request{
		method: http.MethodPut, path: itemPath(job.Kind, "jobs", job.ID),
		body: wire, repeatable: !job.conditional(),
	}, &result)
	return result, err
}

// PutMany puts up to 1000 jobs of any kinds, in order and independently of each other. It returns one
// result per job.
//
// If some of the jobs were not put, the error is a [*BatchError]: the others were put. Any other error
// applies to all jobs, and there are no results.
func (c *Client) PutMany(ctx context.Context, jobs []PutJob) ([]PutResult, error) {
	request := request{method: http.MethodPost, path: path("put"), repeatable: true}
	wires := make([]wirePut, len(jobs))
	for i, job := range jobs {
		wire, err := c.encodePut(fmt.Sprintf("jobs[%d].", i), job)
		if err != nil {
			return nil, err
		}
		wires[i] = wire
		request.repeatable = request.repeatable && !job.conditional()
	}
	request.body = map[string]any{"jobs": wires}
	results, err := batch[putEntry](ctx, c, request, len(jobs))
	if err == nil && slices.ContainsFunc(results, func(result PutResult) bool { return result.Err != nil }) {
		err = &BatchError{Jobs: jobs, Results: results}
	}
	return results, err
}

// BatchError means that some jobs of [Client.PutMany] were not put. It matches none of their errors, and
// none of the classes of errors: these apply to single jobs.
type BatchError struct {
	// Jobs are all jobs of the batch, and Results the result of each of them.
	Jobs    []PutJob
	Results []PutResult
}

// Error returns how many jobs were not put, and the first of them.
func (e *BatchError) Error() string {
	failed, first := 0, -1
	for i, result := range e.Results {
		if result.Err != nil {
			if failed++; first < 0 {
				first = i
			}
		}
	}
	return fmt.Sprintf("requeue: %d of %d jobs were not put; the first is jobs[%d] (%q of kind %s): %v",
		failed, len(e.Results), first, e.Jobs[first].ID, e.Jobs[first].Kind, e.Results[first].Err)
}

type putEntry struct {
	PutResult
	Problem *Problem `json:"error"`
}

func (e putEntry) result() PutResult {
	if e.Problem != nil {
		e.Err = e.Problem
	}
	return e.PutResult
}

func (j PutJob) conditional() bool { return j.IfAbsent || j.IfNew || j.IfGeneration != 0 }

// wirePut is a put in a request.
type wirePut struct {
	Kind string `json:"kind,omitempty"`
	ID   string `json:"id,omitempty"`
	wireBody
	Due          string  `json:"due,omitempty"`
	Delay        string  `json:"delay,omitempty"`
	Priority     int     `json:"priority,omitempty"`
	Mode         PutMode `json:"mode,omitempty"`
	MaxWait      string  `json:"max_wait,omitempty"`
	IfAbsent     bool    `json:"if_absent,omitempty"`
	IfNew        bool    `json:"if_new,omitempty"`
	IfGeneration uint64  `json:"if_generation,omitempty"`
}

// encodePut returns a put in a request. at is the prefix of the names of its fields, such as jobs[3].
func (c *Client) encodePut(at string, job PutJob) (wirePut, error) {
	if err := checkName(at+"kind", job.Kind); err != nil {
		return wirePut{}, err
	}
	if err := checkName(at+"id", job.ID); err != nil {
		return wirePut{}, err
	}
	if !job.Due.IsZero() && job.Delay != 0 {
		return wirePut{}, invalid(at+"delay", "a job has either a due time or a delay")
	}
	body, err := encodeBody(c.codec, job.Body)
	if err != nil {
		return wirePut{}, err
	}
	wire := wirePut{
		Kind: job.Kind, ID: job.ID, wireBody: body, Priority: job.Priority, Mode: job.Mode,
		IfAbsent: job.IfAbsent, IfNew: job.IfNew, IfGeneration: job.IfGeneration,
	}
	if !job.Due.IsZero() {
		wire.Due = formatTime(job.Due)
	}
	if job.Delay != 0 {
		wire.Delay = formatDuration(job.Delay)
	}
	if job.MaxWait != 0 {
		wire.MaxWait = formatDuration(job.MaxWait)
	}
	return wire, nil
}
