/** Client and worker for requeue, a work queue and durable delay queue. */

export { Client, type ClientOptions, type KindInfo, type UpcomingOptions } from "./client.js";
export { type Codec, type Content, jsonCodec } from "./content.js";
export {
  BatchError,
  ConnectionError,
  type Outcome,
  ProblemError,
  type ProblemName,
  RequeueError,
} from "./errors.js";
export type { AnyKinds, Claimed, ClaimOptions, KindName, ListFilter, PutEntry, PutOptions, Reschedule } from "./jobs.js";
export { PROBLEMS } from "./models.js";
export type {
  Backoff,
  ChangedJobs,
  ChangeResult,
  ClaimedJob,
  DeletedKind,
  DoneInfo,
  ErrorGroup,
  ErrorGroups,
  Failure,
  JobFilter,
  JobInfo,
  JobState,
  KindCounts,
  LeaseInfo,
  Push,
  PutFields,
  PutResult,
  Rate,
  Schedule,
  ScheduleChange,
  Settings,
  SettingsChange,
  Settled,
  Stats,
  Successor,
  Upcoming,
  WorkerInfo,
} from "./models.js";
export { GiveUp, JobStopped, RequeueAfter, RetryAfter, type StopReason } from "./outcome.js";
export type { Job } from "./running.js";
export type { NewSchedule, ScheduleFields } from "./schedules.js";
export type { Settlement } from "./settle.js";
export { type Duration, milliseconds, type RateText, type Time } from "./time.js";
export type { CallOptions } from "./transport.js";
export { type Handler, type HandlerOptions, type RunOptions, Worker, type WorkerOptions } from "./worker.js";
