import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createServer, type RequestListener } from "node:http";
import { type AddressInfo, createServer as createTcpServer } from "node:net";
import { after, describe, test } from "node:test";
import { createServer as createTlsServer } from "node:tls";
import {
  Client,
  ConnectionError,
  type Duration,
  milliseconds,
  ProblemError,
  RequeueError,
} from "requeue-client";
import { Proxy, type Scope, Server, uniqueKind } from "./server.js";

const server = await Server.start({ after });
const client = new Client({ server: server.url });

/** A certificate that nobody trusts, or its key. */
function pem(name: string): string {
  return readFileSync(new URL(`../tests/tls/${name}.pem`, import.meta.url), "utf8");
}

/** A server that responds as the test wants. */
async function fakeServer(scope: Scope, listener: RequestListener): Promise<string> {
  const fake = createServer(listener);
  scope.after(() => {
    fake.close();
    fake.closeAllConnections();
  });
  await new Promise<void>((resolve) => fake.listen(0, "127.0.0.1", resolve));
  return `http://127.0.0.1:${(fake.address() as AddressInfo).port}`;
}

async function failure(call: Promise<unknown>): Promise<RequeueError> {
  const error = await call.then(
    () => undefined,
    (error: unknown) => error,
  );
  assert.ok(error instanceof RequeueError, String(error));
  return error;
}

