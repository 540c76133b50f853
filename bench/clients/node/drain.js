// How long a worker takes for jobs whose handler does nothing. Prints one line of JSON.
//
//   node drain.js --system requeue|bullmq --jobs N --concurrency C
//
// Enqueues all jobs first, then starts the worker, and measures from the start of the first handler until the last
// job is finished and removed from the queue. REQUEUE_SERVER and REDIS_URL name the servers, which must run.
// Before: `npm ci && npm run build` in clients/typescript, and `npm install --no-save --ignore-scripts` here.

import { Queue, Worker as BullWorker } from 'bullmq';
import { Redis } from 'ioredis';
import { strict as assert } from 'node:assert';
import { parseArgs } from 'node:util';
import { Client, Worker } from 'requeue-client';

const { values } = parseArgs({
  options: { system: { type: 'string' }, jobs: { type: 'string' }, concurrency: { type: 'string' } },
});
const jobs = Number(values.jobs);
const concurrency = Number(values.concurrency);
const name = `drain-${process.pid}-${Date.now()}`;

async function requeue() {
  const client = new Client();
  await inBatches((ids) => client.putMany(ids.map((id) => ({ kind: name, id }))));
  const clock = new Clock();
  const worker = new Worker(client, { concurrency });
  let left = jobs;
  worker.on(name, () => {
    clock.start();
    left -= 1;
    // Returns when all jobs are acked.
    if (left === 0) worker.shutdown();
  });
  await worker.run();
  const measured = clock.stop();
  const { pending, leased } = await client.kind(name);
  assert.deepEqual([left, pending, leased], [0, 0, 0]);
  await client.deleteKind(name);
  return measured;
}

async function bullmq() {
  // Required by a worker: it waits without a limit.
  const connection = new Redis(process.env.REDIS_URL, { maxRetriesPerRequest: null });
  const queue = new Queue(name, { connection });
  await inBatches((ids) => queue.addBulk(ids.map((jobId) => ({ name, opts: { jobId, removeOnComplete: true } }))));
  const clock = new Clock();
  let left = jobs;
  const finished = new Promise((resolve, reject) => {
    const worker = new BullWorker(name, async () => clock.start(), { connection, concurrency });
    worker.on('error', reject);
    worker.on('failed', (_, error) => reject(error));
    worker.on('completed', () => {
      left -= 1;
      if (left === 0) resolve(worker);
    });
  });
  const worker = await finished;
  const measured = clock.stop();
  assert.deepEqual(await queue.getJobCounts('waiting', 'active', 'completed'), { waiting: 0, active: 0, completed: 0 });
  await worker.close();
  await queue.obliterate();
  connection.disconnect();
  return measured;
}

async function inBatches(put) {
  for (let done = 0; done < jobs; done += 1000) {
    const ids = Array.from({ length: Math.min(1000, jobs - done) }, (_, n) => `job-${done + n}`);
    await put(ids);
  }
}

// Wall clock and CPU time of this process.
class Clock {
  #started;
  #cpu;

  start() {
    if (this.#started !== undefined) return;
    this.#started = performance.now();
    this.#cpu = process.cpuUsage();
  }

  stop() {
    const { user, system } = process.cpuUsage(this.#cpu);
    return { seconds: (performance.now() - this.#started) / 1e3, cpu: (user + system) / 1e6 };
  }
}

const systems = { requeue, bullmq };
const { seconds, cpu } = await systems[values.system]();
console.log(JSON.stringify({ system: values.system, jobs, seconds, cpu_seconds: cpu }));
