//! The invariants of durable jobs, as far as they can be checked if calls overlap. Each check finds
//! only what is wrong in every possible order of the calls.

use super::job_history::{
    Certainty, Delivery, JobHistories, JobHistory, Outcome, PutCall, SettleCall, histories,
};
use super::log::{Call, Event, Span, report};
use requeue_jobs::{
    ChangeError, ChangeKind, Due, Generation, JobId, JobState, JobView, Kind, Mode, PutError,
    PutOutcome, SettleError, Settled, Settlement, StoreError, Timestamp,
};
use std::collections::BTreeMap;
use std::time::Duration;

/// The `max_attempts` of all kinds.
pub(super) const MAX_ATTEMPTS: u32 = 3;

type Name = (Kind, JobId);
type Checked = Result<(), String>;
type Check = fn(&JobHistory<'_>, Duration) -> Checked;

const CHECKS: [(&str, Check); 8] = [
    ("invariant 1", one_lease_at_a_time),
    ("invariant 3", nothing_is_early),
    ("invariant 3", no_backoff_is_cut_short),
    ("invariant 4", newest_generation_is_delivered),
    ("invariant 5", only_the_latest_receipt_is_accepted),
    ("invariant 6", attempts_are_failures),
    ("invariant 7", cancelled_jobs_are_not_delivered),
    ("invariant 8", a_lease_ends_once),
];

/// Checks all calls. `left` are the jobs in the store at the end. The error contains one violation of
/// each invariant, and all calls for the first job that violates one.
pub(super) fn check(events: &[Event], left: &[JobView], skew: Duration) -> Checked {
    nothing_is_invalid(events)?;
    let histories = histories(events);
    let (mut violations, mut about) = (Vec::new(), None);
    if let Err(error) = fences_and_generations_rise(events) {
        violations.push(format!("invariant 1: {error}"));
    }
    for (invariant, check) in CHECKS {
        let violation = |(name, history)| Some((name, check(history, skew).err()?));
        if let Some((name, error)) = histories.iter().find_map(violation) {
            violations.push(format!("{invariant}: {error}"));
            about = about.or(Some(name));
        }
    }
    if let Err((name, error)) = nothing_is_lost(&histories, left) {
        violations.push(format!("invariant 2: {error}"));
        about = about.or(name);
    }
    if violations.is_empty() {
        return Ok(());
    }
    let about = about.map(|name| report(events, &name.0, &name.1)).unwrap_or_default();
    Err(format!("{about}\n{}", violations.join("\n")))
}

/// Clients make no invalid calls.
fn nothing_is_invalid(events: &[Event]) -> Checked {
    for event in events {
        let invalid = match &event.call {
            Call::Put(_, Err(PutError::Store(StoreError::Invalid(invalid))))
            | Call::Claim(_, Err(StoreError::Invalid(invalid)))
            | Call::Settle(_, Err(SettleError::Store(StoreError::Invalid(invalid))))
            | Call::Change(_, Err(ChangeError::Store(StoreError::Invalid(invalid)))) => invalid,
            _ => continue,
        };
        return Err(format!("{:?} is invalid: {invalid}", event.call));
    }
    Ok(())
}

/// Invariant 1: Fences strictly rise, and so do generations. Calls that overlap have them in any
/// order, but never the same one.
fn fences_and_generations_rise(events: &[Event]) -> Checked {
    let mut issued: BTreeMap<(&str, &Kind), Vec<(Span, u64)>> = BTreeMap::new();
    for event in events {
        match &event.call {
            Call::Claim(_, Ok(claimed)) => {
                for job in &claimed.jobs {
                    let fences = issued.entry(("fence", job.kind())).or_default();
                    fences.push((event.span, job.receipt.fence().0));
                }
            }
            Call::Put(put, Ok(placed)) if placed.outcome != PutOutcome::Kept => {
                let generations = issued.entry(("generation", &put.kind)).or_default();
                generations.push((event.span, placed.generation.0));
            }
            _ => {}
        }
    }
    for ((counter, kind), mut issued) in issued {
        issued.sort_by_key(|(_, number)| *number);
        if let Some(twice) = issued.windows(2).find(|pair| pair[0].1 == pair[1].1) {
            return Err(format!("{counter} {} of {kind} was issued twice", twice[0].1));
        }
        // The call that began last among those with lower numbers.
        let mut latest: Option<(Span, u64)> = None;
        for (span, number) in issued {
            if let Some((later, lower)) = latest
                && span.is_before(&later)
            {
                return Err(format!("{counter} {lower} of {kind} was issued after {number}"));
            }
            if latest.is_none_or(|(latest, _)| latest.began < span.began) {
                latest = Some((span, number));
            }
        }
    }
    Ok(())
}

/// Invariant 1: At most one receipt can ack. A leased job is not delivered to another worker.
fn one_lease_at_a_time(history: &JobHistory<'_>, skew: Duration) -> Checked {
    for pair in history.deliveries.windows(2) {
        let [first, second] = pair else { continue };
        let end = history.lease_end(first.job, &second.span);
        let may_have_ended = history
            .settled(&first.job.receipt)
            .any(|settlement| settlement.ends() && !second.span.is_before(&settlement.span));
        if !may_have_ended && is_early(&second.span, end, skew) {
            let (receipt, other) = (&second.job.receipt, &first.job.receipt);
            return Err(format!("{receipt} while {other} is leased until {}", end.as_millis()));
        }
    }
    Ok(())
}

/// Returns whether a call ended before this time, even if the clocks differ by `skew`.
fn is_early(span: &Span, time: Timestamp, skew: Duration) -> bool {
    span.ended_at.saturating_add(skew) < time
}

/// Invariant 2: Every put that succeeded is acked, superseded, cancelled or dead after the faults stop.
fn nothing_is_lost<'a>(
    histories: &'a JobHistories<'_>,
    left: &[JobView],
) -> Result<(), (Option<&'a Name>, String)> {
    if let Some(job) = left.iter().find(|job| job.state != JobState::Dead) {
        return Err((None, format!("never done: {job:?}")));
    }
    for (name, history) in histories {
        let Some((put, newest)) = history.placed().max_by_key(|(_, generation)| *generation) else {
            continue;
        };
        let acked = history.settlements.iter().any(|settlement| {
            let of = history.delivery(&settlement.settle.receipt);
            settlement.settle.action == Settlement::Ack
                && settlement.ends()
                && of.is_some_and(|of| of.job.version.generation >= newest)
        });
        let cancelled = history
            .changes
            .iter()
            .any(|(span, action, _)| *action == ChangeKind::Cancel && !span.is_before(&put.span));
        let is_it = |job: &&JobView| (&job.kind, &job.id) == (&name.0, &name.1);
        let dead = left.iter().find(is_it).is_some_and(|job| job.version.generation >= newest);
        if !(acked || cancelled || dead) {
            return Err((Some(name), format!("generation {newest} is lost")));
        }
    }
    Ok(())
}

