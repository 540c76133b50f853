//! Extractors for requests. If a request is invalid, the problem names the field.

use crate::json_text::{self, Measured};
use crate::listen::BodyHandle;
use crate::response::ProblemResponse;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, header};
use axum::response::{IntoResponse, Response};
use requeue_http::wire::{JsonObject, list_limit};
use requeue_http::{Problem, ProblemType};
use requeue_jobs::{Invalid, JobId, Kind};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::future::poll_fn;
use std::pin::pin;

/// Work on more bytes than this is done on a thread of its own, because it would delay the other
/// requests of a runtime thread: parsing a request of 32 MiB takes tenths of a second.
const SHORT: usize = 64 << 10;

/// The longest text in a request, in bytes of JSON: a body of 1 MiB in which every byte is escaped to
/// six, and some more. To unescape a text, the parser needs up to three times its length.
const MAX_TEXT: usize = 8 << 20;

/// A JSON body, in requests and responses.
pub(crate) struct Json<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned + Send + 'static> FromRequest<S> for Json<T> {
    type Rejection = ProblemResponse;

    async fn from_request(request: Request, _: &S) -> Result<Self, ProblemResponse> {
        read_request(request, read).await.map(Json)
    }
}

/// A JSON body of a type that is also read from responses, where unknown fields are ignored. Here they are
/// rejected.
pub(crate) struct StrictJson<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned + Send + 'static> FromRequest<S> for StrictJson<T> {
    type Rejection = ProblemResponse;

    async fn from_request(request: Request, _: &S) -> Result<Self, ProblemResponse> {
        read_request(request, read_strict).await.map(StrictJson)
    }
}

/// Reads the body of a request, and parses it with `read`.
async fn read_request<T: Send + 'static>(
    request: Request,
    read: fn(&[u8]) -> Result<T, Problem>,
) -> Result<T, ProblemResponse> {
    is_json(request.headers())?;
    let body_handle = request.extensions().get::<BodyHandle>().cloned();
    // If the body was too large or too slow, the connection replaces this response.
    let bytes = collect(request.into_body())
        .await
        .map_err(|error| Problem::new(ProblemType::Malformed, error.to_string()))?;
    let read = off_runtime(bytes.len(), move || {
        if bytes.len() <= SHORT {
            return read(&bytes);
        }
        let (read, kept) = read_long(&bytes, read);
        // Until here its memory counts as used, even if the client is gone.
        if let Some(body_handle) = body_handle {
            body_handle.shrink_to(kept as u64);
        }
        read
    });
    Ok(read.await?)
}

/// Does work on this many bytes: here, or on another thread if they are many.
pub(crate) async fn off_runtime<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    if bytes <= SHORT {
        return work();
    }
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        // The listener responds to a panic. The task is never cancelled.
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// Reads a body into one piece.
///
/// A list of its frames would take more memory than its bytes: a client can send chunks of one byte.
pub(crate) async fn collect(body: Body) -> Result<Bytes, axum::Error> {
    let mut body = pin!(body);
    let mut all = Vec::new();
    while let Some(frame) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
        let Ok(piece) = frame?.into_data() else { continue };
        if all.is_empty() && body.is_end_stream() {
            return Ok(piece);
        }
        let needed = all.len() + piece.len();
        if needed > all.capacity() {
            // Never more than the bytes that arrived, doubled, whatever is announced.
            let left = body.size_hint().exact().and_then(|left| usize::try_from(left).ok());
            let whole = left.map_or(usize::MAX, |left| needed.saturating_add(left));
            all.reserve_exact((2 * needed).min(whole) - all.len());
        }
        all.extend_from_slice(&piece);
    }
    Ok(all.into())
}

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        axum::Json(self.0).into_response()
    }
}

/// Checks the content type. A web page of another site can make a browser send other content types
/// without a preflight request, but not this one.
fn is_json(headers: &HeaderMap) -> Result<(), Problem> {
    let found = headers.get(header::CONTENT_TYPE).map(|value| value.as_bytes()).unwrap_or_default();
    let found = String::from_utf8_lossy(found);
    let media = found.split(';').next().unwrap_or_default().trim();
    if media.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let detail = match media {
        "" => "the request has no Content-Type; send application/json".to_owned(),
        media => format!("the Content-Type is {media:?}; send application/json"),
    };
    Err(Problem::new(ProblemType::NotJson, detail))
}

/// Checks a long request for texts that would take much memory, and parses it. Returns also how much
/// memory the parsed request takes at most.
fn read_long<T>(
    bytes: &[u8],
    read: fn(&[u8]) -> Result<T, Problem>,
) -> (Result<T, Problem>, usize) {
    let Measured { longest: len, padding } = json_text::measure(bytes);
    let (field, limit) = ("a text of the request", MAX_TEXT);
    if len > limit {
        return (Err(Invalid::TooLong { field, len, limit }.into()), 0);
    }
    let read = read(bytes);
    let kept = if read.is_ok() { bytes.len() - padding } else { 0 };
    (read, kept)
}

fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    // Tracking the path doubles the cost of parsing: only invalid bodies are parsed that way.
    match serde_json::from_slice(bytes) {
        Ok(JsonObject(value)) => Ok(value),
        Err(_) => read_with_path(bytes),
    }
}

/// Does the same, and rejects unknown fields.
fn read_strict<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    let mut unknown = None;
    let mut input = serde_json::Deserializer::from_slice(bytes);
    let ignored = |path: serde_ignored::Path<'_>| {
        // Entries of a list beyond its limit are ignored, too.
        if unknown.is_none() && matches!(path, serde_ignored::Path::Map { .. }) {
            unknown = Some(place(&path));
        }
    };
    let read = serde_ignored::deserialize(&mut input, ignored);
    match (read, input.end(), unknown) {
        (Ok(JsonObject(value)), Ok(()), None) => Ok(value),
        (Ok(_), _, Some(place)) => {
            let name = place.rsplit('.').next().unwrap_or_default();
            let detail = format!("unknown field `{name}`");
            Err(Problem::new(ProblemType::Malformed, detail).at(place))
        }
        _ => read_with_path(bytes),
    }
}

/// Returns the place of a field as problems name it, such as `jobs[3].lease.worker`.
fn place(path: &serde_ignored::Path<'_>) -> String {
    use serde_ignored::Path;
    match path {
        Path::Root => String::new(),
        Path::Seq { parent, index } => format!("{}[{index}]", place(parent)),
        Path::Map { parent, key } => match place(parent) {
            parent if parent.is_empty() => key.clone(),
            parent => format!("{parent}.{key}"),
        },
        Path::Some { parent }
        | Path::NewtypeStruct { parent }
        | Path::NewtypeVariant { parent } => place(parent),
    }
}

/// Parses the body; the error names the field.
fn read_with_path<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    let mut input = serde_json::Deserializer::from_slice(bytes);
    let read: Result<JsonObject<T>, _> = serde_path_to_error::deserialize(&mut input);
    let JsonObject(value) = read.map_err(|error| {
        let path = error.path().to_string();
        let problem = match list_limit(error.inner()) {
            Some(limit) => Problem::from(limit),
            None => Problem::new(ProblemType::Malformed, error.inner().to_string()),
        };
        if path == "." { problem } else { problem.at(path) }
    })?;
    let end = input.end();
    end.map_err(|error| Problem::new(ProblemType::Malformed, error.to_string()))?;
    Ok(value)
}

/// The query parameters of the URL.
pub(crate) struct QueryParams<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for QueryParams<T> {
    type Rejection = ProblemResponse;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ProblemResponse> {
        check_utf8(parts.uri.query().unwrap_or_default())?;
        let query = Query::from_request_parts(parts, state).await;
        let Query(params) = query.map_err(|error: QueryRejection| {
            let text = error.body_text();
            let text = text.split_once("string: ").map_or(&*text, |(_, reason)| reason);
            Problem::new(ProblemType::Malformed, format!("invalid query parameters: {text}"))
        })?;
        Ok(QueryParams(params))
    }
}

/// Checks that a query string is UTF-8. The parser would replace invalid bytes and so search for
/// something else.
fn check_utf8(query: &str) -> Result<(), Problem> {
    for part in query.split('&') {
        let text = part.as_bytes();
        let digit = |at| text.get(at).and_then(|&byte| char::from(byte).to_digit(16));
        let mut bytes = Vec::with_capacity(text.len());
        let mut at = 0;
        while at < text.len() {
            match (text[at], digit(at + 1), digit(at + 2)) {
                (b'%', Some(high), Some(low)) => {
                    bytes.push((high * 16 + low) as u8);
                    at += 3;
                }
                (byte, ..) => {
                    bytes.push(byte);
                    at += 1;
                }
            }
        }
        if str::from_utf8(&bytes).is_err() {
            let detail = format!("invalid query parameters: {part:?} is not UTF-8");
            return Err(Problem::new(ProblemType::Malformed, detail));
        }
    }
    Ok(())
}

/// The kind in the path.
#[derive(utoipa::IntoParams)]
#[into_params(names("kind"), parameter_in = Path)]
pub(crate) struct KindPath(
    /// The kind: 1 to 128 of the characters `A-Z a-z 0-9 . _ -`.
    #[param(value_type = String, max_length = 128, pattern = "^[A-Za-z0-9._-]+$")]
    pub(crate) Kind,
);

/// The kind and the id in the path.
#[derive(utoipa::IntoParams)]
#[into_params(names("kind", "id"), parameter_in = Path)]
pub(crate) struct JobPath(
    /// The kind: 1 to 128 of the characters `A-Z a-z 0-9 . _ -`.
    #[param(value_type = String, max_length = 128, pattern = "^[A-Za-z0-9._-]+$")]
    pub(crate) Kind,
    /// The id of the job or schedule, percent-encoded: any text of 1 to 512 bytes in UTF-8.
    #[param(value_type = String, min_length = 1, max_length = 512)]
    pub(crate) JobId,
);

