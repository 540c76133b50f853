//! What needs attention although the node works: kinds that are late or not delivered, and workers whose
//! leases expire.
//!
//! Everything is derived from the present state, so nothing has to be acknowledged, and nothing lasts
//! longer than its cause.

use crate::app::App;
use crate::push::Stopped;
use requeue_http::wire::{EXPIRED_IN_A_ROW, LATE_AFTER, TroubleJson};
use requeue_jobs::{Kind, KindView, Timestamp, WorkerName};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::slice;

/// Maximum number of entries of a response. People look at the first of them.
const MAX_TROUBLE: usize = 100;

/// Maximum bytes of an error of a target that an entry repeats.
const MAX_ERROR: usize = 200;

/// Returns what needs attention, the most serious first.
pub(crate) fn find(app: &App, kinds: &[KindView]) -> Vec<TroubleJson> {
    let workers = app.instrumented().workers().unsettled(EXPIRED_IN_A_ROW);
    list(kinds, &app.push().stopped(), workers, app.reading().now)
}

/// Returns why a kind needs attention.
pub(crate) fn of_kind(app: &App, kind: &KindView) -> Option<TroubleJson> {
    let found = list(slice::from_ref(kind), &app.push().stopped(), Vec::new(), app.reading().now);
    found.into_iter().next()
}

fn list(
    kinds: &[KindView],
    stopped: &BTreeMap<Kind, Stopped>,
    mut workers: Vec<(WorkerName, u64)>,
    now: Timestamp,
) -> Vec<TroubleJson> {
    workers.sort_unstable_by(|(a, n), (b, m)| (Reverse(n), a).cmp(&(Reverse(m), b)));
    let (mut pushed, mut late) = (Vec::new(), Vec::new());
    for kind in kinds.iter().filter(|kind| !kind.paused) {
        match stopped.get(&kind.kind) {
            Some(why) if kind.counts.pending > 0 => pushed.push(not_delivered(kind, why)),
            _ if is_late(kind, now) => late.push(kind),
            _ => {}
        }
    }
    pushed.sort_by(|a, b| (Reverse(&a.name), &a.kind).cmp(&(Reverse(&b.name), &b.kind)));
    late.sort_by_key(|kind| kind.oldest_ready);
    let mut all = pushed;
    all.extend(workers.into_iter().map(|(name, expired)| TroubleJson {
        name: "leases_expire".to_owned(),
        worker: Some(name.to_string()),
        detail: format!("{expired} leases have expired since the worker last settled one"),
        ..TroubleJson::default()
    }));
    all.extend(late.into_iter().map(|kind| TroubleJson {
        detail: match kind.throttled_until {
            Some(_) => "jobs have been ready for long; the rate limit holds them back".to_owned(),
            None if kind.counts.leased > 0 => {
                let why = "its workers are too few, or its concurrency limits them";
                format!("jobs have been ready for long: {why}")
            }
            None => "jobs have been ready for long, and nobody claims them".to_owned(),
        },
        ..about("late", kind)
    }));
    all.truncate(MAX_TROUBLE);
    all
}

fn is_late(kind: &KindView, now: Timestamp) -> bool {
    kind.oldest_ready.is_some_and(|due| now.saturating_since(due) >= LATE_AFTER)
}

fn not_delivered(kind: &KindView, why: &Stopped) -> TroubleJson {
    match why {
        Stopped::Problem(why) => {
            TroubleJson { detail: why.clone(), ..about("not_delivered", kind) }
        }
        Stopped::CircuitOpen { target, error } => {
            let error = error.as_deref().map(|error| format!(": {}", start(error)));
            let detail = format!("{target} cannot be reached{}", error.unwrap_or_default());
            TroubleJson { detail, ..about("circuit_open", kind) }
        }
    }
}

fn about(name: &str, kind: &KindView) -> TroubleJson {
    TroubleJson {
        name: name.to_owned(),
        kind: Some(kind.kind.to_string()),
        oldest_ready: kind.oldest_ready.map(Into::into),
        ..TroubleJson::default()
    }
}

fn start(error: &str) -> &str {
    let line = error.lines().next().unwrap_or_default();
    let end = (0..=line.len().min(MAX_ERROR)).rev().find(|end| line.is_char_boundary(*end));
    &line[..end.unwrap_or_default()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

    /// A kind whose oldest job has been ready for this many seconds.
    fn kind(name: &str, seconds: u64) -> KindView {
        let mut kind = KindView::new(Kind::new(name).expect("a valid kind"));
        kind.counts.pending = 1;
        kind.oldest_ready = Some(Timestamp::from_millis(NOW.as_millis() - seconds * 1000));
        kind
    }

    fn names(found: &[TroubleJson]) -> Vec<String> {
        let what = |one: &TroubleJson| one.kind.clone().or(one.worker.clone()).unwrap_or_default();
        found.iter().map(|one| format!("{} {}", one.name, what(one))).collect()
    }

    #[test]
    fn a_kind_is_late_from_five_minutes_on_unless_it_is_paused() {
        let mut kinds = vec![kind("fresh", 299), kind("late", 300), kind("later", 4000)];
        kinds.push(KindView { paused: true, ..kind("paused", 4000) });
        kinds.push(KindView { oldest_ready: None, ..kind("idle", 0) });
        let found = list(&kinds, &BTreeMap::new(), Vec::new(), NOW);
        assert_eq!(names(&found), ["late later", "late late"]);
        assert!(found[0].detail.ends_with("nobody claims them"));
        kinds[1].counts.leased = 7;
        kinds[2].throttled_until = Some(NOW);
        let found = list(&kinds, &BTreeMap::new(), Vec::new(), NOW);
        assert!(found[0].detail.ends_with("the rate limit holds them back"));
        assert!(found[1].detail.contains("its workers are too few"));
    }

    #[test]
    fn a_kind_is_listed_once_and_the_most_serious_is_first() {
        let kinds = [kind("a", 4000), kind("b", 4000), kind("c", 0), kind("d", 0)];
        let open = |error: Option<&str>| Stopped::CircuitOpen {
            target: "https://example.com:443".to_owned(),
            error: error.map(str::to_owned),
        };
        let name = |kind: &str| Kind::new(kind).expect("a valid kind");
        let stopped = BTreeMap::from([
            (name("b"), open(Some(&"ü".repeat(500)))),
            (name("c"), Stopped::Problem("the secrets are missing".to_owned())),
            // It has no jobs.
            (name("e"), open(None)),
        ]);
        let worker = |name: &str| WorkerName::new(name).expect("a valid name");
        let workers = vec![(worker("v"), 3), (worker("w"), 42)];
        let found = list(&kinds, &stopped, workers, NOW);
        let expected =
            ["not_delivered c", "circuit_open b", "leases_expire w", "leases_expire v", "late a"];
        assert_eq!(names(&found), expected);
        assert!(found[1].detail.starts_with("https://example.com:443 cannot be reached: üü"));
        assert!(found[1].detail.len() < 300);
        assert!(found[2].detail.starts_with("42 leases"));
    }

    #[test]
    fn the_list_has_a_limit() {
        let kinds: Vec<KindView> = (0..500).map(|n| kind(&format!("k{n}"), 1000 + n)).collect();
        let found = list(&kinds, &BTreeMap::new(), Vec::new(), NOW);
        assert_eq!((found.len(), found[0].kind.as_deref()), (MAX_TROUBLE, Some("k499")));
    }
}
