package main

import (
	"context"
	"strconv"
	"time"

	"requeue.invalid/requeue"
)

// requeueSystem is a requeue server.
type requeueSystem struct {
	client *requeue.Client
	kind   string
}

func newRequeue() system {
	client, err := requeue.New()
	check(err)
	return &requeueSystem{client, "bench-go-" + strconv.FormatInt(time.Now().UnixNano(), 36)}
}

func (s *requeueSystem) put(jobs int) {
	for first := 0; first < jobs; first += 1000 {
		var batch []requeue.PutJob
		for i := first; i < min(first+1000, jobs); i++ {
			batch = append(batch, requeue.PutJob{Kind: s.kind, ID: strconv.Itoa(i)})
		}
		results, err := s.client.PutMany(context.Background(), batch)
		check(err)
		for _, result := range results {
			check(result.Err)
		}
	}
}

func (s *requeueSystem) run(jobs, concurrency int, handled func()) {
	ctx, stop := context.WithCancel(context.Background())
	last := countDown(jobs, stop)
	worker := requeue.NewWorker(s.client, requeue.WorkerOptions{Concurrency: concurrency})
	worker.Handle(s.kind, func(context.Context, *requeue.Job) error {
		handled()
		last()
		return nil
	})
	// Run returns when all jobs are settled.
	_, err := worker.Run(ctx)
	check(err)
	info, err := s.client.Kind(context.Background(), s.kind)
	check(err)
	if info.Pending+info.Leased+info.Dead > 0 {
		panic("there are jobs left")
	}
}
