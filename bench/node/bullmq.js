// BullMQ on the workloads of requeue's benchmarks: executes commands, one per line.
//
//   node bullmq.js redis://HOST:PORT
//
// See ../src/workloads/redis/client.rs for the commands.

import { Queue, Worker } from 'bullmq';
import { Redis } from 'ioredis';
import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';

// Required by a worker: it waits without a limit.
const connection = new Redis(process.argv[2], { maxRetriesPerRequest: null });
const queue = new Queue('bench', { connection });

const verbs = {
  version() {
    const file = new URL('node_modules/bullmq/package.json', import.meta.url);
    return JSON.parse(readFileSync(file)).version;
  },
  bulk: (count, delay) => timed(() => putInBulk(makeUp(count, () => ({ body: PLAIN, delay })))),
  fill: (count, delay) => verbs.bulk(count, delay),
  put: (callers, count, delay) => put(callers, makeUp(count, () => ({ body: PLAIN, delay }))),
  process: async (concurrency, count) => {
    let worker;
    const elapsed = await timed(async () => {
      worker = await processAll(concurrency, count);
    });
    await worker.close();
    return elapsed;
  },
  late,
  wait: async (workers) => {
    const all = Array.from({ length: workers }, () => work(1, async () => {}));
    await Promise.all(all.map((worker) => worker.waitUntilReady()));
    return 'ok';
  },
};

const PLAIN = 'x'.repeat(100);

// All ids are different, and not in the order of the jobs; see ../src/workloads/redis/job.rs.
let made = 0;
function makeUp(count, next) {
  return Array.from({ length: count }, (_, i) => {
    made += 1;
    const mixed = Math.imul(made, 0x9e3779b1) >>> 0;
    const id = `j${hex(mixed, 8)}${hex(made, 7)}`;
    const { body, delay } = next(i);
    return { name: 'bench', data: body, opts: { jobId: id, delay, removeOnComplete: true } };
  });
}

function hex(number, digits) {
  return number.toString(16).padStart(digits, '0');
}

async function putInBulk(jobs) {
  for (let done = 0; done < jobs.length; done += 1000) {
    await queue.addBulk(jobs.slice(done, done + 1000));
  }
}

function put(callers, jobs) {
  const call = async (caller) => {
    for (let i = caller; i < jobs.length; i += callers) {
      await queue.add(jobs[i].name, jobs[i].data, jobs[i].opts);
    }
  };
  return timed(() => Promise.all(Array.from({ length: callers }, (_, caller) => call(caller))));
}

function work(concurrency, handler) {
  const worker = new Worker('bench', handler, { connection, concurrency });
  worker.on('error', fail);
  worker.on('failed', (_, error) => fail(error));
  return worker;
}

// Resolves to the worker when this many jobs are acked.
function processAll(concurrency, count, handler = async () => {}) {
  return new Promise((resolve) => {
    let left = count;
    const worker = work(concurrency, handler).on('completed', () => {
      left -= 1;
      if (left === 0) resolve(worker);
    });
  });
}

// The delay of the start of each job, in microseconds.
async function late(concurrency, count, lead, spread) {
  const late = [];
  const all = processAll(concurrency, count, async (job) => {
    const began = performance.timeOrigin + performance.now();
    late.push(Math.round((began - Number(job.data)) * 1000));
  });
  const base = Date.now() + lead;
  const jobs = makeUp(count, (i) => {
    const due = base + Math.floor((spread * i) / count);
    return { body: String(due).padStart(100), due };
  });
  // The delay of a job counts from its timestamp, which is when it is sent.
  for (let done = 0; done < jobs.length; done += 1000) {
    const now = Date.now();
    const some = jobs.slice(done, done + 1000);
    for (const job of some) {
      Object.assign(job.opts, { timestamp: now, delay: Number(job.data) - now });
    }
    await queue.addBulk(some);
  }
  await all;
  return late.join(' ');
}

async function timed(work) {
  const started = process.hrtime.bigint();
  await work();
  return String(process.hrtime.bigint() - started);
}

function fail(error) {
  console.error(error);
  process.exit(1);
}

for await (const line of createInterface({ input: process.stdin })) {
  const [verb, ...numbers] = line.split(' ');
  console.log(await verbs[verb](...numbers.map(Number)));
}
process.exit(0);
