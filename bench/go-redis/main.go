// asynq on the workloads of requeue's benchmarks: executes commands, one per line.
//
//	requeue-bench-asynq redis://HOST:PORT
//
// See ../src/workloads/redis/client.rs for the commands.
package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/hibiken/asynq"
)

func main() {
	if len(os.Args) != 2 {
		fail("usage: requeue-bench-asynq redis://HOST:PORT")
	}
	address := strings.TrimPrefix(os.Args[1], "redis://")
	// A connection for each concurrent caller.
	queue := newQueue(asynq.RedisClientOpt{Addr: address, PoolSize: 50})
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		fmt.Println(answer(queue, words[0], numbers(words[1:])))
	}
}

func answer(queue *queue, verb string, n []int) string {
	switch verb {
	case "version":
		return version("github.com/hibiken/asynq")
	case "bulk": // There is no call for many: one after the other.
		return took(queue.put(1, n[0], after(n[1])))
	case "put":
		return took(queue.put(n[0], n[1], after(n[2])))
	case "fill":
		return took(queue.put(50, n[0], after(n[1])))
	case "process":
		return took(queue.process(n[0], n[1]))
	case "late":
		return queue.late(n[0], n[1], after(n[2]), after(n[3]))
	case "wait":
		queue.wait(n[0])
		return "ok"
	}
	fail("asynq does not know how to %q", verb)
	return ""
}

func numbers(words []string) []int {
	var numbers []int
	for _, word := range words {
		number, err := strconv.Atoi(word)
		check(err)
		numbers = append(numbers, number)
	}
	return numbers
}

func after(millis int) time.Duration {
	return time.Duration(millis) * time.Millisecond
}

func took(elapsed time.Duration) string {
	return strconv.FormatInt(elapsed.Nanoseconds(), 10)
}

func version(module string) string {
	info, _ := debug.ReadBuildInfo()
	for _, dependency := range info.Deps {
		if dependency.Path == module {
			return strings.TrimPrefix(dependency.Version, "v")
		}
	}
	return "unknown"
}

func check(err error) {
	if err != nil {
		fail("%v", err)
	}
}

func fail(format string, values ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", values...)
	os.Exit(1)
}
