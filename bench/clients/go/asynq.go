package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// asynqSystem is asynq with a Redis.
type asynqSystem struct {
	redis redis.UniversalClient
	queue string
}

func newAsynq() system {
	options, err := asynq.ParseRedisURI(strings.TrimSuffix(os.Getenv("REDIS_URL"), "/"))
	check(err)
	client := options.(asynq.RedisClientOpt)
	// A connection for each concurrent caller.
	client.PoolSize = 50
	return &asynqSystem{
		redis: client.MakeRedisClient().(redis.UniversalClient),
		queue: "bench-" + strconv.FormatInt(time.Now().UnixNano(), 36),
	}
}

// put puts the jobs with 20 callers: there is no call for many.
func (s *asynqSystem) put(jobs int) {
	client := asynq.NewClientFromRedisClient(s.redis)
	const callers = 20
	var all sync.WaitGroup
	for caller := range callers {
		all.Add(1)
		go func() {
			defer all.Done()
			for i := caller; i < jobs; i += callers {
				_, err := client.Enqueue(asynq.NewTask("bench", nil), asynq.TaskID(strconv.Itoa(i)), asynq.Queue(s.queue))
				check(err)
			}
		}()
	}
	all.Wait()
}

func (s *asynqSystem) run(jobs, concurrency int, handled func()) {
	finished := make(chan struct{})
	last := countDown(jobs, func() { close(finished) })
	server := asynq.NewServerFromRedisClient(s.redis, asynq.Config{
		Concurrency: concurrency, Queues: map[string]int{s.queue: 1}, LogLevel: asynq.ErrorLevel,
	})
	check(server.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		handled()
		last()
		return nil
	})))
	<-finished
	// The tasks of the last handlers are acked after they have returned. An Inspector would query a
	// dozen other things.
	for {
		active, err := s.redis.Exists(context.Background(), fmt.Sprintf("asynq:{%s}:active", s.queue)).Result()
		check(err)
		if active == 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
}
