package requeue_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestTheProgramOfTheReadmeRuns(t *testing.T) {
	t.Parallel()
	client, kind := newClient(t), newKind(t)
	readme, err := os.ReadFile("README.md")
	check(t, err)
	_, program, _ := strings.Cut(string(readme), "```go\n")
	program, _, _ = strings.Cut(program, "```\n")
	module, err := os.Getwd()
	check(t, err)
	directory := t.TempDir()
	for name, content := range map[string]string{
		"main.go": strings.ReplaceAll(program, "order.remind", kind),
		"go.mod": "module example.org/readme\n\ngo 1.23\n\n" +
			"require requeue.invalid/requeue v0.0.0\n" +
			"replace requeue.invalid/requeue => " + module + "\n",
	} {
		check(t, os.WriteFile(filepath.Join(directory, name), []byte(content), 0o644))
	}
	build := exec.Command("go", "build", "-o", "program", ".")
	build.Dir = directory
	build.Env = append(os.Environ(), "GOPROXY=off", "GOWORK=off")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}

	// If the program does not put the job, there is nothing to be acked.
	put(t, client, kind, "marker", map[string]string{"to": "the test"})
	running := exec.Command(filepath.Join(directory, "program"))
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
