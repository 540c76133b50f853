//! Access tokens, which are found by their hashes.
//!
//! A lookup takes the same time for any number of tokens. Its duration reveals nothing about them: it
//! depends on the SHA-256 of the presented token, and nobody can choose tokens whose hashes come close to a
//! given one.

use ring::digest::{SHA256, digest};
use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Allowed length of a token in bytes. Shorter tokens could be guessed.
const LENGTH: RangeInclusive<usize> = 16..=512;

/// The longest name of a token in bytes.
const MAX_NAME: usize = 64;

/// What a token allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Right {
    /// GET and HEAD requests, which change nothing.
    Read,
    /// All requests.
    Full,
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Full => "full",
        })
    }
}

/// A set of tokens. A token that occurs twice has the greater right.
///
/// ```
/// use requeue_server::auth::{Right, Tokens};
///
/// let tokens = Tokens::new([(Right::Read, "only-for-dashboards".to_owned())])?;
/// assert_eq!(tokens.right(b"only-for-dashboards"), Some(Right::Read));
/// assert_eq!(tokens.right(b"something-else-guessed"), None);
/// # Ok::<(), requeue_server::auth::TokenError>(())
/// ```
#[derive(Clone, Default)]
pub struct Tokens {
    by_id: HashMap<TokenId, Arc<Token>>,
    /// How many of them are full tokens.
    full: usize,
}

/// A token without its secret.
#[derive(Debug)]
pub(crate) struct Token {
    pub(crate) id: TokenId,
    pub(crate) right: Right,
    pub(crate) name: Option<String>,
}

/// The SHA-256 of a token: identifies it, and does not reveal it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct TokenId(pub(crate) [u8; 32]);

impl TokenId {
    fn of(secret: &[u8]) -> Self {
        let hash = digest(&SHA256, secret);
        TokenId(hash.as_ref().try_into().expect("SHA-256 has 32 bytes"))
    }
}

impl fmt::Debug for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenId")
    }
}

/// An invalid token or token file. No error contains the token.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The token file cannot be read.
    #[error("could not read the token file {}", path.display())]
    Read {
        /// The path of the file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The file contains no token. To allow all requests, use no file instead of an empty one.
    #[error("{} contains no token: add lines of the form \"full TOKEN\" or \"read TOKEN\"", path.display())]
    None {
        /// The path of the file.
        path: PathBuf,
    },
    /// A line of the file is invalid.
    #[error("{}, line {line}: {reason}", path.display())]
    Line {
        /// The path of the file.
        path: PathBuf,
        /// The line number, from 1.
        line: usize,
        /// The reason.
        reason: InvalidToken,
    },
    /// A token that was passed to [`Tokens::new`] is invalid.
    #[error("the {right} token is invalid: {reason}")]
    Given {
        /// The right of the token.
        right: Right,
        /// The reason.
        reason: InvalidToken,
    },
}

/// Why a token is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidToken {
    /// The line does not consist of a right, a token and perhaps a name.
    #[error(
        "the line is neither \"full TOKEN\" nor \"read TOKEN\", with or without a name after it"
    )]
    Form,
    /// The name of the token is too long.
    #[error("the name of the token has {0} bytes; the limit is {MAX_NAME}")]
    Name(usize),
    /// The token has too few or too many bytes.
    #[error(
        "the token has {0} bytes; {least} to {most} are required, so that it cannot be guessed \
         (generate one with: openssl rand -hex 32)",
        least = LENGTH.start(),
        most = LENGTH.end()
    )]
    Length(usize),
    /// The token contains characters other than visible ASCII.
    #[error("the token contains characters other than visible ASCII")]
    Characters,
}

impl Tokens {
    /// Creates a set of these tokens. Fails if a token is invalid.
    pub fn new(tokens: impl IntoIterator<Item = (Right, String)>) -> Result<Self, TokenError> {
        let mut all = Tokens::default();
        for (right, secret) in tokens {
            let checked = Token::new(right, &secret, None);
            all.add(checked.map_err(|reason| TokenError::Given { right, reason })?);
        }
        Ok(all)
    }

    /// Reads a file with lines of the form `full TOKEN` and `read TOKEN`. A name may follow, which the
    /// log shows with what was done in the dashboard: `full TOKEN ann`. Empty lines and lines that
    /// begin with `#` are skipped. Fails if the file contains no token or an invalid line.
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        let text = fs::read_to_string(path)
            .map_err(|source| TokenError::Read { path: path.into(), source })?;
        let lines = text.lines().zip(1..).map(|(text, line)| (text.trim(), line));
        let lines = lines.filter(|(text, _)| !text.is_empty() && !text.starts_with('#'));
        let tokens = lines.map(|(text, line)| {
            parse(text).map_err(|reason| TokenError::Line { path: path.into(), line, reason })
        });
        let mut all = Tokens::default();
        for token in tokens {
            all.add(token?);
        }
        if all.is_empty() {
            return Err(TokenError::None { path: path.into() });
        }
        Ok(all)
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    pub(super) fn extend(&mut self, more: Self) {
        more.by_id.into_values().for_each(|token| self.add(token));
    }

