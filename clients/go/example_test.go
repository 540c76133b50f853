package requeue_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"requeue.invalid/requeue"
)

// The server is that of the environment variable REQUEUE_SERVER.
func Example() {
	type Remind struct {
		To string `json:"to"`
	}
	ctx, stop := context.WithCancel(context.Background())
	client, err := requeue.New()
	if err != nil {
		log.Fatal(err)
	}
	_, err = client.Put(ctx, requeue.PutJob{
		Kind: "go.example.remind", ID: "order-42", Body: Remind{To: "ann@example.org"}, Delay: 10 * time.Millisecond,
	})
	if err != nil {
		log.Fatal(err)
	}

	worker := requeue.NewWorker(client, requeue.WorkerOptions{Concurrency: 20})
	requeue.Handle(worker, "go.example.remind", func(ctx context.Context, job *requeue.JobOf[Remind]) error {
		fmt.Println("remind", job.Body.To, "of", job.ID)
		stop()
		return nil
	}, requeue.Timeout(time.Minute))
	stopped, err := worker.Run(ctx)
	fmt.Println(stopped, err)
	// Output:
	// remind ann@example.org of order-42
	// 0 <nil>
}

func ExampleClient_Put_once() {
	ctx := context.Background()
	client, err := requeue.New()
	if err != nil {
		log.Fatal(err)
	}
	defer client.DeleteKind(ctx, "go.example.charge")
	// Done jobs are kept for a week, so that a job that is put twice runs once.
	_, err = client.ChangeKind(ctx, "go.example.charge", requeue.SettingsChange{
		KeepDone: requeue.Set(requeue.KeepDone{For: 7 * 24 * time.Hour}),
	})
	if err != nil {
		log.Fatal(err)
	}
	for range 2 {
		_, err = client.Put(ctx, requeue.PutJob{Kind: "go.example.charge", ID: "invoice-7", IfNew: true})
		switch {
		case errors.Is(err, requeue.ErrExists):
			fmt.Println("it exists")
		case errors.Is(err, requeue.ErrOutcomeUnknown):
			fmt.Println("repeat it")
		case err == nil:
			fmt.Println("it was put")
		}
	}
	// Output:
	// it was put
	// it exists
}

func ExampleClient_List() {
	ctx := context.Background()
	client, err := requeue.New()
	if err != nil {
		log.Fatal(err)
	}
	defer client.DeleteKind(ctx, "go.example.list")
	_, err = client.PutMany(ctx, []requeue.PutJob{
		{Kind: "go.example.list", ID: "a", Body: requeue.Text("hello")},
		{Kind: "go.example.list", ID: "b", Delay: time.Hour},
	})
	if err != nil {
		log.Fatal(err)
	}
	for job, err := range client.List(ctx, "go.example.list", requeue.Filter{}, requeue.ByID) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s %s %q\n", job.ID, job.State, job.Body.Data)
	}
	// Output:
	// a ready "hello"
	// b waiting ""
}

func ExampleGiveUp() {
	deliver := func(address string) error {
		if address == "" {
			// Trying again is pointless: the job is dead.
			return requeue.GiveUp("the address is missing")
		}
		// The next attempt is in a minute, whatever the backoff of the kind.
		return requeue.RetryAfter(time.Minute, errors.New("mailbox full"))
	}
	fmt.Println(deliver(""))
	fmt.Println(deliver("ann@example.org"))
	// Output:
	// the address is missing
	// mailbox full
}
