//! Extractors for requests. If a request is invalid, the problem names the field.

use crate::response::ProblemResponse;
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

/// A JSON body, in requests and responses.
pub(crate) struct Json<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Json<T> {
    type Rejection = ProblemResponse;

    async fn from_request(request: Request, state: &S) -> Result<Self, ProblemResponse> {
        is_json(request.headers())?;
        let bytes = Bytes::from_request(request, state).await;
        // If the body was too large or too slow, the connection replaces this response.
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

fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    // Tracking the path doubles the cost of parsing: only invalid bodies are parsed that way.
    match serde_json::from_slice(bytes) {
        Ok(JsonObject(value)) => Ok(value),
        Err(_) => read_with_path(bytes),
    }
}

/// Parses the body; the error names the field.
fn read_with_path<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
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
    #[param(value_type = String, max_length = 128, pattern = "^[A-Za-z0-9._-]+$")] pub(crate) Kind,
);

/// The kind and the id in the path.
#[derive(utoipa::IntoParams)]
#[into_params(names("kind", "id"), parameter_in = Path)]
pub(crate) struct JobPath(
    #[param(value_type = String, max_length = 128, pattern = "^[A-Za-z0-9._-]+$")] pub(crate) Kind,
    #[param(value_type = String, min_length = 1, max_length = 512)] pub(crate) JobId,
);

impl<S: Send + Sync> FromRequestParts<S> for KindPath {
    type Rejection = ProblemResponse;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ProblemResponse> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        let Path(kind) = path.map_err(invalid_path)?;
        Ok(KindPath(parse_kind(&kind)?))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for JobPath {
    type Rejection = ProblemResponse;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ProblemResponse> {
        let path = Path::<(String, String)>::from_request_parts(parts, state).await;
        let Path((kind, id)) = path.map_err(invalid_path)?;
        let id = JobId::new(id).map_err(|invalid| Problem::from(invalid).at("id"))?;
        Ok(JobPath(parse_kind(&kind)?, id))
    }
}

fn parse_kind(text: &str) -> Result<Kind, Problem> {
    Kind::new(text).map_err(|invalid| Problem::from(invalid).at("kind"))
}

pub(crate) fn invalid_path(error: PathRejection) -> Problem {
    Problem::new(ProblemType::Malformed, format!("invalid path: {}", error.body_text()))
}
