//! The memory for the jobs of all responses that are not written yet.
//!
//! A handler reserves room for the largest result that the store may return, before it calls the
//! store. Afterwards it keeps only what the result takes, and gives that back while the response is
//! written:
//!
//! ```text
//!          reserve                store returns              written, or the client is gone
//!   free ----------> 16 MiB ------------------> its bytes --------------------------------> free
//!        waits if there is not enough: 503 after a while
//! ```
//!
//! A claim that waits for jobs reserves nothing while it waits.
//!
//! Clients that do not read their responses could hold all of it. While a request waits for room,
//! the connections that hold some must be read at [`CONTENDED_RATE`], or they are closed: see
//! [`ConnectionState::deadline`](crate::listen). Claimed jobs of a closed connection are released.
//!
//! A response with many jobs is encoded piece by piece, as the client reads it. So the process
//! never holds the JSON of a whole page, which can be six times as large as the bodies.

use crate::bulk::PAGE;
use crate::listen::Delivery;
use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use requeue_http::{Problem, ProblemType};
use requeue_jobs::limits::{MAX_BATCH, MAX_BODY_LEN, MAX_RESULT_BYTES};
use requeue_jobs::{ClaimedJob, JobView, KindView, ScheduleView};
use serde::Serialize;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The rate in bytes per second at which a client must read a response that holds memory while
/// other requests wait for memory …
pub(crate) const CONTENDED_RATE: u64 = 1 << 20;
/// … after the first time of this length in which it does not read.
pub(crate) const CONTENDED_GRACE: Duration = Duration::from_secs(2);

/// How long a request waits for memory. Longer than [`CONTENDED_GRACE`], so that clients that do
/// not read are disconnected before.
const WAIT: Duration = Duration::from_secs(5);

/// Size of a piece of a response, in bytes, unless a single job is larger.
const PIECE: usize = 64 << 10;

/// Bytes of a job in memory besides its body, id and errors.
const JOB_BYTES: usize = 512;

/// Bytes of the errors and the id of a job, at most.
const MAX_DETAIL_BYTES: usize = 12 << 10;

/// Bytes of a page of jobs that is examined, at most.
const PAGE_BYTES: usize = MAX_RESULT_BYTES + PAGE * MAX_DETAIL_BYTES;

/// A list of the largest size must fit.
const MIN_MEMORY: usize = 2 * MAX_RESULT_BYTES + MAX_BATCH * MAX_DETAIL_BYTES;

/// The memory for the jobs of all responses.
#[derive(Clone)]
pub(crate) struct ResponseMemory {
    free: Arc<Semaphore>,
    limit: usize,
    /// How many requests wait for memory.
    waiting: Arc<AtomicUsize>,
}

impl ResponseMemory {
    /// Creates the memory. It is at least as large as one result.
    pub(crate) fn new(limit: u64) -> Self {
        let most = Semaphore::MAX_PERMITS.min(u32::MAX as usize);
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let limit = limit.clamp(MIN_MEMORY, most);
        ResponseMemory { free: Arc::new(Semaphore::new(limit)), limit, waiting: Arc::default() }
    }

    /// Reserves room for a claim of up to `max` jobs.
    pub(crate) async fn for_claim(&self, max: usize) -> Result<ResponseRoom, Problem> {
        self.reserve(max.saturating_mul(MAX_BODY_LEN).min(MAX_RESULT_BYTES)).await
    }

    /// Reserves room for a job, which may have a successor.
    pub(crate) async fn for_job(&self) -> Result<ResponseRoom, Problem> {
        self.reserve(2 * MAX_BODY_LEN + MAX_DETAIL_BYTES).await
    }

    /// Reserves room for a list of up to `limit` jobs, and for the page of the store from which
    /// jobs are added to it.
    pub(crate) async fn for_list(&self, limit: usize) -> Result<ResponseRoom, Problem> {
        let bodies = limit.saturating_mul(2 * MAX_BODY_LEN).min(MAX_RESULT_BYTES);
        let details = limit.saturating_mul(MAX_DETAIL_BYTES);
        self.reserve(bodies.saturating_add(MAX_RESULT_BYTES).saturating_add(details)).await
    }

    /// Reserves room for a page of jobs that is examined, and not returned.
    pub(crate) async fn for_page(&self) -> Result<ResponseRoom, Problem> {
        self.reserve(PAGE_BYTES).await
    }

