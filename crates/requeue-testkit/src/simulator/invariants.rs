//! The invariants of durable jobs. Each is a check of one event against the log before it.
//!
//! Not checked here: invariant 9 (the state after a crash at any write) needs a disk; of invariant
//! 1, fences after a restart or with a clock that goes back; of invariant 12, files and memory
//! windows. The tests of each store check those.

use super::event::{Action, Event};
use super::facts::Facts;
use requeue_jobs::limits::WAIT_SLICE;
use requeue_jobs::{
    ClaimedJob, Condition, Counts, Due, JobState, JobView, Kind, Mode, PutOutcome, Settings,
    SettleError, Settled, Settlement, Ticked, Timestamp,
};
use std::cmp::Reverse;
use std::time::Duration;

/// The number of claims in a row that may return no job of a kind that has ready jobs. With two kinds
/// that strictly take turns it is one; one more is allowed for stores that are not as exact.
const MAX_PASSED_OVER: u32 = 2;

type Checked = Result<(), String>;
type Check = fn(&Facts, &Event) -> Checked;

const CHECKS: [(&str, Check); 12] = [
    ("invariant 1", one_receipt_can_ack),
    ("invariant 3", nothing_is_early),
    ("invariant 4", successor_is_the_last_put),
    ("invariant 5", stale_receipts_change_nothing),
    ("invariant 6", attempts_are_failures),
    ("invariant 7", cancelled_jobs_are_not_delivered),
    ("invariant 8", calls_are_idempotent),
    ("invariant 10", claims_follow_the_order),
    ("invariant 11", waiters_get_work),
    ("invariant 12", counts_equal_enumeration),
    ("invariant 13", rates_are_kept),
    ("invariant 14", done_jobs_do_not_run_again),
];

/// Checks a whole log. Its last event is an audit after all jobs were done.
pub(super) fn check(events: &[Event]) -> Checked {
    let mut facts = Facts::default();
    for (number, event) in events.iter().enumerate() {
        for (name, check) in CHECKS {
            check(&facts, event).map_err(|error| report(name, &error, &events[..=number]))?;
        }
        facts.add(event);
    }
    nothing_is_lost(&facts, events).map_err(|error| report("invariant 2", &error, events))
}

/// Returns the violation and the last events.
fn report(name: &str, error: &str, events: &[Event]) -> String {
    let lines: Vec<String> = events.iter().filter_map(Event::line).collect();
    let from = lines.len().saturating_sub(40);
    format!("{}\n{name}: {error}", lines[from..].join("\n"))
}

/// Invariant 1: At most one receipt per (kind, id) can ack; fences strictly rise.
fn one_receipt_can_ack(facts: &Facts, event: &Event) -> Checked {
    match &event.action {
        Action::Claim { jobs, .. } => {
            let mut fences = facts.fences.clone();
            for job in jobs {
                let fence = job.receipt.fence();
                if fences.insert(job.kind().clone(), fence).is_some_and(|last| last >= fence) {
                    return Err(format!("{} does not rise", job.receipt));
                }
                let lease = facts.of(job.kind(), job.id()).lease;
                if let Some(lease) = lease.filter(|lease| lease.ends_at > event.at) {
                    return Err(format!("{} while {} is leased", job.receipt, lease.receipt));
                }
            }
            Ok(())
        }
        Action::Settle { settle, settled: Ok(_), .. } if settle.action == Settlement::Ack => {
            let receipt = &settle.receipt;
            let lease = facts.of(receipt.kind(), receipt.id()).lease;
            match lease {
                Some(lease) if lease.receipt == *receipt => Ok(()),
                other => Err(format!("{receipt} acked, but the lease is {other:?}")),
            }
        }
        _ => Ok(()),
    }
}

