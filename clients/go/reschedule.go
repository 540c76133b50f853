package requeue

import (
	"context"
	"net/http"
	"time"
)

// Reschedule specifies what to change of a job. Fields that are not set stay as they are.
type Reschedule struct {
	// Due is the time at which the job is due.
	Due Field[time.Time]
	// Delay is the time until the job is due, instead of Due.
	Delay Field[time.Duration]
	// Priority is 0 to 9.
	Priority Field[int]
	// Body is the body, as in [PutJob]. Set[any](nil) is an empty body.
	Body Field[any]
	// IfGeneration fails with [ErrOtherGeneration] unless this is the newest generation of the job.
	IfGeneration uint64
}

// Reschedule changes due time, priority or body of a job, and keeps what is not set.
//
// A waiting or ready job is [Updated]. If the job is leased, its successor is changed or created:
// [Coalesced]. A dead job with a new due time is [Revived]. Reschedule fails with [ErrAbsent], [ErrDone] or
// [ErrOtherGeneration].
func (c *Client) Reschedule(ctx context.Context, kind, id string, change Reschedule) (PutResult, error) {
	body, err := change.body(c.codec)
	if err != nil {
		return PutResult{}, err
	}
	var result PutResult
	err = c.do(ctx, request{
		method: http.MethodPatch, path: itemPath(kind, "jobs", id), body: body, repeatable: change.IfGeneration == 0,
	}, &result)
	return result, err
}

func (r Reschedule) body(codec Codec) (changes, error) {
	body := changes{}
	add(body, "due", r.Due, asTime)
	add(body, "delay", r.Delay, asDuration)
	add(body, "priority", r.Priority, asIs)
	if err := body.checkNoneIsUnset(); err != nil {
		return nil, err
	}
	if r.Due.set && r.Delay.set {
		return nil, invalid("delay", "a job has either a due time or a delay")
	}
	if err := addBody(body, r.Body, codec); err != nil {
		return nil, err
	}
	if len(body) == 0 {
		return nil, invalid("body", "there is nothing to change: set Due, Delay, Priority or Body")
	}
	if r.IfGeneration != 0 {
		body["if_generation"] = r.IfGeneration
	}
	return body, nil
}
