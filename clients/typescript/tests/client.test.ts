import assert from "node:assert/strict";
import { after, describe, test } from "node:test";
import {
  BatchError,
  Client,
  type Codec,
  type ListFilter,
  ProblemError,
  type PutResult,
  type RateText,
  RequeueError,
} from "requeue-client";
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

  test("throws if a job of a batch was not put, and reports one result per job", async () => {
    const [one, other] = [uniqueKind("one"), uniqueKind("other")];
    const jobs = [
      { kind: one, id: "1", body: 1 },
      { kind: other, id: "1", delay: "1h" },
      { kind: one, id: "1", body: 2, ifAbsent: true },
    ] as const;
    const error = await client.putMany(jobs).then(
      () => undefined,
      (error: unknown) => error,
    );
    assert.ok(error instanceof BatchError && error instanceof RequeueError);
    const message = /^1 of 3 puts failed; the first: jobs\[2\] \("1"\): job "1" of kind one-\w+ already exists/;
    assert.match(error.message, message);
    assert.deepEqual([error.outcome, [...error.problems.keys()]], ["partial", [2]]);
    assert.equal(error.problems.get(2), error.results[2]);

    await client.cancel(one, "1");
    const done: PutResult[] = await client.putMany(jobs.slice(0, 2));
    assert.deepEqual(
      done.map(({ outcome }) => outcome),
      ["created", "updated"],
    );
    await client.cancel(one, "1");
    const results = await client.putMany([{ ...jobs[0], id: "2" }, { kind: other, id: "2" }, jobs[2], jobs[2]], {
      returnProblems: true,
    });
    const [first, second, , third] = results;
    assert.ok(first && !(first instanceof ProblemError) && first.outcome === "created");
    assert.ok(second && !(second instanceof ProblemError) && second.outcome === "created");
    assert.ok(third instanceof ProblemError);
    const { generation } = await client.get(one, "1");
    assert.deepEqual([third.problem, third.generation, third.outcome], ["exists", generation, "rejected"]);
  });

  test("reschedules a job, and keeps what is not named", async () => {
    const kind = uniqueKind("move");
    const put = await client.put(kind, "1", { to: "ann" }, { delay: "1h", priority: 3 });
    const moved = await client.reschedule(kind, "1", { delay: "2h" });
    assert.deepEqual([moved.outcome, moved.generation > put.generation], ["updated", true]);
    let job = await client.get(kind, "1");
    assert.deepEqual([job.body, job.priority, job.state], [{ to: "ann" }, 3, "waiting"]);
    assert.ok(job.due.getTime() > Date.now() + 5_400_000);

    const due = new Date(Date.now() + 86_400_000);
    await client.reschedule(kind, "1", { due, priority: 5, body: { to: "bob" }, ifGeneration: moved.generation });
    job = await client.get(kind, "1");
    assert.deepEqual([job.body, job.priority, job.due], [{ to: "bob" }, 5, due]);
    await assert.rejects(client.reschedule(kind, "1", { delay: "1h", ifGeneration: 1 }), {
      problem: "other-generation",
      generation: job.generation,
    });
    await client.reschedule(kind, "1", { body: "plain", contentType: "text/plain" });
    assert.equal((await client.get(kind, "1")).body, "plain");
    await client.reschedule(kind, "1", { body: new Uint8Array() });
    assert.equal((await client.get(kind, "1")).body, undefined);
    await assert.rejects(client.reschedule(kind, "2", { delay: "1h" }), { problem: "absent" });
    await assert.rejects(client.reschedule(kind, "1", { delay: "1h", due }), { problem: "invalid" });
  });

  test("reschedules a job whose id cannot be part of a URL", async () => {
    const kind = uniqueKind("move-dots");
    await client.putMany([".", ".."].map((id) => ({ kind, id, body: id, delay: "1h" })));
    for (const id of [".", ".."]) {
      const moved = await client.reschedule(kind, id, { delay: "2h", priority: 3 });
      assert.equal(moved.outcome, "updated");
      const found: unknown[] = [];
      for await (const job of client.list(kind, { priority: 3 })) found.push([job.id, job.body, job.generation]);
      assert.deepEqual(found, [[id, id, moved.generation]]);
      await client.reschedule(kind, id, { priority: 1, ifGeneration: moved.generation });
      const stale = client.reschedule(kind, id, { delay: "0s", ifGeneration: moved.generation });
      await assert.rejects(stale, { problem: "other-generation" });
      await client.cancelMany(kind, [id]);
      await assert.rejects(client.reschedule(kind, id, { delay: "1h" }), { problem: "absent" });
    }
  });

  test("reschedules leased, dead and done jobs", async () => {
    const kind = uniqueKind("move-other");
    await client.changeKind(kind, { keepDone: {} });
    await client.put(kind, "1", "body");
    let { jobs } = await client.claim(kind);
    assert.equal((await client.reschedule(kind, "1", { delay: "0s" })).outcome, "coalesced");
    await client.ack(jobs[0]!.receipt);
    ({ jobs } = await client.claim(kind));
    assert.equal(jobs[0]!.body, "body");
    await client.bury(jobs[0]!.receipt, { error: "no address" });
    assert.equal((await client.reschedule(kind, "1", { priority: 9 })).outcome, "updated");
    assert.equal((await client.get(kind, "1")).state, "dead");
    assert.equal((await client.reschedule(kind, "1", { delay: "0s" })).outcome, "revived");
    ({ jobs } = await client.claim(kind));
    await client.ack(jobs[0]!.receipt);
    await assert.rejects(client.reschedule(kind, "1", { delay: "1h" }), { problem: "done" });
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

  test("selects, counts and changes jobs by the same filters", async () => {
    const kind = uniqueKind("filters");
    const ids = ["a1", "a2", "b1", "b2", "b3"];
    await client.setKind(kind, { maxAttempts: 1 });
    await client.putMany(ids.map((id, n) => ({ kind, id, priority: n % 2 })));
    const { jobs } = await client.claim(kind, { max: 10 });
    for (const { id, receipt } of jobs) await client.bury(receipt, { error: id === "a1" ? "boom" : `${id} not found` });
    await client.put(kind, "c1", null, { delay: "1h" });

    const before = new Date(Date.now() + 3_600_000);
    const filters: [ListFilter, string[]][] = [
      [{}, [...ids, "c1"]],
      [{ state: "dead" }, ids],
      [{ prefix: "b" }, ["b1", "b2", "b3"]],
      [{ priority: 1 }, ["a2", "b2"]],
      [{ error: "BOOM" }, ["a1"]],
      [{ errorGroup: "b* not found" }, ["b1", "b2", "b3"]],
      [{ errorGroup: "b99 not found" }, ["b1", "b2", "b3"]],
      [{ expired: true }, []],
      [{ expired: false, state: "dead" }, ids],
      [{ diedBefore: before }, ids],
      [{ state: "dead", prefix: "b", priority: 0, diedBefore: before }, ["b1", "b3"]],
    ];
    for (const [filter, expected] of filters) {
      const listed: string[] = [];
      for await (const { id } of client.list(kind, filter)) listed.push(id);
      assert.deepEqual(listed, expected, JSON.stringify(filter));
      assert.equal(await client.count(kind, filter), expected.length, JSON.stringify(filter));
    }
    assert.equal(await client.count(kind), 6);
    const ordered: string[] = [];
    for await (const { id } of client.list(kind, { state: "dead", order: "newest", pageSize: 2 })) ordered.push(id);
    assert.deepEqual(ordered, jobs.map(({ id }) => id).reverse());

    assert.deepEqual(await client.reviveMatching(kind, { priority: 1 }), { matched: 2, changed: 2, failed: 0 });
    assert.deepEqual(await client.runNowMatching(kind, { prefix: "c" }), { matched: 1, changed: 1, failed: 0 });
    assert.deepEqual(await client.cancelMatching(kind, { expired: true }), { matched: 0, changed: 0, failed: 0 });
    assert.equal((await client.cancelMatching(kind, {})).changed, 6);
  });

  test("changes and counts all jobs that match, also more than 10,000", async () => {
    const kind = uniqueKind("many");
    const client = new Client({ server: server.url, timeout: "5m" });
    for (let batch = 0; batch < 11; batch++) {
      await client.putMany(Array.from({ length: 1000 }, (_, n) => ({ kind, id: `${batch}-${n}`, delay: "1h" })));
    }
    assert.equal(await client.count(kind, { priority: 0 }), 11_000);
    assert.deepEqual(await client.runNowMatching(kind, {}), { matched: 11_000, changed: 11_000, failed: 0 });
    assert.deepEqual(await client.deleteKind(kind), { removed: 11_000, ending: 0 });
  });

  test("groups dead jobs by their errors", async () => {
    const kind = uniqueKind("groups");
    await client.setKind(kind, { maxAttempts: 1 });
    await client.putMany(["a", "b", "c"].map((id) => ({ kind, id })));
    const { jobs } = await client.claim(kind, { max: 3 });
    for (const [n, { receipt }] of jobs.entries()) {
      await client.bury(receipt, { error: n === 0 ? "mailbox full" : `order ${n} not found` });
    }
    const { groups, other, scanned } = await client.errorGroups(kind);
    assert.deepEqual(
      groups.map(({ errorGroup, count, example }) => [errorGroup, count, example]),
      [
        ["order * not found", 2, { id: "c", error: "order 2 not found" }],
        ["mailbox full", 1, { id: "a", error: "mailbox full" }],
      ],
    );
    assert.deepEqual([other, scanned], [0, 3]);
    assert.ok(groups[0]!.firstDiedAt <= groups[0]!.lastDiedAt);
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
    assert.deepEqual(revived, { matched: 1, changed: 1, failed: 0 });
    assert.deepEqual(await client.cancelMatching(kind, {}), { matched: 3, changed: 3, failed: 0 });
    assert.deepEqual(
      (await client.cancelMany(kind, ["a"])).map((result) => (result as ProblemError).problem),
      ["absent"],
    );
  });

  test("sets, changes and deletes a kind", async () => {
    const kind = uniqueKind("settings");
    const rate = { jobs: 100, per: "1m", burst: 5 } as const;
    const set = await client.setKind(kind, { lease: "1m", rate, retention: { age: "2d" } });
    assert.deepEqual([set.lease, set.rate, set.retention.age], ["1m", rate, "2d"]);
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

  test("accepts a rate as text", async () => {
    const kind = uniqueKind("rate");
    for (const [rate, jobs, per] of [
      ["10/s", 10, "1s"],
      ["100/1m", 100, "1m"],
      ["5 / 30s", 5, "30s"],
      ["1/hour", 1, "1h"],
      ["3/2 minutes", 3, "2m"],
      ["7/250ms", 7, "250ms"],
      ["5/1h30m", 5, "1h30m"],
      ["10/1.5s", 10, "1.5s"],
      ["6 / 1 hr 5 mins", 6, "1h5m"],
      ["8/2 wks", 8, "14d"],
      ["9/PT1M", 9, "1m"],
    ] as const) {
      const settings = await client.changeKind(kind, { rate });
      assert.deepEqual([settings.rate?.jobs, settings.rate?.per], [jobs, per], rate);
      assert.deepEqual((await client.setKind(kind, settings)).rate, settings.rate);
    }
    for (const rate of ["10", "/s", "10/", "10/x", "1.5/s", "10/s/s", "ten/s", "10/0.5"]) {
      await assert.rejects(client.changeKind(kind, { rate: rate as RateText }), /which is not a rate/, rate);
    }
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
    const other = uniqueKind("poll");
    await client.setSchedule(other, "often", { every: "30s", body: { n: 1 } });
    const all = (await client.allSchedules()).filter((schedule) => [kind, other].includes(schedule.kind));
    assert.deepEqual(
      all.map(({ kind, id, body }) => [kind, id, body]),
      [
        [other, "often", { n: 1 }],
        [kind, "daily", { of: "sales" }],
      ],
    );
    await client.deleteKind(other);
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
    // The highest that a restore can bring, and one: a 32-bit number would round it.
    const highest = 2 ** 52 + 1;
    const restored = await fetch(`${server.url}/v1/kinds/${kind}/restore`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ generation: highest - 1, fence: highest - 1, jobs: [] }),
    });
    assert.equal(restored.status, 200);
    assert.equal((await client.put(kind, "1", null)).generation, highest);
    const { jobs } = await client.claim([kind]);
    assert.deepEqual([jobs[0]?.generation, jobs[0]?.fence], [highest, highest]);
  });
});
