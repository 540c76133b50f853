//! Sealed sessions of browsers: what a login leaves in a cookie instead of the token.
//!
//! ```text
//!   token of the login ──▶ its SHA-256 and the time ──▶ AES-256-GCM ──▶ cookie
//!   cookie ──▶ opened, not older than 12 hours ──▶ the token with this hash, if it is valid now
//! ```
//!
//! - A node keeps no sessions: nodes with the same key accept each other's.
//! - A cookie does not contain the token, and the API does not accept it. Whoever steals one can use the
//!   dashboard until the session ends.
//! - A session ends after [`LIFETIME`], when its token is revoked, and when the key changes.
//! - Browsers send a cookie to every port of its host. The name of the cookie depends on the key, so that
//!   several servers on one host do not replace each other's. It is authenticated with the value, so that a
//!   cookie for https is not accepted under the name for http.

use super::TokenId;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use requeue_jobs::Timestamp;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf;
use ring::rand::{SecureRandom, SystemRandom};
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a session lasts: a working day.
pub(crate) const LIFETIME: Duration = Duration::from_secs(12 * 3600);

/// How far the clocks of nodes may be apart. A session that begins later than that is not accepted: a clock
/// that was wrong for a while must not make sessions that last for years.
const MAX_SKEW: Duration = Duration::from_secs(300);

/// Allowed length of a session key in bytes.
const KEY_LENGTH: RangeInclusive<usize> = 32..=1024;

/// What a sealed session contains: a token that was entered in the form.
const BY_TOKEN: u8 = 1;

/// Bytes of a session before it is sealed: what it is, the hash of the token, the time of the login.
const SESSION_LEN: usize = 1 + 32 + 8;

/// The longest cookie that can be a session, in base64.
const MAX_COOKIE: usize = (NONCE_LEN + SESSION_LEN + 16).div_ceil(3) * 4;

/// The key with which the sessions of browsers are sealed.
///
/// ```
/// use requeue_server::auth::{Access, Right, SessionKey};
///
/// let key = SessionKey::new(b"4d5f0f6b0f2c4d0d8c3f5e2b7a9d1c6e")?;
/// let access = Access::new([(Right::Full, "correct-horse-battery".to_owned())], None)?;
/// let access = access.with_session_key(&key);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SessionKey(hkdf::Prk);

/// An invalid session key. No error contains the key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionKeyError {
    /// The file cannot be read.
    #[error("could not read the session key {}", path.display())]
    Read {
        /// The path of the file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The key is too short or too long.
    #[error(
        "the session key has {0} bytes; {least} to {most} are required, so that it cannot be guessed \
         (generate one with: openssl rand -hex 32)",
        least = KEY_LENGTH.start(),
        most = KEY_LENGTH.end()
    )]
    Length(usize),
}

impl SessionKey {
    /// Creates a key from 32 to 1024 random bytes, in any encoding.
    pub fn new(secret: &[u8]) -> Result<Self, SessionKeyError> {
        if !KEY_LENGTH.contains(&secret.len()) {
            return Err(SessionKeyError::Length(secret.len()));
        }
        let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, b"requeue sessions 1");
        Ok(SessionKey(salt.extract(secret)))
    }

    /// Reads a key from a file. A line break at its end does not belong to the key.
    pub fn read(path: &Path) -> Result<Self, SessionKeyError> {
        let failed = |source| SessionKeyError::Read { path: path.into(), source };
        let mut secret = Vec::new();
        // Some more than allowed: the path may be that of an endless device.
        let most = *KEY_LENGTH.end() as u64 + 3;
        File::open(path).map_err(failed)?.take(most).read_to_end(&mut secret).map_err(failed)?;
        let key = secret.strip_suffix(b"\n").unwrap_or(&secret);
        SessionKey::new(key.strip_suffix(b"\r").unwrap_or(key))
    }

    /// Returns a key that is different for each process.
    pub(super) fn random() -> Self {
        let mut secret = [0; 32];
        SystemRandom::new().fill(&mut secret).expect("the system has random numbers");
        SessionKey::new(&secret).expect("32 bytes are enough")
    }
}

