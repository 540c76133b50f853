//! Export, import, restore and reap.

use super::Problems;
use super::jobs::check_entries;
use super::streaming::{BodyWriter, CheckedWriter};
use crate::app::App;
use crate::auth::Caller;
use crate::extract::{Json, KindPath, StrictJson, off_runtime};
use crate::listen::BodyHandle;
use crate::response::ApiResult;
use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
// Not tokio's `block_on`: inside it a thread must not block, and writing the response blocks.
use futures_executor::block_on;
use futures_util::{StreamExt, TryStreamExt};
use requeue_http::wire::{JobJson, ReapRequest, ReapResult, RestoreDone, RestoreRequest, Results};
use requeue_http::{Problem, ProblemType};
use requeue_jobs::Invalid;
use requeue_jobs::transfer::{self, TransferError, TransferProgress};
use serde::Serialize;
use std::io::{self, BufReader, BufWriter};
use tokio::runtime::Handle;
use tokio_util::io::{StreamReader, SyncIoBridge};

/// Size of a read or write, in bytes.
const CHUNK: usize = 64 << 10;

/// Restore jobs of one kind from another store.
///
/// Existing jobs are not changed. To transfer a whole store, use `/v1/import`.
#[utoipa::path(
    post, path = "/v1/kinds/{kind}/restore", tag = "service", operation_id = "restore_jobs",
    params(KindPath), request_body = RestoreRequest,
    responses(
        (
            status = 200, description = "One result per job, in the order of the request.",
            body = Results<RestoreDone>
        ),
        Problems
    )
)]
pub(super) async fn restore(
    State(app): State<App>,
    KindPath(kind): KindPath,
    StrictJson(request): StrictJson<RestoreRequest>,
) -> ApiResult<Json<Results<RestoreDone>>> {
    check_entries("jobs", request.jobs.len())?;
    let reading = app.reading();
    let body_bytes = request.jobs.iter().map(JobJson::body_len).sum();
    let (restore, errors) = off_runtime(body_bytes, move || request.read(kind, &reading)).await;
    restore.check().map_err(|invalid| {
        let field = match invalid {
            Invalid::TooHigh { field: "the kind's generation", .. } => "generation",
            Invalid::TooHigh { .. } => "fence",
            _ => "jobs",
        };
        Problem::from(invalid).at(field)
    })?;
    let restored = app.store().restore(restore).await?;
    Ok(Json(errors.join(restored.into_iter().map(|restored| restored.map(RestoreDone::from)))))
}

/// End expired leases and drop dead jobs whose retention is over.
///
/// The server also does this every second.
#[utoipa::path(
    post, path = "/v1/reap", tag = "service", operation_id = "reap_jobs",
    request_body = ReapRequest,
    responses(
        (status = 200, description = "The number of jobs that were cleaned up.", body = ReapResult),
        Problems
    )
)]
pub(super) async fn reap(
    State(app): State<App>,
    Json(request): Json<ReapRequest>,
) -> ApiResult<Json<ReapResult>> {
    Ok(Json(ReapResult { reaped: app.store().reap(request.max).await?.count }))
}

