package main

import (
	"context"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const backlog = 10_000

// A controller processes a backlog: the real controller, without a manager or a cluster. Its
// own metrics cannot be turned off; those of the queue are, and it does not log.
func worker(concurrency int, budget time.Duration) float64 {
	keys := makeKeys(backlog)
	pass := func() time.Duration {
		q := priorityqueue.New[string]("")
		for _, key := range keys {
			q.Add(key)
		}
		q.Len() // takes in what was added
		count := newTally(backlog)
		skip := true
		c, err := controller.NewTypedUnmanaged("bench", controller.TypedOptions[string]{
			SkipNameValidation:      &skip,
			MaxConcurrentReconciles: concurrency,
			NewQueue: func(string, workqueue.TypedRateLimiter[string]) limitingQueue {
				return q
			},
			Reconciler: reconcile.TypedFunc[string](
				func(context.Context, string) (reconcile.Result, error) {
					count.finished()
					return reconcile.Result{}, nil
				}),
		})
		if err != nil {
			fail("%v", err)
		}
		ctx, stop := context.WithCancel(context.Background())
		stopped := make(chan error)
		started := time.Now()
		go func() { stopped <- c.Start(ctx) }()
		<-count.round
		elapsed := time.Since(started)
		stop()
		if err := <-stopped; err != nil {
			fail("%v", err)
		}
		return elapsed
	}
	pass()
	return passes(backlog, budget, pass)
}
