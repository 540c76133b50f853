package requeue_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"requeue.invalid/requeue"
)

// The tests run against the server binary in REQUEUE_BIN. REQUEUE_TEST_STORE selects its store: a
// temporary directory, or a Redis, which the tests share with others.

// patience limits how long a test waits for something that must happen. It is long because the
// machine may be busy; no test waits for it to pass.
const patience = time.Minute

// shared is the server that tests use unless they need one of their own.
var shared *server

func TestMain(m *testing.M) {
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	if os.Getenv("REQUEUE_BIN") == "" {
		fmt.Fprintln(os.Stderr, "set REQUEUE_BIN to the path of the server binary")
		return 1
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	directory, err := os.MkdirTemp("", "requeue-go-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(directory)
	os.Unsetenv("REQUEUE_TOKEN")
	shared = &server{directory: directory}
	if err := shared.start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer shared.kill()
	// The examples use the environment.
	os.Setenv("REQUEUE_SERVER", shared.url)
	return m.Run()
}

// server is a process of the server.
type server struct {
	directory string
	env       []string
	url       string
	command   *exec.Cmd
}

// startServer starts a server for one test.
func startServer(t *testing.T, env ...string) *server {
	t.Helper()
	server := &server{directory: t.TempDir(), env: env}
	if err := server.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.kill)
	return server
}

var listening = regexp.MustCompile(`listening on (http://\S+),`)

// start starts the process on a free port and waits until it listens.
func (s *server) start() error {
	arguments := []string{"serve", "--listen", "127.0.0.1:0", "--log", "error"}
	if store := os.Getenv("REQUEUE_TEST_STORE"); strings.HasPrefix(store, "redis") {
		arguments = append(arguments, "--store", store)
	} else {
		arguments = append(arguments, "--data", s.directory)
	}
	s.command = exec.Command(os.Getenv("REQUEUE_BIN"), arguments...)
	s.command.Env = append(os.Environ(), s.env...)
	s.command.Stderr = os.Stderr
	output, err := s.command.StdoutPipe()
	if err != nil {
		return err
	}
	if err := s.command.Start(); err != nil {
		return err
	}
	for lines := bufio.NewScanner(output); lines.Scan(); {
		if found := listening.FindStringSubmatch(lines.Text()); found != nil {
			s.url = found[1]
			go func() {
				for lines.Scan() {
				}
			}()
			return nil
		}
	}
	s.kill()
	return errors.New("the server did not start")
}

// kill ends the process with SIGKILL.
func (s *server) kill() {
	s.command.Process.Kill()
	s.command.Wait()
}

// newClient returns a client of the shared server.
func newClient(t *testing.T, options ...requeue.Option) *requeue.Client {
	t.Helper()
	options = append([]requeue.Option{requeue.WithServer(shared.url), requeue.WithRetryFor(patience)}, options...)
	client, err := requeue.New(options...)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// newKind returns a kind that no other test uses.
func newKind(t *testing.T) string {
	t.Helper()
	random := make([]byte, 6)
	rand.Read(random)
	kind := "go-" + hex.EncodeToString(random)
	t.Cleanup(func() {
		client, _ := requeue.New(requeue.WithServer(shared.url))
		client.DeleteKind(context.Background(), kind)
	})
	return kind
}

// put puts a job that is due now.
func put(t *testing.T, client *requeue.Client, kind, id string, body any) {
	t.Helper()
	_, err := client.Put(context.Background(), requeue.PutJob{Kind: kind, ID: id, Body: body})
	check(t, err)
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits until a condition is true.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !condition(); {
		if time.Now().After(deadline) {
			t.Fatalf("it did not happen: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// receive returns the next element of a channel.
func receive[T any](t *testing.T, what string, channel <-chan T) T {
	t.Helper()
	select {
	case value := <-channel:
		return value
	case <-time.After(patience):
		t.Fatalf("it did not happen: %s", what)
		panic("unreachable")
	}
}

// isAbsent returns whether there is no such job.
func isAbsent(t *testing.T, client *requeue.Client, kind, id string) bool {
	t.Helper()
	_, err := client.Get(context.Background(), kind, id)
	if err != nil && !errors.Is(err, requeue.ErrAbsent) {
		t.Fatal(err)
	}
	return err != nil
}

// record collects what a worker reports.
type record struct {
	mu       sync.Mutex
	failures []failure
	dead     []string
	lost     []string
	errors   []error
}

type failure struct {
	id   string
	err  string
	next requeue.Next
}

// options returns worker options that write to the record.
func (r *record) options() requeue.WorkerOptions {
	locked := func(change func()) {
		r.mu.Lock()
		defer r.mu.Unlock()
		change()
	}
	return requeue.WorkerOptions{
		Concurrency: 4,
		OnFailure: func(job *requeue.Job, err error, next requeue.Next) {
			locked(func() { r.failures = append(r.failures, failure{job.ID, err.Error(), next}) })
		},
		OnDead:  func(job *requeue.Job, _ error) { locked(func() { r.dead = append(r.dead, job.ID) }) },
		OnLost:  func(job *requeue.Job) { locked(func() { r.lost = append(r.lost, job.ID) }) },
		OnError: func(err error) { locked(func() { r.errors = append(r.errors, err) }) },
	}
}

func (r *record) lostJobs() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.lost...)
}

func (r *record) failedAttempts() []failure {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]failure(nil), r.failures...)
}

func (r *record) requestErrors() []error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]error(nil), r.errors...)
}

// runWorker runs a worker until stop is called, which returns what Run returned. At the end of the test
// it is stopped in any case.
func runWorker(t *testing.T, worker *requeue.Worker) (stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var (
		over    = make(chan struct{})
		stopped int
		err     error
	)
	go func() {
		defer close(over)
		stopped, err = worker.Run(ctx)
	}()
	stop = func() int {
		cancel()
		<-over
		if err != nil {
			t.Errorf("the worker failed: %v", err)
		}
		return stopped
	}
	t.Cleanup(func() { stop() })
	return stop
}
