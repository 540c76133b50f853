package requeue_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"requeue.invalid/requeue"
)

func TestAHandlerGetsTheDecodedBodyAndSetsAResult(t *testing.T) {
	t.Parallel()
	client, kind := newClient(t), newKind(t)
	_, err := client.ChangeKind(ctx, kind, requeue.SettingsChange{KeepDone: requeue.Set(requeue.KeepDone{})})
	check(t, err)
	put(t, client, kind, "a", order{7, "hello"})
	worker := requeue.NewWorker(client, requeue.WorkerOptions{Name: "me"})
	requeue.Handle(worker, kind, func(_ context.Context, job *requeue.JobOf[order]) error {
		if job.ID != "a" || job.Attempt != 1 || job.Generation == 0 {
			return fmt.Errorf("got %+v", job.Job)
		}
		return job.SetResult(map[string]int{"number": job.Body.Number + 1})
	})
	runWorker(t, worker)
	eventually(t, "the job is done", func() bool {
		job, err := client.Get(ctx, kind, "a")
		check(t, err)
		if job.State != requeue.StateDone {
			return false
		}
		if string(job.Done.Result.Data) != `{"number":8}` || job.Done.Worker != "me" {
			t.Errorf("got %+v", job.Done)
		}
		return true
	})
}

func TestFailuresAreRetriedAndEndInTheDeadLetterQueue(t *testing.T) {
	t.Parallel()
	client, kind := newClient(t), newKind(t)
	_, err := client.ChangeKind(ctx, kind, requeue.SettingsChange{BackoffBase: requeue.Set(time.Millisecond), MaxAttempts: requeue.Set(2)})
	check(t, err)
	ends := map[string]func() error{
		"error":         func() error { return errors.New("boom") },
		"panic":         func() error { panic("boom") },
		"nil pointer":   func() error { var p *order; return errors.New(p.Note) },
		"goexit":        func() error { runtime.Goexit(); return nil },
		"give up":       func() error { return fmt.Errorf("wrapped: %w", requeue.GiveUp("no use")) },
		"retry after":   func() error { return fmt.Errorf("wrapped: %w", requeue.RetryAfter(0, errors.New("boom"))) },
		"far too late":  func() error { return requeue.RetryAfter(100*365*24*time.Hour, errors.New("boom")) },
		"a long error":  func() error { return errors.New(strings.Repeat("ü", 5000)) },
		"a huge result": func() error { return nil },
	}
	record := &record{}
	worker := requeue.NewWorker(client, record.options())
	worker.Handle(kind, func(_ context.Context, job *requeue.Job) error {
		if job.ID == "a huge result" {
			return job.SetResult(strings.Repeat("x", 100<<10))
		}
		return ends[job.ID]()
	})
	for id := range ends {
		put(t, client, kind, id, nil)
	}
	runWorker(t, worker)
	eventually(t, "all jobs are dead", func() bool {
		info, err := client.Kind(ctx, kind)
		check(t, err)
		return info.Dead == uint64(len(ends))
	})
	want := map[string]string{
		"error": "boom", "panic": "panic: boom", "nil pointer": "panic: runtime error", "goexit": "Goexit",
		"give up": "wrapped: no use", "retry after": "wrapped: boom", "far too late": "delay", "a long error": "üü", "a huge result": "limit is 65536",
	}
	for id, text := range want {
		job, err := client.Get(ctx, kind, id)
		check(t, err)
		attempts := 2
		if id == "give up" {
			attempts = 1
		}
		last := job.Failures[len(job.Failures)-1].Error
		if job.Attempts != attempts || !strings.Contains(last, text) || len(last) > 2048 {
			t.Errorf("%s: %d attempts, error %q", id, job.Attempts, last)
		}
	}
	eventually(t, "all failures are reported", func() bool {
		record.mu.Lock()
		defer record.mu.Unlock()
		return len(record.dead) == len(ends) && len(record.failures) == 2*len(ends)-1
	})
}

func TestABodyThatCannotBeDecodedIsBuriedWithAReason(t *testing.T) {
	t.Parallel()
	client, kind := newClient(t), newKind(t)
	worker := requeue.NewWorker(client, requeue.WorkerOptions{})
	requeue.Handle(worker, kind, func(context.Context, *requeue.JobOf[order]) error { return nil })
	put(t, client, kind, "wrong type", []int{1})
	put(t, client, kind, "not JSON", requeue.Body{Data: []byte("{"), ContentType: "application/json"})
	put(t, client, kind, "empty", nil)
	put(t, client, kind, "good", order{})
	runWorker(t, worker)
	eventually(t, "three jobs are dead and one is done", func() bool {
		info, err := client.Kind(ctx, kind)
		check(t, err)
		return info.Dead == 3 && info.Pending+info.Leased == 0
	})
	for job, err := range client.List(ctx, kind, requeue.Filter{}, requeue.ByID) {
		check(t, err)
		if reason := job.Failures[0].Error; job.Attempts != 1 || !strings.Contains(reason, kind) || !strings.Contains(reason, "body") {
			t.Errorf("%s: %q", job.ID, reason)
		}
	}
}

func TestNoMoreHandlersRunThanThereAreSlotsAndEachJobRunsOnce(t *testing.T) {
	t.Parallel()
	client, kind := newClient(t), newKind(t)
	const count, concurrency = 1000, 7
	var jobs []requeue.PutJob
	for i := range count {
		jobs = append(jobs, requeue.PutJob{Kind: kind, ID: fmt.Sprint(i)})
	}
	_, err := client.PutMany(ctx, jobs)
	check(t, err)
	var running, most atomic.Int64
	var mu sync.Mutex
	ran := map[string]int{}
	record := &record{}
	options := record.options()
	options.Concurrency = concurrency
	worker := requeue.NewWorker(client, options)
	worker.Handle(kind, func(_ context.Context, job *requeue.Job) error {
		now := running.Add(1)
		defer running.Add(-1)
		for before := most.Load(); now > before && !most.CompareAndSwap(before, now); before = most.Load() {
		}
		mu.Lock()
		defer mu.Unlock()
		ran[job.ID]++
		return nil
	})
	stop := runWorker(t, worker)
	eventually(t, "all jobs are done", func() bool {
		info, err := client.Kind(ctx, kind)
		check(t, err)
		return info.Pending+info.Leased == 0
	})
	stop()
	if most.Load() > concurrency {
		t.Errorf("%d handlers ran at the same time", most.Load())
	}
	for id, runs := range ran {
		if runs != 1 {
			t.Errorf("job %s ran %d times", id, runs)
		}
	}
	if len(ran) != count || len(record.lostJobs()) != 0 {
		t.Errorf("%d jobs ran, lost %v", len(ran), record.lostJobs())
	}
}

func TestHandlersAreRegisteredOnce(t *testing.T) {
	t.Parallel()
	worker := requeue.NewWorker(newClient(t), requeue.WorkerOptions{})
	if _, err := worker.Run(ctx); err == nil {
		t.Error("a worker without handlers ran")
	}
	worker.Handle("kind", nil)
	defer func() {
		if recover() == nil {
			t.Error("a second handler was accepted")
		}
	}()
	worker.Handle("kind", nil)
}
