package requeue

import (
	"context"
	"net/http"
	"time"
)

// Stats are statistics of the service.
type Stats struct {
	// Version is the version of the server.
	Version string `json:"version"`
	// UptimeSeconds is how long this node has been running.
	UptimeSeconds uint64 `json:"uptime_seconds"`
	// Kinds is the number of kinds.
	Kinds uint64 `json:"kinds"`
	// Pending, Ready, Leased, Dead and Done are numbers of jobs of all kinds.
	Pending uint64 `json:"pending"`
	Ready   uint64 `json:"ready"`
	Leased  uint64 `json:"leased"`
	Dead    uint64 `json:"dead"`
	Done    uint64 `json:"done"`
	// WaitingClaims is the number of requests that wait for jobs at this node.
	WaitingClaims uint64 `json:"waiting_claims"`
	// Problems is what is wrong at this node, although it serves requests at least in part.
	Problems []NodeProblem `json:"problems"`
}

// NodeProblem is something that is wrong at a node, such as a full disk.
type NodeProblem struct {
	// Name is the name of the problem, such as disk_full.
	Name string `json:"name"`
	// Detail describes it.
	Detail string `json:"detail"`
	// Since is when it began.
	Since time.Time `json:"since"`
}

// WorkerInfo is a worker, as a node has seen it.
type WorkerInfo struct {
	// Name is the name of the worker. Workers that share a name appear as one.
	Name string `json:"name"`
	// Kinds are the kinds of its last claim, at most the first 16.
	Kinds []string `json:"kinds"`
	// FirstSeen is when it first claimed or began to wait, and LastSeen when it last did something.
	FirstSeen time.Time `json:"first_seen"`
	LastSeen  time.Time `json:"last_seen"`
	// Waiting is the number of its requests that wait for jobs now.
	Waiting int `json:"waiting"`
	// Claimed, Acked and Failed are the numbers of jobs that it has claimed, acked or requeued, and
	// retried or buried. Held is the number of jobs that it holds.
	Claimed uint64 `json:"claimed"`
	Acked   uint64 `json:"acked"`
	Failed  uint64 `json:"failed"`
	Held    uint64 `json:"held"`
}

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
