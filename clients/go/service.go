package requeue

import (
	"context"
	"net/http"
)

// Stats returns totals of all kinds, and the problems of this node.
func (c *Client) Stats(ctx context.Context) (*Stats, error) {
	stats := &Stats{}
	err := c.do(ctx, request{method: http.MethodGet, path: path("stats"), repeatable: true}, stats)
	if err != nil {
		return nil, err
	}
	return stats, nil
}

// Workers returns the workers that have recently claimed jobs from this node, sorted by name.
func (c *Client) Workers(ctx context.Context) ([]WorkerInfo, error) {
	var response struct {
		Workers []WorkerInfo `json:"workers"`
	}
	err := c.do(ctx, request{method: http.MethodGet, path: path("workers"), repeatable: true}, &response)
	return response.Workers, err
}
