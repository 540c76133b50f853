//! Settings, pausing, concurrency, and claims of several kinds.

use crate::trial::{LEASE, Trial, ids, job, kind, millis, secs};
use requeue_jobs::{Claimed, Settings, Settled};

pub(crate) async fn a_kind_has_the_default_settings_until_it_is_set(t: &Trial) {
    assert_eq!(t.settings().await, Settings::default());
    assert_eq!(t.kinds().await, [], "asking makes no kind");
    t.put("a").await;
    assert_eq!(t.settings().await, Settings::default());
}

pub(crate) async fn settings_are_kept_per_kind(t: &Trial) {
    let mut mail = Settings::default();
    (mail.lease, mail.max_attempts, mail.concurrency) = (secs(77), 3, Some(9));
    (mail.backoff.base, mail.backoff.jitter_percent) = (millis(1500), 7);
    (mail.retention.age, mail.retention.count) = (secs(11), 12);
    mail.paused = true;
    t.set(|settings| settings.clone_from(&mail)).await;
    t.set_of("sms", |settings| settings.max_attempts = 5).await;
    assert_eq!(t.settings().await, mail);
    let sms = t.store.settings(kind("sms")).await.expect("it is answered");
    assert_eq!((sms.max_attempts, sms.paused), (5, false));
}

pub(crate) async fn setting_touches_no_job(t: &Trial) {
    t.put("leased").await;
    t.claim().await;
    t.put(job("waiting").after(secs(5))).await;
    let before = (t.view("leased").await, t.view("waiting").await);
    t.advance(secs(1));
    t.set(|settings| (settings.lease, settings.max_attempts) = (secs(1), 1)).await;
    assert_eq!((t.view("leased").await, t.view("waiting").await), before);
}

pub(crate) async fn settings_count_for_the_next_failure(t: &Trial) {
    t.put_in_line(["a", "b"]).await;
    let claimed = t.claim_up_to(2).await;
    assert!(matches!(t.retry(&claimed[0], secs(0)).await, Settled::RetryAt(_)));
    t.set(|settings| settings.max_attempts = 1).await;
    assert_eq!(t.retry(&claimed[1], secs(0)).await, Settled::Dead);
}

pub(crate) async fn nothing_is_claimed_of_a_paused_kind(t: &Trial) {
    t.put("a").await;
    t.set(|settings| settings.paused = true).await;
    t.claims_nothing().await;
    t.put("b").await;
    t.claims_nothing().await;
    assert!(t.kinds().await[0].paused);
    assert_eq!(t.counts().await, [2, 0, 0, 2]);
    t.set(|settings| settings.paused = false).await;
    assert_eq!(t.claim_up_to(10).await.len(), 2);
}

pub(crate) async fn leases_of_a_paused_kind_are_settled_as_ever(t: &Trial) {
    t.put_in_line(["a", "b", "c"]).await;
    let claimed = t.claim_up_to(3).await;
    t.set(|settings| settings.paused = true).await;
    assert_eq!(t.ack(&claimed[0]).await, Settled::Done);
    assert_eq!(t.release(&claimed[1]).await, Settled::Released);
    t.extend(&claimed[2], LEASE).await;
    t.retry(&claimed[2], secs(0)).await;
    t.claims_nothing().await;
}

pub(crate) async fn an_expired_lease_of_a_paused_kind_is_not_claimed(t: &Trial) {
    t.put("a").await;
    let claimed = t.claim().await;
    t.set(|settings| settings.paused = true).await;
    t.advance(LEASE);
    t.claims_nothing().await;
    assert_eq!(t.ack(&claimed).await, Settled::Done);
}

pub(crate) async fn no_more_are_leased_at_once_than_may_be(t: &Trial) {
    t.set(|settings| settings.concurrency = Some(2)).await;
    t.put_in_line(["a", "b", "c", "d", "e"]).await;
    let claimed = t.claim_up_to(10).await;
    assert_eq!(ids(&claimed), ["a", "b"]);
    t.claims_nothing().await;
    t.ack(&claimed[0]).await;
    assert_eq!(ids(&t.claim_up_to(10).await), ["c"]);
    t.retry(&claimed[1], secs(60)).await;
    let claimed = t.claim_up_to(10).await;
    assert_eq!(ids(&claimed), ["d"]);
    t.release(&claimed[0]).await;
    assert_eq!(ids(&t.claim_up_to(10).await), ["d"]);
    t.claims_nothing().await;
}

pub(crate) async fn an_expired_lease_takes_no_room(t: &Trial) {
    t.set(|settings| settings.concurrency = Some(1)).await;
    t.put_in_line(["a", "b"]).await;
    t.claim().await;
    t.advance(LEASE - millis(1));
    t.claims_nothing().await;
    t.advance(millis(1));
    // `b` has been ready for longer than `a` has expired.
    assert_eq!(ids(&t.claim_up_to(10).await), ["b"]);
    t.claims_nothing().await;
}

