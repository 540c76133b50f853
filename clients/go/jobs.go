package requeue

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
)

// Get returns a job. It fails with [ErrAbsent] if there is none.
func (c *Client) Get(ctx context.Context, kind, id string) (*JobInfo, error) {
	job := &JobInfo{}
	err := c.do(ctx, request{method: http.MethodGet, path: itemPath(kind, "jobs", id), repeatable: true}, job)
	if err != nil {
		return nil, err
	}
	return job, nil
}

// fields returns the filter as it is sent.
func (f Filter) fields() (changes, error) {
	fields := changes{}
	f.addTo(fields)
	return fields, fields.checkNoneIsUnset()
}

// query returns the filter as parameters of a query.
func (f Filter) query() (url.Values, error) {
	query := url.Values{}
	fields, err := f.fields()
	for name, value := range fields {
		query.Set(name, fmt.Sprint(value))
	}
	return query, err
}

// Order is the order of a list of jobs.
type Order string

// The orders of a list of jobs. The last two need a [Filter] with a State: waiting and ready jobs are
// ordered by their due time, leased jobs by the end of the lease, dead jobs by the time of death, and done
// jobs by the time of the ack.
const (
	// ByID: by id.
	ByID Order = "id"
	// EarliestFirst: by time, the earliest first.
	EarliestFirst Order = "time"
	// NewestFirst: by time, the latest first.
	NewestFirst Order = "newest"
)

// listPage is the number of jobs that List requests at a time.
const listPage = 200

// List returns the jobs of a kind that match the filter, in this order. It requests them page by page
// while the caller iterates. An error is returned as the last element, with a nil job.
func (c *Client) List(ctx context.Context, kind string, filter Filter, order Order) iter.Seq2[*JobInfo, error] {
	return func(yield func(*JobInfo, error) bool) {
		query, err := filter.query()
		if err != nil {
			yield(nil, err)
			return
		}
		query.Set("limit", strconv.Itoa(listPage))
		if order != "" {
			query.Set("order", string(order))
		}
		for {
			var page struct {
				Jobs   []*JobInfo `json:"jobs"`
				Cursor *string    `json:"cursor"`
			}
			err := c.do(ctx, request{method: http.MethodGet, path: kindPath(kind, "jobs"), query: query, repeatable: true}, &page)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, job := range page.Jobs {
				if !yield(job, nil) {
					return
				}
			}
			if page.Cursor == nil {
				return
			}
			query.Set("after", *page.Cursor)
		}
	}
}

// Count returns how many jobs [Client.List] returns with this filter. With a filter other than State, the
// server examines all jobs of the kind, 10,000 at a time.
func (c *Client) Count(ctx context.Context, kind string, filter Filter) (uint64, error) {
	query, err := filter.query()
	if err != nil {
		return 0, err
	}
	for total := uint64(0); ; {
		var part struct {
			Matched uint64  `json:"matched"`
			Cursor  *string `json:"cursor"`
		}
		err := c.do(ctx, request{method: http.MethodGet, path: kindPath(kind, "count"), query: query, repeatable: true}, &part)
		if err != nil {
			return 0, err
		}
		if total += part.Matched; part.Cursor == nil {
			return total, nil
		}
		query.Set("after", *part.Cursor)
	}
}
