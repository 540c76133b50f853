package requeue

import (
	"context"
	"errors"
	"time"
)

// keep extends leases until the context ends. There is one request at a time, for all leases that are
// due. It does not delay the end of leases by the clock.
func (r *run) keep(ctx context.Context) {
	extended := make(chan struct{}, 1)
	sending := false
	for {
		due, lost, next := r.leases.check(time.Now())
		for _, running := range lost {
			r.report.lost(running.job)
		}
		if len(due) > 0 && !sending {
			sending = true
			go func() {
				r.extend(ctx, due[:min(len(due), maxBatch)])
				extended <- struct{}{}
			}()
		}
		timer := time.NewTimer(time.Until(next))
		select {
		case <-ctx.Done():
		case <-extended:
			sending = false
		case <-timer.C:
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// extend extends the leases of jobs.
func (r *run) extend(ctx context.Context, jobs []*running) {
	// A lease is extended after a third, so after another third there is still time for a new connection.
	ctx, cancel := context.WithTimeout(ctx, max(r.options.Lease/3, 2*time.Second))
	defer cancel()
	settlements := make([]Settlement, len(jobs))
	for i, running := range jobs {
		settlements[i] = Settlement{Job: running.job, Verb: VerbExtend, Lease: r.options.Lease}
	}
	sent := time.Now()
	results, err := r.client.Settle(ctx, settlements)
	if err != nil {
		results = make([]SettleResult, len(jobs))
		if !errors.Is(ctx.Err(), context.Canceled) {
			r.report.error("extend leases", err)
		}
	}
	for i, running := range jobs {
		lost := errors.Is(results[i].Err, ErrLeaseLost)
		if results[i].Err != nil && !lost {
			r.report.error("extend a lease", results[i].Err)
		}
		if r.leases.extended(running, sent, time.Now(), results[i].Outcome, lost) {
			r.report.lost(running.job)
		}
	}
}
