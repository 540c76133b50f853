package requeue

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"time"
)

// ErrorGroups are the dead jobs of a kind, grouped by their last error.
type ErrorGroups struct {
	// Groups are the largest groups, the largest first.
	Groups []ErrorGroup `json:"groups"`
	// Other is the number of dead jobs in further groups.
	Other uint64 `json:"other"`
	// Scanned is the number of dead jobs.
	Scanned uint64 `json:"scanned"`
}

// ErrorGroup are dead jobs whose last errors differ only in numbers and ids.
type ErrorGroup struct {
	// ErrorGroup is the text of the group, with * for numbers and ids: see [Filter]. It is empty if the
	// leases of the jobs expired.
	ErrorGroup string `json:"error_group"`
	// Count is the number of jobs.
	Count uint64 `json:"count"`
	// Example is the job of the group that died last.
	Example ErrorExample `json:"example"`
	// FirstDiedAt and LastDiedAt are when the first and the last of the jobs died.
	FirstDiedAt time.Time `json:"first_died_at"`
	LastDiedAt  time.Time `json:"last_died_at"`
}

// ErrorExample is a job of a group.
type ErrorExample struct {
	// ID is the id of the job.
	ID string `json:"id"`
	// Error is its last error. It is empty if the lease expired.
	Error string `json:"error"`
}

// ErrorGroups groups the dead jobs of a kind by their last error. Errors that differ only in numbers and
// ids are in the same group. Select the jobs of a group with ErrorGroup of [Filter], or with Expired if it
// has no error.
func (c *Client) ErrorGroups(ctx context.Context, kind string) (*ErrorGroups, error) {
	total, query := &ErrorGroups{}, url.Values{}
	for {
		var part struct {
			ErrorGroups
			Cursor *string `json:"cursor"`
		}
		err := c.do(ctx, request{method: http.MethodGet, path: kindPath(kind, "errors"), query: query, repeatable: true}, &part)
		if err != nil {
			return nil, err
		}
		total.add(part.ErrorGroups)
		if part.Cursor == nil {
			return total, nil
		}
		query.Set("after", *part.Cursor)
	}
}

// add adds the groups of other jobs.
func (g *ErrorGroups) add(other ErrorGroups) {
	g.Other += other.Other
	g.Scanned += other.Scanned
	for _, group := range other.Groups {
		at := slices.IndexFunc(g.Groups, func(known ErrorGroup) bool { return known.ErrorGroup == group.ErrorGroup })
		if at < 0 {
			g.Groups = append(g.Groups, group)
			continue
		}
		known := &g.Groups[at]
		known.Count += group.Count
		if group.FirstDiedAt.Before(known.FirstDiedAt) {
			known.FirstDiedAt = group.FirstDiedAt
		}
		if group.LastDiedAt.After(known.LastDiedAt) {
			known.LastDiedAt, known.Example = group.LastDiedAt, group.Example
		}
	}
	slices.SortFunc(g.Groups, func(a, b ErrorGroup) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.ErrorGroup, b.ErrorGroup))
	})
}
