//! The invariants of durable jobs, as far as they can be seen where things overlap: each finds
//! what is wrong whatever came first.

use super::log::{Event, Happened, Span, told};
use super::story::{Delivery, Known, Outcome, PutSeen, SettleSeen, Stories, Story, stories};
use requeue_jobs::{
    ChangeError, ChangeKind, Due, Generation, JobId, JobState, JobView, Kind, Mode, PutError,
    PutOutcome, SettleError, Settled, Settlement, StoreError, Timestamp,
};
use std::collections::BTreeMap;
use std::time::Duration;

/// What clients set for all kinds.
pub(super) const MAX_ATTEMPTS: u32 = 3;

type Name = (Kind, JobId);
type Checked = Result<(), String>;
type Check = fn(&Story<'_>, Duration) -> Checked;

const CHECKS: [(&str, Check); 8] = [
    ("invariant 1", one_lease_at_a_time),
    ("invariant 3", nothing_is_early),
    ("invariant 3", no_backoff_is_cut_short),
    ("invariant 4", the_newest_is_delivered),
    ("invariant 5", only_the_latest_receipt_is_taken),
    ("invariant 6", attempts_are_failures),
    ("invariant 7", what_was_cancelled_is_not_delivered),
    ("invariant 8", a_lease_ends_once),
];

/// Checks all that happened, where `left` is what the store has at last. Answers what does not
/// hold, of each invariant once, and all about the first job of which it does not.
pub(super) fn check(events: &[Event], left: &[JobView], skew: Duration) -> Checked {
    nothing_is_invalid(events)?;
    let stories = stories(events);
    let (mut wrong, mut about) = (Vec::new(), None);
    if let Err(error) = fences_and_generations_rise(events) {
        wrong.push(format!("invariant 1: {error}"));
    }
    for (invariant, check) in CHECKS {
        let wrong_of = |(name, story)| Some((name, check(story, skew).err()?));
        if let Some((name, error)) = stories.iter().find_map(wrong_of) {
            wrong.push(format!("{invariant}: {error}"));
            about = about.or(Some(name));
        }
    }
    if let Err((name, error)) = nothing_is_lost(&stories, left) {
        wrong.push(format!("invariant 2: {error}"));
        about = about.or(name);
    }
    if wrong.is_empty() {
        return Ok(());
    }
    let about = about.map(|name| told(events, &name.0, &name.1)).unwrap_or_default();
    Err(format!("{about}\n{}", wrong.join("\n")))
}

/// Clients ask for nothing that cannot be.
fn nothing_is_invalid(events: &[Event]) -> Checked {
    for event in events {
        let invalid = match &event.what {
            Happened::Put(_, Err(PutError::Store(StoreError::Invalid(invalid))))
            | Happened::Claim(_, Err(StoreError::Invalid(invalid)))
            | Happened::Settle(_, Err(SettleError::Store(StoreError::Invalid(invalid))))
            | Happened::Change(_, Err(ChangeError::Store(StoreError::Invalid(invalid)))) => invalid,
            _ => continue,
        };
        return Err(format!("{:?} was refused: {invalid}", event.what));
    }
    Ok(())
}

/// Invariant 1: fences strictly rise; so do generations. What overlaps has them in any order, but
/// never the same.
fn fences_and_generations_rise(events: &[Event]) -> Checked {
    let mut given: BTreeMap<(&str, &Kind), Vec<(Span, u64)>> = BTreeMap::new();
    for event in events {
        match &event.what {
            Happened::Claim(_, Ok(claimed)) => {
                for job in &claimed.jobs {
                    let fences = given.entry(("fence", job.kind())).or_default();
                    fences.push((event.span, job.receipt.fence().0));
                }
            }
            Happened::Put(put, Ok(placed)) if placed.outcome != PutOutcome::Kept => {
                let generations = given.entry(("generation", &put.kind)).or_default();
                generations.push((event.span, placed.generation.0));
            }
            _ => {}
        }
    }
    for ((what, kind), mut given) in given {
        given.sort_by_key(|(_, number)| *number);
        if let Some(twice) = given.windows(2).find(|pair| pair[0].1 == pair[1].1) {
            return Err(format!("{what} {} of {kind} was given out twice", twice[0].1));
        }
        // Of those with lower numbers, the one that began last.
        let mut latest: Option<(Span, u64)> = None;
        for (span, number) in given {
            if let Some((later, lower)) = latest
                && span.is_before(&later)
            {
                return Err(format!("{what} {lower} of {kind} came after {number}"));
            }
            if latest.is_none_or(|(latest, _)| latest.began < span.began) {
                latest = Some((span, number));
            }
        }
    }
    Ok(())
}

/// Invariant 1: at most one receipt can ack: nobody gets a job while another's lease goes on.
fn one_lease_at_a_time(story: &Story<'_>, skew: Duration) -> Checked {
    for pair in story.deliveries.windows(2) {
        let [first, second] = pair else { continue };
        let end = story.lease_end(first.job, &second.span);
        let may_have_ended = story
            .settled(&first.job.receipt)
            .any(|settlement| settlement.ends() && !second.span.is_before(&settlement.span));
        if !may_have_ended && is_early(&second.span, end, skew) {
            let (receipt, other) = (&second.job.receipt, &first.job.receipt);
            return Err(format!("{receipt} while {other} is leased until {}", end.as_millis()));
        }
    }
    Ok(())
}

/// Whether something was over before this time, whatever the clocks say.
fn is_early(span: &Span, time: Timestamp, skew: Duration) -> bool {
    span.ended_at.saturating_add(skew) < time
}

/// Invariant 2: every answered put ends acked, superseded, cancelled or dead once faults stop.
fn nothing_is_lost<'a>(
    stories: &'a Stories<'_>,
    left: &[JobView],
) -> Result<(), (Option<&'a Name>, String)> {
    if let Some(job) = left.iter().find(|job| job.state != JobState::Dead) {
        return Err((None, format!("this one is never done: {job:?}")));
    }
    for (name, story) in stories {
        let Some((put, newest)) = story.placed().max_by_key(|(_, generation)| *generation) else {
            continue;
        };
        let acked = story.settlements.iter().any(|settlement| {
            let of = story.delivery(&settlement.settle.receipt);
            settlement.settle.action == Settlement::Ack
                && settlement.ends()
                && of.is_some_and(|of| of.job.generation >= newest)
        });
        let cancelled = story
            .changes
            .iter()
            .any(|(span, action, _)| *action == ChangeKind::Cancel && !span.is_before(&put.span));
        let is_it = |job: &&JobView| (&job.kind, &job.id) == (&name.0, &name.1);
        let dead = left.iter().find(is_it).is_some_and(|job| job.generation >= newest);
        if !(acked || cancelled || dead) {
            return Err((Some(name), format!("generation {newest} is gone")));
        }
    }
    Ok(())
}

