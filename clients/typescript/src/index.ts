/** Client and worker for requeue, a work queue and durable delay queue. */

export type {
  ChangedJobs,
  ChangeResult,
  Claimed,
  ClaimOptions,
  DeletedKind,
  ErrorGroup,
  ErrorGroups,
  Upcoming,
  UpcomingOptions,
} from "./calls.js";
export { Client, type ClientOptions } from "./client.js";
export { type Codec, type Content, jsonCodec } from "./content.js";
export {
  BatchError,
  ConnectionError,
  type Outcome,
  ProblemError,
  type ProblemName,
  PROBLEMS,
  RequeueError,
} from "./errors.js";
export type {
  AnyKinds,
  ClaimedJob,
  DoneInfo,
  Failure,
  JobFilter,
  JobInfo,
  JobState,
  KindName,
  LeaseInfo,
  ListFilter,
  PutEntry,
  PutFields,
  PutOptions,
  PutResult,
  Reschedule,
  Successor,
} from "./jobs.js";
export type {
  Backoff,
  KindCounts,
  KindInfo,
  Push,
  Rate,
  Settings,
  SettingsChange,
  Stats,
  WorkerInfo,
} from "./kinds.js";
export { GiveUp, JobStopped, RequeueAfter, RetryAfter, type StopReason } from "./outcome.js";
export type { Job } from "./running.js";
export type { NewSchedule, Schedule, ScheduleChange, ScheduleFields } from "./schedules.js";
export type { Settled, Settlement } from "./settle.js";
export { type Duration, milliseconds, type RateText, type Time } from "./time.js";
export type { CallOptions } from "./transport.js";
export { type Handler, type HandlerOptions, type RunOptions, Worker, type WorkerOptions } from "./worker.js";
