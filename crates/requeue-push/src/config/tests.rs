//! What a push setting accepts, stores and shows.

use super::*;
use serde_json::json;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const OTHER: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

fn parse(json: Value) -> Result<PushConfig, String> {
    serde_json::from_value(json).map_err(|error| error.to_string())
}

#[test]
fn a_setting_has_defaults_and_keeps_what_it_is_given() {
    let config = parse(json!({"url": "https://example.com"})).unwrap();
    assert_eq!((config.timeout, config.concurrency), (DEFAULT_TIMEOUT, DEFAULT_CONCURRENCY));
    let broker = PushConfig::new("nats://h/orders").unwrap();
    let changed = broker.merged(&json!({"concurrency": null})).unwrap();
    assert_eq!((broker.concurrency, changed.concurrency), (256, 256));
    assert_eq!(config.format, WebhookFormat::Plain);
    assert_eq!(config, PushConfig::new("https://example.com").unwrap());
    let config = parse(json!({
        "url": "http://example.com:8080/a?b=c", "headers": {"X-Team": "a b"}, "timeout": "1m30s",
        "concurrency": 10_000, "secrets": [SECRET, OTHER], "format": "cloudevents",
    }))
    .unwrap();
    assert_eq!(config.headers["x-team"], "a b");
    assert_eq!(config.timeout, Duration::from_secs(90));
    let texts = config.split().unwrap();
    assert_eq!(PushConfig::join(&texts.config, &texts.private), Ok(config));
}

