// What must compile, and what must not. `tsc` checks this file; it is never run.

import { Client, type Duration, GiveUp, type JobInfo, ProblemError, RetryAfter, Worker } from "requeue-client";

interface Kinds {
  "order.remind": { to: string };
  thumbnail: Uint8Array;
  poll: undefined;
}

declare const seconds: number;
declare const text: string;

export async function client(): Promise<void> {
  const client = new Client<Kinds>({ server: "http://127.0.0.1:7654", retryFor: "1m" });
  await client.put("order.remind", "1", { to: "ann@example.org" }, { delay: "5m" });
  await client.put("order.remind", "1", { to: "ann@example.org" }, { delay: `${seconds}s`, priority: 3 });
  await client.put("order.remind", "1", { to: "ann@example.org" }, { delay: "1h30m", mode: "keep" });
  await client.put("poll", "1", undefined, { due: new Date(), signal: AbortSignal.timeout(1000) });

  // @ts-expect-error an unknown kind
  await client.put("order.remnd", "1", { to: "ann@example.org" });
  // @ts-expect-error another body
  await client.put("order.remind", "1", { to: 5 });
  // @ts-expect-error a number without a unit
  await client.put("order.remind", "1", { to: "" }, { delay: 300 });
  // @ts-expect-error a text without a unit
  await client.put("order.remind", "1", { to: "" }, { delay: "300" });
  // @ts-expect-error a unit that does not exist
  await client.put("order.remind", "1", { to: "" }, { delay: "5 min" });
  // @ts-expect-error any text
  await client.put("order.remind", "1", { to: "" }, { delay: text });
  // @ts-expect-error a number as a time
  await client.put("order.remind", "1", { to: "" }, { due: 1796112000000 });
  // @ts-expect-error the name of the field in the HTTP API
  await client.put("order.remind", "1", { to: "" }, { if_absent: true });

  await client.putMany([
    { kind: "order.remind", id: "1", body: { to: "ann@example.org" } },
    { kind: "thumbnail", id: "2", body: new Uint8Array(), delay: "1s" },
  ]);
  // @ts-expect-error the body of another kind
  await client.putMany([{ kind: "thumbnail", id: "2", body: { to: "ann@example.org" } }]);

  await client.reschedule("order.remind", "1", { delay: "1h", body: { to: "bob@example.org" } });
  // @ts-expect-error the body of another kind
  await client.reschedule("order.remind", "1", { body: new Uint8Array() });
  // @ts-expect-error a field that cannot be changed
  await client.reschedule("order.remind", "1", { ifAbsent: true });
  const put: "created" | "updated" | "coalesced" | "revived" | "kept" = (await client.putMany([]))[0]!.outcome;
  const [result] = await client.putMany([], { returnProblems: true });
  // @ts-expect-error it may be a problem, which need not have one
  const generation: number = result!.generation;

  const job: JobInfo<{ to: string }> = await client.get("order.remind", "1");
  const to: string = job.body.to;
  // @ts-expect-error a field that the body does not have
  job.body.from;
  for await (const { body } of client.list("thumbnail", { state: "dead" })) body.byteLength;
  // @ts-expect-error a state that does not exist
  client.list("thumbnail", { state: "running" });

  const { jobs } = await client.claim(["order.remind", "poll"], { lease: "1m" });
  const claimed: { to: string } | undefined = jobs[0]!.body;
  await client.settle([{ receipt: "", how: "requeue", delay: "5m" }]);
  // @ts-expect-error requeue requires a delay
  await client.settle([{ receipt: "", how: "requeue" }]);

  await client.setSchedule("order.remind", "daily", { cron: "0 6 * * *", timeZone: "Europe/Berlin", body: { to } });
  await client.setSchedule("poll", "often", { every: "30s" });
  // @ts-expect-error both
  await client.setSchedule("poll", "often", { every: "30s", cron: "0 6 * * *" });
  // @ts-expect-error neither
  await client.setSchedule("poll", "often", { paused: true });
  await client.changeSchedule("poll", "often", { jitter: null });
  await client.changeKind("poll", { concurrency: null, backoff: { base: "2s" }, rate: "10/s" });
  // @ts-expect-error a rate without a time
  await client.changeKind("poll", { rate: "10" });

  const duration: Duration = (await client.settings("poll")).lease;
  void [claimed, duration, put, generation];
}

export function worker(client: Client<Kinds>): void {
  const worker = new Worker<Kinds>(client, { concurrency: 5, lease: "1m" });
  worker.on("order.remind", async (job) => {
    const to: string = job.body.to;
    const { signal, attempt, generation, fence, due, priority, receipt, idempotencyKey } = job;
    void [to, signal.aborted, attempt + generation + fence + priority, due.getTime(), receipt + idempotencyKey];
    // @ts-expect-error a field that the body does not have
    job.body.from;
    throw new RetryAfter("10m", "mailbox full");
  });
  worker.on("thumbnail", { timeout: "1m" }, ({ body }) => body.byteLength);
  worker.on("poll", { parse: () => undefined }, () => {
    throw new GiveUp("too late");
  });
  // @ts-expect-error an unknown kind
  worker.on("order.remnd", () => {});
  // @ts-expect-error a handler for another body
  worker.on("order.remind", (job: { body: { to: number } }) => job.body.to);
  // @ts-expect-error a number without a unit
  worker.on("order.remind", { timeout: 5000 }, () => {});
  // @ts-expect-error a number without a unit
  new RetryAfter(10);

  // The kinds of the client are those of the worker.
  new Worker(client).on("order.remind", ({ body }) => body.to.length);
}

export async function withoutKinds(): Promise<void> {
  const client = new Client();
  await client.put("any", "1", { any: ["body"] });
  const { body } = await client.get("any", "1");
  // @ts-expect-error the type of the body is not known
  body.any;
}

export function errors(error: ProblemError): string {
  switch (error.problem) {
    case "lease-lost":
      return error.detail;
    case "a-problem-of-a-newer-server":
      return error.title;
  }
  // @ts-expect-error an outcome that does not exist
  if (error.outcome === "failed") return "";
  return error.outcome === "unknown" ? "?" : "";
}
