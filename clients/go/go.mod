module requeue.invalid/requeue

go 1.23
