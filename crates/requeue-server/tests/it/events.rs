//! What listeners receive.

use crate::support::instrumented::{InstrumentedFixture, LEASE, job, kind, retry};
use requeue_jobs::{ChangeKind, Condition, Put, Settings, Settlement, Store};
use requeue_server::{EventItem, EventListener};
use requeue_testkit::block_on;
use std::time::Duration;

fn next_event(listener: &mut EventListener) -> String {
    match block_on(listener.next()) {
        Some(EventItem::Event(event)) => {
            serde_json::to_string(&*event).expect("an event can be serialized")
        }
        other => panic!("no event: {other:?}"),
    }
}

#[test]
fn every_completed_operation_is_an_event_and_no_rejected_one() {
    let fixture = InstrumentedFixture::new();
    let mut listener = fixture.store.events().listen(vec![]).unwrap();
    fixture.put(job("mail", "a")).unwrap();
    let absent = Some(Condition::IfAbsent);
    fixture.put(Put { condition: absent, ..job("mail", "a") }).unwrap_err();
    fixture.advance(1);
    let lease = |seconds| Some(Duration::from_secs(seconds));
    let a = fixture.claim("mail", "w", lease(30)).remove(0);
    fixture.settle(&a, Settlement::Extend(lease(60))).unwrap();
    fixture.settle(&a, Settlement::Retry { delay: lease(1), error: "no".into() }).unwrap();
    fixture.settle(&a, Settlement::Ack).unwrap_err();
    fixture.advance(1);
    let a = fixture.claim("mail", "w", None).remove(0);
    fixture.settle(&a, Settlement::Bury { error: "no".into() }).unwrap();
    fixture.change("a", ChangeKind::Revive);
    fixture.change("a", ChangeKind::RunNow);
    let a = fixture.claim("mail", "w", lease(30)).remove(0);
    fixture.settle(&a, Settlement::Release).unwrap();
    let a = fixture.claim("mail", "w", lease(30)).remove(0);
    fixture.settle(&a, Settlement::RequeueAfter(Duration::ZERO)).unwrap();
    let a = fixture.claim("mail", "w", lease(30)).remove(0);
    fixture.change("a", ChangeKind::Cancel);
    fixture.settle(&a, Settlement::Extend(None)).unwrap();
    fixture.settle(&a, Settlement::Ack).unwrap();
    let mut settings = Settings::default();
    settings.paused = true;
    block_on(fixture.store.set(kind("mail"), settings)).unwrap();

    let at = |second: u32| format!(r#""at":"2023-11-14T22:13:{second}.000Z""#);
    let until = |second: u32| {
        let (minute, second) = (13 + second / 60, second % 60);
        format!(r#""until":"2023-11-14T22:{minute}:{second:02}.000Z""#)
    };
    let mail = r#""kind":"mail""#;
    let a = r#""kind":"mail","id":"a""#;
    let first = r#""generation":1,"attempt":1,"worker":"w""#;
    let second = r#""generation":1,"attempt":2,"worker":"w""#;
    let third = r#""generation":2,"attempt":1,"worker":"w""#;
    let (s20, s21, s22) = (at(20), at(21), at(22));
    for expected in [
        format!(r#"{{"event":"put",{a},{s20},"generation":1,"outcome":"created"}}"#),
        format!(r#"{{"event":"claimed",{a},{s21},{first},{}}}"#, until(51)),
        format!(r#"{{"event":"extended",{a},{s21},{first},{}}}"#, until(81)),
        format!(r#"{{"event":"retried",{a},{s21},{first},{}}}"#, until(22)),
        format!(r#"{{"event":"claimed",{a},{s22},{second},{}}}"#, until(52)),
        format!(r#"{{"event":"dead",{a},{s22},{second}}}"#),
        format!(r#"{{"event":"revived",{a},{s22},"outcome":"revived"}}"#),
        format!(r#"{{"event":"run_now",{a},{s22},"outcome":"ready"}}"#),
        format!(r#"{{"event":"claimed",{a},{s22},{first},{}}}"#, until(52)),
        format!(r#"{{"event":"released",{a},{s22},{first}}}"#),
        format!(r#"{{"event":"claimed",{a},{s22},{first},{}}}"#, until(52)),
        format!(r#"{{"event":"requeued",{a},{s22},{first}}}"#),
        format!(r#"{{"event":"claimed",{a},{s22},{third},{}}}"#, until(52)),
        format!(r#"{{"event":"cancelled",{a},{s22},"outcome":"ending"}}"#),
        format!(r#"{{"event":"cancelled",{a},{s22},{third}}}"#),
        format!(r#"{{"event":"settings",{mail},{s22},"paused":true}}"#),
    ] {
        assert_eq!(next_event(&mut listener), expected);
    }
    drop(fixture);
    assert_eq!(block_on(listener.next()), None);
}

#[test]
fn a_listener_receives_events_of_its_kinds_only() {
    let fixture = InstrumentedFixture::new();
    let mut listener = fixture.store.events().listen(vec![kind("sms"), kind("fax")]).unwrap();
    for name in ["mail", "sms", "mail", "fax"] {
        fixture.put(job(name, "a")).unwrap();
    }
    for name in ["sms", "fax"] {
        assert!(next_event(&mut listener).contains(name));
    }
}

#[test]
fn a_slow_listener_learns_how_many_events_it_missed_and_receives_the_rest() {
    let fixture = InstrumentedFixture::new();
    let mut listener = fixture.store.events().listen(vec![]).unwrap();
    for n in 0..5000 {
        fixture.put(job("mail", &n.to_string())).unwrap();
    }
    let Some(EventItem::Missed(missed)) = block_on(listener.next()) else {
        panic!("no event was missed")
    };
    for n in missed.count..5000 {
        assert!(next_event(&mut listener).contains(&format!(r#""id":"{n}""#)), "{n}");
    }
    fixture.put(job("mail", "last")).unwrap();
    assert!(next_event(&mut listener).contains("last"));
}

#[test]
fn the_number_of_listeners_is_limited() {
    let fixture = InstrumentedFixture::new();
    let listen = || fixture.store.events().listen(vec![]);
    let mut listeners: Vec<EventListener> = (0..100).map(|_| listen().unwrap()).collect();
    let error = listen().unwrap_err();
    assert_eq!(
        error.to_string(),
        "100 clients already listen to events, which is the limit; try again later"
    );
    listeners.pop();
    listeners.push(listen().unwrap());
    assert!(listen().is_err());
}

#[test]
fn events_before_the_first_listener_are_not_kept() {
    let fixture = InstrumentedFixture::new();
    fixture.put(job("mail", "a")).unwrap();
    let a = fixture.claim("mail", "w", Some(LEASE)).remove(0);
    fixture.settle(&a, retry()).unwrap();
    let mut listener = fixture.store.events().listen(vec![]).unwrap();
    fixture.put(job("mail", "b")).unwrap();
    assert!(next_event(&mut listener).contains(r#""id":"b""#), "earlier events are not received");
}
