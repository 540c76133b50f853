// pg-boss on the workloads of requeue's benchmarks.
//
//   node pg-boss.js postgres://USER@HOST:PORT/DATABASE

import { once, EventEmitter } from 'node:events';
import pg from 'pg';
import PgBoss from 'pg-boss';
import { execute, fail } from './commands.js';

const QUEUE = 'bench';
// How many jobs are fetched in one statement. The server takes more time per job with fewer, and also
// with more than about 300: then Postgres chooses another plan.
const FETCH = 250;
// The shortest interval that pg-boss accepts.
const POLL_SECONDS = 0.5;
// As many as in the pool that pg-boss creates by default.
const CONNECTIONS = 10;

// A worker of pg-boss does not wait until its jobs are stored as completed. A database object of ours
// does.
class Database extends EventEmitter {
  #pool = new pg.Pool({ connectionString: process.argv[2], max: CONNECTIONS });
  #running = 0;

  constructor() {
    super();
    this.#pool.on('error', fail);
  }

  async executeSql(text, values) {
    this.#running += 1;
    try {
      return await this.#pool.query(text, values);
    } finally {
      this.#running -= 1;
      if (this.#running === 0) this.emit('idle');
    }
  }

  async idle() {
    if (this.#running > 0) await once(this, 'idle');
  }
}

const database = new Database();
const boss = new PgBoss({ db: database });
boss.on('error', fail);
await boss.start();
await boss.createQueue(QUEUE);

// A worker of pg-boss gets a batch of jobs, and waits for the interval before it fetches the next one. If
// the batch is full, `notifyWorker` makes it continue immediately. There is one worker: several
// fetch the same jobs first, and take more time.
async function start(_workers, handler) {
  const options = { batchSize: FETCH, pollingIntervalSeconds: POLL_SECONDS };
  const id = await boss.work(QUEUE, options, async (jobs) => {
    jobs.forEach(({ data }) => handler(data.body));
    if (jobs.length === FETCH) boss.notifyWorker(id);
  });
}

await execute('pg-boss', {
  insert: (jobs) => boss.insert(jobs.map(({ body, due }) => ({ name: QUEUE, data: { body }, startAfter: due }))),
  start,
  startPolling: start,
  stop: async () => {
    await boss.offWork(QUEUE);
    await database.idle();
  },
});
