/** Settlements: how a lease ends. */

import { checkFields, show } from "./check.js";
import { type Codec, resultToWire, type WireContent } from "./content.js";
import { duration, type Fields, oneOf, text, writeFields } from "./fields.js";
import type { Duration } from "./time.js";

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

/** @internal A settlement as it is sent. */
export interface WireLease {
  receipt: string;
  how: Settlement["how"];
  result?: WireContent;
  delay?: unknown;
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

const WRITE: Fields<{ error: string; delay: Duration; lease: Duration }> = {
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
