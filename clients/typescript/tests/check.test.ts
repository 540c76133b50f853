// What a client refuses before it sends anything, and what it says about it. As in plain JavaScript, without types.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { Client, GiveUp, RequeueAfter, RetryAfter, Worker } from "requeue-client";

const { fetch } = globalThis;
let sent: unknown[] = [];
before(() => {
  globalThis.fetch = async (...request) => {
    sent.push(request);
    throw new Error("it was sent");
  };
});
after(() => void (globalThis.fetch = fetch));

const client: any = new Client({ server: "http://127.0.0.1:7654", retryFor: "0s" });
const handler = () => {};

class Order {
  id = 42;
}

const NONSENSE: Record<string, [() => unknown, string]> = {
  "no id": [() => client.put("mail", undefined, {}), "id is undefined; it must be a string"],
  "an id that is a number": [() => client.put("mail", 42, {}), 'id is 42; it must be a string, such as "42"'],
  "an id that is a BigInt": [() => client.get("mail", 42n), 'id is 42n; it must be a string, such as "42"'],
  "an id that is null": [() => client.cancel("mail", null), "id is null; it must be a string"],
  "an id that was not awaited": [() => client.get("mail", Promise.resolve("a")), "id is a Promise, without await"],
  "an id that is an object": [() => client.runNow("mail", new Order()), "id is of the class Order; it must be a"],
  "an empty id": [() => client.revive("mail", ""), "id is empty"],
  "an id that is not Unicode": [() => client.put("mail", "\ud800", 1), "it contains half of a surrogate pair"],
  "an id that a URL cannot contain": [() => client.get("mail", ".."), 'the id ".." cannot be part of a URL'],
  "no kind": [() => client.put(undefined, "a", {}), "kind is undefined; it must be a string"],
  "an object instead of a kind": [
    () => client.changeKind({ maxAttempts: 3 }),
    'kind is {"maxAttempts":3}; it must be a string',
  ],
  "an empty kind": [() => client.kind(""), "kind is empty"],
  "a kind of a claim": [() => client.claim(["mail", 7]), "kinds[1] is 7; it must be a string"],
  "no kinds": [() => client.claim(), "kinds is undefined; it must be an array of strings"],
  "no kinds to wait for": [() => client.wait(null, "1s"), "kinds is null; it must be an array of strings"],
  "a number of ids": [() => client.cancelMany("mail", "order-42"), 'ids is "order-42"; it must be an array of strings'],
  "an id of several": [() => client.reviveMany("mail", ["a", null]), "ids[1] is null; it must be a string"],

  "a job without an id": [() => client.putMany([{ kind: "mail" }]), "jobs[0].id is undefined; it must be a string"],
  "a job with a misspelt field": [
    () => client.putMany([{ kind: "mail", id: "a" }, { kind: "mail", id: "b", dealy: "5m" }]),
    'jobs[1] has no field "dealy"; did you mean "delay"?',
  ],
  "a job without a unit": [
    () => client.putMany([{ kind: "mail", id: "a", delay: 300 }]),
    'jobs[0].delay is 300, which is not a duration; write it with a unit, such as "300s"',
  ],
  "one job instead of several": [
    () => client.putMany({ kind: "mail", id: "a" }),
    'jobs is {"kind":"mail","id":"a"}; it must be an array of objects',
  ],
  "an unknown option of a put": [
    () => client.put("mail", "a", {}, { if_absent: true }),
    'options has no field "if_absent"; did you mean "ifAbsent"?',
  ],
  "an option that is like no other": [
    () => client.put("mail", "a", {}, { colour: "red" }),
    'options has no field "colour"; known are delay, due, envelope, ifAbsent, ifGeneration, ifNew, maxWait, mode, priority, ' +
      "contentType, signal, timeout, retryFor",
  ],
  "a delay instead of options": [
    () => client.put("mail", "a", {}, "5m"),
    'options is "5m"; it must be an object with any of delay, due,',
  ],
  "a delay without a unit": [
    () => client.put("mail", "a", {}, { delay: 300 }),
    'options.delay is 300, which is not a duration; write it with a unit, such as "300s" or "300m"',
  ],
  "a time without a zone": [
    () => client.put("mail", "a", {}, { due: "2026-12-01T09:00:00" }),
    'options.due is "2026-12-01T09:00:00"; it must be a Date, or a time in RFC 3339 with an offset',
  ],
  "an invalid date": [() => client.put("mail", "a", {}, { due: new Date("x") }), "options.due is an invalid Date"],
  "a priority that is not a number": [
    () => client.put("mail", "a", {}, { priority: NaN }),
    "options.priority is NaN; it must be a whole number",
  ],
  "a mode that does not exist": [
    () => client.put("mail", "a", {}, { mode: "replce" }),
    'options.mode is "replce"; it must be one of "replace", "earliest", "keep", "debounce"',
  ],
  "a condition that is not true": [
    () => client.put("mail", "a", {}, { ifNew: "yes" }),
    'options.ifNew is "yes"; it must be true or false',
  ],
  "an option of another call": [
    () => client.get("mail", "a", { delay: "5m" }),
    'options has no field "delay"; known are signal, timeout, retryFor',
  ],
  "a controller instead of its signal": [
    () => client.stats({ signal: new AbortController() }),
    "options.signal is of the class AbortController; it must be an AbortSignal, such as controller.signal",
  ],
  "a timeout without a unit": [() => client.stats({ timeout: 5000 }), "options.timeout is 5000, which is not a dur"],

  "a body that was not awaited": [
    () => client.put("mail", "a", Promise.resolve({})),
    "body is a Promise, without await, whose content is lost in JSON; await it",
  ],
  "a part of a body that was not awaited": [
    () => client.put("mail", "a", { to: [Promise.resolve()] }),
    "body.to[0] is a Promise, without await, whose content is lost in JSON; await it",
  ],
  "a Map in a body": [
    () => client.putMany([{ kind: "mail", id: "a", body: { items: new Map([["a", 1]]) } }]),
    "jobs[0].body.items is of the class Map, whose content is lost in JSON; write Object.fromEntries(map)",
  ],
  "a Set": [() => client.put("mail", "a", new Set([1])), "whose content is lost in JSON; write [...set]"],
  "a buffer": [() => client.put("mail", "a", new ArrayBuffer(8)), "write new Uint8Array(buffer) as the whole body"],
  "bytes in JSON": [() => client.put("mail", "a", { b: new Uint8Array(2) }), "body.b is of the class Uint8Array"],
  "a number that is none": [() => client.put("mail", "a", { sum: NaN }), "body.sum is NaN, which has no JSON"],
  "a BigInt": [() => client.put("mail", "a", { sum: 1n }), "body.sum is 1n, which has no JSON; write it as a string"],
  "a function": [() => client.put("mail", "a", handler), "body is the function handler, which has no JSON"],
  "a body that contains itself": [
    () => {
      const body: any = {};
      body.self = body;
      return client.put("mail", "a", body);
    },
    "contains itself, or is nested too deeply",
  ],
  "a content type of nothing": [
    () => client.put("mail", "a", undefined, { contentType: "image/png" }),
    "contentType is image/png, but body is undefined",
  ],

  "nothing to change": [
    () => client.reschedule("mail", "a", { ifGeneration: 3 }),
    "nothing to change: set due, delay, priority or body",
  ],
  "nothing but undefined to change": [
    () => client.reschedule("mail", "a", { body: undefined, delay: undefined }),
    "nothing to change: set due, delay, priority or body",
  ],
  "no change": [() => client.reschedule("mail", "a"), "change is undefined; it must be an object with any of delay,"],
  "a change with an unknown field": [
    () => client.reschedule("mail", "a", { in: "5m" }),
    'change has no field "in"; known are delay, due, ifGeneration, priority, body, contentType',
  ],
  "a change without a unit": [() => client.reschedule("mail", "a", { delay: 5 }), "change.delay is 5, which is not a"],
  "a change of no job": [() => client.reschedule("mail", 7, { delay: "5m" }), 'id is 7; it must be a string, such as'],

  "an unknown field of a filter": [
    () => client.cancelMatching("mail", { sate: "dead" }),
    'filter has no field "sate"; did you mean "state"?',
  ],
  "an unknown state": [
    () => client.count("mail", { state: "running" }),
    'filter.state is "running"; it must be one of "waiting", "ready", "leased", "dead", "done"',
  ],
  "no filter": [() => client.cancelMatching("mail"), "filter is undefined; it must be an object with any of diedBefore,"],
  "an unknown field of a list": [
    () => client.list("mail", { limit: 5 }).next(),
    'filter has no field "limit"; known are diedBefore,',
  ],

  "an unknown setting": [
    () => client.changeKind("mail", { maxAttempt: 3 }),
    'settings has no field "maxAttempt"; did you mean "maxAttempts"?',
  ],
  "a setting with its name in the API": [
    () => client.setKind("mail", { keep_done: null }),
    'settings has no field "keep_done"; did you mean "keepDone"?',
  ],
  "an unknown setting that is like no other": [
    () => client.changeKind("mail", { x: 3 }),
    'settings has no field "x"; known are ageing, backoff, concurrency, keepDone, lease, maxAttempts, paused, ' +
      "push, rate, retention",
  ],
  "an unknown part of a setting": [
    () => client.changeKind("mail", { backoff: { bas: "1s" } }),
    'settings.backoff has no field "bas"; did you mean "base"?',
  ],
  "a setting without a unit": [
    () => client.changeKind("mail", { retention: { age: 7 } }),
    'settings.retention.age is 7, which is not a duration; write it with a unit, such as "7s"',
  ],
  "a setting that has parts": [
    () => client.changeKind("mail", { backoff: "1s" }),
    'settings.backoff is "1s"; it must be an object with any of base, jitterPercent, max',
  ],
  "a setting that is null": [
    () => client.changeKind("mail", { maxAttempts: null }),
    "settings.maxAttempts is null; it must be a whole number",
  ],
  "no settings": [() => client.setKind("mail"), "settings is undefined; it must be an object with any of ageing,"],
  "a rate without a time": [
    () => client.changeKind("mail", { rate: "10" }),
    'settings.rate is "10", which is not a rate; write jobs per time, such as "10/s" or "100/1m"',
  ],
  "a rate that is a number": [
    () => client.changeKind("mail", { rate: 10 }),
    "settings.rate is 10; it must be an object with any of jobs, per, burst",
  ],
  "secrets that are one": [
    () => client.changeKind("mail", { push: { url: "http://h", secrets: "whsec_x" } }),
    "settings.push.secrets must be an array of strings",
  ],

  "an unknown field of a schedule": [
    () => client.setSchedule("mail", "daily", { corn: "0 6 * * *" }),
    'schedule has no field "corn"; did you mean "cron"?',
  ],
  "a schedule with an id that is no text": [
    () => client.setSchedule("mail", 1, { every: "1h" }),
    'id is 1; it must be a string, such as "1"',
  ],
  "a cron expression that is no text": [
    () => client.changeSchedule("mail", "daily", { cron: 5 }),
    "schedule.cron is 5; it must be a string",
  ],

  "a job instead of a receipt": [
    () => client.ack({ receipt: "r" }),
    'receipt is {"receipt":"r"}; it must be the receipt of a claimed job, `job.receipt`',
  ],
  "no receipt": [() => client.extend(undefined), "receipt is undefined; it must be the receipt of a claimed job"],
  "an unknown option of an ack": [
    () => client.ack("r", { reslt: 1 }),
    'options has no field "reslt"; did you mean "result"?',
  ],
  "no delay": [() => client.requeue("r"), 'delay is undefined, which is not a duration; write numbers with the units'],
  "an error instead of its text": [
    () => client.retry("r", { error: new Error("boom") }),
    "options.error is of the class Error; it must be a string",
  ],
  "a settlement that does not exist": [
    () => client.settle([{ receipt: "r", how: "done" }]),
    'settlements[0].how is "done"; it must be one of "ack", "retry", "bury", "requeue", "release", "extend"',
  ],
  "a field of another settlement": [
    () => client.settle([{ receipt: "r", how: "ack", delay: "5m" }]),
    'settlements[0] has no field "delay"; known are receipt, how, result',
  ],
  "a requeue without a delay": [() => client.settle([{ receipt: "r", how: "requeue" }]), "settlements[0].delay is mis"],

  "a URL instead of options": [
    () => new (Client as any)("http://127.0.0.1:7654"),
    "options is a string; to pass the URL of the server, write new Client({ server: URL })",
  ],
  "a number instead of options": [
    () => new (Client as any)(7654),
    "options is 7654; it must be an object with any of server, token, timeout, retryFor, codec",
  ],
  "an unknown option of a client": [
    () => new (Client as any)({ url: "http://127.0.0.1:7654" }),
    'options has no field "url"; known are server, token,',
  ],
  "a codec that is none": [
    () => new (Client as any)({ codec: JSON }),
    "options.codec.encode is undefined; it must be a function",
  ],
  "a worker without a client": [
    () => new (Worker as any)({ server: "http://127.0.0.1:7654" }),
    'client is {"server":"http://127.0.0.1:7654"}; it must be a Client, as in new Worker(new Client())',
  ],
  "an unknown option of a worker": [
    () => new (Worker as any)(client, { concurency: 5 }),
    'options has no field "concurency"; did you mean "concurrency"?',
  ],
  "slots that are no number": [
    () => new Worker(client, { concurrency: "5" as any }),
    'options.concurrency is "5"; it must be a whole number from 1',
  ],
  "a lease without a unit": [
    () => new Worker(client, { lease: 30 as any }),
    "options.lease is 30, which is not a duration",
  ],
  "a callback that is none": [
    () => new Worker(client, { onDead: "log" as any }),
    'options.onDead is "log"; it must be a function',
  ],
  "a handler that is none": [() => new Worker(client).on("mail", undefined as any), "handler is undefined; it must be"],
  "a handler of no kind": [() => new Worker(client).on(undefined as any, handler), "kind is undefined; it must be a"],
  "an unknown option of a handler": [
    () => new (Worker as any)(client).on("mail", { timout: "1m" }, handler),
    'options has no field "timout"; did you mean "timeout"?',
  ],
  "a handler before its options": [
    () => new (Worker as any)(client).on("mail", handler, { timeout: "1m" }),
    "options is the function handler; it must be an object with any of timeout, parse",
  ],
  "an unknown option of a run": [
    () => new (Worker as any)(client).on("mail", handler).run({ handleSignal: false }),
    'options has no field "handleSignal"; did you mean "handleSignals"?',
  ],
  "a retry without a unit": [() => new RetryAfter(10 as any), "delay is 10, which is not a duration"],
  "a requeue without a unit": [() => new RequeueAfter("10" as any), 'delay is "10", which is not a duration; write it'],
};

