package requeue

import (
	"context"
	"net/http"
	"net/url"
)

// SetSchedule creates or replaces a schedule and returns it. If it has the same times as before, its
// next run stays, so that a program can set its schedules whenever it starts.
func (c *Client) SetSchedule(ctx context.Context, kind, id string, schedule Schedule) (*ScheduleInfo, error) {
	body := changes{}
	schedule.addTo(body)
	if err := addBody(body, bodyField(schedule.Body), c.codec); err != nil {
		return nil, err
	}
	return c.schedule(ctx, request{method: http.MethodPut, path: itemPath(kind, "schedules", id), body: body})
}

// ChangeSchedule changes the given fields of a schedule and returns all of them. It fails with
// [ErrAbsent] if there is no such schedule.
func (c *Client) ChangeSchedule(ctx context.Context, kind, id string, change ScheduleChange) (*ScheduleInfo, error) {
	body := changes{}
	change.addTo(body)
	if err := addBody(body, change.Body, c.codec); err != nil {
		return nil, err
	}
	return c.schedule(ctx, request{method: http.MethodPatch, path: itemPath(kind, "schedules", id), body: body})
}

// GetSchedule returns a schedule. It fails with [ErrAbsent] if there is none.
func (c *Client) GetSchedule(ctx context.Context, kind, id string) (*ScheduleInfo, error) {
	return c.schedule(ctx, request{method: http.MethodGet, path: itemPath(kind, "schedules", id)})
}

// Schedules returns the schedules of a kind.
func (c *Client) Schedules(ctx context.Context, kind string) ([]*ScheduleInfo, error) {
	var response struct {
		Schedules []*ScheduleInfo `json:"schedules"`
	}
	err := c.do(ctx, request{method: http.MethodGet, path: kindPath(kind, "schedules"), repeatable: true}, &response)
	return response.Schedules, err
}

// AllSchedules returns the schedules of all kinds, sorted by kind and id.
func (c *Client) AllSchedules(ctx context.Context) ([]*ScheduleInfo, error) {
	schedules, query := []*ScheduleInfo{}, url.Values{}
	for {
		var page struct {
			Schedules []*ScheduleInfo `json:"schedules"`
			Cursor    *string         `json:"cursor"`
		}
		err := c.do(ctx, request{method: http.MethodGet, path: path("schedules"), query: query, repeatable: true}, &page)
		if err != nil {
			return nil, err
		}
		schedules = append(schedules, page.Schedules...)
		if page.Cursor == nil {
			return schedules, nil
		}
		query.Set("after", *page.Cursor)
	}
}

// DeleteSchedule removes a schedule. Its jobs stay. It fails with [ErrAbsent] if there is no such
// schedule.
func (c *Client) DeleteSchedule(ctx context.Context, kind, id string) error {
	return c.do(ctx, request{method: http.MethodDelete, path: itemPath(kind, "schedules", id)}, nil)
}

// RunSchedule starts a run now, in addition to those of the schedule. It fails with [ErrAbsent] if
// there is no such schedule.
func (c *Client) RunSchedule(ctx context.Context, kind, id string) (PutResult, error) {
	var result PutResult
	err := c.do(ctx, request{method: http.MethodPost, path: itemPath(kind, "schedules", id, "run")}, &result)
	return result, err
}

func (c *Client) schedule(ctx context.Context, r request) (*ScheduleInfo, error) {
	r.repeatable = true
	schedule := &ScheduleInfo{}
	if err := c.do(ctx, r, schedule); err != nil {
		return nil, err
	}
	return schedule, nil
}
