/** Sends requests: one response, one error of the three classes, or the reason of an aborted signal. */

import { ConnectionError, connectionError, ProblemError, RequeueError } from "./errors.js";
import { repeat } from "./repeat.js";
import { type Duration, milliseconds, timerMs } from "./time.js";
import type { WireProblem } from "./wire.js";

/** Options of every call. */
export interface CallOptions {
  /** Aborts the call, which then throws the signal's reason. The operation may have been done. */
  readonly signal?: AbortSignal | undefined;
  /** How long one request may take; default: the setting of the client. */
  readonly timeout?: Duration;
  /** How long a failed request is repeated; default: the setting of the client. `"0s"`: it is not repeated. */
  readonly retryFor?: Duration;
}

/** @internal */
export interface Request<T> {
  readonly method: "GET" | "PUT" | "POST" | "PATCH" | "DELETE";
  readonly path: string;
  readonly body?: unknown;
  /** Whether the request may be repeated although it may have been done. */
  readonly harmless: boolean;
  /** How long the server may wait before it responds. */
  readonly waitMs?: number;
  /** Converts the JSON of the response. If it throws a `RequeueError`, that counts as the response. */
  readonly read: (json: any) => T;
}

/** @internal */
export class Transport {
  readonly #server: string;
  readonly #headers: Record<string, string>;
  readonly #timeoutMs: number;
  readonly #retryForMs: number;

  constructor(server: string, token: string | undefined, timeout: Duration, retryFor: Duration) {
    const { protocol } = new URL(server);
    if (protocol !== "http:" && protocol !== "https:") throw new TypeError(`the server ${server} is not an HTTP URL`);
    this.#server = server.replace(/\/+$/, "");
    this.#headers = token === undefined ? {} : { authorization: `Bearer ${token}` };
    new Headers(this.#headers); // throws a TypeError if the token contains a line break, for example
    this.#timeoutMs = timerMs(timeout);
    this.#retryForMs = milliseconds(retryFor);
  }

  /** Sends the request, and repeats it as far as that is harmless. */
  call<T>(request: Request<T>, options: CallOptions): Promise<T> {
    const timeoutMs = options.timeout === undefined ? this.#timeoutMs : timerMs(options.timeout);
    const retryForMs = options.retryFor === undefined ? this.#retryForMs : milliseconds(options.retryFor);
    const send = async () => {
      const json = await this.#send(request, timeoutMs + (request.waitMs ?? 0), options.signal);
      try {
        return request.read(json);
      } catch (error) {
        if (error instanceof RequeueError) throw error;
        throw new ConnectionError(`${request.method} ${request.path}: unexpected response`, "unknown", error);
      }
    };
    return repeat(send, request.harmless, retryForMs, options.signal);
  }

  async #send(request: Request<unknown>, timeoutMs: number, signal: AbortSignal | undefined): Promise<unknown> {
    signal?.throwIfAborted();
    const what = `${request.method} ${this.#server}${request.path}`;
    const body = request.body === undefined ? null : JSON.stringify(request.body);
    const headers = body === null ? this.#headers : { ...this.#headers, "content-type": "application/json" };
    const controller = new AbortController();
    const abort = () => controller.abort();
    const timer = setTimeout(abort, timeoutMs);
    signal?.addEventListener("abort", abort);
    try {
      const response = await fetch(this.#server + request.path, {
        method: request.method,
        headers,
        body,
        // A redirect could turn a POST into a GET. Together, these two also save a copy of the request.
        redirect: "error",
        window: null,
        signal: controller.signal,
      });
      const text = await response.text();
      if (!response.ok) throw problemOf(response, text);
      return text === "" ? undefined : JSON.parse(text);
    } catch (thrown) {
      if (thrown instanceof ProblemError) throw thrown;
      if (signal?.aborted) throw signal.reason;
      if (controller.signal.aborted)
        throw new ConnectionError(`${what}: no response in ${timeoutMs} ms`, "unknown", thrown);
      throw connectionError(thrown, what);
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", abort);
    }
  }
}

function problemOf(response: Response, text: string): ProblemError {
  const retryAfter = Number(response.headers.get("retry-after") ?? NaN);
  const retryAfterMs = Number.isNaN(retryAfter) ? undefined : retryAfter * 1000;
  if (response.headers.get("content-type")?.startsWith("application/problem+json")) {
    return new ProblemError(JSON.parse(text) as WireProblem, retryAfterMs);
  }
  // A proxy, or a request whose head the server could not read.
  const { status, statusText } = response;
  const detail = `status ${status} ${statusText}, without a problem document`;
  return new ProblemError({ type: `http-${status}`, title: statusText, status, detail }, retryAfterMs);
}

/** @internal Returns a path whose segments are encoded. */
export function path(...segments: string[]): string {
  return segments.map((segment) => "/" + encode(segment)).join("");
}

function encode(segment: string): string {
  // URLs cannot contain these as a segment, not even encoded: they are removed when the URL is parsed.
  if (segment === "." || segment === "..") {
    throw new TypeError(`the name ${JSON.stringify(segment)} cannot be part of a URL: use a call for several jobs`);
  }
  if (segment === "") throw new TypeError("the name is empty");
  return encodeURIComponent(segment);
}
