//! What is answered when something went wrong.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use requeue_http::{Problem, ProblemType};

/// A problem, as an answer.
pub(crate) struct Failure(pub(crate) Problem);

impl<E: Into<Problem>> From<E> for Failure {
    fn from(error: E) -> Self {
        Failure(error.into())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let Failure(problem) = self;
        let text = serde_json::to_vec(&problem).expect("a problem can be written");
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

/// What a handler answers.
pub(crate) type Answered<T> = Result<T, Failure>;
