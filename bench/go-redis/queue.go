package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

type queue struct {
	client *asynq.Client
	redis  redis.UniversalClient
	// The number of jobs generated so far.
	made int
}

func newQueue(options asynq.RedisClientOpt) *queue {
	connections := options.MakeRedisClient().(redis.UniversalClient)
	return &queue{client: asynq.NewClientFromRedisClient(connections), redis: connections}
}

type job struct {
	id   string
	body []byte
}

// All ids are different, and not in the order of the jobs; see ../src/workloads/redis/job.rs.
func (q *queue) makeUp(count int, body func(int) string) []job {
	jobs := make([]job, count)
	for i := range jobs {
		q.made++
		id := fmt.Sprintf("j%08x%07x", uint32(q.made)*0x9E3779B1, q.made)
		jobs[i] = job{id, []byte(body(i))}
	}
	return jobs
}

func plain(int) string {
	return strings.Repeat("x", 100)
}

func (q *queue) put(callers, count int, delay time.Duration) time.Duration {
	jobs := q.makeUp(count, plain)
	started := time.Now()
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			for i := caller; i < count; i += callers {
				q.enqueue(jobs[i], asynq.ProcessIn(delay))
			}
		})
	}
	all.Wait()
	return time.Since(started)
}

func (q *queue) enqueue(job job, due asynq.Option) {
	_, err := q.client.Enqueue(asynq.NewTask("bench", job.body), asynq.TaskID(job.id), due)
	check(err)
}

// A server looks for due jobs every second, instead of every five: its times are
// in whole seconds.
func (q *queue) serve(concurrency int, handler asynq.HandlerFunc) *asynq.Server {
	config := asynq.Config{
		Concurrency:              concurrency,
		DelayedTaskCheckInterval: time.Second,
		LogLevel:                 asynq.ErrorLevel,
	}
	server := asynq.NewServerFromRedisClient(q.redis, config)
	check(server.Start(handler))
	return server
}

func (q *queue) process(concurrency, count int) time.Duration {
	handled := make(chan struct{})
	var left atomic.Int64
	left.Store(int64(count))
	started := time.Now()
	server := q.serve(concurrency, func(context.Context, *asynq.Task) error {
		if left.Add(-1) == 0 {
			close(handled)
		}
		return nil
	})
	<-handled
	for q.active() {
		time.Sleep(time.Millisecond)
	}
	elapsed := time.Since(started)
	server.Shutdown()
	return elapsed
}

// Returns whether any task is not acked yet. An Inspector would query a dozen other things.
func (q *queue) active() bool {
	there, err := q.redis.Exists(context.Background(), "asynq:{default}:active").Result()
	check(err)
	return there > 0
}

// The delay of the start of each job, in microseconds.
func (q *queue) late(concurrency, count int, lead, spread time.Duration) string {
	late := make(chan int64, count)
	q.serve(concurrency, func(_ context.Context, task *asynq.Task) error {
		began := time.Now().UnixMicro()
		due, err := strconv.ParseInt(strings.TrimSpace(string(task.Payload())), 10, 64)
		check(err)
		late <- began - due*1000
		return nil
	})
	base := time.Now().Add(lead)
	dueAt := func(i int) time.Time {
		return base.Add(spread * time.Duration(i) / time.Duration(count))
	}
	jobs := q.makeUp(count, func(i int) string {
		return fmt.Sprintf("%-100d", dueAt(i).UnixMilli())
	})
	var all sync.WaitGroup
	for caller := range 50 {
		all.Go(func() {
			for i := caller; i < count; i += 50 {
				q.enqueue(jobs[i], asynq.ProcessAt(time.UnixMilli(dueAt(i).UnixMilli())))
			}
		})
	}
	all.Wait()
	var answer strings.Builder
	for range count {
		fmt.Fprintf(&answer, "%d ", <-late)
	}
	return answer.String()
}

func (q *queue) wait(workers int) {
	for range workers {
		q.serve(1, func(context.Context, *asynq.Task) error { return nil })
	}
}
