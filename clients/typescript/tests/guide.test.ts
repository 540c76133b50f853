import assert from "node:assert/strict";
import { type ChildProcess, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { Client } from "requeue-client";
import { Server, until } from "./server.js";

const server = await Server.start({ after });

test("the programs of docs/typescript.md run", async (t) => {
  const page = readFileSync(new URL("../typescript.md", import.meta.url), "utf8");
  const programs = [...page.matchAll(/```js\n\/\/ ([\w.]+\.js)\n(.*?)```/gs)].map(([, name, code]) => {
    // Another run of the tests may use this directory at the same time, with another store.
    const file = fileURLToPath(new URL(`${process.pid}-${name}`, import.meta.url));
    writeFileSync(file, code!);
    return [name, file] as const;
  });
  assert.deepEqual(
    programs.map(([name]) => name),
    ["producer.js", "worker.js", "move.js", "setup.js", "shop.test.js"],
  );
  type Files = [string, string, string, string, string];
  const [producer, worker, move, setup, shop] = programs.map(([, file]) => file) as Files;

  const env = { ...process.env, REQUEUE_SERVER: server.url };
  await promisify(execFile)(process.execPath, [producer], { env });
  const client = new Client({ server: server.url });
  assert.deepEqual((await client.get("order.remind", "order-42")).body, { to: "ann@example.org" });
  const { due } = await client.get("order.remind", "order-42");
  await promisify(execFile)(process.execPath, [move], { env });
  const moved = await client.get("order.remind", "order-42");
  assert.deepEqual([moved.due > due, moved.body], [true, { to: "ann@example.org" }]);

  writeFileSync(setup, readFileSync(setup, "utf8").replace("http://127.0.0.1:7654", server.url));
  await promisify(execFile)(process.execPath, [setup], { env });
  assert.equal((await client.settings("order.remind")).maxAttempts, 5);
  assert.equal((await client.schedule("report", "daily")).timeZone, "Europe/Berlin");
  await client.setKind("order.remind", {});
  await client.runNow("order.remind", "order-42");

  const child: ChildProcess = spawn(process.execPath, [worker], { env, stdio: ["ignore", "pipe", "inherit"] });
  t.after(() => void child.kill("SIGKILL"));
  let output = "";
  child.stdout!.on("data", (data) => (output += data));
  await until("the worker runs the job", () => output.includes("ann@example.org"));
  child.kill("SIGTERM");
  const [code] = await once(child, "close");
  assert.equal(code, 0);
  await assert.rejects(client.get("order.remind", "order-42"), { problem: "absent" });

  const path = `${dirname(process.env["REQUEUE_BIN"]!)}:${process.env["PATH"]}`;
  // Without the variable by which Node.js knows that it runs in a test already.
  const { NODE_TEST_CONTEXT: _, ...outside }: NodeJS.ProcessEnv = { ...env, PATH: path };
  await promisify(execFile)(process.execPath, ["--test", shop], { env: outside });
});