impl fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionKey")
    }
}

/// A session of a browser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Session {
    pub(crate) token: TokenId,
    pub(crate) began_at: Timestamp,
}

impl Session {
    /// Returns when the session ends.
    pub(crate) fn ends_at(&self) -> Timestamp {
        let lifetime = u64::try_from(LIFETIME.as_millis()).unwrap_or(u64::MAX);
        Timestamp::from_millis(self.began_at.as_millis().saturating_add(lifetime))
    }

    fn is_valid(&self, now: Timestamp) -> bool {
        let skew = u64::try_from(MAX_SKEW.as_millis()).unwrap_or(u64::MAX);
        let begins = self.began_at.as_millis().saturating_sub(skew);
        (begins..self.ends_at().as_millis()).contains(&now.as_millis())
    }
}

/// Seals and opens sessions.
pub(crate) struct Sessions {
    key: LessSafeKey,
    /// Part of the name of the cookie.
    id: String,
}

/// The length of what is derived for the name of the cookie.
struct IdLen;

impl hkdf::KeyType for IdLen {
    fn len(&self) -> usize {
        4
    }
}

impl Sessions {
    pub(super) fn new(SessionKey(prk): &SessionKey) -> Self {
        let never = "these are short";
        let key = prk.expand(&[b"seal"], &AES_256_GCM).expect(never);
        let mut id = [0; 4];
        prk.expand(&[b"cookie name"], IdLen)
            .and_then(|derived| derived.fill(&mut id))
            .expect(never);
        let id = id.map(|byte| format!("{byte:02x}")).concat();
        Sessions { key: LessSafeKey::new(UnboundKey::from(key)), id }
    }

    /// Returns the name of the cookie. Browsers keep a cookie of the first name only if it came over https,
    /// and neither another host nor another path can set it.
    pub(crate) fn cookie_name(&self, https: bool) -> String {
        format!("{}requeue-{}", if https { "__Host-" } else { "" }, self.id)
    }

