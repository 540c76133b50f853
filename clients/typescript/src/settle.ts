/** Settlements: how a lease ends. */

import { type Codec, resultToWire } from "./content.js";
import { dateFromWire } from "./jobs.js";
import { checkDuration, type Duration } from "./time.js";
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

/** @internal */
export function settlementToWire(codec: Codec, settlement: Settlement): WireLease {
  const { receipt, how } = settlement;
  const wire: WireLease = { receipt, how };
  if (how === "ack" && settlement.result !== undefined) wire.result = resultToWire(codec, settlement.result);
  if ((how === "retry" || how === "bury") && settlement.error !== undefined) wire.error = cut(settlement.error);
  if ((how === "retry" || how === "requeue") && settlement.delay !== undefined) {
    wire.delay = checkDuration("delay", settlement.delay);
  }
  if (how === "extend" && settlement.lease !== undefined) wire.lease = checkDuration("lease", settlement.lease);
  return wire;
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
