// A real server on a free port, and a TCP proxy in front of it that loses responses.

import { type ChildProcess, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { type AddressInfo, connect, createServer, type Server as TcpServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";

const program = process.env["REQUEUE_BIN"] ?? "requeue";
const store = process.env["REQUEUE_TEST_STORE"] ?? "";

/** Returns a kind that no other test uses: several servers may share one Redis. */
export function uniqueKind(name: string): string {
  return `${name}-${randomBytes(6).toString("hex")}`;
}

/** A test, or the file of tests: what registers `close` for its end. */
export interface Scope {
  after(close: () => void | Promise<void>): void;
}

/** Waits for a condition, and fails if it does not hold in a minute. */
export async function until(what: string, condition: () => boolean | Promise<boolean>): Promise<void> {
  for (const deadline = Date.now() + 60_000; !(await condition());) {
    if (Date.now() > deadline) throw new Error(`it did not happen: ${what}`);
    await sleep(20);
  }
}

export class Server {
  readonly #directory = mkdtempSync(join(tmpdir(), "requeue-"));
  readonly #token: string | undefined;
  #process: ChildProcess | undefined;
  #address = "127.0.0.1:0";

  constructor(token?: string) {
    this.#token = token;
  }

  get url(): string {
    return `http://${this.#address}`;
  }

  get port(): number {
    return Number(this.#address.split(":")[1]);
  }

  /** Starts a server that is stopped at the end of the test. */
  static async start(scope: Scope, token?: string): Promise<Server> {
    const server = new Server(token);
    scope.after(() => server.remove());
    await server.start();
    return server;
  }

  async start(): Promise<void> {
    const where = store.startsWith("redis:") ? ["--store", store] : ["--data", this.#directory];
    const { REQUEUE_TOKEN: _, ...env } = process.env;
    if (this.#token !== undefined) env["REQUEUE_TOKEN"] = this.#token;
    const child = spawn(program, ["serve", "--listen", this.#address, "--log", "error", ...where], {
      env,
      stdio: ["ignore", "pipe", "inherit"],
    });
    this.#process = child;
    for await (const line of createInterface({ input: child.stdout })) {
      const found = /listening on http:\/\/(\S+?),/.exec(line);
      if (found === null) continue;
      this.#address = found[1]!;
      child.stdout.resume();
      return;
    }
    throw new Error("the server did not start");
  }

  /** Kills the server. `start` starts it again on the same port, with the same jobs. */
  async kill(): Promise<void> {
    const child = this.#process;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    child.kill("SIGKILL");
    await once(child, "exit");
  }

  async remove(): Promise<void> {
    await this.kill();
    rmSync(this.#directory, { recursive: true, force: true });
  }
}

export class Proxy {
  readonly #server: TcpServer;
  readonly #sockets = new Set<Socket>();
  #lose: RegExp | undefined;
  #losses = 0;
  /** How many responses were lost. */
  lost = 0;

  constructor(port: number) {
    this.#server = createServer((client) => this.#serve(client, connect(port, "127.0.0.1")));
  }

  static async start(scope: Scope, port: number): Promise<Proxy> {
    const proxy = new Proxy(port);
    scope.after(() => proxy.close());
    await new Promise<void>((resolve) => proxy.#server.listen(0, "127.0.0.1", resolve));
    return proxy;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Closes the connection instead of the response to the next requests whose first line matches. */
  loseResponses(request: RegExp, count = 1): void {
    this.#lose = request;
    this.#losses = count;
  }

  close(): void {
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
  }

  #serve(client: Socket, server: Socket): void {
    let loses = false;
    for (const socket of [client, server]) {
      this.#sockets.add(socket);
      socket.on("error", () => {});
      socket.on("close", () => {
        this.#sockets.delete(socket);
        client.destroy();
        server.destroy();
      });
    }
    client.on("data", (data) => {
      if (this.#losses > 0 && this.#lose?.test(data.toString("latin1"))) {
        this.#losses -= 1;
        loses = true;
      }
      server.write(data);
    });
    server.on("data", (data) => {
      if (!loses) return void client.write(data);
      this.lost += 1;
      client.destroy();
    });
  }
}
