//! Batches: entries are executed in order, each independently.

use crate::harness::{Harness, ids, job, mail, secs};
use requeue_jobs::limits::MAX_DELAY;
use requeue_jobs::{
    Change, ChangeError, ChangeKind, Changed, PutError, PutOutcome, SettleError, Settled,
    Settlement,
};

pub(crate) async fn results_of_puts_are_in_the_order_of_the_batch(h: &Harness) {
    h.put("b").await;
    let results = h.put_all(["b", "a", "c"].map(job)).await;
    let outcomes: Vec<_> =
        results.into_iter().map(|a| a.expect("the put succeeds").outcome).collect();
    assert_eq!(outcomes, [PutOutcome::Updated, PutOutcome::Created, PutOutcome::Created]);
}

pub(crate) async fn puts_are_executed_in_the_order_of_the_batch(h: &Harness) {
    let puts = [job("a").body("first"), job("a").body("second").after(secs(5)), job("b")];
    let results = h.put_all(puts).await;
    let [Ok(first), Ok(second), Ok(other)] = results[..] else { panic!("all puts succeed") };
    assert_eq!((first.outcome, second.outcome), (PutOutcome::Created, PutOutcome::Updated));
    assert!(first.generation < second.generation && second.generation < other.generation);
    let view = h.view("a").await;
    assert_eq!((view.body().bytes(), view.version.due), (&b"second"[..], h.after(secs(5))));
}

pub(crate) async fn a_put_that_fails_does_not_stop_the_others(h: &Harness) {
    h.put("b").await;
    let too_late = MAX_DELAY + secs(1);
    let results =
        h.put_all([job("a"), job("b").if_absent(), job("c").after(too_late), job("d")]).await;
    assert!(results[0].is_ok() && results[3].is_ok());
    assert!(matches!(results[1], Err(PutError::Exists { .. })));
    assert!(matches!(results[2], Err(PutError::Store(_))));
    assert_eq!(h.list(|_| {}).await, ["a", "b", "d"]);
}

pub(crate) async fn of_two_puts_with_one_condition_the_first_succeeds(h: &Harness) {
    let results = h.put_all([job("a").body("1").if_absent(), job("a").body("2").if_absent()]).await;
    assert!(results[0].is_ok());
    assert!(matches!(results[1], Err(PutError::Exists { .. })));
    assert_eq!(h.view("a").await.body().bytes(), b"1");
}

pub(crate) async fn a_batch_may_be_of_several_kinds(h: &Harness) {
    let results = h.put_all([job("a"), job("a").of("sms"), job("a").of("fax")]).await;
    assert!(results.iter().all(|a| a.as_ref().is_ok_and(|p| p.outcome == PutOutcome::Created)));
    assert_eq!(h.kinds().await.len(), 3);
}

pub(crate) async fn settlements_are_executed_in_order_and_independently(h: &Harness) {
    h.put_in_order(["a", "b"]).await;
    let jobs = h.claim_up_to(2).await;
    let [a, b] = &jobs[..] else { panic!("two jobs are claimed") };
    let retry = Settlement::Retry { delay: Some(secs(5)), error: "no".into() };
    let results = h
        .settle_all([
            (a, Settlement::Ack),
            (a, Settlement::Ack),
            (b, Settlement::Extend(Some(secs(60)))),
            (b, retry),
        ])
        .await;
    assert_eq!(results[0], Ok(Settled::Done));
    assert!(matches!(results[1], Err(SettleError::LeaseLost { .. })));
    assert_eq!(results[2], Ok(Settled::Extended(h.after(secs(60)))));
    assert_eq!(results[3], Ok(Settled::RetryAt(h.after(secs(5)))));
}

pub(crate) async fn changes_are_executed_in_order_and_independently(h: &Harness) {
    h.put(job("a").after(secs(60))).await;
    h.put("b").await;
    let change = |name: &str, action| Change { kind: mail(), id: crate::harness::id(name), action };
    let changes = vec![
        change("a", ChangeKind::RunNow),
        change("a", ChangeKind::Revive),
        change("a", ChangeKind::Cancel),
        change("a", ChangeKind::Cancel),
        change("b", ChangeKind::Cancel),
    ];
    let results = h.store.change(changes).await.expect("the call succeeds");
    assert_eq!((&results[0], &results[2]), (&Ok(Changed::Ready), &Ok(Changed::Removed)));
    assert!(matches!(results[1], Err(ChangeError::NotDead { .. })));
    assert!(matches!(results[3], Err(ChangeError::Absent { .. })));
    assert_eq!((&results[4], results.len()), (&Ok(Changed::Removed), 5));
    h.claims_nothing().await;
}

pub(crate) async fn one_claim_returns_many_jobs_each_with_its_own_receipt(h: &Harness) {
    h.put_in_order(["a", "b", "c"]).await;
    let jobs = h.claim_up_to(10).await;
    assert_eq!(ids(&jobs), ["a", "b", "c"]);
    h.ack(&jobs[1]).await;
    h.release(&jobs[0]).await;
    h.assert_lost(&jobs[1]).await;
    assert_eq!(h.ack(&jobs[2]).await, Settled::Done);
    assert_eq!(h.list(|_| {}).await, ["a"]);
}

pub(crate) async fn an_empty_batch_returns_no_results(h: &Harness) {
    assert_eq!(h.store.put(vec![]).await, Ok(vec![]));
    assert_eq!(h.store.settle(vec![]).await, Ok(vec![]));
    assert_eq!(h.store.change(vec![]).await, Ok(vec![]));
}
