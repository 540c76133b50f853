//! The HTTP API as the pages call it: its routes, in this process, as the person who requests the page.

use crate::auth::{Access, Caller};
use crate::listen::Delivery;
use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::Request;
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use requeue_http::{Problem, ProblemType};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::convert::Infallible;
use tower::Service;

/// The largest response that a page reads, in bytes: a page of jobs with their bodies.
const MAX_RESPONSE: usize = 64 << 20;

/// The routes of the API, and who may call them.
#[derive(Clone)]
pub(super) struct Api {
    router: Router,
    access: Access,
}

/// The API, called by one person.
#[derive(Clone)]
pub(super) struct Client {
    api: Api,
    caller: Caller,
}

impl Api {
    pub(super) fn new(router: Router, access: Access) -> Self {
        Api { router, access }
    }

    pub(super) fn client(&self, caller: Caller) -> Client {
        Client { api: self.clone(), caller }
    }

    pub(super) fn access(&self) -> &Access {
        &self.access
    }
}

impl Client {
    pub(super) fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Sends a GET request, and deserializes the response.
    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Problem> {
        self.call(Method::GET, path, Body::empty()).await
    }

    /// Sends a request without a body, and deserializes the response.
    pub(super) async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
    ) -> Result<T, Problem> {
        self.call(method, path, Body::empty()).await
    }

    /// Sends a request with a body of JSON, and deserializes the response.
    pub(super) async fn send_json<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, Problem> {
        let body = serde_json::to_vec(body).map_err(|error| bug(&error))?;
        self.call(method, path, body.into()).await
    }

    /// Opens a stream of the API.
    pub(super) async fn stream(&self, path: &str) -> Result<Body, Problem> {
        let response = self.respond(Method::GET, path, Body::empty(), Delivery::new()).await?;
        match response.status() {
            status if status.is_success() => Ok(response.into_body()),
            status => Err(problem(status, &read(response.into_body()).await?)),
        }
    }

    async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Body,
    ) -> Result<T, Problem> {
        let delivery = Delivery::new();
        let response = self.respond(method, path, body, delivery.clone()).await?;
        let status = response.status();
        let bytes = read(response.into_body()).await;
        delivery.delivered();
        let bytes = bytes?;
        if !status.is_success() {
            return Err(problem(status, &bytes));
        }
        let json = if bytes.is_empty() { &b"null"[..] } else { &bytes };
        serde_json::from_slice(json).map_err(|error| bug(&error))
    }

    async fn respond(
        &self,
        method: Method,
        path: &str,
        body: Body,
        delivery: Delivery,
    ) -> Result<Response, Problem> {
        // As it is now: a page may be open for hours.
        let Some(caller) = self.caller.renewed() else {
            return Err(self.caller.revoked().await);
        };
        if let Err(problem) = caller.check_method(&method) {
            return Ok(problem.into_response());
        }
        let request = Request::builder().method(method).uri(path);
        let request = request.header(header::CONTENT_TYPE, "application/json");
        let request = request.extension(delivery).extension(caller);
        let request = request.body(body).map_err(|error| bug(&error))?;
        let response: Result<Response, Infallible> = self.api.router.clone().call(request).await;
        Ok(response.unwrap_or_else(|never| match never {}))
    }
}

async fn read(body: Body) -> Result<Bytes, Problem> {
    to_bytes(body, MAX_RESPONSE).await.map_err(|error| bug(&error))
}

fn problem(status: StatusCode, body: &[u8]) -> Problem {
    serde_json::from_slice(body).unwrap_or_else(|_| {
        Problem::new(ProblemType::Bug, format!("the API returned {status} without a reason"))
    })
}

fn bug(error: &dyn std::fmt::Display) -> Problem {
    Problem::new(ProblemType::Bug, format!("the dashboard could not use the API: {error}"))
}
