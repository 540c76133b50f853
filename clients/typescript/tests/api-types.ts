// Compiles only if the types of this client match those generated from the OpenAPI document of the server.

import type { paths } from "./api.js";
import type * as wire from "./wire.js";

type Json<T> = T extends { content: { "application/json": infer Body } } ? Body : "missing";
type RequestOf<Operation> = Operation extends { requestBody: infer Body } ? Json<Body> : "missing";
type ResponseOf<Operation> = Operation extends { responses: { 200: infer Body } } ? Json<Body> : "missing";

type Put = paths["/v1/kinds/{kind}/jobs/{id}"]["put"];
type PutMany = paths["/v1/put"]["post"];
type GetJob = paths["/v1/kinds/{kind}/jobs/{id}"]["get"];
type Reschedule = paths["/v1/kinds/{kind}/jobs/{id}"]["patch"];
type Change = paths["/v1/change"]["post"];
type Claim = paths["/v1/claim"]["post"];
type Settle = paths["/v1/settle"]["post"];
type ListQuery = NonNullable<paths["/v1/kinds/{kind}/jobs"]["get"]["parameters"]["query"]>;
type ListParameter = "order" | "limit" | "after" | "body_limit";
type Revive = paths["/v1/kinds/{kind}/revive"]["post"];
type ChangeKind = paths["/v1/kinds/{kind}"]["patch"];
type GetKind = paths["/v1/kinds/{kind}"]["get"];
type SetSchedule = paths["/v1/kinds/{kind}/schedules/{id}"]["put"];

type PutEntry = RequestOf<PutMany>["jobs"][number];
type ClaimedJob = ResponseOf<Claim>["jobs"][number];
type Lease = RequestOf<Settle>["leases"][number];

/** Fails to compile unless every value of type `From` is a value of type `To`. */
type Assignable<From extends To, To> = From;

export type Requests = [
  Assignable<wire.WirePut, RequestOf<Put>>,
  Assignable<wire.WirePutEntry, PutEntry>,
  Assignable<wire.WireReschedule, RequestOf<Reschedule>>,
  Assignable<{ jobs: wire.WireRescheduleEntry[] }, RequestOf<Change>>,
  Assignable<wire.WireClaim, RequestOf<Claim>>,
  Assignable<wire.WireLease, Lease>,
  Assignable<{ all: wire.WireFilter }, RequestOf<Revive>>,
  Assignable<wire.WireSettingsPatch, RequestOf<ChangeKind>>,
  Assignable<wire.WireScheduleRequest, RequestOf<SetSchedule>>,
];

export type Responses = [
  Assignable<ResponseOf<Put>, wire.WirePutDone>,
  Assignable<ResponseOf<Reschedule>, wire.WirePutDone>,
  Assignable<ResponseOf<PutMany>, wire.WireResults<wire.WirePutDone>>,
  Assignable<ResponseOf<Claim>, wire.WireClaimResponse>,
  Assignable<ResponseOf<Settle>, wire.WireResults<wire.WireSettled>>,
  Assignable<ResponseOf<GetJob>, wire.WireJob>,
  Assignable<ResponseOf<ChangeKind>, wire.WireSettings>,
  Assignable<ResponseOf<GetKind>, wire.WireKind>,
  Assignable<ResponseOf<SetSchedule>, wire.WireSchedule>,
  Assignable<ResponseOf<paths["/v1/kinds/{kind}/errors"]["get"]>, wire.WireErrorGroups>,
  Assignable<ResponseOf<paths["/v1/stats"]["get"]>, wire.WireStats>,
  Assignable<ResponseOf<paths["/v1/workers"]["get"]>["workers"][number], wire.WireWorker>,
];

/** The fields of the API that this client does not know. There must be none. */
type Unknown<Api, Known> = Exclude<keyof Api, keyof Known>;

export type Fields = [
  Assignable<Unknown<RequestOf<Put>, wire.WirePut>, never>,
  Assignable<Unknown<PutEntry, wire.WirePutEntry>, never>,
  Assignable<Unknown<RequestOf<Reschedule>, wire.WireReschedule>, never>,
  Assignable<Unknown<Lease, wire.WireLease>, never>,
  Assignable<Unknown<ClaimedJob, wire.WireClaimed>, never>,
  Assignable<Unknown<ResponseOf<GetJob>, wire.WireJob>, never>,
  Assignable<Unknown<Extract<RequestOf<Revive>, { all: unknown }>["all"], wire.WireFilter>, never>,
  Assignable<Unknown<ListQuery, wire.WireFilter & Record<ListParameter, unknown>>, never>,
  Assignable<Unknown<RequestOf<ChangeKind>, wire.WireSettingsPatch>, never>,
  Assignable<Unknown<ResponseOf<ChangeKind>, wire.WireSettings>, never>,
  Assignable<Unknown<RequestOf<SetSchedule>, wire.WireScheduleRequest>, never>,
  Assignable<Unknown<ResponseOf<SetSchedule>, wire.WireSchedule>, never>,
];
