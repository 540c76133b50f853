//! Whole stores, out and in.

use super::Problems;
use super::jobs::entries;
use super::lines::Sink;
use crate::answer::Answered;
use crate::app::App;
use crate::extract::{Json, OfKind};
use crate::listen::Intake;
use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
// Not tokio's: under that one a thread may not block, and these are to.
use futures_executor::block_on;
use futures_util::TryStreamExt;
use requeue_http::wire::{
    BatchErrors as Unread, ReapRequest, Reaped, RestoreDone, RestoreRequest, Results,
};
use requeue_http::{Problem, Sort};
use requeue_jobs::transfer::{self, Progress, TransferError};
use requeue_jobs::{Invalid, Restore};
use serde::Serialize;
use std::io::{self, BufReader, BufWriter};
use tokio::runtime::Handle;
use tokio_util::io::{StreamReader, SyncIoBridge};

/// Bytes that are sent or read at a time.
const CHUNK: usize = 64 << 10;

/// Keeps jobs of one kind that another store had.
///
/// Jobs that are here already are not touched. For whole stores there is `/v1/import`.
#[utoipa::path(
    post, path = "/v1/kinds/{kind}/restore", tag = "service", operation_id = "restore_jobs",
    params(OfKind),
    request_body = RestoreRequest,
    responses((status = 200, body = Results<RestoreDone>), Problems)
)]
pub(super) async fn restore(
    State(app): State<App>,
    OfKind(kind): OfKind,
    Json(request): Json<RestoreRequest>,
) -> Answered<Json<Results<RestoreDone>>> {
    entries("jobs", request.jobs.len())?;
    let (generation, fence, read) = request.read(&kind, &app.reading());
    let (jobs, unread) = Unread::split(read);
    let restore = Restore { kind, generation, fence, jobs };
    restore.check().map_err(|invalid| {
        let field = match invalid {
            Invalid::TooHigh { field: "the kind's generation", .. } => "generation",
            Invalid::TooHigh { .. } => "fence",
            _ => "jobs",
        };
        Problem::from(invalid).at(field)
    })?;
    let restored = app.store().restore(restore).await?;
    Ok(Json(unread.join(restored.into_iter().map(|restored| restored.map(RestoreDone::from)))))
}

/// Ends leases that expired, and drops dead jobs that are not kept.
///
/// The server does so by itself, all the time.
#[utoipa::path(
    post, path = "/v1/reap", tag = "service", request_body = ReapRequest,
    responses((status = 200, body = Reaped), Problems)
)]
pub(super) async fn reap(
    State(app): State<App>,
    Json(request): Json<ReapRequest>,
) -> Answered<Json<Reaped>> {
    Ok(Json(Reaped { reaped: app.store().reap(request.max).await?.count }))
}

/// All kinds, schedules and jobs, as JSON Lines.
///
/// It is not one moment of the store. Its last line is of type `end`: without it, it was cut.
#[utoipa::path(
    get, path = "/v1/export", tag = "service",
    responses((status = 200, body = String, content_type = "application/jsonl"), Problems)
)]
pub(super) async fn export(State(app): State<App>) -> Answered<Response> {
    let place = app.transfer()?;
    let (sink, body) = Sink::new();
    app.tasks().clone().spawn_blocking(move || {
        let _place = place;
        let mut out = BufWriter::with_capacity(CHUNK, sink.clone());
        let stopped = || io::Error::other("the server is being shut down");
        let exported = block_on(async {
            tokio::select! {
                exported = transfer::export(&**app.store(), &mut out, |_| {}) => exported.map(drop),
                () = app.shutdown().ordered() => Err(TransferError::Write(stopped())),
            }
        });
        if let Err(error) = exported {
            // What is left in the buffer is not sent.
            drop(out.into_parts());
            tracing::warn!(%error, "an export was cut");
            sink.cut(io::Error::other(error));
        }
    });
    Ok(([(header::CONTENT_TYPE, "application/jsonl")], body).into_response())
}

/// What an import has done.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct Imported {
    /// Kinds that were read.
    kinds: u64,
    /// Schedules that were read.
    schedules: u64,
    /// Jobs that were read.
    jobs: u64,
    /// Of the settings, schedules and jobs, those that the store had already.
    kept: u64,
    /// Of the jobs, those that were cancelled and do not arrive.
    ended: u64,
}

impl From<Progress> for Imported {
    fn from(done: Progress) -> Self {
        let Progress { kinds, schedules, jobs, kept, ended, .. } = done;
        Imported { kinds, schedules, jobs, kept, ended }
    }
}

/// Reads what an export wrote, of whatever size.
///
/// It adds, and touches nothing that is there. After an error what was read before it is kept,
/// and the import can be begun again.
#[utoipa::path(
    post, path = "/v1/import", tag = "service",
    request_body(content = String, content_type = "application/jsonl"),
    responses((status = 200, body = Imported), Problems)
)]
pub(super) async fn import(
    State(app): State<App>,
    Extension(intake): Extension<Intake>,
    body: Body,
) -> Answered<Json<Imported>> {
    let place = app.transfer()?;
    intake.streamed();
    let stream = body.into_data_stream().map_err(io::Error::other);
    let runtime = Handle::current();
    let store = app.store().clone();
    let imported = app.tasks().spawn_blocking(move || {
        let _place = place;
        let input = SyncIoBridge::new_with_handle(StreamReader::new(stream), runtime);
        let mut input = BufReader::with_capacity(CHUNK, input);
        block_on(transfer::import(&*store, &mut input, |_| {}))
    });
    let panicked = |_| Problem::new(Sort::Bug, "the import panicked");
    Ok(Json(imported.await.map_err(panicked)?.map_err(not_imported)?.into()))
}

fn not_imported(error: TransferError) -> Problem {
    let mut detail = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        detail.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    match error {
        TransferError::Store(error) => Problem { detail, ..error.into() },
        TransferError::Refused { source, .. } => Problem { detail, ..source.into() },
        TransferError::Read { .. } | TransferError::Cut { .. } => {
            Problem::new(Sort::Malformed, detail)
        }
        _ => Problem::new(Sort::Invalid, detail),
    }
}
