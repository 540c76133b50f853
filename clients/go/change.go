package requeue

import (
	"context"
	"net/http"
)

// ChangeResult is the result of a change to one job of a batch.
type ChangeResult struct {
	// Outcome is what the change did.
	Outcome ChangeOutcome `json:"result"`
	// Err is the problem of this entry, or nil.
	Err error `json:"-"`
}

type changeEntry struct {
	ChangeResult
	Problem *Problem `json:"error"`
}

func (e changeEntry) result() ChangeResult {
	if e.Problem != nil {
		e.Err = e.Problem
	}
	return e.ChangeResult
}

// Cancel removes a job. If it is leased, its worker is notified, and it is removed when its lease ends.
// Cancel fails with [ErrAbsent] if there is no such job.
func (c *Client) Cancel(ctx context.Context, kind, id string) (ChangeOutcome, error) {
	var result ChangeResult
	err := c.do(ctx, request{method: http.MethodDelete, path: itemPath(kind, "jobs", id)}, &result)
	return result.Outcome, err
}

// RunNow makes a job due now, even if its backoff is not over, and revives it if it is dead. It fails
// with [ErrAbsent], [ErrLeased] or [ErrDone].
func (c *Client) RunNow(ctx context.Context, kind, id string) (ChangeOutcome, error) {
	return c.changeOne(ctx, kind, "run-now", id)
}

// Revive makes a dead job due now and resets its attempts. It fails with [ErrAbsent] or [ErrNotDead].
func (c *Client) Revive(ctx context.Context, kind, id string) (ChangeOutcome, error) {
	return c.changeOne(ctx, kind, "revive", id)
}

// CancelMany is [Client.Cancel] for up to 1000 jobs. It returns one result per id.
func (c *Client) CancelMany(ctx context.Context, kind string, ids []string) ([]ChangeResult, error) {
	return c.changeMany(ctx, kind, "cancel", ids)
}

// RunNowMany is [Client.RunNow] for up to 1000 jobs. It returns one result per id.
func (c *Client) RunNowMany(ctx context.Context, kind string, ids []string) ([]ChangeResult, error) {
	return c.changeMany(ctx, kind, "run-now", ids)
}

// ReviveMany is [Client.Revive] for up to 1000 jobs. It returns one result per id.
func (c *Client) ReviveMany(ctx context.Context, kind string, ids []string) ([]ChangeResult, error) {
	return c.changeMany(ctx, kind, "revive", ids)
}

// CancelAll cancels all jobs of a kind that match the filter. If it fails, it also returns the counts
// of what was done before.
func (c *Client) CancelAll(ctx context.Context, kind string, filter Filter) (Changes, error) {
	return c.changeAll(ctx, kind, "cancel", filter)
}

// RunNowAll makes all jobs of a kind that match the filter due now. If it fails, it also returns the
// counts of what was done before.
func (c *Client) RunNowAll(ctx context.Context, kind string, filter Filter) (Changes, error) {
	return c.changeAll(ctx, kind, "run-now", filter)
}

// ReviveAll revives all dead jobs of a kind that match the filter. If it fails, it also returns the
// counts of what was done before.
func (c *Client) ReviveAll(ctx context.Context, kind string, filter Filter) (Changes, error) {
	return c.changeAll(ctx, kind, "revive", filter)
}

func (c *Client) changeOne(ctx context.Context, kind, verb, id string) (ChangeOutcome, error) {
	results, err := c.changeMany(ctx, kind, verb, []string{id})
	if err != nil {
		return "", err
	}
	return results[0].Outcome, results[0].Err
}

func (c *Client) changeMany(ctx context.Context, kind, verb string, ids []string) ([]ChangeResult, error) {
	if err := checkNames("ids", ids); err != nil {
		return nil, err
	}
	return batch[changeEntry](ctx, c, request{
		method: http.MethodPost, path: kindPath(kind, verb), body: map[string]any{"ids": ids},
	}, len(ids))
}

// changeAll repeats the change until the server has examined all jobs: one request changes at most
// 10,000.
func (c *Client) changeAll(ctx context.Context, kind, verb string, filter Filter) (Changes, error) {
	var total Changes
	fields, err := filter.fields()
	if err != nil {
		return total, err
	}
	body := map[string]any{"all": fields}
	for {
		var part struct {
			Changes
			Cursor *string `json:"cursor"`
		}
		err := c.do(ctx, request{method: http.MethodPost, path: kindPath(kind, verb), body: body}, &part)
		if err != nil {
			return total, err
		}
		total.Matched += part.Matched
		total.Changed += part.Changed
		total.Failed += part.Failed
		if part.Cursor == nil {
			return total, nil
		}
		body["after"] = *part.Cursor
	}
}
