package requeue_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"testing"
	"time"

	"requeue.invalid/requeue"
)

// child is a process of the test binary that runs a worker.
type child struct {
	command *exec.Cmd
	lines   <-chan string
}

// startChild starts a worker of a kind in a process of its own. Its jobs run until they are stopped;
// mode is what they do then.
func startChild(t *testing.T, kind, mode string, grace time.Duration) *child {
	t.Helper()
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), "REQUEUE_TEST_CHILD="+mode, "KIND="+kind, "GRACE="+grace.String())
	command.Stderr = os.Stderr
	output, err := command.StdoutPipe()
	check(t, err)
	check(t, command.Start())
	lines := make(chan string, 100)
	go func() {
		for scanner := bufio.NewScanner(output); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()
	t.Cleanup(func() {
		command.Process.Kill()
		command.Wait()
	})
	return &child{command, lines}
}

// expect waits for a line of the child.
func (c *child) expect(t *testing.T, line string) {
	t.Helper()
	if got := receive(t, line, c.lines); got != line {
		t.Fatalf("the child printed %q instead of %q", got, line)
	}
}

// runChild is the main function of the child. It returns the exit code.
func runChild(mode string) int {
	slog.SetLogLoggerLevel(slog.LevelError)
	grace, err := time.ParseDuration(os.Getenv("GRACE"))
	if err != nil {
		panic(err)
	}
	client, err := requeue.New()
	if err != nil {
		panic(err)
	}
	worker := requeue.NewWorker(client, requeue.WorkerOptions{Grace: grace, Lease: leaseOf(mode)})
	worker.Handle(os.Getenv("KIND"), func(ctx context.Context, job *requeue.Job) error {
		fmt.Println("start", job.ID)
		switch mode {
		case "finish":
			// The put of a second job tells the handler to return.
			for {
				if _, err := client.Get(ctx, job.Kind, "finish"); err == nil {
					return nil
				} else if !errors.Is(err, requeue.ErrAbsent) {
					return err
				}
				time.Sleep(10 * time.Millisecond)
			}
		case "ignore":
			<-ctx.Done()
			fmt.Println("stop")
			select {}
		default:
			<-ctx.Done()
			return ctx.Err()
		}
	})
	stopped, err := worker.RunUntilSignal(context.Background())
	if err != nil {
		panic(err)
	}
	fmt.Println("stopped", stopped)
	return stopped
}

func leaseOf(mode string) time.Duration {
	if mode == "die" {
		return 4 * time.Second
	}
	return 0
}
