// graphile-worker on the workloads of requeue's benchmarks.
//
//   node graphile-worker.js postgres://USER@HOST:PORT/DATABASE

import { Logger, makeWorkerUtils, run } from 'graphile-worker';
import pg from 'pg';
import { LOOK_FOR_DUE, execute, fail } from './commands.js';

// As many as in the pool that graphile-worker creates by default.
const CONNECTIONS = 10;
// How many jobs are fetched in one statement, for the workers to take from.
const FETCH = 500;
// The default: new jobs are announced by NOTIFY.
const POLL_INTERVAL = 2000;

const pgPool = new pg.Pool({ connectionString: process.argv[2], max: CONNECTIONS });
pgPool.on('error', fail);
pgPool.on('connect', (client) => client.on('error', fail));
const logger = new Logger(() => (level, message) => {
  if (level === 'error') console.error(message);
});
const utils = await makeWorkerUtils({ pgPool, logger });
await utils.migrate();

let runner;

async function start(workers, pollInterval, handler) {
  const worker = {
    concurrentJobs: workers,
    pollInterval,
    // Without these, each job takes two statements.
    localQueue: { size: FETCH },
    completeJobBatchDelay: 0,
    failJobBatchDelay: 0,
  };
  runner = await run({
    preset: { worker },
    pgPool,
    logger,
    noHandleSignals: true,
    taskList: { bench: async ({ body }) => handler(body) },
    parsedCronItems: [],
  });
  runner.promise.catch(fail);
}

await execute('graphile-worker', {
  insert: (jobs) =>
    utils.addJobs(jobs.map(({ body, due }) => ({ identifier: 'bench', payload: { body }, runAt: due }))),
  start: (workers, handler) => start(workers, POLL_INTERVAL, handler),
  startPolling: (workers, handler) => start(workers, LOOK_FOR_DUE, handler),
  // Resolves when the completed jobs are stored as such.
  stop: () => runner.stop(),
});
