# A small image of requeue. It listens on all addresses of the container, so it needs a token:
#
#   docker build -t requeue .
#   docker run -d --name requeue -e REQUEUE_TOKEN="$(openssl rand -hex 32)" \
#       -p 127.0.0.1:7654:7654 -v requeue:/data requeue
#
# For more, see docs/operations.md.

# Base images are pinned by digest, so that a build today and one next month start from the same bytes. To move to newer ones, with
# their security fixes: docker buildx imagetools inspect rust:1.95-slim-bookworm
FROM rust:1.95-slim-bookworm@sha256:d7482085ff5b415f84dba5647ae71606650bdef00db7aeb69f4b3d170c3e4082 AS build
# For example `brokers`, for RabbitMQ, NATS, Kafka and Redis Streams: see docs/bridge.md.
ARG FEATURES=""
RUN apt-get update \
    && apt-get install -y --no-install-recommends g++ libssl-dev make pkg-config zlib1g-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
# The compiled crates stay in build caches for the next build. The program is copied out of them.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked -p requeue-cli --features "$FEATURES" \
    && cp target/release/requeue /usr/local/bin/requeue

FROM debian:bookworm-slim@sha256:7b140f374b289a7c2befc338f42ebe6441b7ea838a042bbd5acbfca6ec875818
# ca-certificates is for rediss://, https:// and Postgres with sslmode=verify-full, and the libraries are for
# Kafka. `requeue work --exec` uses the shell of this image.
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates libssl3 zlib1g \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin requeue \
    && install -d -o requeue -g requeue -m 0700 /data
COPY --from=build /usr/local/bin/requeue /usr/local/bin/requeue

USER 10001
VOLUME /data
WORKDIR /data
EXPOSE 7654
ENV REQUEUE_LISTEN=0.0.0.0:7654

# A normal client with REQUEUE_TOKEN. If the server uses TLS or only a token file, pass --server and
# --token-file, or let the orchestrator check /readyz, which needs no token.
HEALTHCHECK --interval=30s --timeout=10s --start-period=10s \
    CMD ["requeue", "stats"]

ENTRYPOINT ["requeue"]
# `docker stop` kills the process after 10 seconds.
CMD ["serve", "--data", "/data", "--shutdown-limit", "8s"]