#[test]
fn secrets_and_header_values_are_only_in_the_private_text() {
    let json = json!({"url": "https://example.com", "headers": {"authorization": "Bearer hunter2"},
        "secrets": [SECRET]});
    let config = parse(json).unwrap();
    let texts = config.split().unwrap();
    let view = serde_json::to_string(&config.view()).unwrap();
    let shown = [texts.config.clone(), view.clone(), format!("{config:?} {texts:?}")];
    for text in &shown {
        assert!(!text.contains("hunter2") && !text.contains(&SECRET[6..20]), "{text}");
        assert!(text.contains("authorization"), "{text}");
    }
    assert!(view.contains(r#""secrets":["whsec_…LaSw"]"#), "{view}");
    assert!(view.contains(r#""authorization":"…""#), "{view}");
    assert!(texts.private.contains("hunter2") && texts.private.contains(SECRET));
}

#[test]
fn a_header_whose_value_is_lost_is_an_error() {
    let config = parse(json!({"url": "https://example.com", "headers": {"x-key": "1"}})).unwrap();
    let texts = config.split().unwrap();
    let error = PushConfig::join(&texts.config, "").unwrap_err();
    let expected = r#"header "x-key": its value is not stored; set the header again"#;
    assert_eq!(error.to_string(), expected);
    let error = PushConfig::join(&texts.config, r#"{"headers": hunter2}"#).unwrap_err();
    assert_eq!(error.to_string(), "the stored secrets cannot be read");
}

#[test]
fn a_patch_changes_what_it_names() {
    let json = json!({"url": "https://example.com", "headers": {"x-a": "1", "x-b": "2"},
        "secrets": [SECRET], "timeout": "30s"});
    let config = parse(json).unwrap();
    let patch = json!({"headers": {"x-a": null, "x-c": "3"}, "timeout": null});
    let merged = config.merged(&patch).unwrap();
    assert_eq!(merged.headers.keys().collect::<Vec<_>>(), ["x-b", "x-c"]);
    assert_eq!((merged.timeout, &merged.secrets), (DEFAULT_TIMEOUT, &config.secrets));
    assert!(config.merged(&json!({"url": null})).unwrap_err().to_string().contains("`url`"));
    assert!(config.merged(&json!({"secret": SECRET})).is_err());
    assert!(config.merged(&json!("https://example.com")).is_err());
}

#[test]
fn invalid_settings_are_rejected_with_the_field() {
    let long = format!("https://example.com/{}", "x".repeat(url::MAX_URL_LEN));
    let many: BTreeMap<_, _> = (0..=MAX_HEADERS).map(|i| (format!("x-{i}"), "v")).collect();
    for (patch, field, expected) in [
        (json!({"url": "example.com"}), "url", "must begin with http:// or https://"),
        (json!({"url": "ftp://example.com"}), "url", "its scheme must be http or https"),
        (json!({"url": "http://u:hunter2@example.com"}), "url", "contains a user name"),
        (json!({"url": "http://example.com/#a"}), "url", "contains a fragment"),
        (json!({"url": "http://"}), "url", "write it like"),
        (json!({"url": "http:///a"}), "url", "write it like"),
        (json!({"url": "http://:80/"}), "url", "contains no valid host"),
        (json!({"url": "http://./"}), "url", "contains no valid host"),
        (json!({"url": "http://example.com:0/"}), "url", "port"),
        (json!({"url": "http://example.com:+80/"}), "url", ""),
        (json!({"url": "http://example.com:65536/"}), "url", "port"),
        (json!({"url": "http://ex%61mple.com/"}), "url", ""),
        (json!({"url": "http://[::1/"}), "url", ""),
        (json!({"url": "http://[fe80::1%25eth0]/"}), "url", ""),
        (json!({"url": "http://bücher.example/"}), "url", "Punycode"),
        (json!({"url": "http://example.com/a b"}), "url", "write it like"),
        (json!({"url": long}), "url", "the limit is 2048"),
        (json!({"headers": {"a b": "1"}}), "headers", "not the name of an HTTP header"),
        (json!({"headers": {"": "1"}}), "headers", "not the name of an HTTP header"),
        (json!({"headers": {"Host": "1"}}), "headers", "\"host\": it is reserved"),
        (json!({"headers": {"Content-Type": "1"}}), "headers", "put the job with this type"),
        (json!({"headers": {"Webhook-Id": "1"}}), "headers", "begin with webhook- are reserved"),
        (json!({"headers": {"requeue-x": "1"}}), "headers", "begin with requeue- are reserved"),
        (json!({"headers": {"x-a": "hunter2\n"}}), "headers", "visible ASCII"),
        (json!({"headers": {"x-a": "hunter2ü"}}), "headers", "visible ASCII"),
        (json!({"headers": {"x-a": "…"}}), "headers", "visible ASCII"),
        (json!({"headers": {"x-a": ""}}), "headers", "visible ASCII"),
        (json!({"headers": {"X-A": "1", "x-a": "2"}}), "headers", "given twice"),
        (json!({"headers": many}), "headers", "33 headers are too many; the limit is 32"),
        (json!({"timeout": "10"}), "timeout", "a number without a unit is rejected"),
        (json!({"timeout": "99ms"}), "timeout", "is 99ms; the range is 100ms to 1h"),
        (json!({"timeout": "1h1s"}), "timeout", "is 1h1s; the range is 100ms to 1h"),
        (json!({"concurrency": 0}), "concurrency", "is 0; the range is 1 to 10000"),
        (json!({"concurrency": 10_001}), "concurrency", "is 10001; the range is 1 to 10000"),
        (json!({"format": "xml"}), "format", "expected `plain` or `cloudevents`"),
        (json!({"secrets": ["hunter2"]}), "secrets", "must begin with whsec_"),
        (json!({"secrets": ["whsec_hunter2"]}), "secrets", "base64, with padding"),
        (json!({"secrets": ["whsec_…LaSw"]}), "secrets", "base64, with padding"),
        (json!({"secrets": ["whsec_AAAA"]}), "secrets", "has 3 bytes; the range is 24 to 64"),
        (json!({"secrets": [SECRET, OTHER, SECRET]}), "secrets", "3 secrets are too many"),
    ] {
        let config = PushConfig::new("https://example.com").unwrap();
        let error = config.merged(&patch).expect_err(&patch.to_string());
        let shown = error.to_string();
        assert!(shown.contains(expected), "{patch}: {shown}");
        assert_eq!(error.field(), Some(field), "{patch}: {shown}");
        assert!(!shown.contains("hunter2"), "{shown}");
    }
    for patch in [json!({"ur": "x"}), json!({"concurrency": -1})] {
        let config = PushConfig::new("https://example.com").unwrap();
        let error = config.merged(&patch).expect_err(&patch.to_string());
        assert_eq!(error.field(), None, "{error}");
    }
    let mut config = PushConfig::new("https://example.com").unwrap();
    for i in 0..8 {
        config.headers.insert(format!("x-{i}"), "v".repeat(1024));
    }
    let error = config.split().unwrap_err().to_string();
    assert!(error.contains("the headers and secrets take 8"), "{error}");
}

#[test]
fn a_url_keeps_its_path_and_names_its_origin() {
    for (text, origin, authority, path) in [
        ("https://example.com", "https://example.com:443", "example.com", "/"),
        (
            "http://Example.COM:8080/A/b?C=d",
            "http://example.com:8080",
            "Example.COM:8080",
            "/A/b?C=d",
        ),
        ("http://[0:0::1]:80/", "http://[::1]:80", "[0:0::1]:80", "/"),
        ("http://0x7f.1/", "http://0x7f.1:80", "0x7f.1", "/"),
        ("http://example.com?a", "http://example.com:80", "example.com", "/?a"),
    ] {
        let url = WebhookUrl::parse(text).expect(text);
        assert_eq!((&*url.origin(), url.authority(), url.path()), (origin, authority, path));
    }
}
