package requeue

import (
	"context"
	"fmt"
	"net/http"
	"slices"
)

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
	// They are in the path.
	delete(wire, "kind")
	delete(wire, "id")
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
	wires := make([]changes, len(jobs))
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

// encodePut returns a put in a request. at is the prefix of the names of its fields, such as jobs[3].
func (c *Client) encodePut(at string, job PutJob) (changes, error) {
	if err := checkName(at+"kind", job.Kind); err != nil {
		return nil, err
	}
	if err := checkName(at+"id", job.ID); err != nil {
		return nil, err
	}
	if !job.Due.IsZero() && job.Delay != 0 {
		return nil, invalid(at+"delay", "a job has either a due time or a delay")
	}
	wire := changes{}
	job.addTo(wire)
	return wire, addBody(wire, bodyField(job.Body), c.codec)
}