/// Invariant 3: nothing is delivered before its generation's effective due time (`run_now`
/// excepted).
fn nothing_is_early(story: &Story<'_>, skew: Duration) -> Checked {
    for Delivery { span, job } in &story.deliveries {
        if is_early(span, job.due, skew) {
            return Err(format!("{} is due at {}", job.receipt, job.due.as_millis()));
        }
        let mut put = story.placed().filter(|(_, generation)| *generation == job.generation);
        let Some((put, _)) = put.next() else { continue };
        if let Some(due) = not_before(put)
            && is_early(span, due, skew)
            && !story.is_rushed(&put.span, span)
        {
            return Err(format!("{} is not due before {}", job.receipt, due.as_millis()));
        }
    }
    Ok(())
}

/// What was put is not due before this, whatever it was put on.
fn not_before(seen: &PutSeen<'_>) -> Option<Timestamp> {
    let Due::After(delay) = seen.put.due else { return None };
    let outcome = seen.placed?.outcome;
    let is_new = matches!(outcome, PutOutcome::Created | PutOutcome::Revived);
    let delay = match seen.put.mode {
        Mode::Debounce { max_wait } if is_new => delay.min(max_wait),
        Mode::Replace | Mode::Keep => delay,
        Mode::Earliest if is_new => delay,
        // It depends on what was there.
        _ => return None,
    };
    Some(seen.span.began_at.saturating_add(delay))
}

/// Invariant 3: the backoff's end is a floor, also for what is put.
fn no_backoff_is_cut_short(story: &Story<'_>, skew: Duration) -> Checked {
    for pair in story.deliveries.windows(2) {
        let [failed, again] = pair else { continue };
        let retried = story.settled(&failed.job.receipt).find_map(|of| match of.outcome {
            Outcome::Did(Settled::RetryAt(at)) => Some((of, at)),
            _ => None,
        });
        let Some((retry, at)) = retried else { continue };
        // A successor may have been due later, and hides when the backoff ends.
        let has_next = story
            .puts
            .iter()
            .any(|put| !put.span.is_before(&failed.span) && !retry.span.is_before(&put.span));
        if again.job.attempt == failed.job.attempt + 1
            && is_early(&again.span, at, skew)
            && !has_next
            && !story.is_rushed(&retry.span, &again.span)
            && !story.is_blind(&failed.span, &again.span)
        {
            return Err(format!("{} is backed off until {}", again.job.receipt, at.as_millis()));
        }
    }
    Ok(())
}

