// River on the workloads of requeue's benchmarks: executes commands, one per line.
//
//	requeue-bench-river postgres://USER@HOST:PORT/DATABASE
//
// See ../src/workloads/postgres/client.rs for the commands.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

// A result is one line of JSON, with the fields that the command asks for.
type result struct {
	Version  string  `json:"version,omitempty"`
	Seconds  float64 `json:"seconds,omitempty"`
	Finished int64   `json:"finished"`
	LateUs   []int64 `json:"late_us,omitempty"`
}

func main() {
	if len(os.Args) != 2 {
		fail("usage: requeue-bench-river postgres://USER@HOST:PORT/DATABASE")
	}
	queue := newQueue(os.Args[1])
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		line, err := json.Marshal(run(queue, words[0], numbers(words[1:])))
		check(err)
		fmt.Println(string(line))
	}
}

func run(queue *queue, verb string, n []int) result {
	switch {
	case verb == "version" && len(n) == 0:
		return result{Version: version("github.com/riverqueue/river")}
	case verb == "insert" && len(n) == 2:
		return result{Seconds: queue.insert(n[0], millis(n[1])).Seconds()}
	case verb == "process" && len(n) == 2:
		return result{Seconds: queue.process(n[0], n[1]).Seconds()}
	case verb == "late" && len(n) == 4:
		return result{LateUs: queue.late(n[0], n[1], millis(n[2]), millis(n[3]))}
	case verb == "start" && len(n) == 1:
		queue.start(n[0])
		return result{}
	case verb == "offer" && len(n) == 1:
		finished := queue.finished.Load()
		queue.insert(n[0], 0)
		return result{Finished: finished}
	}
	fail("River has no command %q with %d numbers", verb, len(n))
	return result{}
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

func millis(n int) time.Duration {
	return time.Duration(n) * time.Millisecond
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
