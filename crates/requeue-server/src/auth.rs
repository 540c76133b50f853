//! Access control with bearer tokens.
//!
//! If the server has no tokens, every request is allowed. Otherwise each request needs a token:
//! a *full* token allows everything, a *read* token allows GET and HEAD. Only `/healthz` and
//! `/readyz` need no token, for process supervisors.
//!
//! The pages of the dashboard need no token to be requested. They read everything through the API, with
//! the token in the cookie of the browser: without one they show the form to enter it.
//!
//! A presented token is compared with all tokens in constant time, each at the maximum length, so
//! that the duration reveals nothing about them. Tokens appear in no log, error or `Debug` output.

mod tokens;

pub use tokens::{InvalidToken, Right, TokenError, Tokens};

use crate::cross_site;
use crate::response::ProblemResponse;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, header};
use axum::response::{IntoResponse, Response};
use requeue_http::{Problem, ProblemType};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

/// Paths that need no token.
const OPEN: [&str; 2] = ["/healthz", "/readyz"];

/// The tokens of a server. Clones share them, so a [`reload`](Self::reload) affects all clones.
///
/// ```
/// use requeue_server::auth::{Access, Right};
///
/// let access = Access::new([(Right::Full, "correct-horse-battery".to_owned())], None)?;
/// assert!(access.is_restricted());
/// # Ok::<(), requeue_server::auth::TokenError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Access {
    shared: Arc<Shared>,
    local_names: bool,
}

#[derive(Debug)]
struct Shared {
    given: Tokens,
    file: Option<PathBuf>,
    current: RwLock<Arc<Tokens>>,
}

impl Access {
    /// Uses the given tokens and those in the file, if there is one (see [`Tokens::read`]). Without
    /// any token every request is allowed. Fails if a token is invalid, or if the file cannot be
    /// read or contains no token.
    pub fn new(
        given: impl IntoIterator<Item = (Right, String)>,
        file: Option<PathBuf>,
    ) -> Result<Self, TokenError> {
        let given = Tokens::new(given)?;
        let current = RwLock::new(Arc::new(all(&given, &file)?));
        let shared = Arc::new(Shared { given, file, current });
        Ok(Self { shared, local_names: false })
    }

    /// Accepts only requests whose `Host` is an IP address or `localhost`.
    ///
    /// For a server on the loopback interface without tokens: it protects against DNS rebinding,
    /// where a web page resolves its own host name to 127.0.0.1 to pass the browser's same-origin
    /// check.
    pub fn only_local_names(self) -> Self {
        Self { local_names: true, ..self }
    }

    /// Reads the token file again; later requests use the new tokens. If it fails, the current
    /// tokens stay in use.
    pub fn reload(&self) -> Result<(), TokenError> {
        let new = Arc::new(all(&self.shared.given, &self.shared.file)?);
        *self.shared.current.write().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(())
    }

    /// Returns whether requests need a token.
    pub fn is_restricted(&self) -> bool {
        !self.tokens().is_empty()
    }

    /// Returns the response to a request that a web page of another site has sent.
    pub(crate) fn cross_site_rejection(&self, request: &Request) -> Option<Response> {
        cross_site::rejection(request, self.local_names)
    }

    /// Returns the response to a request that is not allowed.
    pub(crate) fn rejection(&self, request: &Request) -> Option<Response> {
        if let Some(response) = self.cross_site_rejection(request) {
            return Some(response);
        }
        let tokens = self.tokens();
        if tokens.is_empty() || OPEN.contains(&request.uri().path()) {
            return None;
        }
        let Some(right) = bearer(request.headers()).and_then(|token| tokens.right(token)) else {
            return Some(unauthorized());
        };
        let reads = matches!(*request.method(), Method::GET | Method::HEAD);
        if right == Right::Full || reads {
            return None;
        }
        let detail = "this token allows only GET and HEAD; this request needs a full token";
        Some(ProblemResponse(Problem::new(ProblemType::Forbidden, detail)).into_response())
    }

    /// Returns what the token of a request permits, or `None` if the request needs a token and has no
    /// valid one.
    pub(crate) fn granted(&self, headers: &HeaderMap) -> Option<Granted> {
        let tokens = self.tokens();
        if tokens.is_empty() {
            return Some(Granted { right: Right::Full, name: None, restricted: false });
        }
        let (right, name) = tokens.find(bearer(headers)?)?;
        Some(Granted { right, name: name.map(str::to_owned), restricted: true })
    }

    fn tokens(&self) -> Arc<Tokens> {
        self.shared.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What the token of a request permits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Granted {
    pub(crate) right: Right,
    /// The name of the token, if it has one.
    pub(crate) name: Option<String>,
    /// Whether requests need a token.
    pub(crate) restricted: bool,
}

fn all(given: &Tokens, file: &Option<PathBuf>) -> Result<Tokens, TokenError> {
    let mut tokens = given.clone();
    if let Some(path) = file {
        tokens.extend(Tokens::read(path)?);
    }
    Ok(tokens)
}

fn unauthorized() -> Response {
    let detail = "a valid token is required: send the header Authorization: Bearer TOKEN";
    let mut response =
        ProblemResponse(Problem::new(ProblemType::Unauthorized, detail)).into_response();
    let scheme = HeaderValue::from_static("Bearer");
    response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
    response
}

/// Returns the token of a request. A request with two tokens is ambiguous and counts as one
/// without.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return None;
    };
    let (scheme, token) = value.as_bytes().split_at_checked(b"Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

/// The server would listen on an address that other machines can reach, without a token.
#[derive(Debug, thiserror::Error)]
#[error(
    "refusing to listen on {0}, which other machines can reach, without a token: set a token \
     (REQUEUE_TOKEN or a token file), listen on 127.0.0.1, or pass --allow-anyone"
)]
pub struct Exposed(pub SocketAddr);

/// Checks whether a server may listen on `address`. A loopback address is always allowed; any other
/// address needs tokens (`restricted`) or the explicit permission `allow_anyone`.
///
/// ```
/// use requeue_server::auth::may_listen;
///
/// assert!(may_listen("127.0.0.1:7654".parse()?, false, false).is_ok());
/// assert!(may_listen("0.0.0.0:7654".parse()?, false, false).is_err());
/// assert!(may_listen("0.0.0.0:7654".parse()?, true, false).is_ok());
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
pub fn may_listen(
    address: SocketAddr,
    restricted: bool,
    allow_anyone: bool,
) -> Result<(), Exposed> {
    // An IPv4 address may be written as an IPv6 address.
    if restricted || allow_anyone || address.ip().to_canonical().is_loopback() {
        Ok(())
    } else {
        Err(Exposed(address))
    }
}

#[cfg(test)]
mod tests;
