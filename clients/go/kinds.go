package requeue

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// KindInfo is a kind with its counts.
type KindInfo struct {
	// Kind is the name of the kind.
	Kind string `json:"kind"`
	// Pending is the number of waiting and ready jobs.
	Pending uint64 `json:"pending"`
	// Ready is the number of ready jobs, counted up to 10,000. ReadyCapped is whether there are more.
	Ready       uint64 `json:"ready"`
	ReadyCapped bool   `json:"ready_capped"`
	// Leased, Dead and Done are the numbers of jobs in these states.
	Leased uint64 `json:"leased"`
	Dead   uint64 `json:"dead"`
	Done   uint64 `json:"done"`
	// OldestReady is the due time of the job that has been ready for the longest time. It is the zero
	// Time if none is ready.
	OldestReady time.Time `json:"oldest_ready"`
	// Paused is whether no job of the kind is claimed.
	Paused bool `json:"paused"`
	// Push is whether the jobs are sent to a URL.
	Push bool `json:"push"`
	// PushState is the state of the deliveries, or nil. Only [Client.Kind] returns it.
	PushState *PushState `json:"push_state"`
	// ThrottledUntil is the time until which the rate limit allows no claim, or the zero Time.
	ThrottledUntil time.Time `json:"throttled_until"`
	// Generation and Fence are the latest numbers that were assigned.
	Generation uint64 `json:"generation"`
	Fence      uint64 `json:"fence"`
	// Settings are the settings of the kind. Only [Client.Kind] returns them.
	Settings *Settings `json:"settings"`
}

// PushState is the state of the deliveries of a kind whose jobs are sent to a URL, at one node.
type PushState struct {
	// InFlight is the number of requests in flight, and Limit how many there may be at the moment.
	InFlight int `json:"in_flight"`
	Limit    int `json:"limit"`
	// Circuit is the state of the circuit breaker, and Until the time at which it changes.
	Circuit string    `json:"circuit"`
	Until   time.Time `json:"until"`
	// Target is the host and port that jobs are sent to.
	Target string `json:"target"`
	// Problem is why no jobs are sent, or empty.
	Problem string `json:"problem"`
	// LastError is the last failed delivery, or nil.
	LastError *struct {
		At    time.Time `json:"at"`
		Error string    `json:"error"`
	} `json:"last_error"`
}

// Kinds returns the counts of all kinds.
func (c *Client) Kinds(ctx context.Context) ([]KindInfo, error) {
	var response struct {
		Kinds []KindInfo `json:"kinds"`
	}
	err := c.do(ctx, request{method: http.MethodGet, path: path("kinds"), repeatable: true}, &response)
	return response.Kinds, err
}

// Kind returns the counts and settings of a kind. A kind that has no jobs has all counts 0 and the
// default settings.
func (c *Client) Kind(ctx context.Context, kind string) (*KindInfo, error) {
	info := &KindInfo{}
	err := c.do(ctx, request{method: http.MethodGet, path: kindPath(kind), repeatable: true}, info)
	if err != nil {
		return nil, err
	}
	return info, nil
}

// Settings returns the settings of a kind.
func (c *Client) Settings(ctx context.Context, kind string) (*Settings, error) {
	return c.settings(ctx, request{method: http.MethodGet, path: kindPath(kind, "settings")})
}

// SetKind sets all settings of a kind and returns them. Settings that are not specified get their
// default.
func (c *Client) SetKind(ctx context.Context, kind string, settings SettingsChange) (*Settings, error) {
	return c.settings(ctx, request{method: http.MethodPut, path: kindPath(kind), body: settings.body()})
}

// ChangeKind changes the given settings of a kind and returns all of them. If two clients change the
// settings of a kind concurrently, one change may be lost.
func (c *Client) ChangeKind(ctx context.Context, kind string, settings SettingsChange) (*Settings, error) {
	return c.settings(ctx, request{method: http.MethodPatch, path: kindPath(kind), body: settings.body()})
}

func (c *Client) settings(ctx context.Context, r request) (*Settings, error) {
	r.repeatable = true
	settings := &Settings{}
	if err := c.do(ctx, r, settings); err != nil {
		return nil, err
	}
	return settings, nil
}

// Pause stops claims of a kind. Jobs that are running continue.
func (c *Client) Pause(ctx context.Context, kind string) error {
	return c.do(ctx, request{method: http.MethodPost, path: kindPath(kind, "pause"), repeatable: true}, nil)
}

// Resume permits claims of a kind again.
func (c *Client) Resume(ctx context.Context, kind string) error {
	return c.do(ctx, request{method: http.MethodPost, path: kindPath(kind, "resume"), repeatable: true}, nil)
}

// Deleted are the counts of a deleted kind.
type Deleted struct {
	// Removed is the number of jobs that were removed.
	Removed uint64 `json:"removed"`
	// Ending is the number of leased jobs, which are removed when their leases end.
	Ending uint64 `json:"ending"`
}

// DeleteKind removes the schedules, jobs and settings of a kind. Jobs that are put in the meantime may
// remain. If it fails, it also returns the counts of what was removed before.
func (c *Client) DeleteKind(ctx context.Context, kind string) (Deleted, error) {
	var total Deleted
	query := url.Values{}
	for {
		var part struct {
			Deleted
			Cursor *string `json:"cursor"`
		}
		err := c.do(ctx, request{method: http.MethodDelete, path: kindPath(kind), query: query}, &part)
		if err != nil {
			return total, err
		}
		total.Removed += part.Removed
		total.Ending += part.Ending
		if part.Cursor == nil {
			return total, nil
		}
		query.Set("after", *part.Cursor)
	}
}

// Upcoming specifies the spans of time of [Client.Upcoming]. Fields with their zero value are not set.
type Upcoming struct {
	// From is the start of the first span. The default is now.
	From time.Time
	// Span is the length of each span. The default is a minute.
	Span time.Duration
	// Count is the number of spans, up to 1000. The default is 60.
	Count int
}

// UpcomingCounts is the number of pending jobs that become due in each span of time.
type UpcomingCounts struct {
	// From is the start of the first span.
	From time.Time
	// Span is the length of each span.
	Span time.Duration
	// Counts has the number of jobs of each span.
	Counts []uint64
}

// Upcoming returns how many pending jobs of a kind become due in each span of time.
func (c *Client) Upcoming(ctx context.Context, kind string, spans Upcoming) (*UpcomingCounts, error) {
	query := url.Values{}
	if !spans.From.IsZero() {
		query.Set("from", formatTime(spans.From))
	}
	if spans.Span != 0 {
		query.Set("span", formatDuration(spans.Span))
	}
	if spans.Count != 0 {
		query.Set("count", strconv.Itoa(spans.Count))
	}
	counts := &UpcomingCounts{}
	err := c.do(ctx, request{method: http.MethodGet, path: kindPath(kind, "upcoming"), query: query, repeatable: true}, counts)
	if err != nil {
		return nil, err
	}
	return counts, nil
}

// UnmarshalJSON reads the counts of a response.
func (u *UpcomingCounts) UnmarshalJSON(data []byte) error {
	var wire struct {
		From   time.Time    `json:"from"`
		Span   wireDuration `json:"span"`
		Counts []uint64     `json:"counts"`
	}
	err := json.Unmarshal(data, &wire)
	*u = UpcomingCounts{From: wire.From, Span: time.Duration(wire.Span), Counts: wire.Counts}
	return err
}