/// Export all kinds, schedules and jobs as JSON Lines.
///
/// It is not a snapshot of a single moment. The last line has the type `end`: without it, the
/// export is incomplete.
#[utoipa::path(
    get, path = "/v1/export", tag = "service", operation_id = "export_store",
    responses(
        (
            status = 200,
            description = "JSON Lines: kinds, schedules, jobs, and a last line of type `end`.",
            body = String, content_type = "application/jsonl"
        ),
        Problems
    )
)]
pub(super) async fn export(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
) -> ApiResult<Response> {
    let slot = app.transfer_slot(&caller)?;
    let (writer, body) = BodyWriter::new();
    app.tasks().clone().spawn_blocking(move || {
        let _slot = slot;
        let stopped = || io::Error::other("the server is being shut down");
        // A store that never waits would export everything before the other branches below run again.
        let check = || match app.shutdown().is_requested() {
            true => Err(stopped()),
            false => caller.check_current().map_err(|problem| io::Error::other(problem.detail)),
        };
        let mut out = BufWriter::with_capacity(CHUNK, CheckedWriter(writer.clone(), check));
        let exported = block_on(async {
            tokio::select! {
                exported = transfer::export(&**app.store(), &mut out, |_| {}) => exported.map(drop),
                () = app.shutdown().requested() => Err(TransferError::Write(stopped())),
                problem = caller.revoked() => {
                    Err(TransferError::Write(io::Error::other(problem.detail)))
                }
            }
        });
        if let Err(error) = exported {
            // Do not send the rest of the buffer.
            drop(out.into_parts());
            tracing::warn!(%error, "an export failed; the client gets an incomplete response");
            writer.cut(io::Error::other(error));
        }
    });
    Ok(([(header::CONTENT_TYPE, "application/jsonl")], body).into_response())
}

/// The result of an import.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct Imported {
    /// Number of kinds read.
    kinds: u64,
    /// Number of schedules read.
    schedules: u64,
    /// Number of jobs read.
    jobs: u64,
    /// Number of settings, schedules and jobs that existed already and were not changed.
    kept: u64,
    /// Number of jobs that were cancelled and are not imported.
    ended: u64,
}

impl From<TransferProgress> for Imported {
    fn from(done: TransferProgress) -> Self {
        let TransferProgress { kinds, schedules, jobs, kept, ended, .. } = done;
        Imported { kinds, schedules, jobs, kept, ended }
    }
}

/// Import an export of any size.
///
/// Existing settings, schedules and jobs are not changed. After an error, what was imported before
/// it stays, and the import can be repeated.
#[utoipa::path(
    post, path = "/v1/import", tag = "service", operation_id = "import_store",
    request_body(content = String, content_type = "application/jsonl"),
    responses(
        (
            status = 200, description = "How much was read, and how much of it existed already.",
            body = Imported
        ),
        Problems
    )
)]
pub(super) async fn import(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Extension(body_handle): Extension<BodyHandle>,
    body: Body,
) -> ApiResult<Json<Imported>> {
    let slot = app.transfer_slot(&caller)?;
    body_handle.streamed();
    // The body ends when the token is revoked: the thread below blocks while it waits for more of it.
    let revoked = caller.clone();
    let revoked = async move { revoked.revoked().await };
    let stream = Box::pin(body.into_data_stream().map_err(io::Error::other).take_until(revoked));
    let runtime = Handle::current();
    let store = app.store().clone();
    let imported = app.tasks().spawn_blocking(move || {
        let _slot = slot;
        let input = SyncIoBridge::new_with_handle(StreamReader::new(stream), runtime);
        let mut input = BufReader::with_capacity(CHUNK, input);
        block_on(async {
            tokio::select! {
                imported = transfer::import(&*store, &mut input, |_| {}) => {
                    imported.map_err(|error| {
                        caller.check_current().err().unwrap_or_else(|| import_problem(error))
                    })
                }
                problem = caller.revoked() => Err(problem),
            }
        })
    });
    let panicked =
        |_| Problem::new(ProblemType::Bug, "the import panicked; see the log of the server");
    let imported = imported.await.map_err(panicked)?;
    app.push().read_again();
    // Also those of an import that failed halfway. If this fails, they are set within a minute.
    if let Err(error) = app.set_missing_timers().await {
        tracing::warn!(%error, "the runs of imported schedules may begin a minute late");
    }
    Ok(Json(imported?.into()))
}

fn import_problem(error: TransferError) -> Problem {
    let mut detail = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        detail.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    match error {
        TransferError::Store(error) => Problem { detail, ..error.into() },
        TransferError::Refused { source, .. } => Problem { detail, ..source.into() },
        TransferError::Read { .. } | TransferError::Incomplete { .. } => {
            Problem::new(ProblemType::Malformed, detail)
        }
        _ => Problem::new(ProblemType::Invalid, detail),
    }
}
