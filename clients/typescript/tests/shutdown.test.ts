// Signals, sent to the worker of the scenarios in a process of its own.

import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { after, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { Client } from "requeue-client";
import { type Scope, Server, uniqueKind, until } from "./server.js";

const server = await Server.start({ after });
const client = new Client({ server: server.url });

interface Event {
  event: string;
  id?: string;
  why?: string;
  stopped?: number;
}

class WorkerProcess {
  readonly events: Event[] = [];
  readonly #process: ChildProcess;
  readonly #exit: Promise<[number | null, string | null]>;

  constructor(scope: Scope, options: object) {
    const script = fileURLToPath(new URL("scenario-worker.js", import.meta.url));
    this.#process = spawn(process.execPath, [script, JSON.stringify(options)], {
      env: { ...process.env, REQUEUE_SERVER: server.url },
      stdio: ["ignore", "pipe", "inherit"],
    });
    createInterface({ input: this.#process.stdout! }).on("line", (line) => this.events.push(JSON.parse(line) as Event));
    this.#exit = once(this.#process, "close") as Promise<[number | null, string | null]>;
    scope.after(() => void this.#process.kill("SIGKILL"));
  }

  has(event: string): boolean {
    return this.events.some((found) => found.event === event);
  }

  send(signal: NodeJS.Signals): void {
    this.#process.kill(signal);
  }

  async exitCode(): Promise<number | null> {
    const [code] = await this.#exit;
    return code;
  }
}

async function state(kind: string, id: string): Promise<string> {
  return client.get(kind, id).then(
    (job) => job.state,
    (error: unknown) => (error as { problem: string }).problem,
  );
}

describe("a worker process", () => {
  test("finishes its jobs and claims no more after the first signal", async (t) => {
    const kind = uniqueKind("first");
    await client.put(kind, "1", { do: "sleep", for: "1s" });
    const worker = new WorkerProcess(t, { kind });
    await until("the job starts", () => worker.has("start"));
    worker.send("SIGTERM");
    assert.equal(await worker.exitCode(), 0);
    await client.put(kind, "2", { do: "return" });
    assert.deepEqual(
      worker.events.map(({ event }) => event),
      ["ready", "start", "end", "exit"],
    );
    assert.equal(await state(kind, "1"), "absent");
    assert.equal(await state(kind, "2"), "ready");
  });

  test("ends while it waits for jobs, and can be interrupted with SIGINT", async (t) => {
    const worker = new WorkerProcess(t, { kind: uniqueKind("idle") });
    await until("the worker is ready", () => worker.has("ready"));
    await until("the worker waits", async () => (await client.stats()).waitingClaims > 0);
    worker.send("SIGINT");
    assert.equal(await worker.exitCode(), 0);
  });

  test("stops its handlers when the grace period is over, and their jobs are retried immediately", async (t) => {
    const kind = uniqueKind("grace");
    await client.put(kind, "1", { do: "block" });
    const worker = new WorkerProcess(t, { kind, grace: "100ms" });
    await until("the job starts", () => worker.has("start"));
    worker.send("SIGTERM");
    assert.equal(await worker.exitCode(), 1);
    assert.equal(worker.events.find(({ event }) => event === "stopped")?.why, "shutdown");
    assert.equal(worker.events.at(-1)?.stopped, 1);
    const job = await client.get(kind, "1");
    assert.deepEqual([job.state, job.attempts, job.failures[0]?.error], ["ready", 1, "the worker was shut down"]);
  });

  test("stops its handlers on the second signal, and settles those that return normally as usual", async (t) => {
    const kind = uniqueKind("second");
    await client.put(kind, "block", { do: "block" });
    await client.put(kind, "stubborn", { do: "stubborn", for: "1s" });
    const worker = new WorkerProcess(t, { kind, grace: "10m" });
    await until("both start", () => worker.events.filter(({ event }) => event === "start").length === 2);
    worker.send("SIGTERM");
    worker.send("SIGINT");
    assert.equal(await worker.exitCode(), 1);
    assert.equal(await state(kind, "block"), "ready");
    assert.equal(await state(kind, "stubborn"), "absent");
  });

  test("ends immediately on the third signal, and its job runs again when the lease expires", async (t) => {
    const kind = uniqueKind("third");
    await client.put(kind, "1", { do: "stubborn", for: "600s" });
    const worker = new WorkerProcess(t, { kind, grace: "10m", lease: "1s" });
    await until("the job starts", () => worker.has("start"));
    worker.send("SIGTERM");
    worker.send("SIGINT");
    await until("the handler is stopped", () => worker.has("stopped"));
    worker.send("SIGTERM");
    assert.equal(await worker.exitCode(), 143);
    await until("another worker can claim the job", async () => {
      const { jobs } = await client.claim([kind]);
      return jobs[0]?.attempt === 2;
    });
  });
});
