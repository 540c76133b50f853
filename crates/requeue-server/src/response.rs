//! Error responses.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use requeue_http::{Problem, ProblemType};

/// A problem document as an HTTP response.
pub(crate) struct ProblemResponse(pub(crate) Problem);

impl<E: Into<Problem>> From<E> for ProblemResponse {
    fn from(error: E) -> Self {
        ProblemResponse(error.into())
    }
}

impl IntoResponse for ProblemResponse {
    fn into_response(self) -> Response {
        let ProblemResponse(problem) = self;
        let text = serde_json::to_vec(&problem).expect("a problem can be serialized");
        let mut response = Response::new(Body::from(text));
        *response.status_mut() =
            StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        let json = HeaderValue::from_static("application/problem+json");
        headers.insert(header::CONTENT_TYPE, json);
        if matches!(
            problem.problem_type(),
            ProblemType::Busy | ProblemType::Stopping | ProblemType::Unavailable
        ) {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

/// Returns the JSON text of a value.
pub(crate) fn json(value: &(impl serde::Serialize + ?Sized)) -> String {
    serde_json::to_string(value).expect("our own types can be serialized")
}

/// The result of a request handler.
pub(crate) type ApiResult<T> = Result<T, ProblemResponse>;
