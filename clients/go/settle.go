package requeue

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// Verb is how a lease is settled.
type Verb string

// The verbs of a settlement.
const (
	// VerbAck: the job is done.
	VerbAck Verb = "ack"
	// VerbRetry: the attempt failed. The job is due again later, or dead if its attempts are used up.
	VerbRetry Verb = "retry"
	// VerbBury: the attempt failed, and the job is dead.
	VerbBury Verb = "bury"
	// VerbRequeue: the job is done and runs again after a delay.
	VerbRequeue Verb = "requeue"
	// VerbRelease: the job was not started and returns to the queue. No attempt is counted.
	VerbRelease Verb = "release"
	// VerbExtend: the job takes longer. The lease is extended.
	VerbExtend Verb = "extend"
)

// Settlement is an entry of [Client.Settle].
type Settlement struct {
	// Job is the job to settle. Of its fields, only Receipt is needed; with [VerbAck], its result is sent.
	Job *Job
	// Verb is how it is settled.
	Verb Verb
	// Error is why the attempt failed, with [VerbRetry] and [VerbBury].
	Error string
	// Delay is required with [VerbRequeue]. With [VerbRetry], nil means the backoff of the kind.
	Delay *time.Duration
	// Lease is the length of the lease from now on, with [VerbExtend]. 0 means the setting of the kind.
	Lease time.Duration
}

// Settle settles up to 1000 leases, in order and independently of each other. It returns one result
// per settlement, with an error in Err if that one failed. An error of Settle itself applies to all.
//
// Settlements are repeated if the outcome is unknown. [ErrLeaseLost] of an entry may then mean that the
// first request was done. In any case there is nothing left to do.
func (c *Client) Settle(ctx context.Context, settlements []Settlement) ([]SettleResult, error) {
	request, err := settleRequest(settlements)
	if err != nil {
		return nil, err
	}
	return batch[settleEntry](ctx, c, request, len(settlements))
}

func settleRequest(settlements []Settlement) (request, error) {
	leases := make([]wireSettlement, len(settlements))
	for i, settlement := range settlements {
		if job := settlement.Job; job == nil {
			return request{}, invalid(fmt.Sprintf("leases[%d].job", i), "it is nil")
		} else if job.Receipt == "" {
			return request{}, invalid(fmt.Sprintf("leases[%d].receipt", i), "it is empty: the job was not claimed")
		}
		leases[i] = settlement.toWire()
	}
	return request{
		method: http.MethodPost, path: path("settle"), body: map[string]any{"leases": leases}, repeatable: true,
	}, nil
}

// Ack reports that a job is done. The result that [Job.SetResult] has set is kept if the kind keeps
// done jobs. Ack fails with [ErrLeaseLost] if the lease was lost.
func (c *Client) Ack(ctx context.Context, job *Job) (SettleResult, error) {
	return c.settleOne(ctx, Settlement{Job: job, Verb: VerbAck})
}

// Retry reports that an attempt failed. The job is due again after the backoff of its kind, or is dead
// if its attempts are used up. Retry fails with [ErrLeaseLost] if the lease was lost.
func (c *Client) Retry(ctx context.Context, job *Job, reason string) (SettleResult, error) {
	return c.settleOne(ctx, Settlement{Job: job, Verb: VerbRetry, Error: reason})
}

// RetryAfter is like [Client.Retry], with this delay instead of the backoff.
func (c *Client) RetryAfter(ctx context.Context, job *Job, delay time.Duration, reason string) (SettleResult, error) {
	return c.settleOne(ctx, Settlement{Job: job, Verb: VerbRetry, Error: reason, Delay: &delay})
}

// Bury reports that an attempt failed and that trying again is pointless: the job is dead. Bury fails
// with [ErrLeaseLost] if the lease was lost.
func (c *Client) Bury(ctx context.Context, job *Job, reason string) (SettleResult, error) {
	return c.settleOne(ctx, Settlement{Job: job, Verb: VerbBury, Error: reason})
}

// Requeue reports that a job is done and runs again after the delay. It fails with [ErrLeaseLost] if
// the lease was lost.
func (c *Client) Requeue(ctx context.Context, job *Job, delay time.Duration) (SettleResult, error) {
	return c.settleOne(ctx, Settlement{Job: job, Verb: VerbRequeue, Delay: &delay})
}

// Release returns a job that was not started to the queue. No attempt is counted. Release fails with
// [ErrLeaseLost] if the lease was lost.
func (c *Client) Release(ctx context.Context, job *Job) (SettleResult, error) {
	return c.settleOne(ctx, Settlement{Job: job, Verb: VerbRelease})
}

// Extend extends the lease of a job: it ends this long from now, if that is later than before. 0 means
// the setting of the kind. Extend fails with [ErrLeaseLost] if the lease was lost.
func (c *Client) Extend(ctx context.Context, job *Job, lease time.Duration) (SettleResult, error) {
	return c.settleOne(ctx, Settlement{Job: job, Verb: VerbExtend, Lease: lease})
}

func (c *Client) settleOne(ctx context.Context, settlement Settlement) (SettleResult, error) {
	request, err := settleRequest([]Settlement{settlement})
	if err != nil {
		return SettleResult{}, err
	}
	var only onlySettlement
	if err := c.do(ctx, request, &only); err != nil {
		return SettleResult{}, err
	}
	return only.Results[0].SettleResult, nil
}

// onlySettlement is the response to a request with one settlement.
type onlySettlement struct {
	Results []settleEntry `json:"results"`
}

// failure returns the problem of the settlement, or nil.
func (s *onlySettlement) failure() error {
	if len(s.Results) != 1 {
		return fmt.Errorf("%w: the response has %d results for one settlement", ErrOutcomeUnknown, len(s.Results))
	}
	return s.Results[0].result().Err
}

// wireSettlement is a settlement in a request.
type wireSettlement struct {
	Receipt string    `json:"receipt"`
	How     Verb      `json:"how"`
	Error   string    `json:"error,omitempty"`
	Delay   string    `json:"delay,omitempty"`
	Lease   string    `json:"lease,omitempty"`
	Result  *wireBody `json:"result,omitempty"`
}

func (s Settlement) toWire() wireSettlement {
	wire := wireSettlement{Receipt: s.Job.Receipt, How: s.Verb, Error: cut(s.Error, maxError)}
	if s.Verb == VerbAck {
		wire.Result = s.Job.result
	}
	if s.Delay != nil {
		wire.Delay = formatDuration(*s.Delay)
	}
	if s.Lease != 0 {
		wire.Lease = formatDuration(s.Lease)
	}
	return wire
}

// maxError is how much of an error the server keeps.
const maxError = 2 << 10

type settleEntry struct {
	SettleResult
	Problem *Problem `json:"error"`
}

func (e settleEntry) result() SettleResult {
	if e.Problem != nil {
		e.Err = e.Problem
	}
	return e.SettleResult
}
