package requeue

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

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
	return c.settings(ctx, request{method: http.MethodPut, path: kindPath(kind), body: asObject(settings)})
}

// ChangeKind changes the given settings of a kind and returns all of them. If two clients change the
// settings of a kind concurrently, one change may be lost.
func (c *Client) ChangeKind(ctx context.Context, kind string, settings SettingsChange) (*Settings, error) {
	return c.settings(ctx, request{method: http.MethodPatch, path: kindPath(kind), body: asObject(settings)})
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
