import assert from "node:assert/strict";
import { after, describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import {
  type ClaimedJob,
  Client,
  type Duration,
  GiveUp,
  type Job,
  RequeueAfter,
  RetryAfter,
  Worker,
  type WorkerOptions,
} from "requeue-client";
import { type Scope, Server, uniqueKind, until } from "./server.js";

const server = await Server.start({ after });
const client = new Client({ server: server.url });

interface Events {
  failures: [id: string, error: string, next: string][];
  dead: string[];
  lost: string[];
  errors: unknown[];
}

/** Starts a worker that is shut down at the end of the test. */
function start(
  scope: Scope,
  kind: string,
  handler: (job: Job<any>) => unknown,
  options: WorkerOptions & { timeout?: Duration; parse?: (body: unknown) => unknown } = {},
): { worker: Worker; events: Events; finished: Promise<number> } {
  const events: Events = { failures: [], dead: [], lost: [], errors: [] };
  const { timeout, parse, ...rest } = options;
  const worker = new Worker(client, {
    onFailure: ({ id }, error, next) =>
      events.failures.push([id, error instanceof Error ? error.message : typeof error, next]),
    onDead: ({ id }: ClaimedJob) => events.dead.push(id),
    onLost: ({ id }: ClaimedJob) => events.lost.push(id),
    onError: (error) => events.errors.push(error),
    ...rest,
  });
  worker.on(kind, { ...(timeout && { timeout }), ...(parse && { parse }) }, handler);
  const finished = worker.run({ handleSignals: false });
  scope.after(async () => {
    void worker.shutdown();
    await worker.shutdown();
  });
  return { worker, events, finished };
}

async function exists(kind: string, id: string): Promise<boolean> {
  return client.get(kind, id).then(
    () => true,
    () => false,
  );
}

describe("a job whose handler", () => {
  test("returns is done, with the returned value as its result", async (t) => {
    const kind = uniqueKind("returns");
    await client.setKind(kind, { keepDone: {} });
    const seen: Job[] = [];
    const { events } = start(t, kind, (job) => {
      seen.push(job);
      return job.body === "none" ? undefined : { got: job.body };
    });
    const due = new Date(Date.now() - 1000);
    const { generation } = await client.put(kind, "1", "body", { priority: 3, due });
    await client.put(kind, "2", "none");
    await until("both are done", async () => (await client.kind(kind)).done === 2);
    assert.deepEqual((await client.get(kind, "1")).done?.result, { got: "body" });
    assert.equal((await client.get(kind, "2")).done?.result, undefined);
    const job = seen.find(({ id }) => id === "1")!;
    assert.deepEqual(
      [job.kind, job.attempt, job.generation, job.priority, job.signal.aborted],
      [kind, 1, generation, 3, false],
    );
    assert.ok(job.fence > 0 && job.receipt !== "" && job.due instanceof Date);
    assert.equal(job.idempotencyKey, `${kind}/1/${generation}`);
    assert.deepEqual(events, { failures: [], dead: [], lost: [], errors: [] });
  });

  test("throws anything at all is retried, and does not disturb the worker", async (t) => {
    const kind = uniqueKind("anything");
    const values = [null, undefined, "text", Symbol("symbol"), 7n, Object.create(null), "\ud800", "x".repeat(5000)];
    await client.setKind(kind, { maxAttempts: 1 });
    await client.putMany(values.map((_, n) => ({ kind, id: String(n), body: n })));
    const { events } = start(t, kind, ({ body }) => {
      throw values[body];
    });
    await until("all are dead", () => events.dead.length === values.length);
    const errors = await Promise.all(
      values.map(async (_, n) => (await client.get(kind, String(n))).failures[0]?.error),
    );
    assert.deepEqual(errors.slice(0, 5), [
      "thrown: null",
      "thrown: undefined",
      "text",
      "thrown: Symbol(symbol)",
      "thrown: 7",
    ]);
    assert.deepEqual(errors.slice(5), ["thrown: a value that has no text", "\ufffd", "x".repeat(2048)]);
  });

  test("throws RetryAfter, GiveUp or RequeueAfter is settled like that", async (t) => {
    const kind = uniqueKind("outcomes");
    await client.putMany(["retry", "give-up", "requeue"].map((id) => ({ kind, id })));
    let requeued = 0;
    const { events } = start(t, kind, ({ id }) => {
      if (id === "retry") throw new RetryAfter("1h", new RangeError("too early"));
      if (id === "give-up") throw new GiveUp("no such address");
      requeued += 1;
      if (requeued === 1) throw new RequeueAfter("1ms");
    });
    await until("the job was requeued, and then done", async () => requeued === 2 && !(await exists(kind, "requeue")));
    await until("the others failed", () => events.failures.length === 2);
    const retried = await client.get(kind, "retry");
    assert.deepEqual([retried.state, retried.failures[0]?.error], ["waiting", "RangeError: too early"]);
    assert.ok(retried.due.getTime() > Date.now() + 1_800_000);
    const dead = await client.get(kind, "give-up");
    assert.deepEqual([dead.state, dead.failures[0]?.error], ["dead", "no such address"]);
    assert.deepEqual(events.dead, ["give-up"]);
  });

  test("has a timeout of months is not stopped immediately", async (t) => {
    const kind = uniqueKind("months");
    await client.put(kind, "1", null);
    const { events } = start(t, kind, () => sleep(50), { timeout: "60d" });
    await until("the job is done", async () => !(await exists(kind, "1")));
    assert.deepEqual(events.failures, []);
  });

  test("returns a result that has no JSON, or that is too large, is retried", async (t) => {
    const kind = uniqueKind("results");
    await client.setKind(kind, { maxAttempts: 1, keepDone: {} });
    const results = [7n, () => {}, "x".repeat(100_000), "fits"];
    await client.putMany(results.map((_, n) => ({ kind, id: String(n), body: n })));
    const { events } = start(t, kind, ({ body }) => results[body]);
    await until("all have ended", async () => {
      const { dead, done } = await client.kind(kind);
      return dead === 3 && done === 1;
    });
    assert.equal((await client.get(kind, "3")).done?.result, "fits");
    await until("the failures are reported", () => events.dead.length === 3);
    assert.match((await client.get(kind, "2")).failures[0]!.error!, /ProblemError: .*result/);
  });
});

describe("a worker", () => {
  test("buries a job whose body cannot be decoded, and a put of a correct body revives it", async (t) => {
    const kind = uniqueKind("poison");
    await client.put(kind, "json", "{bad", { contentType: "application/json" });
    await client.put(kind, "shape", { to: 5 });
    const handled: string[] = [];
    const parse = (body: unknown) => {
      if (typeof (body as { to?: unknown }).to !== "string") throw new TypeError("`to` is missing");
      return body;
    };
    const { events } = start(t, kind, ({ id }) => void handled.push(id), { parse });
    await until("both are dead", () => events.dead.length === 2);
    assert.deepEqual(handled, []);
    const [json, shape] = await Promise.all([client.get(kind, "json"), client.get(kind, "shape")]);
    assert.match(json.failures[0]!.error!, new RegExp(`^kind ${kind}: the body cannot be decoded: SyntaxError`));
    assert.equal(shape.failures[0]?.error, `kind ${kind}: the body cannot be decoded: TypeError: \`to\` is missing`);
    assert.throws(() => json.body, SyntaxError);

    assert.equal((await client.put(kind, "json", { to: "ann" })).outcome, "revived");
    await until("the corrected job is done", async () => !(await exists(kind, "json")));
    assert.deepEqual(handled, ["json"]);
  });

  test("runs no more jobs concurrently than it has slots", async (t) => {
    const kind = uniqueKind("slots");
    await client.putMany(Array.from({ length: 30 }, (_, n) => ({ kind, id: String(n) })));
    let [running, most] = [0, 0];
    const handler = async () => {
      running += 1;
      most = Math.max(most, running);
      await sleep(5);
      running -= 1;
    };
    start(t, kind, handler, { concurrency: 3 });
    await until("all are done", async () => (await client.kind(kind)).pending + (await client.kind(kind)).leased === 0);
    assert.equal(most, 3);
  });

  test("settles jobs that end together in one request", async (t) => {
    const kind = uniqueKind("together");
    await client.putMany(Array.from({ length: 500 }, (_, n) => ({ kind, id: String(n) })));
    const before = await requests("/v1/settle");
    start(t, kind, () => {}, { concurrency: 100 });
    await until("all are done", async () => (await client.kind(kind)).pending + (await client.kind(kind)).leased === 0);
    const sent = (await requests("/v1/settle")) - before;
    assert.ok(sent > 0 && sent < 100, `${sent} requests for 500 jobs`);
  });

  test("settles many jobs with large results", async (t) => {
    const kind = uniqueKind("large");
    await client.setKind(kind, { keepDone: {} });
    await client.putMany(Array.from({ length: 300 }, (_, n) => ({ kind, id: String(n) })));
    const { events } = start(t, kind, () => "x".repeat(65_000), { concurrency: 300 });
    await until("all are done", async () => (await client.kind(kind)).done === 300);
    assert.deepEqual(events, { failures: [], dead: [], lost: [], errors: [] });
  });

  test("extends the leases of all jobs in one request", async (t) => {
    const kind = uniqueKind("leases");
    await client.putMany(Array.from({ length: 50 }, (_, n) => ({ kind, id: String(n) })));
    let started = 0;
    const handler = async ({ signal }: Job) => {
      started += 1;
      await sleep(600_000, undefined, { signal });
    };
    start(t, kind, handler, { concurrency: 50, lease: "5s" });
    await until("all have started", () => started === 50);
    const before = await requests("/v1/settle");
    const { endsAt } = (await client.get(kind, "0")).lease!;
    await until("the leases were extended", async () => {
      for await (const { lease } of client.list(kind)) if (!lease || lease.endsAt <= endsAt) return false;
      return true;
    });
    const sent = (await requests("/v1/settle")) - before;
    assert.ok(sent > 0 && sent < 10, `${sent} requests for 50 jobs`);
  });

  test("stops with the error if the first claim is rejected", async (t) => {
    const guarded = await Server.start(t, "a-token-of-the-test");
    const worker = new Worker(new Client({ server: guarded.url, token: "another-token-of-the-test" }));
    worker.on("kind", () => {});
    await assert.rejects(worker.run({ handleSignals: false }), { problem: "unauthorized" });
  });

  test("reports later rejections, and goes on when claims are accepted again", async (t) => {
    const kind = uniqueKind("pushed");
    const handled: string[] = [];
    const { events } = start(t, kind, ({ id }) => void handled.push(id));
    await client.put(kind, "1", null);
    await until("the first job is done", async () => !(await exists(kind, "1")));
    await client.changeKind(kind, { push: { url: "http://example.org/" }, paused: true });
    await until("the rejection is reported", () =>
      events.errors.some((error) => (error as Error & { problem?: string }).problem === "pushed"),
    );
    await client.changeKind(kind, { push: null, paused: false });
    await client.put(kind, "2", null);
    await until("the second job is done", () => handled.includes("2"));
  });

  test("is shut down by an aborted signal", async () => {
    const kind = uniqueKind("aborted");
    const controller = new AbortController();
    const worker = new Worker(client).on(kind, async () => {
      controller.abort();
      await sleep(50);
    });
    await client.put(kind, "1", null);
    assert.equal(await worker.run({ signal: controller.signal, handleSignals: false }), 0);
    assert.equal(await exists(kind, "1"), false);
  });

  test("survives a callback that throws", async (t) => {
    const kind = uniqueKind("callbacks");
    const handled: string[] = [];
    t.mock.method(console, "error", () => {});
    const onFailure = () => {
      throw new Error("of the callback");
    };
    const handler = ({ id }: Job) => {
      handled.push(id);
      if (id === "1") throw new Error("of the handler");
    };
    start(t, kind, handler, { onFailure });
    await client.put(kind, "1", null);
    await until("the first job fails", async () => (await client.get(kind, "1")).attempts === 1);
    await client.put(kind, "2", null);
    await until("the second job runs", () => handled.includes("2"));
  });

  test("rejects misuse", async () => {
    const worker = new Worker(client);
    await assert.rejects(worker.run(), /no handlers/);
    worker.on("kind", () => {});
    assert.throws(() => worker.on("kind", () => {}), /a handler already/);
    assert.throws(() => new Worker(client, { concurrency: 0 }), TypeError);
    assert.throws(() => new Worker(client, { lease: 30 as never }), TypeError);
    await worker.shutdown();
    assert.equal(await worker.run({ handleSignals: false }), 0);
    await assert.rejects(worker.run(), /only once/);
  });
});

/** How many requests this server has received for a path. */
async function requests(path: string): Promise<number> {
  const metrics = await (await fetch(`${server.url}/metrics`)).text();
  const line = `requeue_http_request_duration_seconds_count{route="${path}"} `;
  const found = metrics.split("\n").find((candidate) => candidate.startsWith(line));
  return Number(found?.slice(line.length) ?? 0);
}
