//! Access checks, with a router of their own.

use super::*;
use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response};
use axum::routing::{get, post};
use std::fs;
use std::path::PathBuf;
use tower::ServiceExt;

const FULL: &str = "full-token-0123456789";
const READ: &str = "read-token-0123456789";

fn router() -> Router {
    Router::new()
        .route("/healthz", get(|| async { "well" }))
        .route("/readyz", get(|| async { "ready" }))
        .route("/v1/kinds", get(|| async { "kinds" }))
        .route("/v1/put", post(|| async { "done" }))
}

fn restricted() -> Access {
    let tokens = [(Right::Full, FULL.to_owned()), (Right::Read, READ.to_owned())];
    Access::new(tokens, None).expect("the tokens are valid")
}

async fn ask(access: &Access, method: &str, path: &str, value: Option<&str>) -> Response<Body> {
    let mut request = Request::builder().method(method).uri(path);
    if let Some(value) = value {
        request = request.header("authorization", value);
    }
    let request = request.body(Body::empty()).expect("it is a request");
    match access.check(&request) {
        Err(rejection) => *rejection,
        Ok(_) => router().oneshot(request).await.expect("a router does not fail"),
    }
}

async fn status(access: &Access, method: &str, path: &str, token: Option<&str>) -> u16 {
    let value = token.map(|token| format!("Bearer {token}"));
    ask(access, method, path, value.as_deref()).await.status().as_u16()
}

#[tokio::test]
async fn without_tokens_every_request_is_allowed() {
    let access = Access::new([], None).unwrap();
    assert!(!access.is_restricted());
    assert_eq!(status(&access, "POST", "/v1/put", None).await, 200);
    assert_eq!(status(&access, "GET", "/v1/kinds", Some("whatever")).await, 200);
}

#[tokio::test]
async fn with_tokens_only_the_health_paths_are_open() {
    let access = restricted();
    assert!(access.is_restricted());
    for path in ["/healthz", "/readyz"] {
        assert_eq!(status(&access, "GET", path, None).await, 200);
    }
    for path in ["/v1/kinds", "/nowhere", "/healthz/", "//healthz", "/healthz/../v1/kinds"] {
        assert_eq!(status(&access, "GET", path, None).await, 401, "{path}");
        assert_eq!(status(&access, "GET", path, Some("wrong-token-0123456789")).await, 401);
    }
    let refused = ask(&access, "GET", "/v1/kinds", None).await;
    assert_eq!(refused.headers()["www-authenticate"], "Bearer");
    assert_eq!(refused.headers()["content-type"], "application/problem+json");
}

#[tokio::test]
async fn a_full_token_allows_everything_and_a_read_token_allows_reading() {
    let access = restricted();
    assert_eq!(status(&access, "POST", "/v1/put", Some(FULL)).await, 200);
    assert_eq!(status(&access, "GET", "/v1/kinds", Some(FULL)).await, 200);
    assert_eq!(status(&access, "GET", "/v1/kinds", Some(READ)).await, 200);
    assert_eq!(status(&access, "HEAD", "/v1/kinds", Some(READ)).await, 200);
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "get", "ODD"] {
        assert_eq!(status(&access, method, "/v1/put", Some(READ)).await, 403, "{method}");
    }
    let value = format!("bearer {READ}");
    assert_eq!(ask(&access, "GET", "/v1/kinds", Some(&value)).await.status(), 200);
}

