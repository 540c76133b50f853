import assert from "node:assert/strict";
import { after, describe, test } from "node:test";
import { Client, type Codec, ProblemError } from "requeue-client";
import { Server, uniqueKind } from "./server.js";

const server = await Server.start({ after });
const client = new Client({ server: server.url });

describe("a client", () => {
  test("puts, reads, and cancels a job", async () => {
    const kind = uniqueKind("mail");
    const due = new Date(Date.now() + 86_400_000);
    const put = await client.put(kind, "a/b ü?", { to: "ann" }, { due, priority: 5 });
    assert.equal(put.outcome, "created");

    const job = await client.get(kind, "a/b ü?");
    assert.deepEqual(
      [job.kind, job.id, job.state, job.body, job.due, job.priority, job.generation, job.attempts, job.failures],
      [kind, "a/b ü?", "waiting", { to: "ann" }, due, 5, put.generation, 0, []],
    );
    assert.equal(job.lease, undefined);

    const inBerlin = new Date(due.getTime() + 3_600_000).toISOString().replace("Z", "+01:00");
    assert.equal((await client.put(kind, "a/b ü?", { to: "bob" }, { due: inBerlin })).outcome, "updated");
    assert.deepEqual((await client.get(kind, "a/b ü?")).due, due);

    assert.equal(await client.cancel(kind, "a/b ü?"), "removed");
    await assert.rejects(client.get(kind, "a/b ü?"), { problem: "absent", outcome: "rejected", status: 404 });
  });

  test("reports one result per job of a batch", async () => {
    const [one, other] = [uniqueKind("one"), uniqueKind("other")];
    const results = await client.putMany([
      { kind: one, id: "1", body: 1 },
      { kind: other, id: "1", delay: "1h" },
      { kind: one, id: "1", body: 2, ifAbsent: true },
    ]);
    const [first, second, third] = results;
    assert.ok(first && !(first instanceof ProblemError) && first.outcome === "created");
    assert.ok(second && !(second instanceof ProblemError) && second.outcome === "created");
    assert.ok(third instanceof ProblemError);
    assert.deepEqual([third.problem, third.generation, third.outcome], ["exists", first.generation, "rejected"]);
  });

  test("conditions of a put are checked", async () => {
    const kind = uniqueKind("conditions");
    const { generation } = await client.put(kind, "1", 1, { ifNew: true });
    await assert.rejects(client.put(kind, "1", 2, { ifNew: true }), { problem: "exists", generation });
    await assert.rejects(client.put(kind, "1", 2, { ifGeneration: 99 }), { problem: "other-generation", generation });
    assert.equal((await client.put(kind, "1", 2, { ifGeneration: generation })).outcome, "updated");
    assert.equal((await client.put(kind, "1", 3, { mode: "keep" })).outcome, "kept");
    assert.equal((await client.put(kind, "1", 4, { mode: "debounce", maxWait: "1m", delay: "1s" })).outcome, "updated");
  });

  test("lists all pages", async () => {
    const kind = uniqueKind("pages");
    const ids = Array.from({ length: 25 }, (_, n) => `job-${String(n).padStart(2, "0")}`);
    await client.putMany(ids.map((id) => ({ kind, id, delay: "1h" })));
    const listed: string[] = [];
    for await (const job of client.list(kind, { pageSize: 10, state: "waiting" })) listed.push(job.id);
    assert.deepEqual(listed, ids);
    const some: string[] = [];
    for await (const job of client.list(kind, { prefix: "job-1" })) some.push(job.id);
    assert.deepEqual(some, ids.slice(10, 20));
  });

  test("claims jobs, extends their leases, and settles them", async () => {
    const kind = uniqueKind("claims");
    await client.changeKind(kind, { keepDone: { for: "1h" }, maxAttempts: 2 });
    await client.putMany(["ack", "retry", "bury", "requeue", "release"].map((id) => ({ kind, id, body: id })));
    const { jobs, errors } = await client.claim([kind], { max: 10, lease: "1m", worker: "test", wait: "1s" });
    assert.deepEqual([jobs.length, errors], [5, []]);
    for (const job of jobs) {
      assert.equal(job.body, job.id);
      assert.equal(job.attempt, 1);
      assert.ok(Number.isSafeInteger(job.fence) && job.fence > 0);
      assert.equal(job.idempotencyKey, `${kind}/${job.id}/${job.generation}`);
    }
    const receipt = (id: string) => jobs.find((job) => job.id === id)!.receipt;

    const extended = await client.extend(receipt("ack"), { lease: "2m" });
    assert.equal(extended.result, "extended");
    assert.ok(extended.at! > jobs[0]!.leaseEndsAt);
    assert.equal((await client.get(kind, "ack")).lease?.worker, "test");

    assert.equal((await client.ack(receipt("ack"), { result: { sent: 1 } })).result, "done");
    assert.deepEqual((await client.get(kind, "ack")).done?.result, { sent: 1 });
    const retried = await client.retry(receipt("retry"), { error: "mailbox full", delay: "10m" });
    assert.ok(retried.result === "retry" && retried.at! > new Date());
    assert.equal((await client.get(kind, "retry")).failures[0]?.error, "mailbox full");
    assert.equal((await client.bury(receipt("bury"), { error: "no address" })).result, "dead");
    assert.equal((await client.requeue(receipt("requeue"), "1h")).result, "done");
    assert.equal((await client.release(receipt("release"))).result, "released");
    await assert.rejects(client.ack(receipt("ack")), { problem: "lease-lost" });

    const results = await client.settle([
      { receipt: receipt("ack"), how: "ack" },
      { receipt: receipt("release"), how: "extend", lease: "1m" },
    ]);
    assert.ok(results.every((result) => result instanceof ProblemError && result.problem === "lease-lost"));
  });

  test("waits for jobs without claiming them", async () => {
    const kind = uniqueKind("waits");
    const waiting = client.wait([kind], "1m");
    await client.put(kind, "1", null);
    await waiting;
    assert.equal((await client.get(kind, "1")).state, "ready");
  });

  test("changes one job, several jobs, and all that match", async () => {
    const kind = uniqueKind("changes");
    await client.putMany(["a", "b", "c"].map((id) => ({ kind, id, delay: "1h" })));
    assert.equal(await client.runNow(kind, "a"), "ready");
    await assert.rejects(client.revive(kind, "a"), { problem: "not-dead" });
    const results = await client.runNowMany(kind, ["b", "nothing"]);
    assert.equal(results[0], "ready");
    assert.equal((results[1] as ProblemError).problem, "absent");

    const { jobs } = await client.claim([kind], { max: 2 });
    for (const job of jobs) await client.bury(job.receipt, { error: "boom" });
    assert.equal(await client.revive(kind, "a"), "revived");
    const revived = await client.reviveMatching(kind, {
      state: "dead",
      error: "BOOM",
      diedBefore: "2040-01-01T00:00:00Z",
    });
    assert.deepEqual(revived, { matched: 1, changed: 1, failed: 0, cursor: null });

    const page = await client.cancelMatching(kind, {}, { limit: 2 });
    assert.deepEqual([page.changed, typeof page.cursor], [2, "string"]);
    assert.equal((await client.cancelMatching(kind, {}, { after: page.cursor! })).changed, 1);
    assert.deepEqual(
      (await client.cancelMany(kind, ["a"])).map((result) => (result as ProblemError).problem),
      ["absent"],
    );
  });

  test("sets, changes and deletes a kind", async () => {
    const kind = uniqueKind("settings");
    const set = await client.setKind(kind, { lease: "1m", rate: { jobs: 100, per: "1m" }, retention: { age: "2d" } });
    assert.deepEqual([set.lease, set.rate, set.retention.age], ["1m", { jobs: 100, per: "1m", burst: 2 }, "2d"]);
    const change = {
      backoff: { base: "10s" },
      concurrency: 5,
      rate: null,
      ageing: null,
      keepDone: { count: 7 },
    } as const;
    const changed = await client.changeKind(kind, change);
    assert.deepEqual(changed.backoff, { base: "10s", max: "1h", jitterPercent: 20 });
    assert.deepEqual([changed.rate, changed.ageing, changed.keepDone], [null, null, { for: "7d", count: 7 }]);
    assert.deepEqual(await client.settings(kind), changed);
    // What was read can be set again.
    assert.deepEqual(await client.setKind(kind, changed), changed);

    await client.pause(kind);
    await client.put(kind, "1", null, { delay: "30s" });
    const info = await client.kind(kind);
    assert.deepEqual([info.kind, info.pending, info.paused, info.settings.paused], [kind, 1, true, true]);
    await client.resume(kind);
    assert.ok((await client.kinds()).some((found) => found.kind === kind && !found.paused));
    assert.deepEqual((await client.upcoming(kind, { span: "1h", count: 3 })).counts, [1, 0, 0]);
    assert.deepEqual(await client.deleteKind(kind), { removed: 1, ending: 0 });
  });

  test("sets, changes, runs and deletes a schedule", async () => {
    const kind = uniqueKind("report");
    const set = await client.setSchedule(kind, "daily", {
      cron: "0 6 * * *",
      timeZone: "Europe/Berlin",
      body: { of: "sales" },
    });
    assert.deepEqual(
      [set.cron, set.timeZone, set.body, set.nextTimes.length],
      ["0 6 * * *", "Europe/Berlin", { of: "sales" }, 5],
    );
    const endsAt = new Date("2040-01-01T00:00:00.000Z");
    const changed = await client.changeSchedule(kind, "daily", { paused: true, endsAt, jitter: "1m" });
    assert.deepEqual([changed.paused, changed.next, changed.endsAt, changed.jitter], [true, undefined, endsAt, "1m"]);
    assert.equal((await client.changeSchedule(kind, "daily", { endsAt: null, paused: null })).endsAt, undefined);
    assert.equal((await client.schedule(kind, "daily")).paused, false);
    assert.deepEqual(
      (await client.schedules(kind)).map(({ id }) => id),
      ["daily"],
    );
    assert.equal((await client.runSchedule(kind, "daily")).outcome, "created");
    await client.deleteSchedule(kind, "daily");
    await assert.rejects(client.schedule(kind, "daily"), { problem: "absent" });
    await client.deleteKind(kind);
  });

  test("returns totals and workers", async () => {
    const kind = uniqueKind("stats");
    await client.put(kind, "1", null, { delay: "1h" });
    const stats = await client.stats();
    assert.ok(stats.pending >= 1 && stats.uptimeSeconds >= 0 && stats.version !== "");
    await client.claim([kind], { worker: kind });
    assert.ok((await client.workers()).some(({ name, lastSeen }) => name === kind && lastSeen instanceof Date));
  });

  test("stores JSON, text, bytes and nothing", async () => {
    const kind = uniqueKind("bodies");
    const bytes = new Uint8Array([0, 255, 128, 10]);
    const bodies: [unknown, string | undefined, unknown][] = [
      [{ deep: [1, null, "ü"] }, undefined, "application/json"],
      ["text as JSON", undefined, "application/json"],
      [null, undefined, "application/json"],
      [undefined, undefined, "application/octet-stream"],
      [bytes, undefined, "application/octet-stream"],
      [bytes, "image/png", "image/png"],
      ["plain", "text/markdown", "text/markdown"],
    ];
    for (const [body, contentType, stored] of bodies) {
      await client.put(kind, "1", body, contentType === undefined ? {} : { contentType });
      const job = await client.get(kind, "1");
      assert.deepEqual([job.body, job.contentType], [body, stored]);
    }
  });

  test("uses another codec for bodies and results", async () => {
    const codec: Codec = {
      encode: (value) => ({ text: String(value as bigint), contentType: "text/x-bigint" }),
      decode: ({ text }) => BigInt(text!),
    };
    const numbers = new Client<Record<string, bigint>>({ server: server.url, codec });
    const kind = uniqueKind("codec");
    await numbers.setKind(kind, { keepDone: {} });
    await numbers.put(kind, "1", 2n ** 64n);
    const { jobs } = await numbers.claim([kind]);
    assert.equal(jobs[0]?.body, 2n ** 64n);
    await numbers.ack(jobs[0]!.receipt, { result: 7n });
    assert.equal((await numbers.get(kind, "1")).done?.result, 7n);
  });

  test("keeps the highest generations and fencing tokens exact", async () => {
    const kind = uniqueKind("highest");
    const highest = Number.MAX_SAFE_INTEGER;
    await fetch(`${server.url}/v1/kinds/${kind}/restore`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ generation: highest - 1, fence: highest - 1, jobs: [] }),
    });
    assert.equal((await client.put(kind, "1", null)).generation, highest);
    const { jobs } = await client.claim([kind]);
    assert.deepEqual([jobs[0]?.generation, jobs[0]?.fence], [highest, highest]);
  });
});