describe("errors", () => {
  test("name the field, its value and the limit", async () => {
    const error = await failure(client.put(uniqueKind("invalid"), "1", null, { delay: "4000d" }));
    assert.ok(error instanceof ProblemError);
    const { problem, outcome, status, field, value, limit, min, what } = error;
    assert.deepEqual(
      { problem, outcome, status, field, value, limit, min, what },
      {
        problem: "invalid",
        outcome: "rejected",
        status: 422,
        field: "delay",
        value: "4000d",
        limit: "3660d",
        min: "0s",
        what: "the delay",
      },
    );
    assert.match(error.message, /the delay is/);
  });

  test("of an invalid token are rejected", async (t) => {
    const guarded = await Server.start(t, "a-token-of-the-test");
    const wrong = new Client({ server: guarded.url, token: "another-token-of-the-test" });
    assert.equal(((await failure(wrong.stats())) as ProblemError).problem, "unauthorized");
    await new Client({ server: guarded.url, token: "a-token-of-the-test" }).stats();
  });

  test("are not-done if there is no connection", async () => {
    const closed = createTcpServer();
    await new Promise<void>((resolve) => closed.listen(0, "127.0.0.1", resolve));
    const { port } = closed.address() as AddressInfo;
    await new Promise((resolve) => closed.close(resolve));
    for (const host of ["127.0.0.1", "localhost"]) {
      const nobody = new Client({ server: `http://${host}:${port}`, retryFor: "0s" });
      const kind = uniqueKind("refused");
      const error = await failure(nobody.put(kind, "1", null, { ifNew: true }));
      assert.ok(error instanceof ConnectionError);
      assert.equal(error.outcome, "not-done");
      const what = `cannot connect to http://${host}:${port}, so PUT /v1/kinds/${kind}/jobs/1 was not done: `;
      assert.ok(error.message.startsWith(what), error.message);
      assert.match(error.message, /ECONNREFUSED/);
    }
  });

  test("are not-done if the host does not exist, or the port is not one for HTTP", async () => {
    for (const [url, reason] of [
      ["http://requeue.invalid:7654", /requeue\.invalid:7654, so .* was not done: getaddrinfo E/],
      ["http://127.0.0.1:6000", /127\.0\.0\.1:6000, so .* was not done: fetch does not connect to this port/],
    ] as const) {
      const error = await failure(new Client({ server: url, retryFor: "0s" }).put("kind", "1", null, { ifNew: true }));
      assert.deepEqual([error.name, error.outcome], ["ConnectionError", "not-done"]);
      assert.match(error.message, reason);
    }
  });

  test("are not-done if TLS fails, because the request was not sent", async (t) => {
    const plain = new Client({ server: server.url.replace("http:", "https:"), retryFor: "0s" });
    const noTls = await failure(plain.put("kind", "1", null, { ifNew: true }));
    assert.equal(noTls.outcome, "not-done");
    assert.match(noTls.message, /cannot connect to https:.*: the server does not use TLS: write http:/);

    const untrusted = createTlsServer({ key: pem("key"), cert: pem("cert") }, () => assert.fail("a request was sent"));
    t.after(() => untrusted.close());
    await new Promise<void>((resolve) => untrusted.listen(0, "127.0.0.1", resolve));
    const url = `https://localhost:${(untrusted.address() as AddressInfo).port}`;
    const error = await failure(new Client({ server: url, retryFor: "0s" }).put("kind", "1", null, { ifNew: true }));
    assert.equal(error.outcome, "not-done");
    assert.match(error.message, /self-signed certificate; NODE_EXTRA_CA_CERTS is the file of a certificate authority/);
  });

  test("are unknown if the response is lost", async (t) => {
    const proxy = await Proxy.start(t, server.port);
    const kind = uniqueKind("lost");
    const lossy = new Client({ server: proxy.url });
    proxy.loseResponses(/^PUT/);
    const error = await failure(lossy.put(kind, "1", null, { ifNew: true }));
    assert.ok(error instanceof ConnectionError);
    assert.equal(error.outcome, "unknown");
    assert.equal((await client.get(kind, "1")).state, "ready");

    for (const call of [
      () => lossy.cancel(kind, "1"),
      () => lossy.runNow(kind, "1"),
      () => lossy.revive(kind, "1"),
      () => lossy.claim([kind]),
      () =>
        lossy.putMany([
          { kind, id: "2" },
          { kind, id: "3", ifAbsent: true },
        ]),
      () => lossy.reschedule(kind, "1", { delay: "1h", ifGeneration: 1 }),
    ]) {
      proxy.loseResponses(/^(POST|PATCH|DELETE)/);
      assert.equal((await failure(call())).outcome, "unknown");
    }
    assert.equal(proxy.lost, 7);
  });

  test("are unknown if the response does not come in time", async (t) => {
    const silent = await fakeServer(t, () => {});
    const error = await failure(new Client({ server: silent, retryFor: "0s" }).stats({ timeout: "50ms" }));
    assert.deepEqual([error.name, error.outcome], ["ConnectionError", "unknown"]);
    assert.match(error.message, /^no response from http:.* to GET \/v1\/stats: none in 50 ms$/);
    const put = await failure(new Client({ server: silent, retryFor: "0s" }).put("k", "1", 1, { timeout: "50ms" }));
    assert.match(put.message, /to PUT \/v1\/kinds\/k\/jobs\/1, which may have been done: none in 50 ms$/);
  });

  test("are unknown if the response is not one of the server", async (t) => {
    const other = await fakeServer(t, (_, response) => response.end("<html>"));
    assert.equal((await failure(new Client({ server: other, retryFor: "0s" }).stats())).outcome, "unknown");
    const elsewhere = await fakeServer(t, (_, response) => response.writeHead(302, { location: "/" }).end());
    assert.equal((await failure(new Client({ server: elsewhere, retryFor: "0s" }).stats())).outcome, "unknown");
    const empty = await fakeServer(t, (_, response) => response.end("{}"));
    assert.equal((await failure(new Client({ server: empty, retryFor: "0s" }).kinds())).outcome, "unknown");
    const short = await fakeServer(t, (_, response) => response.end('{"results":[]}'));
    const settled = new Client({ server: short, retryFor: "0s" }).settle([{ receipt: "1", how: "ack" }]);
    assert.equal((await failure(settled)).outcome, "unknown");
  });

  test("without a problem document have the class of their status", async (t) => {
    const outcomes = {
      404: "rejected",
      431: "rejected",
      408: "not-done",
      502: "unknown",
      503: "not-done",
      504: "unknown",
    };
    for (const [status, outcome] of Object.entries(outcomes)) {
      const url = await fakeServer(t, (_, response) => response.writeHead(Number(status)).end("no"));
      const error = await failure(new Client({ server: url, retryFor: "0s" }).stats());
      assert.ok(error instanceof ProblemError);
      assert.deepEqual([error.outcome, error.problem], [outcome, `http-${status}`]);
    }
  });
});