    /// Adds a token, unless the set contains it with a greater right.
    fn add(&mut self, token: Arc<Token>) {
        let known = self.get(token.id).map(|known| known.right);
        if known > Some(token.right) {
            return;
        }
        self.full += usize::from(token.right == Right::Full && known != Some(Right::Full));
        self.by_id.insert(token.id, token);
    }

    /// Returns what `token` allows, or `None` if it is not in the set.
    pub fn right(&self, token: &[u8]) -> Option<Right> {
        self.find(token).map(|token| token.right)
    }

    /// Finds a token by its secret.
    pub(super) fn find(&self, secret: &[u8]) -> Option<&Arc<Token>> {
        self.get(TokenId::of(secret))
    }

    pub(super) fn get(&self, id: TokenId) -> Option<&Arc<Token>> {
        self.by_id.get(&id)
    }

    /// Returns how many tokens have at least this right.
    pub(super) fn count(&self, right: Right) -> usize {
        match right {
            Right::Read => self.by_id.len(),
            Right::Full => self.full,
        }
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tokens({})", self.by_id.len())
    }
}

fn parse(line: &str) -> Result<Arc<Token>, InvalidToken> {
    let (right, rest) = line.split_once(char::is_whitespace).ok_or(InvalidToken::Form)?;
    let right = match right {
        "full" => Right::Full,
        "read" => Right::Read,
        _ => return Err(InvalidToken::Form),
    };
    let rest = rest.trim_start();
    let (token, name) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let name = name.trim();
    let token = Token::new(right, token, (!name.is_empty()).then_some(name))?;
    if name.len() > MAX_NAME {
        return Err(InvalidToken::Name(name.len()));
    }
    Ok(token)
}

impl Token {
    /// Checks the secret of a token.
    fn new(right: Right, secret: &str, name: Option<&str>) -> Result<Arc<Self>, InvalidToken> {
        if !secret.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(InvalidToken::Characters);
        }
        if !LENGTH.contains(&secret.len()) {
            return Err(InvalidToken::Length(secret.len()));
        }
        let id = TokenId::of(secret.as_bytes());
        Ok(Arc::new(Token { id, right, name: name.map(str::to_owned) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(given: &[(Right, &str)]) -> Result<Tokens, TokenError> {
        Tokens::new(given.iter().map(|(right, token)| (*right, (*token).to_owned())))
    }

    #[test]
    fn only_known_tokens_have_rights() {
        let longest = "x".repeat(512);
        let tokens = tokens(&[
            (Right::Full, "full-0123456789abc"),
            (Right::Read, "read-0123456789abc"),
            (Right::Read, &longest),
        ])
        .unwrap();
        assert_eq!(tokens.right(b"full-0123456789abc"), Some(Right::Full));
        assert_eq!(tokens.right(b"read-0123456789abc"), Some(Right::Read));
        assert_eq!(tokens.right(longest.as_bytes()), Some(Right::Read));
        let longer = "x".repeat(513);
        let others: [&[u8]; 6] = [
            b"",
            b"full-0123456789ab",
            b"full-0123456789abcd",
            b"full-0123456789abc\0",
            b"Full-0123456789abc",
            longer.as_bytes(),
        ];
        for other in others {
            assert_eq!(tokens.right(other), None, "{other:?}");
        }
        assert_eq!(Tokens::default().right(b""), None);
    }

    #[test]
    fn a_token_given_twice_has_the_greater_right() {
        let (read, full) = ((Right::Read, "0123456789abcdef"), (Right::Full, "0123456789abcdef"));
        assert_eq!(tokens(&[read, full]).unwrap().right(b"0123456789abcdef"), Some(Right::Full));
        assert_eq!(tokens(&[full, read]).unwrap().right(b"0123456789abcdef"), Some(Right::Full));
        for given in [[read, full], [full, read], [full, full]] {
            let tokens = tokens(&given).unwrap();
            assert_eq!((tokens.count(Right::Read), tokens.count(Right::Full)), (1, 1));
        }
    }

    #[test]
    fn tokens_of_wrong_length_or_characters_are_rejected() {
        let reason = |token: &str| match tokens(&[(Right::Full, token)]) {
            Err(TokenError::Given { reason, .. }) => Some(reason),
            Err(other) => panic!("{other}"),
            Ok(_) => None,
        };
        assert_eq!(reason(""), Some(InvalidToken::Length(0)));
        assert_eq!(reason(&"x".repeat(15)), Some(InvalidToken::Length(15)));
        assert_eq!(reason(&"x".repeat(16)), None);
        assert_eq!(reason(&"x".repeat(512)), None);
        assert_eq!(reason(&"x".repeat(513)), Some(InvalidToken::Length(513)));
        assert_eq!(reason("0123456789 abcdef"), Some(InvalidToken::Characters));
        assert_eq!(reason("0123456789-äbcdef"), Some(InvalidToken::Characters));
    }

    #[test]
    fn neither_debug_nor_an_error_shows_a_token() {
        let shown = format!("{:?}", tokens(&[(Right::Full, "secret-secret-secret")]).unwrap());
        assert_eq!(shown, "Tokens(1)");
        let error = tokens(&[(Right::Full, "secret")]).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("secret"), "{error}");
    }
}