    /// Does the same without waiting. Returns `None` if so much is not free.
    pub(crate) fn try_for_page(&self) -> Option<ResponseRoom> {
        self.try_reserve(PAGE_BYTES.min(self.limit) as u32)
    }

    /// Reserves this many bytes. Waits until others have given them back, in the order of the
    /// calls. Fails with `busy` if that takes too long.
    pub(crate) async fn reserve(&self, bytes: usize) -> Result<ResponseRoom, Problem> {
        let bytes = bytes.min(self.limit) as u32;
        if let Some(room) = self.try_reserve(bytes) {
            return Ok(room);
        }
        let _waiting = Waiting::new(&self.waiting);
        let acquired = Arc::clone(&self.free).acquire_many_owned(bytes);
        match tokio::time::timeout(WAIT, acquired).await {
            Ok(permit) => Ok(self.room(permit.expect("this semaphore is never closed"))),
            Err(_) => {
                let limit = self.limit;
                let detail = format!(
                    "the responses that are being written use all {limit} bytes of memory for \
                     them; try again later"
                );
                let limit = Some(limit.into());
                Err(Problem { limit, ..Problem::new(ProblemType::Busy, detail) })
            }
        }
    }

    fn try_reserve(&self, bytes: u32) -> Option<ResponseRoom> {
        Some(self.room(Arc::clone(&self.free).try_acquire_many_owned(bytes).ok()?))
    }

    fn room(&self, permit: OwnedSemaphorePermit) -> ResponseRoom {
        ResponseRoom { permit, waiting: Arc::clone(&self.waiting) }
    }

    /// Returns how many bytes are reserved.
    pub(crate) fn used(&self) -> usize {
        self.limit - self.free.available_permits()
    }

