import assert from "node:assert/strict";
import { type ChildProcess, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { Client } from "requeue-client";
import { Server, until } from "./server.js";

const server = await Server.start({ after });

test("the programs of the README run", async (t) => {
  const readme = readFileSync(new URL("../README.md", import.meta.url), "utf8");
  const programs = [...readme.matchAll(/```js\n\/\/ (\w+\.js)\n(.*?)```/gs)].map(([, name, code]) => {
    const file = fileURLToPath(new URL(name!, import.meta.url));
    writeFileSync(file, code!);
    return [name, file] as const;
  });
  assert.deepEqual(
    programs.map(([name]) => name),
    ["producer.js", "worker.js"],
  );
  const [[, producer], [, worker]] = programs as [readonly [string, string], readonly [string, string]];

  const env = { ...process.env, REQUEUE_SERVER: server.url };
  await promisify(execFile)(process.execPath, [producer], { env });
  const client = new Client({ server: server.url });
  assert.deepEqual((await client.get("order.remind", "order-42")).body, { to: "ann@example.org" });
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
});
