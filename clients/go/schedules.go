package requeue

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"
)

// Missed is what happens with runs that were missed.
type Missed string

// What happens with runs of a schedule that were missed, for example because the server was down.
const (
	// MissedOne puts one job for all of them.
	MissedOne Missed = "one"
	// MissedSkip puts none.
	MissedSkip Missed = "skip"
	// MissedAll puts one job for each.
	MissedAll Missed = "all"
)

// Overlap is whether a run may begin while an earlier one goes on.
type Overlap string

// Whether runs of a schedule may overlap.
const (
	// OverlapNone: all runs have the job id of the schedule. A run that falls due during another one
	// follows it, once.
	OverlapNone Overlap = "none"
	// OverlapAllow: each run is a job of its own, whose id contains the time.
	OverlapAllow Overlap = "allow"
)

// Schedule puts jobs at the times of a cron expression, or once per period. Fields with their zero
// value are not set.
type Schedule struct {
	// Cron is a cron expression, such as "0 6 * * *". Either Cron or Every is required.
	Cron string
	// Every is a period, from a second.
	Every time.Duration
	// TimeZone is the time zone of Cron, such as Europe/Berlin. The default is UTC.
	TimeZone string
	// Body is the body of the jobs, as in [PutJob].
	Body any
	// Priority is the priority of the jobs, 0 to 9.
	Priority int
	// Jitter is by how much the runs are later at most.
	Jitter time.Duration
	// Missed is what happens with runs that were missed. The default is [MissedOne].
	Missed Missed
	// CatchUp is how long ago a run may have been missed; older ones are skipped.
	CatchUp time.Duration
	// Overlap is whether runs may overlap. The default is [OverlapNone].
	Overlap Overlap
	// Paused is whether the schedule is paused.
	Paused bool
	// StartsAt and EndsAt limit the times of runs.
	StartsAt, EndsAt time.Time
}

// ScheduleChange specifies the fields of a schedule to change, with the meaning that they have in
// [Schedule].
type ScheduleChange struct {
	Cron             Field[string]
	Every            Field[time.Duration]
	TimeZone         Field[string]
	Body             Field[any]
	Priority         Field[int]
	Jitter           Field[time.Duration]
	Missed           Field[Missed]
	CatchUp          Field[time.Duration]
	Overlap          Field[Overlap]
	Paused           Field[bool]
	StartsAt, EndsAt Field[time.Time]
}

// ScheduleInfo is a schedule as the server stores it.
type ScheduleInfo struct {
	// Kind and ID identify the schedule.
	Kind, ID string
	// Schedule has the fields that were set, with defaults for the others. Its Body is a [Body].
	Schedule
	// Next is the next run. It is the zero Time if the schedule is paused, over, or has a problem.
	Next time.Time
	// NextTimes are its next five times, also if it is paused.
	NextTimes []time.Time
	// Problem is why the schedule cannot run, or empty.
	Problem string
}

// SetSchedule creates or replaces a schedule and returns it. If it has the same times as before, its
// next run stays, so that a program can set its schedules whenever it starts.
func (c *Client) SetSchedule(ctx context.Context, kind, id string, schedule Schedule) (*ScheduleInfo, error) {
	body, err := schedule.change().body(c.codec)
	if err != nil {
		return nil, err
	}
	return c.schedule(ctx, request{method: http.MethodPut, path: itemPath(kind, "schedules", id), body: body})
}

// ChangeSchedule changes the given fields of a schedule and returns all of them. It fails with
// [ErrAbsent] if there is no such schedule.
func (c *Client) ChangeSchedule(ctx context.Context, kind, id string, change ScheduleChange) (*ScheduleInfo, error) {
	body, err := change.body(c.codec)
	if err != nil {
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

// change returns the fields that are set.
func (s Schedule) change() ScheduleChange {
	return ScheduleChange{
		Cron: unlessZero(s.Cron), Every: unlessZero(s.Every), TimeZone: unlessZero(s.TimeZone),
		Body: bodyField(s.Body), Priority: unlessZero(s.Priority), Jitter: unlessZero(s.Jitter),
		Missed: unlessZero(s.Missed), CatchUp: unlessZero(s.CatchUp), Overlap: unlessZero(s.Overlap),
		Paused: unlessZero(s.Paused), StartsAt: unlessZeroTime(s.StartsAt), EndsAt: unlessZeroTime(s.EndsAt),
	}
}

func (s ScheduleChange) body(codec Codec) (changes, error) {
	body := changes{}
	add(body, "cron", s.Cron, asIs)
	add(body, "every", s.Every, asDuration)
	add(body, "time_zone", s.TimeZone, asIs)
	add(body, "priority", s.Priority, asIs)
	add(body, "jitter", s.Jitter, asDuration)
	add(body, "missed", s.Missed, asIs)
	add(body, "catch_up", s.CatchUp, asDuration)
	add(body, "overlap", s.Overlap, asIs)
	add(body, "paused", s.Paused, asIs)
	add(body, "starts_at", s.StartsAt, asTime)
	add(body, "ends_at", s.EndsAt, asTime)
	return body, addBody(body, s.Body, codec)
}

// UnmarshalJSON reads a schedule of a response.
func (s *ScheduleInfo) UnmarshalJSON(data []byte) error {
	var wire struct {
		Kind     string       `json:"kind"`
		ID       string       `json:"id"`
		Cron     string       `json:"cron"`
		Every    wireDuration `json:"every"`
		TimeZone string       `json:"time_zone"`
		wireBody
		Priority  int          `json:"priority"`
		Jitter    wireDuration `json:"jitter"`
		Missed    Missed       `json:"missed"`
		CatchUp   wireDuration `json:"catch_up"`
		Overlap   Overlap      `json:"overlap"`
		Paused    bool         `json:"paused"`
		StartsAt  time.Time    `json:"starts_at"`
		EndsAt    time.Time    `json:"ends_at"`
		Next      time.Time    `json:"next"`
		NextTimes []time.Time  `json:"next_times"`
		Problem   string       `json:"problem"`
	}
	if err := json.Unmarshal(data, &wire); err != nil {
		return err
	}
	body, err := wire.wireBody.decode()
	*s = ScheduleInfo{
		Kind: wire.Kind, ID: wire.ID, Next: wire.Next, NextTimes: wire.NextTimes, Problem: wire.Problem,
		Schedule: Schedule{
			Cron: wire.Cron, Every: time.Duration(wire.Every), TimeZone: wire.TimeZone, Body: body,
			Priority: wire.Priority, Jitter: time.Duration(wire.Jitter), Missed: wire.Missed,
			CatchUp: time.Duration(wire.CatchUp), Overlap: wire.Overlap, Paused: wire.Paused,
			StartsAt: wire.StartsAt, EndsAt: wire.EndsAt,
		},
	}
	return err
}

func unlessZero[T comparable](value T) Field[T] {
	var zero T
	if value == zero {
		return Field[T]{}
	}
	return Set(value)
}

func unlessZeroTime(t time.Time) Field[time.Time] {
	if t.IsZero() {
		return Field[time.Time]{}
	}
	return Set(t)
}

// bodyField is unlessZero for a body, whose value may not be comparable.
func bodyField(body any) Field[any] {
	if body == nil {
		return Field[any]{}
	}
	return Set(body)
}
