//! Who may do what: bearer tokens.
//!
//! Either there is no token, and everybody may do everything, or there are some, and each request
//! carries one: a *full* one for everything, a *read* one for GET and HEAD. Without a token there are
//! only `/healthz` and `/readyz`, for those who look after the process and need not know more.
//!
//! A token is compared with all tokens there are, each over its greatest possible length, so that the
//! time it takes tells nothing about them. They are in no log, in no error and in no `Debug`.

mod tokens;

pub use tokens::{Right, TokenError, Tokens, Wrong};

use crate::answer::Failure;
use crate::site;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use requeue_http::{Problem, Sort};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

/// What needs no token.
const OPEN: [&str; 2] = ["/healthz", "/readyz"];

/// The tokens of a server, and where they come from. Clones are one and the same.
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
    /// These tokens and those in the file, if there is one. Without any of both, everybody may do
    /// everything; a file without a token is an error.
    pub fn new(
        given: impl IntoIterator<Item = (Right, String)>,
        file: Option<PathBuf>,
    ) -> Result<Self, TokenError> {
        let given = Tokens::new(given)?;
        let current = RwLock::new(Arc::new(all(&given, &file)?));
        let shared = Arc::new(Shared { given, file, current });
        Ok(Self { shared, local_names: false })
    }

    /// Takes only requests that were sent to an address of digits, or to `localhost`.
    ///
    /// For a server on the loopback without tokens. A page of another site can let its own name mean
    /// 127.0.0.1, and is then of the same site to a browser; the name is all that tells.
    pub fn only_local_names(self) -> Self {
        Self { local_names: true, ..self }
    }

    /// Reads the file again, for the requests to come. If that fails, nothing changes.
    pub fn reload(&self) -> Result<(), TokenError> {
        let new = Arc::new(all(&self.shared.given, &self.shared.file)?);
        *self.shared.current.write().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(())
    }

    /// Whether there is a token.
    pub fn is_restricted(&self) -> bool {
        !self.tokens().is_empty()
    }

    /// Puts all that `router` has behind the tokens.
    pub(crate) fn protect(&self, router: Router) -> Router {
        router.layer(from_fn_with_state(self.clone(), check))
    }

    fn tokens(&self) -> Arc<Tokens> {
        self.shared.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn all(given: &Tokens, file: &Option<PathBuf>) -> Result<Tokens, TokenError> {
    let mut tokens = given.clone();
    if let Some(path) = file {
        tokens.extend(Tokens::read(path)?);
    }
    Ok(tokens)
}

async fn check(State(access): State<Access>, request: Request, next: Next) -> Response {
    // Here and not in a layer of its own: each costs a kilobyte per request that waits.
    if let Some(refused) = site::refused(&request, access.local_names) {
        return refused;
    }
    let tokens = access.tokens();
    if tokens.is_empty() || OPEN.contains(&request.uri().path()) {
        return next.run(request).await;
    }
    let Some(right) = bearer(request.headers()).and_then(|token| tokens.right(token)) else {
        return unknown();
    };
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    if right == Right::Read && !reads {
        let detail = "this token may only read (GET and HEAD): this needs a full one";
        return Failure(Problem::new(Sort::Forbidden, detail)).into_response();
    }
    next.run(request).await
}

fn unknown() -> Response {
    let detail = "this needs a token that the server knows: send authorization: Bearer TOKEN";
    let mut response = Failure(Problem::new(Sort::Unauthorized, detail)).into_response();
    let scheme = HeaderValue::from_static("Bearer");
    response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
    response
}

/// The token of a request. With two of them nobody knows which is meant, so that is none.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return None;
    };
    let (scheme, token) = value.as_bytes().split_at_checked(b"Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

/// An address that more can reach than should.
#[derive(Debug, thiserror::Error)]
#[error(
    "refusing to listen on {0}, where others can reach it, without a token: set one \
     (REQUEUE_TOKEN, or a file of tokens), listen on 127.0.0.1, or say --allow-anyone"
)]
pub struct Exposed(pub SocketAddr);

/// Whether a server may listen on `address`: on the loopback always, elsewhere with tokens, or if it
/// was said that anyone may come.
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
    // An IPv4 address may come as an IPv6 one.
    if restricted || allow_anyone || address.ip().to_canonical().is_loopback() {
        Ok(())
    } else {
        Err(Exposed(address))
    }
}

#[cfg(test)]
mod tests;
