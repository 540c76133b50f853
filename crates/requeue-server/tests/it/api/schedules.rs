//! Schedules.

use crate::api::support::Server;
use serde_json::json;

const SCHEDULES: &str = "/v1/kinds/mail/schedules";

#[test]
fn a_schedule_is_set_read_and_removed() {
    let server = Server::start();
    let mut client = server.client();
    let schedule = json!({
        "when": "0 9 * * *", "time_zone": "Europe/Berlin", "body": {"a": 1}, "missed": "skip",
        "next": "tomorrow 09:00 Europe/Berlin",
    });
    client.call("PUT", &format!("{SCHEDULES}/b%2F"), schedule).nothing();
    client.call("PUT", &format!("{SCHEDULES}/a"), json!({"next": "now"})).nothing();
    let all = client.get(SCHEDULES).json();
    assert_eq!(
        all["schedules"],
        json!([
            {
                "id": "a", "when": "", "time_zone": "", "missed": "one",
                "content_type": "application/octet-stream", "next": "2026-12-01T08:00:00.000Z",
            },
            {
                "id": "b/", "when": "0 9 * * *", "time_zone": "Europe/Berlin", "body": {"a": 1},
                "content_type": "application/json", "missed": "skip",
                "next": "2026-12-02T08:00:00.000Z",
            },
        ])
    );
    client.call("DELETE", &format!("{SCHEDULES}/a"), json!(null)).nothing();
    let problem = client.call("DELETE", &format!("{SCHEDULES}/a"), json!(null)).is("absent");
    assert!(problem["detail"].as_str().unwrap().contains(r#"schedule "a" of kind mail"#));
    assert_eq!(client.get(SCHEDULES).json()["schedules"][0]["id"], "b/");
}

#[test]
fn one_of_several_ticks_succeeds() {
    let server = Server::start();
    let mut client = server.client();
    let at = "2026-12-01T09:00:00.000Z";
    let later = "2026-12-01T10:00:00.000Z";
    let schedule = json!({"body_text": "x", "next": at});
    client.call("PUT", &format!("{SCHEDULES}/a"), schedule).nothing();
    let mut tick = |id: &str, expected: &str, next: &str, put: bool| {
        let tick = json!({"expected": expected, "next": next, "put": put});
        client.call("POST", &format!("{SCHEDULES}/{id}/tick"), tick).json()
    };
    let put = json!({"result": "put", "put": {"outcome": "created", "generation": 1}});
    assert_eq!(tick("a", at, later, true), put);
    assert_eq!(tick("a", at, later, true), json!({"result": "moved", "next": later}));
    assert_eq!(tick("a", later, "2026-12-02", false), json!({"result": "skipped"}));
    assert_eq!(tick("b", at, later, true), json!({"result": "absent"}));
    let job = client.get("/v1/kinds/mail/jobs/a").json();
    assert_eq!((&job["body_text"], &job["due"]), (&json!("x"), &json!(at)));
}
