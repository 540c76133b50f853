// Command scenarioworker is the worker that the scenarios in clients/scenarios drive. It runs one kind,
// does what the bodies of its jobs say, and prints what happens as JSON Lines.
//
//	scenarioworker '{"name": "w1", "kind": "scenario-3", "concurrency": 2, "lease": "600ms"}'
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"requeue.invalid/requeue"
)

type config struct {
	Name        string   `json:"name"`
	Kind        string   `json:"kind"`
	Concurrency int      `json:"concurrency"`
	Lease       duration `json:"lease"`
	Grace       duration `json:"grace"`
	Timeout     duration `json:"timeout"`
}

// duration is a duration in JSON, such as "600ms".
type duration time.Duration

func (d *duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = duration(parsed)
	return err
}

func main() {
	if len(os.Args) != 2 {
		fail(errors.New("usage: scenarioworker CONFIG"))
	}
	var config config
	if err := json.Unmarshal([]byte(os.Args[1]), &config); err != nil {
		fail(err)
	}
	client, err := requeue.New()
	if err != nil {
		fail(err)
	}
	worker := requeue.NewWorker(client, requeue.WorkerOptions{
		Name:        config.Name,
		Concurrency: config.Concurrency,
		Lease:       time.Duration(config.Lease),
		Grace:       time.Duration(config.Grace),
		Logger:      slog.New(slog.NewTextHandler(os.Stderr, nil)),
		OnFailure: func(job *requeue.Job, _ error, next requeue.Next) {
			say("failed", event{"id": job.ID, "attempt": job.Attempt, "next": next})
		},
		OnLost:  func(job *requeue.Job) { say("lost", event{"id": job.ID}) },
		OnError: func(err error) { say("error", event{"message": err.Error()}) },
	})
	scenario := &scenario{client: client, requeued: map[string]bool{}}
	requeue.Handle(worker, config.Kind, scenario.handle, requeue.Timeout(time.Duration(config.Timeout)))

	say("ready", event{})
	stopped, err := worker.RunUntilSignal(context.Background())
	if err != nil {
		fail(err)
	}
	say("exit", event{"stopped": stopped})
	if stopped > 0 {
		os.Exit(1)
	}
}

type event map[string]any

// printing keeps lines whole.
var printing sync.Mutex

// say prints an event.
func say(name string, fields event) {
	fields["event"] = name
	line, err := json.Marshal(fields)
	if err != nil {
		fail(err)
	}
	printing.Lock()
	defer printing.Unlock()
	io.WriteString(os.Stdout, string(line)+"\n")
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(2)
}
