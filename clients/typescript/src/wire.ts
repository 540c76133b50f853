/**
 * The JSON of the HTTP API: only what this client sends and reads, with the field names of the API. A test
 * compares these types with those generated from the OpenAPI document of the server.
 */

export interface WireProblem {
  type: string;
  title: string;
  status: number;
  detail: string;
  field?: string | null;
  value?: unknown;
  min?: unknown;
  limit?: unknown;
  what?: string | null;
  generation?: number | null;
}

/** A body or a result, in one of three forms. */
export interface WireContent {
  body?: unknown;
  body_text?: string | null;
  body_base64?: string | null;
  content_type?: string | null;
}

export interface WirePut extends WireContent {
  due?: string;
  delay?: string;
  priority?: number;
  mode?: "replace" | "earliest" | "keep" | "debounce";
  max_wait?: string;
  if_absent?: boolean;
  if_new?: boolean;
  if_generation?: number;
}

export interface WireReschedule extends WireContent {
  due?: string;
  delay?: string;
  priority?: number;
  if_generation?: number;
}

export interface WirePutEntry extends WirePut {
  kind: string;
  id: string;
}

export interface WirePutDone {
  outcome: "created" | "updated" | "coalesced" | "revived" | "kept";
  generation: number;
}

export interface WireRescheduleEntry {
  kind: string;
  id: string;
  what: "reschedule";
  set: WireReschedule;
}

/** The result of a reschedule in a batch of changes. */
export interface WireRescheduled {
  result: WirePutDone["outcome"];
  generation: number;
}

/** The results of a batch, one per entry. */
export interface WireResults<T> {
  results: (T | { error: WireProblem })[];
}

export interface WireClaim {
  kinds: string[];
  worker?: string;
  max?: number;
  lease?: string;
  wait?: string;
}

export interface WireClaimed extends WireContent {
  receipt: string;
  kind: string;
  id: string;
  content_type: string;
  due: string;
  priority?: number;
  generation: number;
  fence?: number;
  attempt: number;
  lease_ends_at: string;
  created_at: string;
}

export interface WireClaimResponse {
  jobs: WireClaimed[];
  errors?: { kind: string; error: WireProblem }[];
}

export interface WireLease {
  receipt: string;
  how: "ack" | "retry" | "bury" | "requeue" | "release" | "extend";
  result?: WireContent;
  error?: string;
  delay?: string;
  lease?: string;
}

export interface WireSettled {
  result: "done" | "retry" | "dead" | "released" | "extended" | "cancelled" | "other";
  at?: string | null;
}

export interface WireJob extends WireContent {
  /** The length of a body that a list left out, because of its `body_limit`. */
  body_bytes?: number | null;
  kind: string;
  id: string;
  state: "waiting" | "ready" | "leased" | "dead" | "done";
  content_type: string;
  due: string;
  priority?: number;
  generation: number;
  attempts: number;
  failures?: { worker: string; started_at: string; ended_at: string; error?: string | null }[];
  lease?: { worker: string; claimed_at: string; ends_at: string; cancelled?: boolean; fence?: number } | null;
  next?: WireSuccessor | null;
  deaths?: number;
  died_at?: string | null;
  done?: { worker: string; started_at: string; done_at: string; result?: WireContent | null } | null;
  created_at: string;
  updated_at: string;
}

export interface WireSuccessor extends WireContent {
  content_type: string;
  due: string;
  priority?: number;
  generation: number;
}

export interface WireFilter {
  state?: WireJob["state"];
  prefix?: string;
  priority?: number;
  error?: string;
  error_group?: string;
  expired?: boolean;
  died_before?: string;
}

export interface WireErrorGroups {
  groups: {
    error_group?: string | null;
    count: number;
    example: { id: string; error?: string | null };
    first_died_at: string;
    last_died_at: string;
  }[];
  other: number;
  scanned: number;
  cursor?: string | null;
}

export interface WireSettings {
  lease: string;
  backoff: { base: string; max: string; jitter_percent: number };
  max_attempts: number;
  concurrency?: number | null;
  rate?: { jobs: number; per: string; burst?: number | null } | null;
  ageing?: string | null;
  paused: boolean;
  retention: { age: string; count: number };
  keep_done?: { for?: string | null; count?: number | null } | null;
  push?: WirePush | null;
}

export interface WirePush {
  url?: string | null;
  headers?: { [name: string]: string | null } | null;
  timeout?: string | null;
  concurrency?: number | null;
  secrets?: string[] | null;
  format?: string | null;
}

export interface WireSettingsPatch {
  lease?: string | null;
  backoff?: { base?: string; max?: string; jitter_percent?: number } | null;
  max_attempts?: number | null;
  concurrency?: number | null;
  rate?: { jobs: number; per: string; burst?: number } | null;
  ageing?: string | null;
  paused?: boolean | null;
  retention?: { age?: string; count?: number } | null;
  keep_done?: { for?: string; count?: number } | null;
  push?: WirePush | null;
}

export interface WireKind {
  kind: string;
  pending: number;
  ready: number;
  ready_capped: boolean;
  leased: number;
  dead: number;
  done?: number;
  oldest_ready?: string | null;
  paused: boolean;
  push?: boolean;
  throttled_until?: string | null;
  generation: number;
  fence: number;
  settings?: WireSettings | null;
}

export interface WireScheduleRequest extends WireContent {
  cron?: string | null;
  every?: string | null;
  time_zone?: string | null;
  priority?: number | null;
  jitter?: string | null;
  missed?: "one" | "skip" | "all" | null;
  catch_up?: string | null;
  overlap?: "none" | "allow" | null;
  paused?: boolean | null;
  starts_at?: string | null;
  ends_at?: string | null;
}

export interface WireSchedule extends WireContent {
  kind: string;
  id: string;
  cron?: string | null;
  every?: string | null;
  time_zone?: string | null;
  content_type: string;
  priority?: number;
  jitter: string;
  missed: "one" | "skip" | "all";
  catch_up?: string | null;
  overlap?: "none" | "allow";
  paused?: boolean;
  starts_at?: string | null;
  ends_at?: string | null;
  next?: string | null;
  next_times?: string[];
  problem?: string | null;
}

export interface WireStats {
  version: string;
  uptime_seconds: number;
  kinds: number;
  pending: number;
  ready: number;
  leased: number;
  dead: number;
  done: number;
  waiting_claims: number;
  problems?: { name: string; since: string; detail?: string | null }[];
}

export interface WireWorker {
  name: string;
  kinds: string[];
  first_seen: string;
  last_seen: string;
  waiting: number;
  claimed: number;
  acked: number;
  failed: number;
  held: number;
}
