/** Settlements: how a lease ends. */

import { checkFields, show } from "./check.js";
import { type Codec, resultToWire } from "./content.js";
import { duration, type Fields, oneOf, text, writeFields } from "./fields.js";
import { dateFromWire } from "./jobs.js";
import type { Duration } from "./time.js";
import type { WireLease, WireSettled } from "./wire.js";

/** How one lease is settled or extended. */
export type Settlement = { readonly receipt: string } & (
  | {
      readonly how: "ack";
      /** Kept with the done job, if the kind keeps done jobs; at most 64 KiB. */
      readonly result?: unknown;
    }
  | {
      readonly how: "retry";
      /** Why the attempt failed. */
      readonly error?: string;
      /** When the job is due again; default: after the backoff of its kind. */
      readonly delay?: Duration;
    }
  | { readonly how: "bury"; readonly error?: string }
  | { readonly how: "requeue"; readonly delay: Duration }
  | { readonly how: "release" }
  | {
      readonly how: "extend";
      /** The length of the lease from now; default: the setting of the kind. */
      readonly lease?: Duration;
    }
);

/** The result of a settlement. `cancelled`: the job was cancelled, and is removed when its lease ends. */
export interface Settled {
  readonly result: "done" | "retry" | "dead" | "released" | "extended" | "cancelled" | "other";
  /** With `retry`, when the job is due again; with `extended`, when the lease expires. */
  readonly at: Date | undefined;
}

/** The fields of each settlement besides `receipt` and `how`. */
const FIELDS: { readonly [How in Settlement["how"]]: readonly string[] } = {
  ack: ["result"],
  retry: ["error", "delay"],
  bury: ["error"],
  requeue: ["delay"],
  release: [],
  extend: ["lease"],
};

const WRITE: Fields<{ error: string; delay: Duration; lease: Duration }, WireLease> = {
  error: (field, error) => cut(text(field, error)),
  delay: duration,
  lease: duration,
};

/** @internal `what` is the name of the settlement in errors. */
export function settlementToWire(codec: Codec, what: string, settlement: Settlement): WireLease {
  const how = oneOf(...(Object.keys(FIELDS) as Settlement["how"][]))(`${what}.how`, settlement?.how);
  checkFields(what, settlement, ["receipt", "how", ...FIELDS[how]]);
  const receipt = checkReceipt(`${what}.receipt`, settlement.receipt);
  const { result, ...fields } = settlement as { readonly result?: unknown };
  const wire: WireLease = { receipt, how, ...writeFields(what, fields, WRITE, ["receipt", "how"]) };
  if (how === "requeue" && wire.delay === undefined) throw new TypeError(`${what}.delay is missing`);
  if (result !== undefined) wire.result = resultToWire(codec, result);
  return wire;
}

/** @internal */
export function checkReceipt(what: string, receipt: unknown): string {
  if (typeof receipt === "string" && receipt !== "") return receipt;
  throw new TypeError(`${what} is ${show(receipt)}; it must be the receipt of a claimed job, \`job.receipt\``);
}

/** The server keeps 2 KiB of an error, and rejects text that has no UTF-8. */
const MAX_ERROR = 2048;

function cut(error: string): string {
  return error.slice(0, MAX_ERROR).toWellFormed();
}

/** @internal */
export function settledFromWire(wire: WireSettled): Settled {
  return { result: wire.result, at: dateFromWire(wire.at) };
}