describe("requests", () => {
  test("that are harmless are repeated if their outcome is unknown", async (t) => {
    const proxy = await Proxy.start(t, server.port);
    const lossy = new Client({ server: proxy.url });
    const kind = uniqueKind("repeated");
    proxy.loseResponses(/^PUT/, 2);
    assert.equal((await lossy.put(kind, "1", null)).outcome, "updated");
    proxy.loseResponses(/^PATCH/, 2);
    assert.equal((await lossy.reschedule(kind, "1", { delay: "0s" })).outcome, "updated");
    proxy.loseResponses(/^GET/, 2);
    assert.equal((await lossy.get(kind, "1")).state, "ready");
    proxy.loseResponses(/^PATCH/, 2);
    assert.equal((await lossy.changeKind(kind, { lease: "5s" })).lease, "5s");
    const { jobs } = await lossy.claim([kind]);
    proxy.loseResponses(/^POST/, 1);
    assert.equal((await lossy.extend(jobs[0]!.receipt)).result, "extended");
    proxy.loseResponses(/^POST/, 1);
    const ack = await failure(lossy.ack(jobs[0]!.receipt));
    assert.deepEqual([ack.outcome, (ack.cause as ProblemError).problem], ["unknown", "lease-lost"]);
    assert.equal(proxy.lost, 10);
  });

  test("that are rejected when they are repeated are unknown, except reads", async (t) => {
    let problem = "";
    let requests = 0;
    const url = await fakeServer(t, (request, response) => {
      request.resume();
      requests += 1;
      if (requests % 2 === 1) return request.socket.destroy();
      response.writeHead(409, { "content-type": "application/problem+json" });
      return response.end(JSON.stringify({ type: `/v1/problems/${problem}`, title: problem, status: 409, detail: "no" }));
    });
    const lossy = new Client({ server: url });
    for (const [name, call] of [
      // The first request has made the job due, and a worker has run it.
      ["absent", () => lossy.reschedule("kind", "1", { delay: "0s" })],
      ["done", () => lossy.reschedule("kind", "1", { delay: "0s" })],
      ["absent", () => lossy.changeSchedule("kind", "s", { paused: true })],
      ["forbidden", () => lossy.put("kind", "1", null)],
    ] as const) {
      problem = name;
      const error = await failure(call());
      assert.deepEqual([error.outcome, (error.cause as ProblemError).problem], ["unknown", name]);
      assert.match(error.message, /, which may have been done: .*; repeated, and then rejected: no$/);
    }
    problem = "absent";
    assert.equal((await failure(lossy.get("kind", "1"))).outcome, "rejected");
    assert.equal(requests, 10);
  });

  test("that were not done are repeated after Retry-After", async (t) => {
    const times: number[] = [];
    const busy = await fakeServer(t, (request, response) => {
      times.push(performance.now());
      request.resume();
      if (times.length === 3) return response.end('{"outcome":"created","generation":1}');
      const problem = { type: "/v1/problems/busy", title: "busy", status: 503, detail: "too many requests" };
      response.writeHead(503, { "retry-after": "1", "content-type": "application/problem+json" });
      return response.end(JSON.stringify(problem));
    });
    // A put with a condition is repeated as well, because nothing was done.
    const put = await new Client({ server: busy }).put("kind", "1", null, { ifAbsent: true });
    assert.equal(put.outcome, "created");
    assert.equal(times.length, 3);
    assert.ok(times[1]! - times[0]! >= 990 && times[2]! - times[1]! >= 990, "the pauses are at least Retry-After");
  });

  test("fail with the last error when the time for repetitions is over", async (t) => {
    let requests = 0;
    const url = await fakeServer(t, (_, response) => {
      requests += 1;
      response.writeHead(503).end();
    });
    const error = await failure(new Client({ server: url, retryFor: "3s" }).stats());
    assert.deepEqual([error.outcome, (error as ProblemError).status], ["not-done", 503]);
    assert.ok(requests > 1);
  });

  test("whose outcome is unknown once do not end as not done", async (t) => {
    let requests = 0;
    const url = await fakeServer(t, (_, response) => {
      requests += 1;
      response.writeHead(requests === 1 ? 504 : 503).end();
    });
    const error = await failure(new Client({ server: url, retryFor: "3s" }).put("kind", "1", null));
    assert.ok(requests > 1);
    assert.equal(error.outcome, "unknown");
  });

  test("that fail after others of the same call changed something are unknown", async (t) => {
    let requests = 0;
    const url = await fakeServer(t, (_, response) => {
      requests += 1;
      if (requests % 2 === 0) return response.writeHead(503).end();
      return response.end('{"matched":9,"changed":7,"failed":2,"removed":7,"ending":0,"cursor":"x"}');
    });
    const failing = new Client({ server: url, retryFor: "0s" });
    for (const [call, what] of [
      [() => failing.cancelMatching("kind", {}), /7 jobs were changed, others were not: status 503/],
      [() => failing.deleteKind("kind"), /7 jobs were removed, others were not: status 503/],
    ] as const) {
      const error = await failure(call());
      assert.equal(error.outcome, "unknown");
      assert.match(error.message, what);
    }
  });

  test("that are aborted throw the reason of the signal", async (t) => {
    const controller = new AbortController();
    const reason = new Error("no longer needed");
    const silent = await fakeServer(t, () => controller.abort(reason));
    const call = new Client({ server: silent }).stats({ signal: controller.signal });
    await assert.rejects(call, (error) => error === reason);
    await assert.rejects(client.stats({ signal: controller.signal }), (error) => error === reason);

    const pausing = new AbortController();
    const busy = await fakeServer(t, (_, response) => {
      response.writeHead(503, { "retry-after": "60" }).end(() => pausing.abort(reason));
    });
    const repeated = new Client({ server: busy, retryFor: "10m" }).stats({ signal: pausing.signal });
    await assert.rejects(repeated, (error) => error === reason);
  });
});