/// A file of tokens, gone with the test.
struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> Self {
        let name = format!("requeue-tokens-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::write(&path, text).expect("a folder for temporary files");
        Self(path)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[tokio::test]
async fn the_token_file_is_read_again_on_reload() {
    let file = File::new("again", &format!("# ours\n\nfull {FULL}\n  read\t{READ}  \r\n"));
    let given = (Right::Full, "given-token-0123456789".to_owned());
    let access = Access::new([given], Some(file.0.clone())).unwrap();
    assert_eq!(status(&access, "POST", "/v1/put", Some(FULL)).await, 200);
    assert_eq!(status(&access, "POST", "/v1/put", Some("given-token-0123456789")).await, 200);
    assert_eq!(status(&access, "GET", "/v1/kinds", Some(READ)).await, 200);

    fs::write(&file.0, format!("full {READ}\n")).unwrap();
    assert_eq!(status(&access, "POST", "/v1/put", Some(FULL)).await, 200);
    access.reload().unwrap();
    assert_eq!(status(&access, "POST", "/v1/put", Some(FULL)).await, 401);
    assert_eq!(status(&access, "POST", "/v1/put", Some(READ)).await, 200);
    assert_eq!(status(&access, "POST", "/v1/put", Some("given-token-0123456789")).await, 200);
}

#[tokio::test]
async fn a_file_that_lost_its_tokens_keeps_the_current_ones() {
    let file = File::new("lost", &format!("full {FULL}\n"));
    let access = Access::new([], Some(file.0.clone())).unwrap();
    for text in ["", "# full gone\n", "full short\n"] {
        fs::write(&file.0, text).unwrap();
        assert!(access.reload().is_err(), "{text:?}");
        assert_eq!(status(&access, "GET", "/v1/kinds", None).await, 401);
        assert_eq!(status(&access, "GET", "/v1/kinds", Some(FULL)).await, 200);
        assert!(Access::new([], Some(file.0.clone())).is_err());
    }
}

#[test]
fn errors_name_the_file_and_the_line_and_never_the_token() {
    for (invalid, expected) in [
        ("secret-secret-secret", "the line is neither \"full TOKEN\" nor \"read TOKEN\""),
        ("write secret-secret-secret", "neither"),
        ("full secret", "the token has 6 bytes; 16 to 512 are required"),
        ("full secret-secret-secrét", "characters other than visible ASCII"),
        (
            concat!(
                "full secret-secret-secret ",
                "a name that is much longer than anybody needs to know who it is.."
            ),
            "the name of the token has 65 bytes; the limit is 64",
        ),
    ] {
        let file = File::new("wrong", &format!("# a comment\nfull {FULL}\n{invalid}\n"));
        let error = Access::new([], Some(file.0.clone())).unwrap_err();
        assert!(matches!(error, TokenError::Line { line: 3, .. }), "{error}");
        let text = error.to_string();
        let place = format!("{}, line 3: ", file.0.display());
        assert!(text.starts_with(&place) && text.contains(expected), "{text}");
        assert!(!format!("{text}{error:?}").contains("secret"), "{text}");
    }
    let missing = Access::new([], Some("/nowhere/tokens".into())).unwrap_err();
    assert_eq!(missing.to_string(), "could not read the token file /nowhere/tokens");
}

#[test]
fn a_token_may_have_a_name() {
    let file = File::new("named", &format!("full {FULL}  Ann of the shop \nread {READ}\n"));
    let access = Access::new([], Some(file.0.clone())).unwrap();
    let granted = |token: &str| {
        let caller = access.caller_with(Some(token.as_bytes()))?;
        Some((caller.right(), caller.name().map(str::to_owned), caller.is_restricted()))
    };
    let ann = Some("Ann of the shop".to_owned());
    assert_eq!(granted(FULL), Some((Right::Full, ann, true)));
    assert_eq!(granted(READ), Some((Right::Read, None, true)));
    assert_eq!(granted("another-token-0123456789"), None);
    assert!(access.caller(&HeaderMap::new()).is_none());
}

fn tokens(count: usize) -> impl Iterator<Item = (Right, String)> {
    (0..count).map(|n| (Right::Full, format!("full-token-{n:020}")))
}

#[test]
fn a_token_may_use_all_of_a_limit_if_it_is_the_only_one_and_a_quarter_if_there_are_many() {
    let share = |full: usize, read: usize, right: Right| {
        let read = (0..read).map(|n| (Right::Read, format!("read-token-{n:020}")));
        let access = Access::new(tokens(full).chain(read), None).unwrap();
        let secret = format!("full-token-{:020}", 0);
        access.caller_with(Some(secret.as_bytes())).unwrap().share_of(100, right)
    };
    assert_eq!(share(0, 0, Right::Read), 100, "a server without tokens has no shares");
    assert_eq!([share(1, 0, Right::Read), share(2, 0, Right::Read)], [100, 50]);
    assert_eq!([share(1, 2, Right::Read), share(2, 2, Right::Read)], [34, 25]);
    assert_eq!([share(900, 99, Right::Read), share(1, 2, Right::Full)], [25, 100]);
    let access = Access::new(tokens(5), None).unwrap();
    let secret = format!("full-token-{:020}", 0);
    let caller = access.caller_with(Some(secret.as_bytes())).unwrap();
    assert_eq!([caller.share_of(1, Right::Read), caller.share_of(3, Right::Read)], [1, 1]);
}

#[tokio::test]
async fn a_caller_notices_that_its_token_is_revoked_or_permits_less() {
    let file = File::new(
        "revoked",
        &format!(
            "full {FULL}
read {READ}
"
        ),
    );
    let access = Access::new([], Some(file.0.clone())).unwrap();
    let caller = |secret: &str| access.caller_with(Some(secret.as_bytes())).unwrap();
    let (full, read) = (caller(FULL), caller(READ));
    let mut full_revoked = std::pin::pin!(full.revoked());
    let mut read_revoked = std::pin::pin!(read.revoked());
    for (lines, full_ends, read_ends) in [
        (
            format!(
                "full {FULL}
read {READ} bob
"
            ),
            false,
            false,
        ),
        (
            format!(
                "full {FULL}
full {READ}
"
            ),
            false,
            false,
        ),
        (
            format!(
                "read {FULL}
read {READ}
"
            ),
            true,
            false,
        ),
    ] {
        fs::write(&file.0, &lines).unwrap();
        access.reload().unwrap();
        assert_eq!(futures_util::poll!(full_revoked.as_mut()).is_ready(), full_ends, "{lines}");
        assert_eq!(futures_util::poll!(read_revoked.as_mut()).is_ready(), read_ends, "{lines}");
    }
    assert_eq!(full.renewed().map(|caller| caller.right()), Some(Right::Read));
    fs::write(
        &file.0,
        format!(
            "full {FULL}
"
        ),
    )
    .unwrap();
    access.reload().unwrap();
    assert!(read.renewed().is_none());
    assert_eq!(read_revoked.await.problem_type(), ProblemType::Unauthorized);
}

/// A linear search would compare some hundred million tokens.
#[test]
fn a_token_is_found_among_very_many() {
    let access = Access::new(tokens(20_000), None).unwrap();
    for n in (0..20_000).chain(0..20_000) {
        let secret = format!("full-token-{n:020}");
        assert!(access.caller_with(Some(secret.as_bytes())).is_some());
    }
    assert!(access.caller_with(Some(b"full-token-00000000000000020000")).is_none());
}

#[test]
fn without_a_token_only_the_loopback_is_listened_on() {
    let may = |address: &str| may_listen(address.parse().unwrap(), false, false).is_ok();
    for address in ["127.0.0.1:1", "127.8.8.8:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
        assert!(may(address), "{address}");
    }
    for address in ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "[::ffff:10.0.0.1]:1"] {
        assert!(!may(address), "{address}");
    }
    let anywhere = "0.0.0.0:1".parse().unwrap();
    assert!(may_listen(anywhere, true, false).is_ok());
    assert!(may_listen(anywhere, false, true).is_ok());
    let refused = may_listen(anywhere, false, false).unwrap_err().to_string();
    assert!(refused.contains("0.0.0.0:1") && refused.contains("--allow-anyone"), "{refused}");
}

#[test]
fn a_token_is_taken_from_one_bearer_and_nothing_else() {
    let token = |values: &[&'static str]| {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(header::AUTHORIZATION, HeaderValue::from_static(value));
        }
        bearer(&headers).map(|token| String::from_utf8(token.to_vec()).unwrap())
    };
    assert_eq!(token(&["Bearer abc"]).as_deref(), Some("abc"));
    assert_eq!(token(&["bEARER  abc "]).as_deref(), Some("abc"));
    assert_eq!(token(&["Basic abc"]), None);
    assert_eq!(token(&["Bearer"]), None);
    assert_eq!(token(&["Bearerabc"]), None);
    assert_eq!(token(&["Bearer abc", "Bearer def"]), None);
    assert_eq!(token(&[]), None);
}