/// Invariant 2: Every put that succeeded is acked, superseded, cancelled or dead after the faults stop.
fn nothing_is_lost(facts: &Facts, events: &[Event]) -> Checked {
    let Some(Action::Audit { listed, .. }) = events.last().map(|event| &event.action) else {
        return Err("the log does not end with an audit".to_owned());
    };
    if let Some(job) =
        listed.iter().find(|job| !matches!(job.state, JobState::Dead | JobState::Done))
    {
        return Err(format!("never done: {job:?}"));
    }
    for ((kind, id), job) in &facts.jobs {
        let ended = job.acked.contains(&job.newest) || job.newest <= job.cancelled;
        let is_it = |job: &&JobView| job.kind == *kind && job.id == *id;
        let dead = listed.iter().find(is_it).map(|job| job.version.generation);
        if !ended && dead != Some(job.newest) {
            return Err(format!("{kind}/{id} is lost: {job:?}"));
        }
    }
    Ok(())
}

/// Invariant 3: Nothing is delivered before its generation's effective due time (`run_now` excepted).
fn nothing_is_early(facts: &Facts, event: &Event) -> Checked {
    let Action::Claim { jobs, .. } = &event.action else { return Ok(()) };
    for job in jobs {
        let past = facts.of(job.kind(), job.id());
        let backoff = past.backoff.map_or(Timestamp::default(), |backoff| backoff.ends_at);
        let due = job.version.due.max(past.not_before).max(backoff);
        if due > event.at {
            return Err(format!("{} is not due before {}", job.receipt, due.as_millis()));
        }
    }
    Ok(())
}

/// Invariant 4: Several puts during a lease make one successor. It is delivered after the lease ends,
/// with the generation of the last put or a later one.
fn successor_is_the_last_put(facts: &Facts, event: &Event) -> Checked {
    let Action::Claim { jobs, .. } = &event.action else { return Ok(()) };
    for job in jobs {
        let past = facts.of(job.kind(), job.id());
        let (newest, generation) = (past.newest, job.version.generation);
        if generation != newest {
            return Err(format!("{} has generation {generation}, not {newest}", job.receipt));
        }
        if past.acked.contains(&generation) {
            return Err(format!("{} was acked before", job.receipt));
        }
    }
    Ok(())
}

/// Invariant 5: A stale receipt changes nothing.
fn stale_receipts_change_nothing(facts: &Facts, event: &Event) -> Checked {
    let Action::Settle { settle, settled, before, after } = &event.action else { return Ok(()) };
    let receipt = &settle.receipt;
    let lease = facts.of(receipt.kind(), receipt.id()).lease;
    if lease.is_none_or(|lease| lease.receipt != *receipt) && settled.is_ok() {
        return Err(format!("{receipt} is stale, but the result was {settled:?}"));
    }
    if matches!(settled, Err(SettleError::LeaseLost { .. })) && before != after {
        return Err(format!("{receipt} changed {before:?} to {after:?}"));
    }
    Ok(())
}

