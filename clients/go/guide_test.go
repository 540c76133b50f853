package requeue_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"requeue.invalid/requeue"
)

// blocks returns the blocks of Go of docs/go.md.
func blocks(t *testing.T) []string {
	t.Helper()
	page, err := os.ReadFile("../../docs/go.md")
	check(t, err)
	var found []string
	for _, rest := range strings.Split(string(page), "```go\n")[1:] {
		block, _, _ := strings.Cut(rest, "```\n")
		found = append(found, block)
	}
	return found
}

// run runs go in a module that contains this file and uses the module as it is here.
func run(t *testing.T, name, content string, arguments ...string) string {
	t.Helper()
	module, err := os.Getwd()
	check(t, err)
	directory := t.TempDir()
	for name, content := range map[string]string{
		name: content,
		"go.mod": "module example.org/guide\n\ngo 1.23\n\n" +
			"require requeue.invalid/requeue v0.0.0\n" +
			"replace requeue.invalid/requeue => " + module + "\n",
	} {
		check(t, os.WriteFile(filepath.Join(directory, name), []byte(content), 0o644))
	}
	running := exec.Command("go", arguments...)
	running.Dir = directory
	path := filepath.Dir(os.Getenv("REQUEUE_BIN")) + string(os.PathListSeparator) + os.Getenv("PATH")
	running.Env = append(os.Environ(), "GOPROXY=off", "GOWORK=off", "PATH="+path)
	if output, err := running.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s\n%s", err, output, content)
	}
	return directory
}

// build builds a program, and returns its path.
func build(t *testing.T, program string) string {
	t.Helper()
	return filepath.Join(run(t, "main.go", program, "build", "-o", "program", "."), "program")
}

func TestTheTestOfTheGuideRuns(t *testing.T) {
	t.Parallel()
	blocks := blocks(t)
	run(t, "shop_test.go", blocks[len(blocks)-1], "test", ".")
}

func TestTheOtherExamplesOfTheGuideRun(t *testing.T) {
	t.Parallel()
	blocks := blocks(t)
	if len(blocks) < 5 {
		t.Fatalf("there are %d blocks", len(blocks))
	}
	program := "package main\n\nimport (\n\"context\"\n\"errors\"\n\"log\"\n\"time\"\n\n\"requeue.invalid/requeue\"\n)\n\n" +
		"var _ = errors.Is\n\ntype Remind struct { To string `json:\"to\"` }\n\n" +
		"func check(err error) { if err != nil { log.Fatal(err) } }\n\n" +
		"func main() {\nctx := context.Background()\nclient, err := requeue.New()\ncheck(err)\n"
	for _, block := range blocks[1 : len(blocks)-1] {
		program += "func() {\n" + block + "}()\n"
	}
	server := startServer(t)
	running := exec.Command(build(t, program+"}\n"))
	running.Env = append(os.Environ(), "REQUEUE_SERVER="+server.url)
	output, err := running.CombinedOutput()
	if err != nil || !strings.Contains(string(output), "report.send daily next: [") {
		t.Errorf("%v: %s", err, output)
	}
	client := newClient(t, requeue.WithServer(server.url))
	job, err := client.Get(ctx, "order.remind", "order-43")
	if err != nil || string(job.Body.Data) != `{"to":"bob@example.org"}` || time.Until(job.Due) < 70*time.Hour {
		t.Errorf("got %+v, %v", job, err)
	}
}

func TestTheProgramOfTheGuideRuns(t *testing.T) {
	t.Parallel()
	client, kind := newClient(t), newKind(t)
	program := build(t, strings.ReplaceAll(blocks(t)[0], "order.remind", kind))

	// If the program does not put the job, there is nothing to be acked.
	put(t, client, kind, "marker", map[string]string{"to": "the test"})
	running := exec.Command(program)
	var output strings.Builder
	running.Stderr = &output
	check(t, running.Start())
	defer running.Process.Kill()
	eventually(t, "both jobs are done", func() bool {
		info, err := client.Kind(ctx, kind)
		check(t, err)
		return info.Generation == 2 && info.Pending+info.Leased == 0
	})
	check(t, running.Process.Signal(syscall.SIGTERM))
	if err := running.Wait(); err != nil || !strings.Contains(output.String(), "remind ann@example.org of order-42") {
		t.Errorf("%v: %s", err, output.String())
	}
}
