//! Tokens, and how they are compared.

use std::fmt;
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

/// Bytes of a token. Fewer could be guessed; more is compared with nothing.
const LENGTH: RangeInclusive<usize> = 16..=LONGEST;
const LONGEST: usize = 512;

/// What a token allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// To look, and to change nothing.
    Read,
    /// Everything.
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

/// Any number of tokens. What is twice among them has the greater right.
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
pub struct Tokens(Vec<(Right, Padded)>);

/// A token and zeros, which no token has in it: equal if and only if the tokens are.
type Padded = Box<[u8; LONGEST]>;

/// A token that cannot be one. None of these says what it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The file cannot be read.
    #[error("could not read the tokens in {}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file has no token. To let everybody do everything takes no file, rather than an empty one.
    #[error("{} has no token in it: write lines \"full TOKEN\" or \"read TOKEN\"", path.display())]
    None {
        /// Which.
        path: PathBuf,
    },
    /// A line of the file is wrong.
    #[error("{}, line {line}: {wrong}", path.display())]
    Line {
        /// Which file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// What about it.
        wrong: Wrong,
    },
    /// A token that was given is wrong.
    #[error("the {right} token: {wrong}")]
    Given {
        /// Which.
        right: Right,
        /// What about it.
        wrong: Wrong,
    },
}

/// What is wrong with a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Wrong {
    /// A line that is not made of a right and a token.
    #[error("neither \"full TOKEN\" nor \"read TOKEN\"")]
    Form,
    /// Too few bytes, or too many.
    #[error(
        "a token of {0} bytes: it takes {least} to {most}, so that nobody guesses it \
         (openssl rand -hex 32 makes one)",
        least = LENGTH.start(),
        most = LENGTH.end()
    )]
    Length(usize),
    /// A byte that cannot be in a header, or that nobody can see.
    #[error("a token with something else in it than visible ASCII")]
    Characters,
}

impl Tokens {
    /// Takes the tokens as they are.
    pub fn new(tokens: impl IntoIterator<Item = (Right, String)>) -> Result<Self, TokenError> {
        let checked = tokens.into_iter().map(|(right, token)| match padded(&token) {
            Ok(token) => Ok((right, token)),
            Err(wrong) => Err(TokenError::Given { right, wrong }),
        });
        Ok(Self(checked.collect::<Result<_, _>>()?))
    }

    /// Reads a file of lines `full TOKEN` and `read TOKEN`; empty ones and those that begin with `#`
    /// are skipped.
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        let text = fs::read_to_string(path)
            .map_err(|source| TokenError::Read { path: path.into(), source })?;
        let lines = text.lines().zip(1..).map(|(text, line)| (text.trim(), line));
        let lines = lines.filter(|(text, _)| !text.is_empty() && !text.starts_with('#'));
        let tokens = lines.map(|(text, line)| {
            parse(text).map_err(|wrong| TokenError::Line { path: path.into(), line, wrong })
        });
        let tokens: Vec<_> = tokens.collect::<Result<_, _>>()?;
        if tokens.is_empty() {
            return Err(TokenError::None { path: path.into() });
        }
        Ok(Self(tokens))
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn extend(&mut self, more: Self) {
        self.0.extend(more.0);
    }

    /// What `token` allows. The time it takes depends on how many tokens there are, and on nothing
    /// else about them.
    pub fn right(&self, token: &[u8]) -> Option<Right> {
        // Neither this nor its length is a secret to who sends it. A zero would pass for padding.
        if token.contains(&0) {
            return None;
        }
        let mut presented = [0; LONGEST];
        presented.get_mut(..token.len())?.copy_from_slice(token);
        let (mut read, mut full) = (Choice::from(0), Choice::from(0));
        for (right, token) in &self.0 {
            let equal = presented.ct_eq(&**token);
            match right {
                Right::Read => read |= equal,
                Right::Full => full |= equal,
            }
        }
        match u8::conditional_select(&read.unwrap_u8(), &2, full) {
            0 => None,
            1 => Some(Right::Read),
            _ => Some(Right::Full),
        }
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tokens({})", self.0.len())
    }
}

fn parse(line: &str) -> Result<(Right, Padded), Wrong> {
    let (right, token) = line.split_once(char::is_whitespace).ok_or(Wrong::Form)?;
    let right = match right {
        "full" => Right::Full,
        "read" => Right::Read,
        _ => return Err(Wrong::Form),
    };
    Ok((right, padded(token.trim_start())?))
}

fn padded(token: &str) -> Result<Padded, Wrong> {
    if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Wrong::Characters);
    }
    if !LENGTH.contains(&token.len()) {
        return Err(Wrong::Length(token.len()));
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
    fn a_token_allows_what_it_was_given_for_and_no_other_allows_anything() {
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
    fn the_greater_right_of_a_token_given_twice_counts_in_either_order() {
        let (read, full) = ((Right::Read, "0123456789abcdef"), (Right::Full, "0123456789abcdef"));
        assert_eq!(tokens(&[read, full]).unwrap().right(b"0123456789abcdef"), Some(Right::Full));
        assert_eq!(tokens(&[full, read]).unwrap().right(b"0123456789abcdef"), Some(Right::Full));
    }

    #[test]
    fn what_can_be_guessed_or_not_be_sent_is_refused() {
        let wrong = |token: &str| match tokens(&[(Right::Full, token)]) {
            Err(TokenError::Given { wrong, .. }) => Some(wrong),
            Err(other) => panic!("{other}"),
            Ok(_) => None,
        };
        assert_eq!(wrong(""), Some(Wrong::Length(0)));
        assert_eq!(wrong(&"x".repeat(15)), Some(Wrong::Length(15)));
        assert_eq!(wrong(&"x".repeat(16)), None);
        assert_eq!(wrong(&"x".repeat(512)), None);
        assert_eq!(wrong(&"x".repeat(513)), Some(Wrong::Length(513)));
        assert_eq!(wrong("0123456789 abcdef"), Some(Wrong::Characters));
        assert_eq!(wrong("0123456789-äbcdef"), Some(Wrong::Characters));
    }

    #[test]
    fn neither_debug_nor_an_error_shows_a_token() {
        let shown = format!("{:?}", tokens(&[(Right::Full, "secret-secret-secret")]).unwrap());
        assert_eq!(shown, "Tokens(1)");
        let error = tokens(&[(Right::Full, "secret")]).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("secret"), "{error}");
    }
}
