//! Settings, pausing, concurrency, and claims of several kinds.

use crate::harness::{Harness, LEASE, ids, job, kind, millis, secs};
use requeue_jobs::{Claimed, PushSetting, SecretText, Settings, Settled};

pub(crate) async fn a_kind_has_the_default_settings_until_it_is_set(h: &Harness) {
    assert_eq!(h.settings().await, Settings::default());
    assert_eq!(h.kinds().await, [], "reading creates no kind");
    h.put("a").await;
    assert_eq!(h.settings().await, Settings::default());
}

pub(crate) async fn settings_are_kept_per_kind(h: &Harness) {
    let mut mail = Settings::default();
    (mail.lease, mail.max_attempts, mail.concurrency) = (secs(77), 3, Some(9));
    (mail.backoff.base, mail.backoff.jitter_percent) = (millis(1500), 7);
    (mail.retention.age, mail.retention.count) = (secs(11), 12);
    mail.paused = true;
    h.set(|settings| settings.clone_from(&mail)).await;
    h.set_of("sms", |settings| settings.max_attempts = 5).await;
    assert_eq!(h.settings().await, mail);
    let sms = h.store.settings(kind("sms")).await.expect("the call succeeds");
    assert_eq!((sms.max_attempts, sms.paused), (5, false));
}

pub(crate) async fn a_kind_shows_whether_it_is_pushed(h: &Harness) {
    let config = r#"{"url":"https://example.com/hook"}"#.to_owned();
    let target = PushSetting { config, secrets: SecretText::default() };
    h.put("a").await;
    assert!(!h.kinds().await[0].push);
    h.set(|settings| settings.push = Some(target)).await;
    assert!(h.kinds().await[0].push && h.settings().await.push.is_some());
    h.set(|settings| settings.push = None).await;
    assert!(!h.kinds().await[0].push && h.settings().await.push.is_none());
}

pub(crate) async fn settings_do_not_change_jobs(h: &Harness) {
    h.put("leased").await;
    h.claim().await;
    h.put(job("waiting").after(secs(5))).await;
    let before = (h.view("leased").await, h.view("waiting").await);
    h.advance(secs(1));
    h.set(|settings| (settings.lease, settings.max_attempts) = (secs(1), 1)).await;
    assert_eq!((h.view("leased").await, h.view("waiting").await), before);
}

pub(crate) async fn settings_apply_to_the_next_failure(h: &Harness) {
    h.put_in_order(["a", "b"]).await;
    let claimed = h.claim_up_to(2).await;
    assert!(matches!(h.retry(&claimed[0], secs(0)).await, Settled::RetryAt(_)));
    h.set(|settings| settings.max_attempts = 1).await;
    assert_eq!(h.retry(&claimed[1], secs(0)).await, Settled::Dead);
}

pub(crate) async fn nothing_is_claimed_of_a_paused_kind(h: &Harness) {
    h.put("a").await;
    h.set(|settings| settings.paused = true).await;
    h.claims_nothing().await;
    h.put("b").await;
    h.claims_nothing().await;
    assert!(h.kinds().await[0].paused);
    assert_eq!(h.counts().await, [2, 0, 0, 2]);
    h.set(|settings| settings.paused = false).await;
    assert_eq!(h.claim_up_to(10).await.len(), 2);
}

pub(crate) async fn leases_of_a_paused_kind_can_be_settled(h: &Harness) {
    h.put_in_order(["a", "b", "c"]).await;
    let claimed = h.claim_up_to(3).await;
    h.set(|settings| settings.paused = true).await;
    assert_eq!(h.ack(&claimed[0]).await, Settled::Done);
    assert_eq!(h.release(&claimed[1]).await, Settled::Released);
    h.extend(&claimed[2], LEASE).await;
    h.retry(&claimed[2], secs(0)).await;
    h.claims_nothing().await;
}

pub(crate) async fn an_expired_lease_of_a_paused_kind_is_not_claimed(h: &Harness) {
    h.put("a").await;
    let claimed = h.claim().await;
    h.set(|settings| settings.paused = true).await;
    h.advance(LEASE);
    h.claims_nothing().await;
    assert_eq!(h.ack(&claimed).await, Settled::Done);
}

pub(crate) async fn no_more_jobs_are_leased_than_the_concurrency_allows(h: &Harness) {
    h.set(|settings| settings.concurrency = Some(2)).await;
    h.put_in_order(["a", "b", "c", "d", "e"]).await;
    let claimed = h.claim_up_to(10).await;
    assert_eq!(ids(&claimed), ["a", "b"]);
    h.claims_nothing().await;
    h.ack(&claimed[0]).await;
    assert_eq!(ids(&h.claim_up_to(10).await), ["c"]);
    h.retry(&claimed[1], secs(60)).await;
    let claimed = h.claim_up_to(10).await;
    assert_eq!(ids(&claimed), ["d"]);
    h.release(&claimed[0]).await;
    assert_eq!(ids(&h.claim_up_to(10).await), ["d"]);
    h.claims_nothing().await;
}

pub(crate) async fn an_expired_lease_does_not_count_for_the_concurrency(h: &Harness) {
    h.set(|settings| settings.concurrency = Some(1)).await;
    h.put_in_order(["a", "b"]).await;
    h.claim().await;
    h.advance(LEASE - millis(1));
    h.claims_nothing().await;
    h.advance(millis(1));
    // `b` has been ready for longer than `a` has expired.
    assert_eq!(ids(&h.claim_up_to(10).await), ["b"]);
    h.claims_nothing().await;
}

