module github.com/requeue/requeue/clients/go

go 1.23
