//! Access control with bearer tokens.
//!
//! If the server has no tokens, every request is allowed. Otherwise each request needs a token:
//! a *full* token allows everything, a *read* token allows GET and HEAD. Only `/healthz` and
//! `/readyz` need no token, for process supervisors.
//!
//! The pages of the dashboard need no token to be requested. They read everything through the API, as the
//! caller of the session in the cookie of the browser: without one they show the form to log in.
//!
//! A presented token is found by its hash, once per request. The server keeps no token, only hashes; tokens
//! appear in no log, error or `Debug` output.

mod caller;
mod session;
mod tokens;

pub(crate) use caller::Caller;
pub(crate) use session::{LIFETIME, Session, Sessions};
pub use session::{SessionKey, SessionKeyError};
pub(crate) use tokens::TokenId;
pub use tokens::{InvalidToken, Right, TokenError, Tokens};

use crate::cross_site;
use crate::response::ProblemResponse;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use requeue_http::{Problem, ProblemType};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::watch;

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
    sessions: Arc<Sessions>,
    local_names: bool,
}

#[derive(Debug)]
struct Shared {
    given: Tokens,
    file: Option<PathBuf>,
    /// The tokens that are valid now.
    current: watch::Sender<Arc<Tokens>>,
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
        let current = watch::Sender::new(Arc::new(all(&given, &file)?));
        let shared = Arc::new(Shared { given, file, current });
        let sessions = Arc::new(Sessions::new(&SessionKey::random()));
        Ok(Self { shared, sessions, local_names: false })
    }

    /// Seals the sessions of browsers with this key, so that they outlive a restart and are valid at all nodes
    /// with the key. Without it, the key is random.
    pub fn with_session_key(self, key: &SessionKey) -> Self {
        Self { sessions: Arc::new(Sessions::new(key)), ..self }
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
        self.shared.current.send_replace(new);
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

    /// Checks a request of the API. Returns who sends it, or `None` for a path that everybody may request;
    /// fails with the response to a request that is not allowed.
    pub(crate) fn check(&self, request: &Request) -> Result<Option<Caller>, Box<Response>> {
        if let Some(response) = self.cross_site_rejection(request) {
            return Err(Box::new(response));
        }
        if OPEN.contains(&request.uri().path()) {
            return Ok(None);
        }
        let Some(caller) = self.caller(request.headers()) else {
            return Err(Box::new(unauthorized()));
        };
        caller
            .check_method(request.method())
            .map_err(|problem| Box::new(problem.into_response()))?;
        Ok(Some(caller))
    }

    /// Returns who sends a request with these headers, or `None` if a token is required and there is no
    /// valid one.
    pub(crate) fn caller(&self, headers: &HeaderMap) -> Option<Caller> {
        self.caller_with(bearer(headers))
    }

    /// Returns the caller with this token, or `None` if a token is required and this is not a valid one.
    pub(crate) fn caller_with(&self, secret: Option<&[u8]>) -> Option<Caller> {
        let tokens = self.tokens();
        if tokens.is_empty() {
            return Some(Caller::anyone(self));
        }
        Some(Caller::with(self, Arc::clone(tokens.find(secret?)?)))
    }

    /// Returns the caller with the token of a session, or `None` if the token is not valid any more.
    pub(crate) fn caller_of(&self, session: &Session) -> Option<Caller> {
        Some(Caller::with(self, Arc::clone(self.tokens().get(session.token)?)))
    }

    pub(crate) fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    fn tokens(&self) -> Arc<Tokens> {
        Arc::clone(&self.shared.current.borrow())
    }
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
