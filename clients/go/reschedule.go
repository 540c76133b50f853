package requeue

import (
	"context"
	"net/http"
)

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
	r.addTo(body)
	if err := body.checkNoneIsUnset(); err != nil {
		return nil, err
	}
	if r.Due.set && r.Delay.set {
		return nil, invalid("delay", "a job has either a due time or a delay")
	}
	if err := addBody(body, r.Body, codec); err != nil {
		return nil, err
	}
	if _, conditional := body["if_generation"]; len(body) == 0 || conditional && len(body) == 1 {
		return nil, invalid("body", "there is nothing to change: set Due, Delay, Priority or Body")
	}
	return body, nil
}
