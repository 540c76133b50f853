// Compiles only if the types of this client match those generated from the OpenAPI document of the server.

import type { components } from "./api.js";
import type * as wire from "./wire.js";

type Api = components["schemas"];

/** Fails to compile unless every value of type `From` is a value of type `To`. */
type Assignable<From extends To, To> = From;

export type Requests = [
  Assignable<wire.WirePut, Api["PutJob"]>,
  Assignable<wire.WirePutEntry, Api["PutAnyJob"]>,
  Assignable<wire.WireClaim, Api["ClaimRequest"]>,
  Assignable<wire.WireLease, Api["AnyLease"]>,
  Assignable<wire.WireFilter, Api["JobFilter"]>,
  Assignable<wire.WireSettingsPatch, Api["SettingsPatch"]>,
  Assignable<wire.WireScheduleRequest, Api["ScheduleRequest"]>,
];

export type Responses = [
  Assignable<Api["PutDone"], wire.WirePutDone>,
  Assignable<Api["Results_PutDone"], wire.WireResults<wire.WirePutDone>>,
  Assignable<Api["ClaimResponse"], wire.WireClaimResponse>,
  Assignable<Api["Results_SettleDone"], wire.WireResults<wire.WireSettled>>,
  Assignable<Api["Job"], wire.WireJob>,
  Assignable<Api["Settings"], wire.WireSettings>,
  Assignable<Api["KindStats"], wire.WireKind>,
  Assignable<Api["Schedule"], wire.WireSchedule>,
  Assignable<Api["Stats"], wire.WireStats>,
  Assignable<Api["WorkerInfo"], wire.WireWorker>,
  Assignable<Api["Problem"], wire.WireProblem>,
];

/** Fields that this client does not know are left out on purpose; all others must be the same. */
type Unknown<T, Known> = Exclude<keyof T, keyof Known>;

export const unknownFields: [
  Unknown<Api["PutJob"], wire.WirePut>,
  Unknown<Api["PutAnyJob"], wire.WirePutEntry>,
  Unknown<Api["AnyLease"], wire.WireLease>,
  Unknown<Api["ClaimedJob"], wire.WireClaimed>,
  Unknown<Api["Job"], wire.WireJob>,
  Unknown<Api["Settings"], wire.WireSettings>,
  Unknown<Api["Schedule"], wire.WireSchedule>,
  Unknown<Api["ScheduleRequest"], wire.WireScheduleRequest>,
] extends never[]
  ? true
  : false = true;