/// Invariant 4: what is delivered was put, nothing newer was there, and it was not acked before.
fn the_newest_is_delivered(story: &Story<'_>, _: Duration) -> Checked {
    let acked = story.settlements.iter().filter(|of| of.outcome == Outcome::Did(Settled::Done));
    let acked: Vec<_> = acked
        .filter_map(|ack| Some((ack, story.delivery(&ack.settle.receipt)?.job.generation)))
        .collect();
    for Delivery { span, job } in &story.deliveries {
        let (receipt, delivered) = (&job.receipt, job.generation);
        let newer = |(put, generation): &(&PutSeen<'_>, _)| {
            *generation > delivered && put.span.is_before(span)
        };
        if let Some((_, newer)) = story.placed().find(newer) {
            return Err(format!("{receipt} has generation {delivered}, and there was {newer}"));
        }
        let perhaps = |put: &PutSeen<'_>| put.placed.is_none() && !span.is_before(&put.span);
        if !story.placed().any(|(_, generation)| generation == delivered)
            && !story.puts.iter().any(perhaps)
        {
            return Err(format!("{receipt} has generation {delivered}, which nobody put"));
        }
        let acked_before = |(ack, generation): &&(&SettleSeen<'_>, Generation)| {
            *generation >= delivered && ack.span.is_before(span)
        };
        if let Some((ack, _)) = acked.iter().find(acked_before) {
            return Err(format!("{receipt} was acked before, under {}", ack.settle.receipt));
        }
    }
    Ok(())
}

/// Invariant 5: a stale receipt is refused, and the latest is not, as long as its lease goes on.
fn only_the_latest_receipt_is_taken(story: &Story<'_>, skew: Duration) -> Checked {
    for settlement in &story.settlements {
        let receipt = &settlement.settle.receipt;
        if let Outcome::Did(settled) = settlement.outcome
            && let Some(later) = story.deliveries.iter().find(|delivery| {
                delivery.job.receipt.fence() > receipt.fence()
                    && delivery.span.is_before(&settlement.span)
            })
        {
            let later = &later.job.receipt;
            return Err(format!("{receipt} was answered {settled:?}, and there was {later}"));
        }
        let may_have_ended = story
            .settled(receipt)
            .any(|other| other.ends() && !settlement.span.is_before(&other.span));
        if settlement.outcome == Outcome::Lost
            && !may_have_ended
            && let Some(of) = story.delivery(receipt)
            && is_early(&settlement.span, story.lease_end(of.job, &settlement.span), skew)
        {
            return Err(format!("{receipt} was refused, and nobody can have taken it"));
        }
    }
    Ok(())
}

/// Invariant 6: attempt = 1 + failures; max attempts of failures = dead; release never counts.
fn attempts_are_failures(story: &Story<'_>, _: Duration) -> Checked {
    if let Some(of) = story.deliveries.iter().find(|of| of.job.attempt > MAX_ATTEMPTS) {
        return Err(format!("{} is an attempt too many", of.job.receipt));
    }
    for pair in story.deliveries.windows(2) {
        let [first, second] = pair else { continue };
        let released = story
            .settled(&first.job.receipt)
            .any(|settlement| settlement.outcome == Outcome::Did(Settled::Released));
        let most = first.job.attempt + u32::from(!released);
        if second.job.attempt > most && !story.is_blind(&first.span, &second.span) {
            let (receipt, attempt) = (&second.job.receipt, second.job.attempt);
            return Err(format!("{receipt} is attempt {attempt}, and not above {most}"));
        }
    }
    Ok(())
}

/// Invariant 7: after cancel answered, nothing it covered is delivered anew.
fn what_was_cancelled_is_not_delivered(story: &Story<'_>, _: Duration) -> Checked {
    let cancels = story
        .changes
        .iter()
        .filter(|(_, action, known)| *action == ChangeKind::Cancel && *known == Known::Done);
    for (cancel, ..) in cancels {
        let covered = story.placed().filter(|(put, _)| put.span.is_before(cancel));
        let Some(covered) = covered.map(|(_, generation)| generation).max() else { continue };
        let delivered = story.deliveries.iter().find(|delivery| {
            delivery.job.generation <= covered && cancel.is_before(&delivery.span)
        });
        if let Some(delivered) = delivered {
            return Err(format!("{} was cancelled", delivered.job.receipt));
        }
    }
    Ok(())
}

/// Invariant 8: doing it twice equals once: of two settlements of a lease, one ended it.
fn a_lease_ends_once(story: &Story<'_>, _: Duration) -> Checked {
    let did = |settlement: &SettleSeen<'_>| matches!(settlement.outcome, Outcome::Did(_));
    for Delivery { job, .. } in &story.deliveries {
        let receipt = &job.receipt;
        let mut ended = story.settled(receipt).filter(|of| of.ends() && did(of));
        let Some(end) = ended.next() else { continue };
        let later = |of: &&SettleSeen<'_>| did(of) && end.span.is_before(&of.span);
        if let Some(again) = ended.next().or_else(|| story.settled(receipt).find(later)) {
            let (first, second) = (end.outcome, again.outcome);
            return Err(format!("{receipt} was answered {first:?} and {second:?}"));
        }
    }
    Ok(())
}
