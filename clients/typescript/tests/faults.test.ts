// What a worker does when leases, connections and servers are lost.

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { Client, type Job, JobStopped, Worker, type WorkerOptions } from "requeue-client";
import { Proxy, type Scope, Server, uniqueKind, until } from "./server.js";

class Run {
  readonly started: Job<any>[] = [];
  readonly lost: string[] = [];
  readonly failures: [error: string, next: string][] = [];
  readonly errors: unknown[] = [];
  readonly worker: Worker;
  readonly finished: Promise<number>;

  constructor(scope: Scope, url: string, kind: string, handler: (job: Job<any>) => unknown, options: WorkerOptions) {
    this.worker = new Worker(new Client({ server: url }), {
      onLost: ({ id }) => this.lost.push(id),
      onFailure: (_, error, next) => this.failures.push([(error as Error).message, next]),
      onError: (error) => this.errors.push(error),
      ...options,
    });
    this.worker.on(kind, (job) => {
      this.started.push(job);
      return handler(job);
    });
    this.finished = this.worker.run({ handleSignals: false });
    scope.after(async () => {
      void this.worker.shutdown();
      await this.worker.shutdown();
    });
  }
}

function whyStopped(job: Job | undefined): unknown {
  return (job?.signal.reason as JobStopped | undefined)?.why;
}

async function state(client: Client, kind: string, id: string): Promise<string> {
  return client.get(kind, id).then(
    (job) => job.state,
    (error: unknown) => (error as { problem: string }).problem,
  );
}

async function setUp(scope: Scope, name: string): Promise<{ server: Server; client: Client; kind: string }> {
  const server = await Server.start(scope);
  return { server, client: new Client({ server: server.url, retryFor: "1m" }), kind: uniqueKind(name) };
}

describe("a worker", () => {
  test("reports a job as lost if its lease is lost when it is settled", async (t) => {
    const { server, client, kind } = await setUp(t, "too-late");
    await client.put(kind, "1", null);
    const handler = ({ receipt }: Job) => client.retry(receipt, { delay: "1h" }).then(() => {});
    const run = new Run(t, server.url, kind, handler, { lease: "1m" });
    await until("the job is lost", () => run.lost.length > 0);
    assert.deepEqual([run.lost, run.failures], [["1"], []]);
    assert.equal(await state(client, kind, "1"), "waiting");
  });

  test("repeats a settlement whose response is lost, and does not report the job as lost", async (t) => {
    const { server, client, kind } = await setUp(t, "unknown");
    const proxy = await Proxy.start(t, server.port);
    proxy.loseResponses(/^POST \/v1\/settle/, 2);
    await client.putMany([
      { kind, id: "1" },
      { kind, id: "2" },
    ]);
    const handler = ({ id }: Job) => {
      if (id === "2") throw new Error("boom");
    };
    await client.setKind(kind, { backoff: { base: "1h" } });
    const run = new Run(t, proxy.url, kind, handler, { lease: "1m" });
    await until("the failure is reported", () => run.failures.length > 0);
    await until("the settlement was repeated", () => proxy.lost === 2);
    void run.worker.shutdown();
    assert.equal(await run.finished, 0);
    assert.deepEqual([run.lost, run.failures], [[], [["boom", "unknown"]]]);
    assert.equal(await state(client, kind, "1"), "absent");
    assert.equal((await client.get(kind, "2")).attempts, 1);
  });

  test("claims again after the response to a claim is lost", async (t) => {
    const { server, client, kind } = await setUp(t, "lost-claim");
    const proxy = await Proxy.start(t, server.port);
    await client.put(kind, "1", null);
    proxy.loseResponses(/^POST \/v1\/claim/);
    const run = new Run(t, proxy.url, kind, () => {}, { lease: "1s" });
    await until("the job is done", async () => (await state(client, kind, "1")) === "absent");
    assert.equal(proxy.lost, 1);
    assert.ok(run.errors.length > 0);
  });

  test("repeats an extension whose response is lost", async (t) => {
    const { server, client, kind } = await setUp(t, "lost-extension");
    const proxy = await Proxy.start(t, server.port);
    await client.put(kind, "1", null);
    let end = () => {};
    const run = new Run(t, proxy.url, kind, () => new Promise<void>((resolve) => (end = resolve)), { lease: "5s" });
    await until("the job starts", () => run.started.length > 0);
    proxy.loseResponses(/^POST \/v1\/settle/);
    const { endsAt } = (await client.get(kind, "1")).lease!;
    await until(
      "the lease was extended again",
      async () => (await client.get(kind, "1")).lease!.endsAt.getTime() > endsAt.getTime() + 2000,
    );
    end();
    await until("the job is done", async () => (await state(client, kind, "1")) === "absent");
    assert.deepEqual([proxy.lost, run.lost, run.started.length], [1, [], 1]);
  });

  test("discards what a handler returns after its lease is lost", async (t) => {
    const { server, client, kind } = await setUp(t, "discarded");
    await client.put(kind, "1", null);
    let end = () => {};
    const run = new Run(t, server.url, kind, () => new Promise<void>((resolve) => (end = resolve)), {
      lease: "2s",
      concurrency: 1,
    });
    await until("the job starts", () => run.started.length > 0);
    await client.release(run.started[0]!.receipt);
    await until("the lease is lost", () => run.lost.length > 0);
    assert.equal(whyStopped(run.started[0]), "lease-lost");
    // The handler that was stopped still occupies the only slot.
    assert.equal(await state(client, kind, "1"), "ready");
    end();
    await until("the job runs again", () => run.started.length === 2);
    end();
    await until("the job is done", async () => (await state(client, kind, "1")) === "absent");
    assert.deepEqual([run.lost, run.failures], [["1"], []]);
  });
});
