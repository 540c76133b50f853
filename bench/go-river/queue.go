package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

const (
	// The number of jobs per call.
	batch = 1000
	// More events than jobs can finish before they are read: an event that does not fit is dropped.
	events = 100_000
	// The time between two fetches. The default of 100 ms limits 50 workers to 500 jobs per second; from
	// here on, less time makes no difference.
	cooldown = 2 * time.Millisecond
	// How often a worker looks for scheduled jobs that became due.
	lookForDue = 100 * time.Millisecond
)

type jobArgs struct {
	Body string `json:"body"`
}

func (jobArgs) Kind() string { return "bench" }

type queue struct {
	pool *pgxpool.Pool
	// Inserts jobs, and runs none.
	inserter *river.Client[pgx.Tx]
	// The jobs that were finished by the worker that `start` started.
	finished atomic.Int64
}

func newQueue(url string) *queue {
	pool, err := pgxpool.New(context.Background(), url)
	check(err)
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: logger()})
	check(err)
	_, err = migrator.Migrate(context.Background(), rivermigrate.DirectionUp, nil)
	check(err)
	inserter, err := river.NewClient(riverpgxv5.New(pool), &river.Config{Logger: logger()})
	check(err)
	return &queue{pool: pool, inserter: inserter}
}

func logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
}

func (q *queue) insert(count int, delay time.Duration) time.Duration {
	var options *river.InsertOpts
	if delay > 0 {
		options = &river.InsertOpts{ScheduledAt: time.Now().Add(delay)}
	}
	body := strings.Repeat("x", 100)
	jobs := make([]river.InsertManyParams, count)
	for i := range jobs {
		jobs[i] = river.InsertManyParams{Args: jobArgs{body}, InsertOpts: options}
	}
	return q.insertAll(jobs)
}

func (q *queue) insertAll(jobs []river.InsertManyParams) time.Duration {
	started := time.Now()
	for first := 0; first < len(jobs); first += batch {
		some := jobs[first:min(first+batch, len(jobs))]
		_, err := q.inserter.InsertManyFast(context.Background(), some)
		check(err)
	}
	return time.Since(started)
}

// Starts a worker. Returns it, and a channel with an event for each job whose end is stored.
func (q *queue) work(workers int, poll time.Duration, handler func(string)) (*river.Client[pgx.Tx], <-chan *river.Event) {
	known := river.NewWorkers()
	river.AddWorker(known, river.WorkFunc(func(_ context.Context, job *river.Job[jobArgs]) error {
		handler(job.Args.Body)
		return nil
	}))
	client, err := river.NewClient(riverpgxv5.New(q.pool), &river.Config{
		FetchCooldown:     cooldown,
		FetchPollInterval: poll,
		Logger:            logger(),
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: workers}},
		Workers:           known,
	})
	check(err)
	completed, _ := client.SubscribeConfig(&river.SubscribeConfig{
		ChanSize: events,
		Kinds:    []river.EventKind{river.EventKindJobCompleted},
	})
	check(client.Start(context.Background()))
	return client, completed
}

func (q *queue) process(workers, count int) time.Duration {
	started := time.Now()
	client, completed := q.work(workers, river.FetchPollIntervalDefault, func(string) {})
	for range count {
		<-completed
	}
	elapsed := time.Since(started)
	check(client.Stop(context.Background()))
	return elapsed
}

func (q *queue) start(workers int) {
	_, completed := q.work(workers, river.FetchPollIntervalDefault, func(string) {})
	go func() {
		for range completed {
			q.finished.Add(1)
		}
	}()
}

// Returns how late each job was started, in microseconds.
func (q *queue) late(workers, count int, first, last time.Duration) []int64 {
	late := make(chan int64, count)
	q.work(workers, lookForDue, func(body string) {
		began := time.Now().UnixMicro()
		due, err := strconv.ParseInt(strings.TrimSpace(body), 10, 64)
		check(err)
		late <- began - due*1000
	})
	now := time.Now().UnixMilli()
	jobs := make([]river.InsertManyParams, count)
	for i := range jobs {
		due := now + delay(i, first, last).Milliseconds()
		jobs[i] = river.InsertManyParams{
			Args:       jobArgs{fmt.Sprintf("%-100d", due)},
			InsertOpts: &river.InsertOpts{ScheduledAt: time.UnixMilli(due)},
		}
	}
	q.insertAll(jobs)
	all := make([]int64, count)
	for i := range all {
		all[i] = <-late
	}
	return all
}

// The delays of all systems are the same; see ../src/workloads/postgres/job.rs.
func delay(i int, first, last time.Duration) time.Duration {
	mixed := uint32(i+1) * 0x9E3779B1
	spread := (last - first).Milliseconds()
	return first + time.Duration(spread*int64(mixed)>>32)*time.Millisecond
}