describe("times and durations", () => {
  const put = (options: object) => client.put(uniqueKind("time"), "1", null, options);

  test("without a zone or a unit are rejected before a request is sent", async () => {
    for (const delay of [300, "300", "5 min", "5mm", "", "-5s", null, 0]) {
      await assert.rejects(put({ delay }), TypeError, `delay ${delay}`);
    }
    for (const due of ["2026-12-01T09:00:00", "2026-12-01", "tomorrow 09:00", 1796112000000, new Date(NaN), null]) {
      await assert.rejects(put({ due }), TypeError, `due ${due}`);
    }
    assert.throws(() => new Client({ retryFor: 10 as unknown as Duration }), /retryFor is 10, which is not a duration/);
  });

  test("with a zone or a unit are accepted", async () => {
    for (const delay of ["250ms", "1.5h", "1h30m", "1d", "2w"]) await put({ delay });
    for (const due of [
      "2025-12-01T09:00:00Z",
      "2025-12-01t09:00:00.5+01:00",
      "2025-12-01T09:00:00+01:00[Europe/Berlin]",
    ]) {
      await put({ due });
    }
    assert.equal(milliseconds("1h30m"), 5_400_000);
    assert.equal(milliseconds("250ms"), 250);
    assert.equal(milliseconds("1.5s"), 1500);
  });
});