    /// Returns how many requests wait for memory.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}

/// Counts a request that waits, until it is dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(waiting: &'a AtomicUsize) -> Self {
        waiting.fetch_add(1, Ordering::Relaxed);
        Waiting(waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Reserved memory. It is given back when this is dropped.
#[derive(Debug)]
pub(crate) struct ResponseRoom {
    permit: OwnedSemaphorePermit,
    waiting: Arc<AtomicUsize>,
}

impl ResponseRoom {
    /// Gives back what exceeds `bytes`.
    pub(crate) fn keep(&mut self, bytes: usize) {
        let excess = self.permit.num_permits().saturating_sub(bytes);
        drop(self.permit.split(excess));
    }

    /// Gives back `bytes`, or all if it is less.
    pub(crate) fn give_back(&mut self, bytes: usize) {
        self.keep(self.permit.num_permits().saturating_sub(bytes));
    }

    /// Returns whether it holds memory that another request waits for.
    pub(crate) fn is_contended(&self) -> bool {
        self.permit.num_permits() > 0 && self.waiting.load(Ordering::Relaxed) > 0
    }
}

/// An entry of a response, whose memory is counted.
pub(crate) trait Weighed {
    /// Returns about how many bytes it takes in memory.
    fn weight(&self) -> usize;
}

impl Weighed for ClaimedJob {
    fn weight(&self) -> usize {
        JOB_BYTES + self.id().as_str().len() + self.body().len()
    }
}

impl Weighed for JobView {
    fn weight(&self) -> usize {
        let errors = self.failures.iter().filter_map(|failure| failure.error.as_ref());
        let errors: usize = errors.map(|error| error.len()).sum();
        JOB_BYTES + self.id.as_str().len() + errors + self.content_bytes()
    }
}

impl Weighed for ScheduleView {
    fn weight(&self) -> usize {
        JOB_BYTES + self.id.as_str().len() + self.spec.content.len()
    }
}

impl Weighed for KindView {
    fn weight(&self) -> usize {
        size_of::<KindView>() + self.kind.as_str().len()
    }
}

/// Returns the weight of all entries.
pub(crate) fn weight(entries: &[impl Weighed]) -> usize {
    entries.iter().map(Weighed::weight).sum()
}

/// Returns a response with the JSON object `{"<name>":[<entries>]<rest>}`, which is encoded as the
/// client reads it. The memory that `delivery` holds for the response is given back entry by entry.
///
/// `rest` is empty, or more fields, each after a comma.
pub(crate) fn list_response<E: Weighed + Send + 'static, J: Serialize>(
    name: &str,
    entries: Vec<E>,
    encode: impl Fn(E) -> J + Send + 'static,
    rest: String,
    delivery: Delivery,
) -> Response {
    let mut entries = entries.into_iter();
    let mut first = true;
    let mut rest = Some(rest);
    let mut start = format!("{{\"{name}\":[").into_bytes();
    // Returns the next piece, and whether it is the last.
    let mut next = move || {
        let (mut piece, mut given) = (std::mem::take(&mut start), 0);
        while piece.len() < PIECE {
            let Some(entry) = entries.next() else {
                let rest = rest.take()?;
                piece.extend_from_slice(b"]");
                piece.extend_from_slice(rest.as_bytes());
                piece.extend_from_slice(b"}");
                break;
            };
            if !std::mem::take(&mut first) {
                piece.push(b',');
            }
            given += entry.weight();
            serde_json::to_writer(&mut piece, &encode(entry))
                .expect("our own types can be serialized");
        }
        // Growing may have reserved twice as much.
        piece.shrink_to_fit();
        Some((Bytes::from(piece), given, rest.is_none()))
    };
    let Some((piece, given, last)) = next() else { unreachable!("there is at least one piece") };
    let body = if last {
        // It is small, or it is one job. Its memory is given back when it is delivered.
        Body::from(piece)
    } else {
        delivery.give_back(given);
        let mut piece = Some(piece);
        let pieces = std::iter::from_fn(move || {
            if let Some(first) = piece.take() {
                return Some(Ok::<_, Infallible>(first));
            }
            let (piece, given, _) = next()?;
            delivery.give_back(given);
            Some(Ok(piece))
        });
        Body::from_stream(futures_util::stream::iter(pieces))
    };
    let mut response = Response::new(body);
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    struct Text(String);

    impl Weighed for Text {
        fn weight(&self) -> usize {
            self.0.len()
        }
    }

    async fn written(entries: Vec<Text>, rest: &str) -> (Vec<usize>, String) {
        let encode = |Text(text)| text;
        let mut body =
            list_response("jobs", entries, encode, rest.to_owned(), Delivery::new()).into_body();
        let (mut pieces, mut text) = (Vec::new(), Vec::new());
        while let Some(frame) = body.frame().await {
            let piece = frame.expect("it does not fail").into_data().expect("it is data");
            pieces.push(piece.len());
            text.extend_from_slice(&piece);
        }
        (pieces, String::from_utf8(text).expect("it is text"))
    }

    #[tokio::test]
    async fn a_response_is_the_same_json_in_one_piece_or_in_many() {
        assert_eq!(written(vec![], "").await.1, r#"{"jobs":[]}"#);
        let (pieces, text) = written(vec![Text("a".into()), Text("b".into())], ",\"x\":1").await;
        assert_eq!((pieces.len(), text.as_str()), (1, r#"{"jobs":["a","b"],"x":1}"#));
        let large = ["a", "b", "c"].map(|text| text.repeat(PIECE));
        let (pieces, text) = written(large.clone().map(Text).into(), ",\"x\":1").await;
        assert!(pieces.len() > 1 && pieces.iter().all(|len| *len < 2 * PIECE), "{pieces:?}");
        let expected = serde_json::json!({ "jobs": large, "x": 1 });
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).expect("JSON"), expected);
        // Control characters take six bytes each in JSON. They are encoded one job at a time.
        let (pieces, _) = written((0..10).map(|_| Text("\0".repeat(PIECE))).collect(), "").await;
        assert!(pieces.iter().all(|len| *len < 7 * PIECE), "{pieces:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn requests_wait_for_memory_in_order_and_then_fail() {
        let memory = ResponseMemory::new(0);
        let all = memory.limit;
        let mut first = memory.reserve(all).await.expect("all of it is free");
        assert_eq!((memory.used(), first.is_contended()), (all, false));
        let refused = memory.reserve(1).await.expect_err("nothing is free");
        assert_eq!((refused.problem_type(), refused.limit), (ProblemType::Busy, Some(all.into())));
        let waiting = tokio::spawn({
            let memory = memory.clone();
            async move { memory.reserve(10).await.map(|room| room.permit.num_permits()) }
        });
        tokio::task::yield_now().await;
        assert!(first.is_contended());
        first.keep(all - 9);
        first.give_back(1);
        assert_eq!(waiting.await.expect("no panic").expect("ten bytes are free"), 10);
        first.give_back(usize::MAX);
        assert_eq!((memory.used(), memory.waiting()), (0, 0));
    }
}
