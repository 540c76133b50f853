package requeue

import (
	"context"
	"fmt"
)

// entry is the result of one entry of a batch in a response: the fields of R, or a problem.
type entry[R any] interface {
	// result returns the result, with the problem as its error.
	result() R
}

// batch sends a request with count entries and returns one result per entry.
func batch[E entry[R], R any](ctx context.Context, c *Client, r request, count int) ([]R, error) {
	var response struct {
		Results []E `json:"results"`
	}
	if err := c.do(ctx, r, &response); err != nil {
		return nil, err
	}
	if len(response.Results) != count {
		return nil, fmt.Errorf("%w: the response has %d results for %d entries", ErrOutcomeUnknown, len(response.Results), count)
	}
	results := make([]R, count)
	for i, entry := range response.Results {
		results[i] = entry.result()
	}
	return results, nil
}