pub(crate) async fn an_expired_job_takes_the_room_of_its_next_lease(t: &Trial) {
    t.set(|settings| settings.concurrency = Some(1)).await;
    t.put("a").await;
    t.claim().await;
    t.put(job("b").after(secs(60))).await;
    t.advance(secs(60));
    assert_eq!(ids(&t.claim_up_to(10).await), ["a"]);
}

pub(crate) async fn fewer_at_once_takes_no_lease_away(t: &Trial) {
    t.put_in_line(["a", "b", "c"]).await;
    let claimed = t.claim_up_to(2).await;
    t.set(|settings| settings.concurrency = Some(1)).await;
    t.claims_nothing().await;
    assert_eq!(t.ack(&claimed[0]).await, Settled::Done);
    t.claims_nothing().await;
    assert_eq!(t.ack(&claimed[1]).await, Settled::Done);
    assert_eq!(ids(&t.claim_up_to(10).await), ["c"]);
}

async fn claim_of(t: &Trial, names: [&str; 2], max: usize) -> Vec<String> {
    let claim = t.claim_with(|claim| (claim.kinds, claim.max) = (names.map(kind).to_vec(), max));
    let Claimed { jobs, errors, .. } = claim.await;
    assert_eq!(errors, []);
    jobs.iter().map(|job| job.id().to_string()).collect()
}

pub(crate) async fn each_of_several_kinds_comes_in_its_own_order(t: &Trial) {
    for (name, of) in [("a1", "a"), ("b1", "b"), ("b2", "b"), ("a2", "a")] {
        t.put(job(name).of(of)).await;
        t.advance(millis(1));
    }
    let claimed = claim_of(t, ["a", "b"], 10).await;
    let (of_a, of_b): (Vec<&str>, Vec<&str>) =
        claimed.iter().map(String::as_str).partition(|id| id.starts_with('a'));
    assert_eq!((of_a, of_b), (vec!["a1", "a2"], vec!["b1", "b2"]));
}

pub(crate) async fn a_claim_of_several_kinds_gets_no_more_than_it_asks_for(t: &Trial) {
    for (name, of) in [("a1", "a"), ("b1", "b"), ("b2", "b"), ("a2", "a")] {
        t.put(job(name).of(of)).await;
    }
    assert_eq!(claim_of(t, ["a", "b"], 3).await.len(), 3);
    assert_eq!(claim_of(t, ["a", "b"], 3).await.len(), 1);
}

pub(crate) async fn of_several_kinds_each_is_first_in_turn(t: &Trial) {
    for n in 0..8 {
        t.put(job(&format!("a{n}")).of("a")).await;
        t.put(job(&format!("b{n}")).of("b")).await;
    }
    let mut firsts = Vec::new();
    for _ in 0..8 {
        firsts.push(claim_of(t, ["a", "b"], 1).await.remove(0));
    }
    let of_a = firsts.iter().filter(|id| id.starts_with('a')).count();
    assert!((1..8).contains(&of_a), "{firsts:?}");
}

pub(crate) async fn a_paused_or_full_kind_holds_up_no_other(t: &Trial) {
    t.set_of("a", |settings| settings.paused = true).await;
    t.set_of("full", |settings| settings.concurrency = Some(1)).await;
    for (name, of) in [("a1", "a"), ("f1", "full"), ("f2", "full"), ("b1", "b"), ("b2", "b")] {
        t.put(job(name).of(of)).await;
        t.advance(millis(1));
    }
    assert_eq!(claim_of(t, ["a", "b"], 1).await, ["b1"]);
    assert_eq!(claim_of(t, ["a", "b"], 10).await, ["b2"]);
    assert_eq!(claim_of(t, ["a", "full"], 10).await, ["f1"]);
    t.put(job("b3").of("b")).await;
    assert_eq!(claim_of(t, ["full", "b"], 10).await, ["b3"]);
}

pub(crate) async fn kinds_are_listed_by_name_with_what_they_have(t: &Trial) {
    t.put(job("a").of("sms")).await;
    let due = t.now();
    t.advance(secs(1));
    t.put(job("b").of("sms")).await;
    t.put(job("a").after(secs(5))).await;
    t.set_of("fax", |settings| settings.paused = true).await;
    let kinds = t.kinds().await;
    let names: Vec<_> = kinds.iter().map(|view| view.kind.as_str()).collect();
    assert_eq!(names, ["fax", "mail", "sms"]);
    let oldest: Vec<_> = kinds.iter().map(|view| view.oldest_ready).collect();
    assert_eq!(oldest, [None, None, Some(due)]);
    let pending: Vec<_> = kinds.iter().map(|view| view.counts.pending).collect();
    assert_eq!((pending, kinds[0].paused, kinds[1].paused), (vec![0, 1, 2], true, false));
}
