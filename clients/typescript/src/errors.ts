/**
 * Errors of requests, in three classes:
 *
 * - *rejected*: nothing was done, and the same request fails again;
 * - *not-done*: nothing was done, and the request can be repeated;
 * - *unknown*: the operation may have been done.
 */

import { show } from "./check.js";
import type { PROBLEMS, PutResult } from "./models.js";

/** What is known about a request that failed. `partial`: see `BatchError`. */
export type Outcome = "rejected" | "not-done" | "unknown" | "partial";

/** The name of a problem. A newer server may report others, so it can be any string. */
export type ProblemName = (typeof PROBLEMS)[number] | (string & {});

/** The superclass of all errors of requests. */
export abstract class RequeueError extends Error {
  /** Whether the operation was rejected, was not done, or may have been done. */
  abstract readonly outcome: Outcome;
}

/** The server responded with an error, or an entry of a batch failed. */
export class ProblemError extends RequeueError {
  override readonly name = "ProblemError";
  override readonly outcome: Outcome;
  /** The name of the problem, such as `lease-lost`; `http-STATUS` if the response has no problem document. */
  readonly problem: ProblemName;
  /** The HTTP status; for an entry of a batch, the status that the entry would have alone. */
  readonly status: number;
  /** A summary of the problem, such as `job already exists`. */
  readonly title: string;
  /** What is wrong with this request. */
  readonly detail: string;
  /** The field that is wrong, such as `jobs[2].delay`. */
  readonly field: string | undefined;
  /** The value of the field, or its length or number. */
  readonly value: unknown;
  /** The lowest allowed value. */
  readonly min: unknown;
  /** The highest allowed value, length or number. */
  readonly limit: unknown;
  /** What the limit applies to. */
  readonly what: string | undefined;
  /** With `exists` and `other-generation`: the newest generation of the job. */
  readonly generation: number | undefined;
  /** The time in the header `Retry-After`, in milliseconds. */
  readonly retryAfterMs: number | undefined;

  /** @internal */
  constructor(wire: any, retryAfterMs?: number) {
    super(wire.detail);
    this.problem = wire.type.slice(wire.type.lastIndexOf("/") + 1);
    this.status = wire.status;
    this.outcome = outcomeOf(wire.status);
    this.title = wire.title;
    this.detail = wire.detail;
    this.field = wire.field ?? undefined;
    this.value = wire.value;
    this.min = wire.min;
    this.limit = wire.limit;
    this.what = wire.what ?? undefined;
    this.generation = wire.generation ?? undefined;
    this.retryAfterMs = retryAfterMs;
  }
}

/** There is no response: no connection could be established, it broke, or the request timed out. */
export class ConnectionError extends RequeueError {
  override readonly name = "ConnectionError";
  override readonly outcome: "not-done" | "unknown";

  /** @internal */
  constructor(message: string, outcome: "not-done" | "unknown", cause?: unknown) {
    super(message, { cause });
    this.outcome = outcome;
  }
}

/** Some puts of a batch failed. */
export class BatchError extends RequeueError {
  override readonly name = "BatchError";
  override readonly outcome = "partial";
  /** A result or a `ProblemError` for each put, in order. */
  readonly results: readonly (PutResult | ProblemError)[];
  /** The problems, by the positions of their puts in the batch. */
  readonly problems: ReadonlyMap<number, ProblemError>;

  /** @internal */
  constructor(jobs: readonly { kind: string; id: string }[], results: readonly (PutResult | ProblemError)[]) {
    const problems = new Map<number, ProblemError>();
    for (const [n, result] of results.entries()) {
      if (result instanceof ProblemError) problems.set(n, result);
    }
    const failed = [...problems].map(([n, { message }]) => `jobs[${n}] (${show(jobs[n]?.id)}): ${message}`);
    super(`${problems.size} of ${results.length} puts failed; the first: ${failed[0]}`);
    this.results = results;
    this.problems = problems;
  }
}

/** @internal Returns what a status says about the operation. */
export function outcomeOf(status: number): Outcome {
  if (status === 503 || status === 408) return "not-done";
  return status < 500 ? "rejected" : "unknown";
}

/** @internal Converts what `fetch` threw. `timedOut` is set if that is why. */
export function connectionError(
  thrown: unknown,
  server: string,
  request: string,
  timedOut: string | undefined,
): ConnectionError {
  const cause = thrown instanceof Error && thrown.cause !== undefined ? thrown.cause : thrown;
  if (timedOut === undefined && neverConnected(cause)) {
    const message = `cannot connect to ${server}, so ${request} was not done: ${messageOf(cause)}`;
    return new ConnectionError(message, "not-done", thrown);
  }
  const effect = request.startsWith("GET ") ? "" : ", which may have been done";
  const message = `no response from ${server} to ${request}${effect}: ${timedOut ?? messageOf(cause)}`;
  return new ConnectionError(message, "unknown", thrown);
}

/** Failures of the handshake of TLS, before which no request is sent. */
const CERTIFICATE = [
  "CERT_HAS_EXPIRED",
  "CERT_NOT_YET_VALID",
  "CERT_UNTRUSTED",
  "DEPTH_ZERO_SELF_SIGNED_CERT",
  "ERR_TLS_CERT_ALTNAME_INVALID",
  "SELF_SIGNED_CERT_IN_CHAIN",
  "UNABLE_TO_GET_ISSUER_CERT_LOCALLY",
  "UNABLE_TO_VERIFY_LEAF_SIGNATURE",
];
const NOT_SENT = [...CERTIFICATE, "ERR_SSL_WRONG_VERSION_NUMBER", "ERR_SSL_PACKET_LENGTH_TOO_LONG"];

/**
 * Whether the request was certainly not sent, because there was no connection. Codes such as `ECONNRESET` also
 * occur after the request was sent, so the failed system call decides.
 */
function neverConnected(cause: unknown): boolean {
  if (cause instanceof AggregateError) return cause.errors.every(neverConnected);
  const { code, syscall, message } = (cause ?? {}) as { code?: unknown; syscall?: unknown; message?: unknown };
  if (syscall === "connect" || syscall === "getaddrinfo" || code === "UND_ERR_CONNECT_TIMEOUT") return true;
  // `fetch` connects to no port that is used for something else, such as 6000.
  return NOT_SENT.includes(String(code)) || message === "bad port";
}

function messageOf(cause: unknown): string {
  if (cause instanceof AggregateError) return cause.errors.map(messageOf).join(", ");
  if (!(cause instanceof Error)) return String(cause);
  const { code } = cause as { code?: unknown };
  if (code === "ERR_SSL_WRONG_VERSION_NUMBER" || code === "ERR_SSL_PACKET_LENGTH_TOO_LONG") {
    return "the server does not use TLS: write http:// instead of https://";
  }
  const isUntrusted = CERTIFICATE.includes(String(code)) && code !== "ERR_TLS_CERT_ALTNAME_INVALID";
  const hint = isUntrusted ? "; NODE_EXTRA_CA_CERTS is the file of a certificate authority to trust" : "";
  return (cause.message === "bad port" ? "fetch does not connect to this port" : cause.message) + hint;
}
