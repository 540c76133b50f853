//! Access tokens, and their comparison in constant time.

use std::fmt;
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use subtle::{ConditionallySelectable, ConstantTimeEq};

/// Allowed length of a token in bytes. Shorter tokens could be guessed.
const LENGTH: RangeInclusive<usize> = 16..=LONGEST;
const LONGEST: usize = 512;

/// The longest name of a token in bytes.
const MAX_NAME: usize = 64;

/// What a token allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
pub struct Tokens(Vec<Token>);

#[derive(Clone)]
struct Token {
    right: Right,
    secret: Padded,
    name: Option<String>,
}

/// A token padded with zeros. No token contains a zero, so two are equal only if the tokens are.
type Padded = Box<[u8; LONGEST]>;

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
        let checked = tokens.into_iter().map(|(right, token)| match padded(&token) {
            Ok(secret) => Ok(Token { right, secret, name: None }),
            Err(reason) => Err(TokenError::Given { right, reason }),
        });
        Ok(Self(checked.collect::<Result<_, _>>()?))
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
        let tokens: Vec<_> = tokens.collect::<Result<_, _>>()?;
        if tokens.is_empty() {
            return Err(TokenError::None { path: path.into() });
        }
        Ok(Self(tokens))
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn extend(&mut self, more: Self) {
        self.0.extend(more.0);
    }

    /// Returns what `token` allows, or `None` if it is not in the set. The duration depends only on
    /// the number of tokens in the set.
    pub fn right(&self, token: &[u8]) -> Option<Right> {
        self.find(token).map(|(right, _)| right)
    }

    /// Returns what `token` allows, and its name, in a time that depends only on the number of tokens
    /// in the set.
    pub(super) fn find(&self, token: &[u8]) -> Option<(Right, Option<&str>)> {
        // The client knows its own token and its length, so these checks need not be constant-time.
        // A zero would be mistaken for padding.
        if token.contains(&0) {
            return None;
        }
        let mut presented = [0; LONGEST];
        presented.get_mut(..token.len())?.copy_from_slice(token);
        // Positions from 1; 0 is none.
        let (mut read, mut full) = (0_u32, 0_u32);
        for (token, position) in self.0.iter().zip(1..) {
            let equal = presented.ct_eq(&*token.secret);
            match token.right {
                Right::Read => read.conditional_assign(&position, equal),
                Right::Full => full.conditional_assign(&position, equal),
            }
        }
        let found = u32::conditional_select(&full, &read, full.ct_eq(&0));
        let token = self.0.get((found as usize).checked_sub(1)?)?;
        Some((token.right, token.name.as_deref()))
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tokens({})", self.0.len())
    }
}

fn parse(line: &str) -> Result<Token, InvalidToken> {
    let (right, rest) = line.split_once(char::is_whitespace).ok_or(InvalidToken::Form)?;
    let right = match right {
        "full" => Right::Full,
        "read" => Right::Read,
        _ => return Err(InvalidToken::Form),
    };
    let rest = rest.trim_start();
    let (token, name) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let (secret, name) = (padded(token)?, name.trim());
    if name.len() > MAX_NAME {
        return Err(InvalidToken::Name(name.len()));
    }
    Ok(Token { right, secret, name: (!name.is_empty()).then(|| name.to_owned()) })
}

fn padded(token: &str) -> Result<Padded, InvalidToken> {
    if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(InvalidToken::Characters);
    }
    if !LENGTH.contains(&token.len()) {
        return Err(InvalidToken::Length(token.len()));
    }
    let mut padded = Box::new([0; LONGEST]);
    padded[..token.len()].copy_from_slice(token.as_bytes());
    Ok(padded)
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
