// Package requeue is a client for requeue, a work queue and durable delay queue.
//
// A [Client] has a method for every operation on jobs, kinds and schedules. A producer puts jobs:
//
//	client, err := requeue.New()
//	...
//	_, err = client.Put(ctx, requeue.PutJob{
//		Kind: "order.remind", ID: "order-42", Body: Remind{To: "ann@example.org"}, Delay: 5 * time.Minute,
//	})
//
// A [Worker] claims jobs that are due and runs handlers. It extends the leases of running jobs,
// settles jobs when their handlers return, and shuts down gracefully:
//
//	worker := requeue.NewWorker(client, requeue.WorkerOptions{Concurrency: 20})
//	requeue.Handle(worker, "order.remind", func(ctx context.Context, job *requeue.JobOf[Remind]) error {
//		return send(ctx, job.Body.To)
//	})
//	stopped, err := worker.RunUntilSignal(ctx)
//
// # Errors
//
// Every error of the server is a [*Problem] and matches one of the sentinel errors, such as
// [ErrExists]. Errors are of three classes, which decide what to do next:
//
//   - An error that matches [ErrNotDone] means that nothing was done. The client has already
//     repeated the request for as long as [WithRetryFor] permits.
//   - An error that matches [ErrOutcomeUnknown] means that the operation may have been done.
//   - Any other error of a request means that the request was rejected: nothing was done, and the
//     same request fails again.
//
// # Delivery
//
// A job runs at least once: it runs again if its worker fails, crashes, or loses its lease. Make
// its effects idempotent, with kind, id and [Job].Generation as the key.
package requeue
