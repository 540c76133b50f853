// Executes commands, one per line, and prints one line of JSON for each; see
// ../src/workloads/postgres/client.rs for the commands.

import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';

// The number of jobs per call.
const BATCH = 1000;
const BODY_LENGTH = 100;
// How often a worker looks for scheduled jobs that became due, in milliseconds.
export const LOOK_FOR_DUE = 100;

// `queue` has these functions:
//
//   insert(jobs)                  inserts an array of { body, due }. `due` is a Date, or undefined for now
//   start(workers, handler)       starts a worker that calls `handler` with the body of each job
//   startPolling(workers, handler)    the same, and it looks for due jobs every LOOK_FOR_DUE
//   stop()                        stops the worker after it has finished its jobs
export async function execute(packageName, queue) {
  let finished = 0;
  const commands = {
    version: () => ({ version: versionOf(packageName) }),
    insert: async (count, delay) => ({ seconds: await timed(() => insert(queue, plain(count, delay))) }),
    process: async (workers, count) => {
      const seconds = await timed(async () => {
        await run(count, (handler) => queue.start(workers, handler));
        await queue.stop();
      });
      return { seconds };
    },
    late: async (workers, count, first, last) => {
      const late = [];
      const all = run(count, (handler) => queue.startPolling(workers, (body) => {
        const began = performance.timeOrigin + performance.now();
        late.push(Math.round((began - Number(body)) * 1000));
        handler();
      }));
      await insert(queue, scheduled(count, first, last));
      await all;
      return { late_us: late };
    },
    start: async (workers) => {
      await queue.start(workers, () => { finished += 1; });
      return {};
    },
    offer: async (count) => {
      const before = finished;
      await insert(queue, plain(count, 0));
      return { finished: before };
    },
  };
  for await (const line of createInterface({ input: process.stdin })) {
    const [verb, ...numbers] = line.split(' ');
    if (!Object.hasOwn(commands, verb)) fail(new Error(`${packageName} has no command ${verb}`));
    console.log(JSON.stringify(await commands[verb](...numbers.map(Number))));
  }
  process.exit(0);
}

export function fail(error) {
  console.error(error);
  process.exit(1);
}

// Resolves when this many jobs were handled.
function run(count, start) {
  return new Promise((resolve, reject) => {
    let left = count;
    start(() => {
      left -= 1;
      if (left === 0) resolve();
    }).catch(reject);
  });
}

function plain(count, delay) {
  const body = 'x'.repeat(BODY_LENGTH);
  const due = delay > 0 ? new Date(Date.now() + delay) : undefined;
  return Array.from({ length: count }, () => ({ body, due }));
}

// The body contains the due time. The delays of all systems are the same; see
// ../src/workloads/postgres/job.rs.
function scheduled(count, first, last) {
  const now = Date.now();
  return Array.from({ length: count }, (_, i) => {
    const mixed = Math.imul(i + 1, 0x9e3779b1) >>> 0;
    const due = now + first + Math.floor(((last - first) * mixed) / 2 ** 32);
    return { body: String(due).padEnd(BODY_LENGTH), due: new Date(due) };
  });
}

async function insert(queue, jobs) {
  for (let first = 0; first < jobs.length; first += BATCH) {
    await queue.insert(jobs.slice(first, first + BATCH));
  }
}

async function timed(work) {
  const started = performance.now();
  await work();
  return (performance.now() - started) / 1000;
}

function versionOf(packageName) {
  const file = new URL(`node_modules/${packageName}/package.json`, import.meta.url);
  return JSON.parse(readFileSync(file)).version;
}
