package requeue

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// RunUntilSignal is [Worker.Run] until the process gets SIGTERM or SIGINT, or ctx is cancelled.
//
// A second signal stops running handlers, even if Grace is not over. A third signal ends the process
// immediately.
func (w *Worker) RunUntilSignal(ctx context.Context) (stopped int, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)
	hurry, over := make(chan struct{}), make(chan struct{})
	defer close(over)
	go func() {
		for _, react := range []func(){stop, func() { close(hurry) }} {
			select {
			case <-signals:
				react()
			case <-over:
				return
			}
		}
		// The third signal has its default effect again.
		signal.Stop(signals)
	}()
	return w.run(ctx, hurry)
}