    /// Returns the value of the cookie with this name.
    pub(crate) fn seal(&self, name: &str, session: &Session) -> String {
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).expect("the system has random numbers");
        let mut sealed = Vec::with_capacity(MAX_COOKIE);
        sealed.push(BY_TOKEN);
        sealed.extend_from_slice(&session.token.0);
        sealed.extend_from_slice(&session.began_at.as_millis().to_be_bytes());
        let aad = Aad::from(name.as_bytes());
        let tag = self.key.seal_in_place_separate_tag(
            Nonce::assume_unique_for_key(nonce),
            aad,
            &mut sealed,
        );
        let tag = tag.expect("it is short");
        BASE64_URL_SAFE_NO_PAD.encode([&nonce, &sealed[..], tag.as_ref()].concat())
    }

    /// Returns the session in a cookie with this name, or `None` if it is invalid or over.
    pub(crate) fn open(&self, name: &str, value: &str, now: Timestamp) -> Option<Session> {
        if value.len() > MAX_COOKIE {
            return None;
        }
        let mut bytes = BASE64_URL_SAFE_NO_PAD.decode(value).ok()?;
        let (nonce, sealed) = bytes.split_at_mut_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let opened = self.key.open_in_place(nonce, Aad::from(name.as_bytes()), sealed).ok()?;
        let (&[BY_TOKEN], rest) = opened.split_at_checked(1)? else { return None };
        let (token, began_at) = rest.split_at_checked(32)?;
        let session = Session {
            token: TokenId(token.try_into().ok()?),
            began_at: Timestamp::from_millis(u64::from_be_bytes(began_at.try_into().ok()?)),
        };
        session.is_valid(now).then_some(session)
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sessions")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_796_112_000_000;

    fn sessions(secret: &[u8]) -> Sessions {
        Sessions::new(&SessionKey::new(secret).unwrap())
    }

    fn session() -> Session {
        Session { token: TokenId([7; 32]), began_at: Timestamp::from_millis(NOW) }
    }

    fn after(seconds: i64) -> Timestamp {
        Timestamp::from_millis(NOW.saturating_add_signed(seconds * 1000))
    }

    #[test]
    fn nodes_with_the_same_key_accept_each_others_sessions_and_others_do_not() {
        let (one, two) = (sessions(&[b'a'; 32]), sessions(&[b'a'; 32]));
        let other = sessions(&[b'b'; 32]);
        let name = one.cookie_name(true);
        assert_eq!(name, two.cookie_name(true));
        assert_ne!(name, other.cookie_name(true));
        let value = one.seal(&name, &session());
        assert_eq!(two.open(&name, &value, after(0)), Some(session()));
        assert_eq!(other.open(&name, &value, after(0)), None);
        assert_ne!(value, one.seal(&name, &session()), "each has a nonce of its own");
        let random = Sessions::new(&SessionKey::random());
        assert_ne!(
            random.cookie_name(true),
            Sessions::new(&SessionKey::random()).cookie_name(true)
        );
    }

    #[test]
    fn a_session_ends_after_twelve_hours_and_does_not_begin_in_the_future() {
        let sessions = sessions(&[b'a'; 32]);
        let value = sessions.seal("name", &session());
        let is_open = |now| sessions.open("name", &value, now).is_some();
        assert!(is_open(after(0)) && is_open(after(12 * 3600 - 1)) && is_open(after(-300)));
        assert!(!is_open(after(12 * 3600)) && !is_open(after(-301)));
        assert!(!is_open(Timestamp::from_millis(0)) && !is_open(Timestamp::from_millis(u64::MAX)));
    }

    #[test]
    fn no_changed_cookie_is_accepted() {
        let sessions = sessions(&[b'a'; 32]);
        let https = sessions.cookie_name(true);
        let value = sessions.seal(&https, &session());
        assert_eq!(value.len(), MAX_COOKIE);
        assert!(
            !value.contains(&BASE64_URL_SAFE_NO_PAD.encode([7; 24])),
            "the hash is not readable"
        );
        assert_eq!(sessions.open(&sessions.cookie_name(false), &value, after(0)), None);
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(&value).unwrap();
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut changed = bytes.clone();
                changed[at] ^= 1 << bit;
                let changed = BASE64_URL_SAFE_NO_PAD.encode(changed);
                assert_eq!(sessions.open(&https, &changed, after(0)), None, "byte {at}");
            }
            let cut = BASE64_URL_SAFE_NO_PAD.encode(&bytes[..at]);
            assert_eq!(sessions.open(&https, &cut, after(0)), None, "{at} bytes");
        }
        for other in ["", "=", "\0", "ü", &format!("{value}A"), &"A".repeat(30_000)] {
            assert_eq!(sessions.open(&https, other, after(0)), None);
        }
    }

    #[test]
    fn a_key_must_be_long_enough_and_is_not_shown() {
        let path = std::env::temp_dir().join(format!("requeue-session-{}", std::process::id()));
        let read = |secret: &[u8]| {
            std::fs::write(&path, secret).unwrap();
            SessionKey::read(&path)
        };
        let name = |key: SessionKey| Sessions::new(&key).cookie_name(false);
        let plain = name(read(&[b'k'; 32]).unwrap());
        for ending in ["\n", "\r\n"] {
            let with_line_break = [&[b'k'; 32], ending.as_bytes()].concat();
            assert_eq!(name(read(&with_line_break).unwrap()), plain);
        }
        assert!(read(&[b'k'; 1024]).is_ok());
        for (secret, len) in [(vec![], 0), (b"secret-key\n".to_vec(), 10), (vec![b'k'; 9999], 1027)]
        {
            let error = read(&secret).unwrap_err();
            assert!(matches!(error, SessionKeyError::Length(found) if found == len), "{error}");
            assert!(!format!("{error} {error:?}").contains("secret-key"));
        }
        std::fs::remove_file(&path).unwrap();
        let error = SessionKey::read(&path).unwrap_err().to_string();
        assert!(error.starts_with("could not read the session key /"), "{error}");
        assert!(SessionKey::read(Path::new("/dev/zero")).is_err());
        assert_eq!(format!("{:?}", SessionKey::random()), "SessionKey");
    }
}
