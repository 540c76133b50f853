module requeue-bench-faktory

go 1.26.8

tool github.com/contribsys/faktory/cmd/faktory

require (
	github.com/BurntSushi/toml v1.5.0 // indirect
	github.com/cespare/xxhash/v2 v2.2.0 // indirect
	github.com/contribsys/faktory v1.9.3 // indirect
	github.com/dgryski/go-rendezvous v0.0.0-20200823014737-9f7001d12a5f // indirect
	github.com/justinas/nosurf v1.2.0 // indirect
	github.com/redis/go-redis/v9 v9.7.3 // indirect
)
