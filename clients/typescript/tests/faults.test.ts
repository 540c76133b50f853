// What a worker does when leases, connections and servers are lost.

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
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

/** A handler that runs until it is stopped. */
async function block({ signal }: Job): Promise<void> {
  await sleep(2 ** 31 - 1, undefined, { signal });
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
  test("extends the lease of a job that takes longer, and acks it once", async (t) => {
    const { server, client, kind } = await setUp(t, "long");
    await client.put(kind, "1", null);
    let end = () => {};
    const run = new Run(t, server.url, kind, () => new Promise<void>((resolve) => (end = resolve)), { lease: "3s" });
    await until("the job starts", () => run.started.length > 0);
    const { endsAt } = (await client.get(kind, "1")).lease!;
    // By then, the first lease is over.
    await until(
      "the lease was extended twice",
      async () => (await client.get(kind, "1")).lease!.endsAt.getTime() > endsAt.getTime() + 1500,
    );
    end();
    await until("the job is done", async () => (await state(client, kind, "1")) === "absent");
    assert.deepEqual([run.started.length, run.lost, run.failures], [1, [], []]);
  });

  test("stops the handler of a job that was cancelled, and removes the job", async (t) => {
    const { server, client, kind } = await setUp(t, "cancelled");
    await client.put(kind, "1", null);
    const run = new Run(t, server.url, kind, block, { lease: "5s" });
    await until("the job starts", () => run.started.length > 0);
    assert.equal(await client.cancel(kind, "1"), "ending");
    await until("the job is removed", async () => (await state(client, kind, "1")) === "absent");
    assert.equal(whyStopped(run.started[0]), "cancelled");
    assert.deepEqual([run.lost, run.failures], [[], []]);
  });

  test("stops the handler of a job whose lease is lost, and does not settle the job", async (t) => {
    const { server, client, kind } = await setUp(t, "lost");
    await client.put(kind, "1", null);
    const run = new Run(t, server.url, kind, block, { lease: "2s", concurrency: 1 });
    await until("the job starts", () => run.started.length > 0);
    // Another program settles the job with the receipt, so that the lease ends.
    await client.retry(run.started[0]!.receipt, { error: "taken", delay: "1h" });
    await until("the handler is stopped", () => run.lost.length > 0);
    assert.deepEqual([run.lost, whyStopped(run.started[0])], [["1"], "lease-lost"]);
    const job = await client.get(kind, "1");
    assert.deepEqual([job.state, job.failures.map(({ error }) => error)], ["waiting", ["taken"]]);
    assert.deepEqual(run.failures, []);
  });

  test("reports a job as lost if its lease is lost when it is settled", async (t) => {
    const { server, client, kind } = await setUp(t, "too-late");
    await client.put(kind, "1", null);
    const handler = ({ receipt }: Job) => client.retry(receipt, { delay: "1h" }).then(() => {});
    const run = new Run(t, server.url, kind, handler, { lease: "1m" });
    await until("the job is lost", () => run.lost.length > 0);
    assert.deepEqual([run.lost, run.failures], [["1"], []]);
    assert.equal(await state(client, kind, "1"), "waiting");
  });

  test("stops handlers when their leases end by its own clock, because the server is down", async (t) => {
    const { server, client, kind } = await setUp(t, "down");
    await client.put(kind, "1", null);
    const run = new Run(t, server.url, kind, block, { lease: "3s" });
    await until("the job starts", () => run.started.length > 0);
    await server.kill();
    await until("the job is lost", () => run.lost.length > 0);
    assert.equal(whyStopped(run.started[0]), "lease-lost");
    assert.ok(run.errors.length > 0);
    await server.start();
    await until("the job runs again", () => run.started.length >= 2);
    assert.deepEqual([run.started[1]!.attempt, run.failures], [2, []]);
  });

  test("continues when the server restarts: handlers run on, and their jobs are settled", async (t) => {
    const { server, client, kind } = await setUp(t, "restart");
    await client.put(kind, "1", null);
    let end = () => {};
    const handler = ({ id }: Job) => (id === "1" ? new Promise<void>((resolve) => (end = resolve)) : undefined);
    const run = new Run(t, server.url, kind, handler, { lease: "1m" });
    await until("the job starts", () => run.started.length > 0);
    await server.kill();
    await until("claims fail", () => run.errors.length > 0);
    await server.start();
    end();
    await until("the job is done", async () => (await state(client, kind, "1")) === "absent");
    await client.put(kind, "2", null);
    await until("the next job is done", async () => (await state(client, kind, "2")) === "absent");
    assert.deepEqual([run.started.length, run.lost, run.failures], [2, [], []]);
  });

  test("settles jobs that end while the server is down, when it is back", async (t) => {
    const { server, client, kind } = await setUp(t, "down-at-end");
    await client.put(kind, "1", null);
    let end = () => {};
    const run = new Run(t, server.url, kind, () => new Promise<void>((resolve) => (end = resolve)), { lease: "1m" });
    await until("the job starts", () => run.started.length > 0);
    await server.kill();
    end();
    await until("the settlement fails", () => run.errors.some((error) => String(error).includes("/v1/settle")));
    await server.start();
    await until("the job is done", async () => (await state(client, kind, "1")) === "absent");
    assert.deepEqual([run.started.length, run.lost], [1, []]);
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
    // The handler that was stopped still occupies the only slot.
    assert.equal(await state(client, kind, "1"), "ready");
    end();
    await until("the job runs again", () => run.started.length === 2);
    end();
    await until("the job is done", async () => (await state(client, kind, "1")) === "absent");
    assert.deepEqual([run.lost, run.failures], [["1"], []]);
  });
});