impl<S: Send + Sync> FromRequestParts<S> for KindPath {
    type Rejection = ProblemResponse;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ProblemResponse> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        let Path(kind) = path.map_err(invalid_path)?;
        Ok(KindPath(parse_kind(&kind, &parts.method)?))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for JobPath {
    type Rejection = ProblemResponse;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ProblemResponse> {
        let path = Path::<(String, String)>::from_request_parts(parts, state).await;
        let Path((kind, id)) = path.map_err(invalid_path)?;
        let id = JobId::new(id).map_err(|invalid| Problem::from(invalid).at("id"))?;
        Ok(JobPath(parse_kind(&kind, &parts.method)?, id))
    }
}

/// Reserved kinds can be read, and not changed.
fn parse_kind(text: &str, method: &Method) -> Result<Kind, Problem> {
    let kind = if method.is_safe() { Kind::with_reserved(text) } else { Kind::new(text) };
    kind.map_err(|invalid| Problem::from(invalid).at("kind"))
}

pub(crate) fn invalid_path(error: PathRejection) -> Problem {
    Problem::new(ProblemType::Malformed, format!("invalid path: {}", error.body_text()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listen::tests::harness::{start, within};
    use axum::Router;
    use axum::routing::{get, post};
    use serde::Deserialize;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::sync::{LazyLock, Mutex};
    use std::time::Duration;
    use tokio::sync::Notify;

    /// A request whose parser waits until another request was handled.
    struct Waiting;

    static PARSING: Notify = Notify::const_new();
    static OTHER: LazyLock<(Sender<()>, Mutex<Receiver<()>>)> = LazyLock::new(|| {
        let (sender, receiver) = channel();
        (sender, Mutex::new(receiver))
    });

    impl<'de> Deserialize<'de> for Waiting {
        fn deserialize<D: serde::Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
            PARSING.notify_one();
            let other = OTHER.1.lock().unwrap().recv_timeout(Duration::from_secs(10));
            other.expect("another request is handled meanwhile");
            serde::de::IgnoredAny::deserialize(input).map(|_| Waiting)
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_large_request_is_parsed_while_others_are_handled() {
        let other = || async {
            OTHER.0.send(()).expect("the receiver exists");
            "other"
        };
        let router = Router::new()
            .route("/large", post(|Json(Waiting): Json<Waiting>| async { "large" }))
            .route("/other", get(other));
        let server = start(router, crate::listen::Options::default()).await;
        let (mut large, mut small) = (server.client().await, server.client().await);
        let body = format!(r#"{{"x":"{}"}}"#, "x".repeat(SHORT));
        let length = body.len();
        let head = format!(
            "POST /large HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\n\r\n"
        );
        within(large.send(head + &body)).await;
        within(PARSING.notified()).await;
        assert_eq!(small.get("/other").await.body, "other");
        assert_eq!(large.response().await.body, "large");
        server.stop().await;
    }

    /// Returns the body, and the number of bytes that its buffer takes.
    async fn collected(pieces: usize, piece: &'static [u8], announced: bool) -> (usize, usize) {
        let pieces = std::iter::repeat_n(Bytes::from_static(piece), pieces);
        let body = if announced {
            Body::from(pieces.collect::<Vec<_>>().concat())
        } else {
            Body::from_stream(futures_util::stream::iter(pieces.map(Ok::<_, axum::Error>)))
        };
        let bytes = collect(body).await.expect("the body is read");
        let buffer = Vec::from(bytes);
        (buffer.len(), buffer.capacity())
    }

    #[tokio::test]
    async fn a_body_in_small_pieces_takes_no_more_than_twice_its_size() {
        for (pieces, piece, announced) in [
            (0, &b"x"[..], false),
            (1, b"x", false),
            (100_000, b"x", false),
            (3, &[b'x'; 70_000], true),
        ] {
            let (len, capacity) = collected(pieces, piece, announced).await;
            assert_eq!(len, pieces * piece.len());
            assert!(capacity <= 2 * len, "{capacity} for {len}");
        }
    }

    #[test]
    fn a_text_that_would_take_much_memory_is_rejected() {
        let text =
            |len: usize| format!(r#"{{"kinds":["\n{}"]}}"#, "x".repeat(len - 2)).into_bytes();
        let read = |len| read_long(&text(len), super::read::<requeue_http::wire::ClaimRequest>).0;
        assert!(read(MAX_TEXT).is_ok());
        let problem = read(MAX_TEXT + 1).expect_err("it is too long");
        assert_eq!(problem.problem_type(), ProblemType::Invalid);
        assert_eq!(problem.detail, "a text of the request has 8388609 bytes; the limit is 8388608");
    }
}
