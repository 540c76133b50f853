//! Reading requests. What cannot be read is a problem that says where it is broken.

use crate::answer::Failure;
use axum::body::Bytes;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use requeue_http::wire::JsonObject;
use requeue_http::{Problem, ProblemType};
use requeue_jobs::{JobId, Kind};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// JSON, in requests and in answers.
pub(crate) struct Json<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Json<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, state: &S) -> Result<Self, Failure> {
        is_json(request.headers())?;
        let bytes = Bytes::from_request(request, state).await;
        // Where it was too large or too slow, the connection answers so, and not as we do here.
        let bytes =
            bytes.map_err(|error| Problem::new(ProblemType::Malformed, error.to_string()))?;
        Ok(Json(read(&bytes)?))
    }
}

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        axum::Json(self.0).into_response()
    }
}

/// A page of another site can let a browser send anything but this without asking first.
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

fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    // To know at any time where it is costs as much as to read: only what is broken is read so.
    match serde_json::from_slice(bytes) {
        Ok(JsonObject(value)) => Ok(value),
        Err(_) => read_and_tell(bytes),
    }
}

/// The same, and an error tells which field it is about.
fn read_and_tell<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    let mut input = serde_json::Deserializer::from_slice(bytes);
    let read: Result<JsonObject<T>, _> = serde_path_to_error::deserialize(&mut input);
    let JsonObject(value) = read.map_err(|error| {
        let path = error.path().to_string();
        let problem = Problem::new(ProblemType::Malformed, error.inner().to_string());
        if path == "." { problem } else { problem.at(path) }
    })?;
    let end = input.end();
    end.map_err(|error| Problem::new(ProblemType::Malformed, error.to_string()))?;
    Ok(value)
}

/// The question behind the path.
pub(crate) struct Asked<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Asked<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        is_text(parts.uri.query().unwrap_or_default())?;
        let asked = Query::from_request_parts(parts, state).await;
        let Query(asked) = asked.map_err(|error: QueryRejection| {
            let text = error.body_text();
            let text = text.split_once("string: ").map_or(&*text, |(_, reason)| reason);
            Problem::new(ProblemType::Malformed, format!("the query of the address: {text}"))
        })?;
        Ok(Asked(asked))
    }
}

/// Whether a query is text. Who reads it would put a mark in place of what is not, and find
/// something else.
fn is_text(query: &str) -> Result<(), Problem> {
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
            let detail = format!("the query of the address: {part:?} is no UTF-8");
            return Err(Problem::new(ProblemType::Malformed, detail));
        }
    }
    Ok(())
}

/// The kind in the path.
#[derive(utoipa::IntoParams)]
#[into_params(names("kind"), parameter_in = Path)]
pub(crate) struct OfKind(
    #[param(value_type = String, max_length = 128, pattern = "^[A-Za-z0-9._-]+$")] pub(crate) Kind,
);

/// The kind and the id in the path.
#[derive(utoipa::IntoParams)]
#[into_params(names("kind", "id"), parameter_in = Path)]
pub(crate) struct OfJob(
    #[param(value_type = String, max_length = 128, pattern = "^[A-Za-z0-9._-]+$")] pub(crate) Kind,
    #[param(value_type = String, min_length = 1, max_length = 512)] pub(crate) JobId,
);

impl<S: Send + Sync> FromRequestParts<S> for OfKind {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        let Path(kind) = path.map_err(unreadable)?;
        Ok(OfKind(kind_of(&kind)?))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for OfJob {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let path = Path::<(String, String)>::from_request_parts(parts, state).await;
        let Path((kind, id)) = path.map_err(unreadable)?;
        let id = JobId::new(id).map_err(|invalid| Problem::from(invalid).at("id"))?;
        Ok(OfJob(kind_of(&kind)?, id))
    }
}

fn kind_of(text: &str) -> Result<Kind, Problem> {
    Kind::new(text).map_err(|invalid| Problem::from(invalid).at("kind"))
}

pub(crate) fn unreadable(error: PathRejection) -> Problem {
    Problem::new(ProblemType::Malformed, format!("the path of the address: {}", error.body_text()))
}
