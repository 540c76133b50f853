//! Who sends a request, and what that permits.

use super::tokens::Token;
use super::{Access, Right, TokenId};
use crate::response::ProblemResponse;
use axum::http::Method;
use requeue_http::{Problem, ProblemType};
use std::future::pending;
use std::sync::Arc;

/// Who sends a request, in the extensions of the requests of the API. Clones are the same caller.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    access: Access,
    /// `None` if the server requires no token.
    token: Option<Arc<Token>>,
}

/// At least this part of what a node has is left to others, however much a token uses.
const MAX_SHARES: usize = 4;

impl Caller {
    /// A caller of a server that requires no token.
    pub(super) fn anyone(access: &Access) -> Self {
        Caller { access: access.clone(), token: None }
    }

    pub(super) fn with(access: &Access, token: Arc<Token>) -> Self {
        Caller { access: access.clone(), token: Some(token) }
    }

    pub(crate) fn right(&self) -> Right {
        self.token.as_ref().map_or(Right::Full, |token| token.right)
    }

    /// Returns the name of the token, if it has one.
    pub(crate) fn name(&self) -> Option<&str> {
        self.token.as_ref()?.name.as_deref()
    }

    /// Returns whether the server requires tokens.
    pub(crate) fn is_restricted(&self) -> bool {
        self.token.is_some()
    }

    /// Returns which token the caller has. `None` if the server requires none.
    pub(crate) fn token(&self) -> Option<TokenId> {
        Some(self.token.as_ref()?.id)
    }

    /// Fails if the caller may not send a request with this method.
    pub(crate) fn check_method(&self, method: &Method) -> Result<(), ProblemResponse> {
        if self.right() == Right::Full || matches!(*method, Method::GET | Method::HEAD) {
            return Ok(());
        }
        let detail = "this token allows only GET and HEAD; this request needs a full token";
        Err(ProblemResponse(Problem::new(ProblemType::Forbidden, detail)))
    }

    /// Returns how much of a limit of this node the caller may use, so that one token cannot use up what
    /// all need: all of it if there is one token that may use it, half if there are two, and so on; a quarter
    /// if there are many. `right` is what is needed to use it.
    pub(crate) fn share_of(&self, limit: usize, right: Right) -> usize {
        match self.token {
            None => limit,
            Some(_) => limit.div_ceil(self.access.tokens().count(right).clamp(1, MAX_SHARES)),
        }
    }

    /// Returns the caller with what its token permits now, or `None` if the token was revoked.
    pub(crate) fn renewed(&self) -> Option<Caller> {
        match &self.token {
            None => Some(self.clone()),
            Some(token) => {
                let now = Arc::clone(self.access.tokens().get(token.id)?);
                Some(Caller::with(&self.access, now))
            }
        }
    }

    /// Fails if the token was revoked, or permits less than when the request began.
    pub(crate) fn check_current(&self) -> Result<(), Problem> {
        match self.renewed() {
            Some(now) if now.right() >= self.right() => Ok(()),
            _ => Err(revoked()),
        }
    }

    /// Waits until the token is revoked, or permits less than when the request began. Returns the problem
    /// with which the request ends.
    pub(crate) async fn revoked(&self) -> Problem {
        if self.token.is_none() {
            return pending().await;
        }
        // Boxed, so that a request that waits takes little memory if there are no tokens.
        Box::pin(async {
            // First the subscription: tokens that are reloaded after it wake the loop.
            let mut tokens = self.access.shared.current.subscribe();
            while self.check_current().is_ok() {
                if tokens.changed().await.is_err() {
                    return pending().await;
                }
            }
            revoked()
        })
        .await
    }

    /// A caller of a server without tokens.
    #[cfg(test)]
    pub(crate) fn of_test() -> Self {
        Caller::anyone(&Access::new([], None).expect("there is no file"))
    }
}

fn revoked() -> Problem {
    let detail = "the token of this request was revoked, or permits less now";
    Problem::new(ProblemType::Unauthorized, detail)
}