/// Invariant 3: Nothing is delivered before the effective due time of its generation, except after
/// `run_now`.
fn nothing_is_early(history: &JobHistory<'_>, skew: Duration) -> Checked {
    for Delivery { span, job } in &history.deliveries {
        if is_early(span, job.version.due, skew) {
            return Err(format!("{} is due at {}", job.receipt, job.version.due.as_millis()));
        }
        let mut put =
            history.placed().filter(|(_, generation)| *generation == job.version.generation);
        let Some((put, _)) = put.next() else { continue };
        if let Some(due) = not_before(put)
            && is_early(span, due, skew)
            && !history.may_have_been_made_due(&put.span, span)
        {
            return Err(format!("{} is not due before {}", job.receipt, due.as_millis()));
        }
    }
    Ok(())
}

/// Returns the time before which the put is not due, if it is known.
fn not_before(call: &PutCall<'_>) -> Option<Timestamp> {
    let Due::After(delay) = call.put.due else { return None };
    let outcome = call.placed?.outcome;
    let is_new = matches!(outcome, PutOutcome::Created | PutOutcome::Revived);
    let delay = match call.put.mode {
        Mode::Debounce { max_wait } if is_new => delay.min(max_wait),
        Mode::Replace | Mode::Keep => delay,
        Mode::Earliest if is_new => delay,
        // It depends on the job that existed.
        _ => return None,
    };
    Some(call.span.began_at.saturating_add(delay))
}

/// Invariant 3: A job is not delivered before its backoff ends, even if it is put again.
fn no_backoff_is_cut_short(history: &JobHistory<'_>, skew: Duration) -> Checked {
    for pair in history.deliveries.windows(2) {
        let [failed, again] = pair else { continue };
        let retried = history.settled(&failed.job.receipt).find_map(|of| match of.outcome {
            Outcome::Settled(Settled::RetryAt(at)) => Some((of, at)),
            _ => None,
        });
        let Some((retry, at)) = retried else { continue };
        // The due time of a successor may be later, and hide the end of the backoff.
        let has_next = history
            .puts
            .iter()
            .any(|put| !put.span.is_before(&failed.span) && !retry.span.is_before(&put.span));
        if again.job.attempt == failed.job.attempt + 1
            && is_early(&again.span, at, skew)
            && !has_next
            && !history.may_have_been_made_due(&retry.span, &again.span)
            && !history.may_have_been_claimed(&failed.span, &again.span)
        {
            return Err(format!("{} is in backoff until {}", again.job.receipt, at.as_millis()));
        }
    }
    Ok(())
}

