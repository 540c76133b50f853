// The worker of the scenarios that all clients share: runs one kind, and prints what happens as JSON Lines.
//
//   node scenario-worker.js '{"kind": "scenario-3", "concurrency": 2, "lease": "600ms"}'

import { writeSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import {
  Client,
  type Duration,
  GiveUp,
  type Job,
  JobStopped,
  milliseconds,
  ProblemError,
  RequeueAfter,
  RetryAfter,
  Worker,
} from "requeue-client";

interface Arguments {
  kind: string;
  name?: string;
  concurrency?: number;
  lease?: Duration;
  grace?: Duration;
  timeout?: Duration;
}

interface Step {
  do: string;
  result?: unknown;
  error?: string;
  reason?: string;
  attempt?: number;
  delay?: Duration;
  for?: Duration;
  /** What to reschedule. */
  id?: string;
  priority?: number;
  body?: Step;
  if_own_generation?: boolean;
}

const { kind, timeout, ...options } = JSON.parse(process.argv[2] ?? "") as Arguments;
const requeued = new Set<string>();

function print(event: object): void {
  writeSync(1, JSON.stringify(event) + "\n");
}

function stopped(job: Job<unknown>): void {
  const { reason } = job.signal;
  print({ event: "stopped", id: job.id, why: reason instanceof JobStopped ? reason.why : String(reason) });
}

/** Reschedules another job. Returns the outcome, or the name of the problem. */
async function reschedule(job: Job<Step>): Promise<string> {
  const { id = "", delay, priority, body, if_own_generation } = job.body;
  try {
    const result = await client.reschedule(job.kind, id, {
      ...(delay === undefined ? {} : { delay }),
      ...(priority === undefined ? {} : { priority }),
      ...(body === undefined ? {} : { body }),
      ...(if_own_generation ? { ifGeneration: job.generation } : {}),
    });
    return result.outcome;
  } catch (error) {
    if (error instanceof ProblemError) return error.problem;
    throw error;
  }
}

const client = new Client<Record<string, Step>>();

const worker = new Worker<Record<string, Step>>(client, {
  ...options,
  onFailure: (job, _, next) => print({ event: "failed", id: job.id, attempt: job.attempt, next }),
  onLost: (job) => print({ event: "lost", id: job.id }),
  onError: (error) => print({ event: "error", message: String(error) }),
});

worker.on(kind, timeout === undefined ? {} : { timeout }, async (job) => {
  const { id, attempt, generation, fence, body } = job;
  print({ event: "start", id, attempt, generation, fence });
  const end = (how: string) => print({ event: "end", id, how });
  switch (body.do) {
    case "return":
      end("return");
      return body.result;
    case "fail":
      end("fail");
      throw new Error(body.error);
    case "fail_before":
      if (attempt < (body.attempt ?? 0)) {
        end("fail");
        throw new Error(`attempt ${attempt} fails`);
      }
      break;
    case "panic":
      end("fail");
      throw {
        toString() {
          throw new Error("this value has no text");
        },
      };
    case "give_up":
      end("give_up");
      throw new GiveUp(body.reason);
    case "requeue_after":
      if (requeued.has(id)) break;
      requeued.add(id);
      end("requeue_after");
      throw new RequeueAfter(body.delay ?? "100ms");
    case "retry_after":
      if (attempt > 1) break;
      end("retry_after");
      throw new RetryAfter(body.delay ?? "100ms", body.error);
    case "reschedule":
      print({ event: "rescheduled", id: body.id, result: await reschedule(job) });
      break;
    case "sleep":
    case "block":
      try {
        await sleep(body.for === undefined ? 2 ** 31 - 1 : milliseconds(body.for), undefined, { signal: job.signal });
      } catch (error) {
        stopped(job);
        throw error;
      }
      break;
    case "stubborn":
      job.signal.addEventListener("abort", () => stopped(job));
      await sleep(milliseconds(body.for ?? "2s"));
      break;
    default:
      throw new GiveUp(`unknown step ${body.do}`);
  }
  end("return");
  return undefined;
});

print({ event: "ready" });
const count = await worker.run();
print({ event: "exit", stopped: count });
// A handler that did not stop would keep the process running.
process.exit(count === 0 ? 0 : 1);
