# requeue, in a small image. It listens beyond the container, and so it wants a token:
#
#   docker build -t requeue .
#   docker run -d --name requeue -e REQUEUE_TOKEN="$(openssl rand -hex 32)" \
#       -p 127.0.0.1:7654:7654 -v requeue:/data requeue
#
# docs/operations.md has more.

FROM rust:1.95-slim-bookworm AS build
WORKDIR /src
COPY . .
# All that is compiled stays in caches, so that the next build has it. The program is copied out.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked -p requeue-cli \
    && cp target/release/requeue /usr/local/bin/requeue

FROM debian:bookworm-slim
# ca-certificates: for rediss:// and https://. The shell of the image is what `requeue work --exec` runs.
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin requeue \
    && install -d -o requeue -g requeue -m 0700 /data
COPY --from=build /usr/local/bin/requeue /usr/local/bin/requeue

USER 10001
VOLUME /data
WORKDIR /data
EXPOSE 7654
ENV REQUEUE_LISTEN=0.0.0.0:7654

# Asks as any client does, with REQUEUE_TOKEN. Where TLS is spoken, or tokens are in a file only, give it
# --server and --token-file, or let the orchestrator ask /readyz, which needs no token.
HEALTHCHECK --interval=30s --timeout=10s --start-period=10s \
    CMD ["requeue", "stats"]

ENTRYPOINT ["requeue"]
# `docker stop` kills after 10 seconds.
CMD ["serve", "--data", "/data", "--shutdown-limit", "8s"]