/// Invariant 6: attempt = 1 + failures since the last reset. After `max_attempts` failures a job is
/// dead, regardless of puts in between. A release never counts.
fn attempts_are_failures(facts: &Facts, event: &Event) -> Checked {
    let max = |kind: &Kind| settings(facts, kind).max_attempts.max(1);
    match &event.action {
        Action::Claim { jobs, .. } => {
            for job in jobs {
                let expected = 1 + facts.of(job.kind(), job.id()).failures_after_expiry();
                if job.attempt != expected {
                    let (receipt, attempt) = (&job.receipt, job.attempt);
                    return Err(format!("{receipt} is attempt {attempt}, not {expected}"));
                }
                if job.attempt > max(job.kind()) {
                    return Err(format!("{} is an attempt too many", job.receipt));
                }
            }
            Ok(())
        }
        Action::Settle { settle, settled: Ok(settled), .. } => {
            let receipt = &settle.receipt;
            let failures = 1 + facts.of(receipt.kind(), receipt.id()).failures;
            let dies = failures >= max(receipt.kind());
            match settled {
                Settled::Dead if !dies => {
                    Err(format!("{receipt} is dead after {failures} failures"))
                }
                Settled::RetryAt(_) if dies => {
                    Err(format!("{receipt} is not dead after {failures} failures"))
                }
                _ => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

/// Invariant 7: After a cancel has returned, no generation up to then is delivered. (Invariant 2
/// requires that later puts are.)
fn cancelled_jobs_are_not_delivered(facts: &Facts, event: &Event) -> Checked {
    let Action::Claim { jobs, .. } = &event.action else { return Ok(()) };
    let cancelled =
        |job: &&ClaimedJob| job.version.generation <= facts.of(job.kind(), job.id()).cancelled;
    match jobs.iter().find(cancelled) {
        Some(job) => Err(format!("{} was cancelled", job.receipt)),
        None => Ok(()),
    }
}

/// Invariant 8: Ack, retry, extend, cancel and conditional puts are idempotent.
fn calls_are_idempotent(_: &Facts, event: &Event) -> Checked {
    match &event.action {
        Action::Repeat { call, before, after } if before != after => {
            Err(format!("repeating {call}\nchanged\n{before:?}\nto\n{after:?}"))
        }
        _ => Ok(()),
    }
}

/// Invariant 10: Within a kind, claims follow the order. A ready job is overtaken a limited number of
/// times, despite repeated puts (a put that is due now does not move it) and backlogs of other kinds.
fn claims_follow_the_order(facts: &Facts, event: &Event) -> Checked {
    let passed_over = facts.passed_over.iter().find(|(_, count)| **count > MAX_PASSED_OVER);
    if let Some((kind, count)) = passed_over {
        return Err(format!("{count} claims in a row returned no job of {kind}"));
    }
    match &event.action {
        Action::Claim { jobs, before, .. } => {
            for (number, job) in jobs.iter().enumerate() {
                let is_it = |view: &&JobView| view.kind == *job.kind() && view.id == *job.id();
                let Some(view) = before.iter().find(is_it) else {
                    return Err(format!("{} could not be claimed", job.receipt));
                };
                let claimed = |view: &JobView| {
                    let named = |job: &ClaimedJob| (job.kind(), job.id()) == (&view.kind, &view.id);
                    jobs[..number].iter().any(named)
                };
                let ageing = settings(facts, &view.kind).ageing;
                let rank = |job: &JobView| (Reverse(level(job, ageing, event.at)), position(job));
                // An expired lease may have ended by other means than a claim.
                let ahead = |other: &&JobView| {
                    other.kind == view.kind
                        && other.state == JobState::Ready
                        && rank(other) < rank(view)
                        && !claimed(other)
                };
                if let Some(ahead) = before.iter().find(ahead) {
                    return Err(format!("{} overtook {}", job.receipt, ahead.id));
                }
            }
            Ok(())
        }
        Action::Put { put, placed: Ok(placed), before: Some(before), after: Some(after) }
            if placed.outcome == PutOutcome::Updated
                && before.state == JobState::Ready
                && (put.due, put.mode) == (Due::Now, Mode::Replace)
                && before.version.due != after.version.due =>
        {
            Err(format!("{before:?} was moved: {after:?}"))
        }
        _ => Ok(()),
    }
}

/// Returns the priority of a job, and one more for each span that it has been ready.
fn level(job: &JobView, ageing: Option<Duration>, now: Timestamp) -> u128 {
    let ready_for = now.saturating_since(position(job)).as_millis();
    let gained = ageing.map_or(0, |ageing| ready_for / ageing.as_millis());
    u128::from(job.version.priority.get()) + gained
}

fn position(job: &JobView) -> Timestamp {
    job.lease.as_ref().map_or(job.version.due, |lease| lease.ends_at)
}

/// Invariant 11: If a worker waits and the kind has capacity, a job is claimed within one wait slice of
/// its due time, even if other workers are killed.
fn waiters_get_work(facts: &Facts, event: &Event) -> Checked {
    let Action::Audit { listed, waiting, .. } = &event.action else { return Ok(()) };
    for kind in waiting {
        if !facts.has_room(kind, event.at) {
            continue;
        }
        let is_late = |job: &&JobView| {
            !matches!(job.state, JobState::Dead | JobState::Done)
                && position(job).saturating_add(WAIT_SLICE) <= event.at
        };
        if let Some(late) = listed.iter().filter(|job| job.kind == *kind).find(is_late) {
            return Err(format!("a worker waits, but does not claim {late:?}"));
        }
    }
    Ok(())
}

/// Invariant 12: Counts equal the listed jobs. Pages contain each unchanged job exactly once. Each
/// time of a schedule is put once.
fn counts_equal_enumeration(facts: &Facts, event: &Event) -> Checked {
    match &event.action {
        Action::Audit { listed, paged, counted, .. } => {
            if listed != paged {
                return Err(format!("in one page {listed:?}, in small pages {paged:?}"));
            }
            for view in counted {
                let of_kind = || listed.iter().filter(|job| job.kind == view.kind);
                let count = |state| of_kind().filter(|job| job.state == state).count() as u64;
                let (leased, dead) = (count(JobState::Leased), count(JobState::Dead));
                let (done, ready) = (count(JobState::Done), count(JobState::Ready));
                let pending = ready + count(JobState::Waiting);
                let counts = Counts { pending, leased, dead, done, ready };
                if view.counts != counts {
                    return Err(format!("counted {:?}, but listed {counts:?}", view.counts));
                }
            }
            Ok(())
        }
        Action::Pages { before, paged, after } => {
            let untouched =
                before.iter().filter(|job| after.iter().any(|other| is_same(job, other)));
            for job in untouched {
                let times = paged.iter().filter(|other| other.id == job.id).count();
                if times != 1 {
                    return Err(format!("{times} times in pages: {job:?}"));
                }
            }
            Ok(())
        }
        Action::Tick { tick, ticked: Ticked::Put(_) } => {
            let occurrence = (tick.kind.clone(), tick.id.clone(), tick.expected);
            if facts.ticked.contains(&occurrence) {
                return Err(format!("{occurrence:?} was put twice"));
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Invariant 13: In no span of time, more jobs of a kind are claimed than its rate limit allows for that
/// span, plus its burst. Released jobs do not count.
fn rates_are_kept(facts: &Facts, event: &Event) -> Checked {
    let Action::Claim { jobs, .. } = &event.action else { return Ok(()) };
    for (kind, settings) in &facts.settings {
        let count = jobs.iter().filter(|job| job.kind() == kind).count();
        if !facts.has_tokens(kind, count, event.at) {
            return Err(format!("{count} jobs of {kind} exceed {:?}", settings.rate));
        }
    }
    Ok(())
}

/// Invariant 14: While a job is kept as done, no put with the condition *if new* succeeds, so it does not
/// run again.
fn done_jobs_do_not_run_again(facts: &Facts, event: &Event) -> Checked {
    let Action::Put { put, placed: Ok(_), .. } = &event.action else { return Ok(()) };
    let done_at = facts.of(&put.kind, &put.id).done_at;
    match (done_at, put.condition, settings(facts, &put.kind).keep_done) {
        (Some(done_at), Some(Condition::IfNew), Some(kept))
            if event.at <= done_at.saturating_add(kept.age) =>
        {
            Err(format!("{put:?}, but it was done at {}", done_at.as_millis()))
        }
        _ => Ok(()),
    }
}

/// Returns whether the job was not changed. Becoming due is not a change.
fn is_same(job: &JobView, other: &JobView) -> bool {
    job.id == other.id && job.updated_at == other.updated_at
}

fn settings(facts: &Facts, kind: &Kind) -> Settings {
    facts.settings.get(kind).cloned().unwrap_or_default()
}