/// Invariant 4: A generation that is delivered was put, is the newest one, and was not acked before.
fn newest_generation_is_delivered(history: &JobHistory<'_>, _: Duration) -> Checked {
    let acked =
        history.settlements.iter().filter(|of| of.outcome == Outcome::Settled(Settled::Done));
    let acked: Vec<_> = acked
        .filter_map(|ack| {
            Some((ack, history.delivery(&ack.settle.receipt)?.job.version.generation))
        })
        .collect();
    for Delivery { span, job } in &history.deliveries {
        let (receipt, delivered) = (&job.receipt, job.version.generation);
        let newer = |(put, generation): &(&PutCall<'_>, _)| {
            *generation > delivered && put.span.is_before(span)
        };
        if let Some((_, newer)) = history.placed().find(newer) {
            return Err(format!(
                "{receipt} has generation {delivered}, but {newer} was put before"
            ));
        }
        let may_be_it = |put: &PutCall<'_>| put.placed.is_none() && !span.is_before(&put.span);
        if !history.placed().any(|(_, generation)| generation == delivered)
            && !history.puts.iter().any(may_be_it)
        {
            return Err(format!("{receipt} has generation {delivered}, which was never put"));
        }
        let acked_before = |(ack, generation): &&(&SettleCall<'_>, Generation)| {
            *generation >= delivered && ack.span.is_before(span)
        };
        if let Some((ack, _)) = acked.iter().find(acked_before) {
            return Err(format!("{receipt} was acked before, under {}", ack.settle.receipt));
        }
    }
    Ok(())
}

/// Invariant 5: A stale receipt is refused. The latest one is accepted until its lease ends.
fn only_the_latest_receipt_is_accepted(history: &JobHistory<'_>, skew: Duration) -> Checked {
    for settlement in &history.settlements {
        let receipt = &settlement.settle.receipt;
        if let Outcome::Settled(settled) = settlement.outcome
            && let Some(later) = history.deliveries.iter().find(|delivery| {
                delivery.job.receipt.fence() > receipt.fence()
                    && delivery.span.is_before(&settlement.span)
            })
        {
            let later = &later.job.receipt;
            return Err(format!("{receipt} is older than {later}, but the result was {settled:?}"));
        }
        let may_have_ended = history
            .settled(receipt)
            .any(|other| other.ends() && !settlement.span.is_before(&other.span));
        if settlement.outcome == Outcome::Lost
            && !may_have_ended
            && let Some(of) = history.delivery(receipt)
            && is_early(&settlement.span, history.lease_end(of.job, &settlement.span), skew)
        {
            return Err(format!("{receipt} was refused before its lease ended"));
        }
    }
    Ok(())
}

/// Invariant 6: attempt = 1 + failures. After `max_attempts` failures a job is dead. A release never
/// counts.
fn attempts_are_failures(history: &JobHistory<'_>, _: Duration) -> Checked {
    if let Some(of) = history.deliveries.iter().find(|of| of.job.attempt > MAX_ATTEMPTS) {
        return Err(format!("{} is an attempt too many", of.job.receipt));
    }
    for pair in history.deliveries.windows(2) {
        let [first, second] = pair else { continue };
        let released = history
            .settled(&first.job.receipt)
            .any(|settlement| settlement.outcome == Outcome::Settled(Settled::Released));
        let most = first.job.attempt + u32::from(!released);
        if second.job.attempt > most && !history.may_have_been_claimed(&first.span, &second.span) {
            let (receipt, attempt) = (&second.job.receipt, second.job.attempt);
            return Err(format!("{receipt} is attempt {attempt}, but at most {most} is possible"));
        }
    }
    Ok(())
}

/// Invariant 7: After a cancel has returned, no generation up to then is delivered.
fn cancelled_jobs_are_not_delivered(history: &JobHistory<'_>, _: Duration) -> Checked {
    let cancels = history.changes.iter().filter(|(_, action, certainty)| {
        *action == ChangeKind::Cancel && *certainty == Certainty::Certain
    });
    for (cancel, ..) in cancels {
        let covered = history.placed().filter(|(put, _)| put.span.is_before(cancel));
        let Some(covered) = covered.map(|(_, generation)| generation).max() else { continue };
        let delivered = history.deliveries.iter().find(|delivery| {
            delivery.job.version.generation <= covered && cancel.is_before(&delivery.span)
        });
        if let Some(delivered) = delivered {
            return Err(format!("{} was cancelled", delivered.job.receipt));
        }
    }
    Ok(())
}

/// Invariant 8: Settling is idempotent: of two settlements of a lease, one ended it.
fn a_lease_ends_once(history: &JobHistory<'_>, _: Duration) -> Checked {
    let succeeded = |settlement: &SettleCall<'_>| matches!(settlement.outcome, Outcome::Settled(_));
    for Delivery { job, .. } in &history.deliveries {
        let receipt = &job.receipt;
        let mut ended = history.settled(receipt).filter(|of| of.ends() && succeeded(of));
        let Some(end) = ended.next() else { continue };
        let later = |of: &&SettleCall<'_>| succeeded(of) && end.span.is_before(&of.span);
        if let Some(again) = ended.next().or_else(|| history.settled(receipt).find(later)) {
            let (first, second) = (end.outcome, again.outcome);
            return Err(format!("{receipt} was settled twice: {first:?} and {second:?}"));
        }
    }
    Ok(())
}
