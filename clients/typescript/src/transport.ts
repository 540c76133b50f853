/** Sends requests: one response, one error of the three classes, or the reason of an aborted signal. */

import { checkFields, checkServer, checkToken, type Names, show } from "./check.js";
import { ConnectionError, connectionError, ProblemError, RequeueError } from "./errors.js";
import { repeat } from "./repeat.js";
import { type Duration, millisecondsOf, timerMs } from "./time.js";

/** Options of every call. */
export interface CallOptions {
  /** Aborts the call, which then throws the signal's reason. The operation may have been done. */
  readonly signal?: AbortSignal | undefined;
  /** How long one request may take; default: the setting of the client. */
  readonly timeout?: Duration;
  /** How long a failed request is repeated; default: the setting of the client. `"0s"`: it is not repeated. */
  readonly retryFor?: Duration;
}

/** @internal Their names. */
export const CALL_OPTIONS = Object.keys({ signal: true, timeout: true, retryFor: true } satisfies Names<CallOptions>);

/** @internal */
export interface Request<T> {
  readonly method: "GET" | "PUT" | "POST" | "PATCH" | "DELETE";
  readonly path: string;
  readonly body?: unknown;
  /** Whether the request may be repeated although it may have been done. */
  readonly harmless: boolean;
  /** The options that the call has, besides those of every call; default: none. */
  readonly options?: readonly string[];
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
    this.#server = checkServer(server);
    if (token !== undefined) checkToken(token);
    this.#headers = token === undefined ? {} : { authorization: `Bearer ${token}` };
    this.#timeoutMs = timerMs("timeout", timeout);
    this.#retryForMs = millisecondsOf("retryFor", retryFor);
  }

  /** Sends the request, and repeats it as far as that is harmless. */
  call<T>(request: Request<T>, options: CallOptions): Promise<T> {
    checkFields("options", options, [...(request.options ?? []), ...CALL_OPTIONS]);
    const { signal, timeout, retryFor } = options;
    if (signal !== undefined && typeof signal.throwIfAborted !== "function") {
      throw new TypeError(`options.signal is ${show(signal)}; it must be an AbortSignal, such as controller.signal`);
    }
    const timeoutMs = timeout === undefined ? this.#timeoutMs : timerMs("options.timeout", timeout);
    const retryForMs = retryFor === undefined ? this.#retryForMs : millisecondsOf("options.retryFor", retryFor);
    const send = async () => {
      const json = await this.#send(request, timeoutMs + (request.waitMs ?? 0), signal);
      try {
        return request.read(json);
      } catch (error) {
        if (error instanceof RequeueError) throw error;
        const what = `the response of ${this.#server} to ${request.method} ${request.path} is invalid`;
        throw new ConnectionError(what, "unknown", error);
      }
    };
    return repeat(send, request.harmless, request.method !== "GET", retryForMs, signal);
  }

  async #send(request: Request<unknown>, timeoutMs: number, signal: AbortSignal | undefined): Promise<unknown> {
    signal?.throwIfAborted();
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
      const timedOut = controller.signal.aborted ? `none in ${timeoutMs} ms` : undefined;
      throw connectionError(thrown, this.#server, `${request.method} ${request.path}`, timedOut);
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
    return new ProblemError(JSON.parse(text), retryAfterMs);
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

/**
 * @internal Whether a URL can contain the text as a segment. These two cannot be, not even encoded: they are removed
 * when the URL is parsed.
 */
export function isPathSegment(text: string): boolean {
  return text !== "." && text !== "..";
}

function encode(segment: string): string {
  if (!isPathSegment(segment)) {
    throw new TypeError(`the id ${JSON.stringify(segment)} cannot be part of a URL; use a call for several jobs`);
  }
  return encodeURIComponent(segment);
}