describe("nonsense", () => {
  for (const [name, [call, message]] of Object.entries(NONSENSE)) {
    test(`is not sent, and the error says what is wrong: ${name}`, async () => {
      sent = [];
      await assert.rejects(
        async () => call(),
        (error) => {
          assert.ok(error instanceof TypeError, String(error));
          assert.ok(error.message.includes(message), error.message);
          return true;
        },
      );
      assert.deepEqual(sent, []);
    });
  }

  test("does not include what JSON can express", async () => {
    const nested = { at: new Date(0), url: new URL("http://host"), none: undefined, a: [null, { b: [] }] };
    for (const body of [nested, null, "", 0]) {
      await assert.rejects(client.put("mail", "a", body), /it was sent/);
    }
    await assert.rejects(client.put("mail", "a", new GiveUp("a class")), /it was sent/);
  });
});

describe("the URL of a server", () => {
  const URLS: Record<string, string> = {
    "127.0.0.1:7860": 'it must begin with http:// or https:// and a host, such as "http://127.0.0.1:7860"',
    "localhost:7654": 'such as "http://localhost:7654"',
    "queue.example.org": 'such as "http://queue.example.org"',
    "tcp://queue:7654": 'such as "http://queue:7654"',
    "http:queue": 'such as "http://queue"',
    "http://": "it must begin with http:// or https:// and a host",
    "http://host:port": 'the URL of the server is "http://host:port", which is not a valid URL',
    "http://ann:secret@host": "contains a user name or a password; pass a token instead",
    "ann:secret@host": "contains a user name or a password; pass a token instead",
    "tcp://ann:secret@host": "contains a user name or a password; pass a token instead",
    "http://host/?x=1": 'it must end before "?" and "#"',
  };

  for (const [server, message] of Object.entries(URLS)) {
    test(`is checked when the client is created: ${server}`, () => {
      assert.throws(
        () => new Client({ server }),
        (error) => error instanceof TypeError && error.message.includes(message) && !error.message.includes("secret"),
      );
    });
  }

  test("can be a variable of the environment, which is checked too", (t) => {
    const { REQUEUE_SERVER } = process.env;
    t.after(() => {
      if (REQUEUE_SERVER === undefined) delete process.env["REQUEUE_SERVER"];
      else process.env["REQUEUE_SERVER"] = REQUEUE_SERVER;
    });
    process.env["REQUEUE_SERVER"] = "queue:7654";
    assert.throws(() => new Client(), /the URL of the server is "queue:7654"/);
    process.env["REQUEUE_SERVER"] = "";
    new Client();
  });
});

test("a token that is none is rejected, and not shown", () => {
  for (const token of ["secret\n", "sec ret", "sécret"]) {
    assert.throws(
      () => new Client({ token }),
      (error) => error instanceof TypeError && /^the token contains (?!.*ret)/.test(error.message),
    );
  }
});