pub(crate) async fn an_expired_job_counts_for_the_concurrency_when_it_is_claimed_again(
    h: &Harness,
) {
    h.set(|settings| settings.concurrency = Some(1)).await;
    h.put("a").await;
    h.claim().await;
    h.put(job("b").after(secs(60))).await;
    h.advance(secs(60));
    assert_eq!(ids(&h.claim_up_to(10).await), ["a"]);
}

pub(crate) async fn a_lower_concurrency_ends_no_lease(h: &Harness) {
    h.put_in_order(["a", "b", "c"]).await;
    let claimed = h.claim_up_to(2).await;
    h.set(|settings| settings.concurrency = Some(1)).await;
    h.claims_nothing().await;
    assert_eq!(h.ack(&claimed[0]).await, Settled::Done);
    h.claims_nothing().await;
    assert_eq!(h.ack(&claimed[1]).await, Settled::Done);
    assert_eq!(ids(&h.claim_up_to(10).await), ["c"]);
}

async fn claim_of(h: &Harness, names: [&str; 2], max: usize) -> Vec<String> {
    let claim = h.claim_with(|claim| (claim.kinds, claim.max) = (names.map(kind).to_vec(), max));
    let Claimed { jobs, errors, .. } = claim.await;
    assert_eq!(errors, []);
    jobs.iter().map(|job| job.id().to_string()).collect()
}

pub(crate) async fn each_of_several_kinds_is_claimed_in_its_own_order(h: &Harness) {
    for (name, of) in [("a1", "a"), ("b1", "b"), ("b2", "b"), ("a2", "a")] {
        h.put(job(name).of(of)).await;
        h.advance(millis(1));
    }
    let claimed = claim_of(h, ["a", "b"], 10).await;
    let (of_a, of_b): (Vec<&str>, Vec<&str>) =
        claimed.iter().map(String::as_str).partition(|id| id.starts_with('a'));
    assert_eq!((of_a, of_b), (vec!["a1", "a2"], vec!["b1", "b2"]));
}

pub(crate) async fn a_claim_of_several_kinds_returns_at_most_max_jobs(h: &Harness) {
    for (name, of) in [("a1", "a"), ("b1", "b"), ("b2", "b"), ("a2", "a")] {
        h.put(job(name).of(of)).await;
    }
    assert_eq!(claim_of(h, ["a", "b"], 3).await.len(), 3);
    assert_eq!(claim_of(h, ["a", "b"], 3).await.len(), 1);
}

pub(crate) async fn several_kinds_take_turns_at_being_first(h: &Harness) {
    for n in 0..8 {
        h.put(job(&format!("a{n}")).of("a")).await;
        h.put(job(&format!("b{n}")).of("b")).await;
    }
    let mut firsts = Vec::new();
    for _ in 0..8 {
        firsts.push(claim_of(h, ["a", "b"], 1).await.remove(0));
    }
    let of_a = firsts.iter().filter(|id| id.starts_with('a')).count();
    assert!((1..8).contains(&of_a), "{firsts:?}");
}

pub(crate) async fn a_paused_or_full_kind_does_not_block_others(h: &Harness) {
    h.set_of("a", |settings| settings.paused = true).await;
    h.set_of("full", |settings| settings.concurrency = Some(1)).await;
    for (name, of) in [("a1", "a"), ("f1", "full"), ("f2", "full"), ("b1", "b"), ("b2", "b")] {
        h.put(job(name).of(of)).await;
        h.advance(millis(1));
    }
    assert_eq!(claim_of(h, ["a", "b"], 1).await, ["b1"]);
    assert_eq!(claim_of(h, ["a", "b"], 10).await, ["b2"]);
    assert_eq!(claim_of(h, ["a", "full"], 10).await, ["f1"]);
    h.put(job("b3").of("b")).await;
    assert_eq!(claim_of(h, ["full", "b"], 10).await, ["b3"]);
}

pub(crate) async fn kinds_are_listed_by_name_with_their_counts(h: &Harness) {
    h.put(job("a").of("sms")).await;
    let due = h.now();
    h.advance(secs(1));
    h.put(job("b").of("sms")).await;
    h.put(job("a").after(secs(5))).await;
    h.set_of("fax", |settings| settings.paused = true).await;
    let kinds = h.kinds().await;
    let names: Vec<_> = kinds.iter().map(|view| view.kind.as_str()).collect();
    assert_eq!(names, ["fax", "mail", "sms"]);
    let oldest: Vec<_> = kinds.iter().map(|view| view.oldest_ready).collect();
    assert_eq!(oldest, [None, None, Some(due)]);
    let pending: Vec<_> = kinds.iter().map(|view| view.counts.pending).collect();
    assert_eq!((pending, kinds[0].paused, kinds[1].paused), (vec![0, 1, 2], true, false));
}

pub(crate) async fn a_kind_without_jobs_keeps_its_generation_and_fence(h: &Harness) {
    let new = h.kind().await;
    assert_eq!((new.generation.0, new.fence.0, new.counts.pending), (0, 0, 0));
    h.put(job("a")).await;
    let latest = h.put(job("b")).await.generation;
    h.set(|settings| settings.paused = true).await;
    assert_eq!(vec![h.kind().await], h.kinds().await);
    h.set(|settings| settings.paused = false).await;
    let claimed = h.claim_up_to(2).await;
    let fence = claimed.iter().map(|job| job.receipt.fence()).max().expect("two jobs");
    for job in &claimed {
        h.ack(job).await;
    }
    assert_eq!(h.kinds().await, []);
    let empty = h.kind().await;
    assert_eq!((empty.generation, empty.fence, empty.counts.pending), (latest, fence, 0));
    assert!(h.put(job("a")).await.generation > latest);
}
