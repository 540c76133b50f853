package requeue

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
)

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
