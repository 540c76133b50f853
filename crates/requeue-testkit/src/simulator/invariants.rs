//! The invariants of durable jobs, each a check of one event against what the log said before.
//!
//! What cannot be seen here: the ninth (what is left after a cut at any write) needs a disk to
//! cut; of the first, fences after a restart or under a clock that goes back; of the twelfth,
//! files and memory windows. Those are for the tests of each store.

use super::event::{Event, Happened};
use super::facts::Facts;
use requeue_jobs::limits::WAIT_SLICE;
use requeue_jobs::{
    ClaimedJob, Counts, Due, JobState, JobView, Kind, Mode, PutOutcome, Settings, SettleError,
    Settled, Settlement, Ticked, Timestamp,
};

/// So many claims in a row may get none of a kind that has ready jobs. With two kinds, one is
/// what strict turns give; one more is for stores that cannot keep them exactly.
const MAX_PASSED_OVER: u32 = 2;

type Checked = Result<(), String>;
type Check = fn(&Facts, &Event) -> Checked;

const CHECKS: [(&str, Check); 10] = [
    ("invariant 1", one_receipt_can_ack),
    ("invariant 3", nothing_is_early),
    ("invariant 4", the_successor_is_the_last_put),
    ("invariant 5", a_stale_receipt_changes_nothing),
    ("invariant 6", attempts_are_failures),
    ("invariant 7", what_was_cancelled_is_not_delivered),
    ("invariant 8", twice_equals_once),
    ("invariant 10", claims_follow_the_order),
    ("invariant 11", who_waits_gets_work),
    ("invariant 12", counts_equal_enumeration),
];

/// Checks a whole log, the last of whose events is an audit after all has become quiet.
pub(super) fn check(events: &[Event]) -> Checked {
    let mut facts = Facts::default();
    for (number, event) in events.iter().enumerate() {
        for (name, check) in CHECKS {
            check(&facts, event).map_err(|error| told(name, &error, &events[..=number]))?;
        }
        facts.note(event);
    }
    nothing_is_lost(&facts, events).map_err(|error| told("invariant 2", &error, events))
}

/// What does not hold, and what happened last.
fn told(name: &str, error: &str, events: &[Event]) -> String {
    let lines: Vec<String> = events.iter().filter_map(Event::line).collect();
    let last = lines.len().saturating_sub(40);
    format!("{}\n{name}: {error}", lines[last..].join("\n"))
}

/// Invariant 1: At most one receipt per (kind, id) can ack; fences strictly rise.
fn one_receipt_can_ack(facts: &Facts, event: &Event) -> Checked {
    match &event.what {
        Happened::Claim { jobs, .. } => {
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
        Happened::Settle { settle, settled: Ok(_), .. } if settle.action == Settlement::Ack => {
            let receipt = &settle.receipt;
            let lease = facts.of(receipt.kind(), receipt.id()).lease;
            match lease {
                Some(lease) if lease.receipt == *receipt => Ok(()),
                other => Err(format!("{receipt} acked, and the lease is {other:?}")),
            }
        }
        _ => Ok(()),
    }
}

/// Invariant 2: Every answered put ends acked, superseded, cancelled or dead once faults stop.
fn nothing_is_lost(facts: &Facts, events: &[Event]) -> Checked {
    let Some(Happened::Audit { listed, .. }) = events.last().map(|event| &event.what) else {
        return Err("the log does not end with an audit".to_owned());
    };
    if let Some(job) = listed.iter().find(|job| job.state != JobState::Dead) {
        return Err(format!("this one is never done: {job:?}"));
    }
    for ((kind, id), known) in &facts.jobs {
        let ended = known.acked.contains(&known.newest) || known.newest <= known.cancelled;
        let is_it = |job: &&JobView| job.kind == *kind && job.id == *id;
        let dead = listed.iter().find(is_it).map(|job| job.generation);
        if !ended && dead != Some(known.newest) {
            return Err(format!("{kind}/{id} is gone: {known:?}"));
        }
    }
    Ok(())
}

/// Invariant 3: Nothing is delivered before its generation's effective due time (`run_now` excepted).
fn nothing_is_early(facts: &Facts, event: &Event) -> Checked {
    let Happened::Claim { jobs, .. } = &event.what else { return Ok(()) };
    for job in jobs {
        let known = facts.of(job.kind(), job.id());
        let backoff = known.backoff.map_or(Timestamp::default(), |backoff| backoff.ends_at);
        let due = job.due.max(known.not_before).max(backoff);
        if due > event.at {
            return Err(format!("{} is not due before {}", job.receipt, due.as_millis()));
        }
    }
    Ok(())
}

/// Invariant 4: k puts during a lease: one successor, delivered after it ends, of the last put's
/// generation or later.
fn the_successor_is_the_last_put(facts: &Facts, event: &Event) -> Checked {
    let Happened::Claim { jobs, .. } = &event.what else { return Ok(()) };
    for job in jobs {
        let known = facts.of(job.kind(), job.id());
        let (newest, generation) = (known.newest, job.generation);
        if generation != newest {
            return Err(format!("{} has generation {generation}, not {newest}", job.receipt));
        }
        if known.acked.contains(&generation) {
            return Err(format!("{} was acked before", job.receipt));
        }
    }
    Ok(())
}

/// Invariant 5: A stale receipt changes nothing.
fn a_stale_receipt_changes_nothing(facts: &Facts, event: &Event) -> Checked {
    let Happened::Settle { settle, settled, before, after } = &event.what else { return Ok(()) };
    let receipt = &settle.receipt;
    let lease = facts.of(receipt.kind(), receipt.id()).lease;
    if lease.is_none_or(|lease| lease.receipt != *receipt) && settled.is_ok() {
        return Err(format!("{receipt} is stale, and was answered {settled:?}"));
    }
    if matches!(settled, Err(SettleError::LeaseLost { .. })) && before != after {
        return Err(format!("{receipt} changed {before:?} to {after:?}"));
    }
    Ok(())
}

/// Invariant 6: attempt = 1 + failures since the last reset; max attempts of failures = dead, whatever
/// is put meanwhile; release never counts.
fn attempts_are_failures(facts: &Facts, event: &Event) -> Checked {
    let max = |kind: &Kind| settings(facts, kind).max_attempts.max(1);
    match &event.what {
        Happened::Claim { jobs, .. } => {
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
        Happened::Settle { settle, settled: Ok(settled), .. } => {
            let receipt = &settle.receipt;
            let failures = 1 + facts.of(receipt.kind(), receipt.id()).failures;
            let dies = failures >= max(receipt.kind());
            match settled {
                Settled::Dead if !dies => Err(format!("{receipt} died of {failures} failures")),
                Settled::RetryAt(_) if dies => {
                    Err(format!("{receipt} lives after {failures} failures"))
                }
                _ => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

/// Invariant 7: After cancel answered, nothing it covered is delivered anew. (That later puts are, is
/// the second.)
fn what_was_cancelled_is_not_delivered(facts: &Facts, event: &Event) -> Checked {
    let Happened::Claim { jobs, .. } = &event.what else { return Ok(()) };
    let cancelled = |job: &&ClaimedJob| job.generation <= facts.of(job.kind(), job.id()).cancelled;
    match jobs.iter().find(cancelled) {
        Some(job) => Err(format!("{} was cancelled", job.receipt)),
        None => Ok(()),
    }
}

/// Invariant 8: Doing ack, retry, extend, cancel or a conditional put twice equals once.
fn twice_equals_once(_: &Facts, event: &Event) -> Checked {
    match &event.what {
        Happened::Again { call, before, after } if before != after => {
            Err(format!("{call}\nmade of\n{before:?}\nthis:\n{after:?}"))
        }
        _ => Ok(()),
    }
}

/// Invariant 10: Within a kind claims follow the order; a ready job is overtaken finitely often, despite
/// re-puts (one that is due now does not lose its place) and backlogs (of other kinds).
fn claims_follow_the_order(facts: &Facts, event: &Event) -> Checked {
    let passed_over = facts.passed_over.iter().find(|(_, count)| **count > MAX_PASSED_OVER);
    if let Some((kind, count)) = passed_over {
        return Err(format!("{count} claims in a row passed {kind} over"));
    }
    match &event.what {
        Happened::Claim { jobs, before, .. } => {
            for (number, job) in jobs.iter().enumerate() {
                let is_it = |view: &&JobView| view.kind == *job.kind() && view.id == *job.id();
                let Some(view) = before.iter().find(is_it) else {
                    return Err(format!("{} could not be claimed", job.receipt));
                };
                let claimed = |view: &JobView| {
                    let named = |job: &ClaimedJob| (job.kind(), job.id()) == (&view.kind, &view.id);
                    jobs[..number].iter().any(named)
                };
                // A lease that expired may have ended otherwise than in a claim.
                let ahead = |other: &&JobView| {
                    other.kind == view.kind
                        && other.state == JobState::Ready
                        && position(other) < position(view)
                        && !claimed(other)
                };
                if let Some(ahead) = before.iter().find(ahead) {
                    return Err(format!("{} overtook {}", job.receipt, ahead.id));
                }
            }
            Ok(())
        }
        Happened::Put { put, placed: Ok(placed), before: Some(before), after: Some(after) }
            if placed.outcome == PutOutcome::Updated
                && before.state == JobState::Ready
                && (put.due, put.mode) == (Due::Now, Mode::Replace)
                && before.due != after.due =>
        {
            Err(format!("{before:?} lost its place: {after:?}"))
        }
        _ => Ok(()),
    }
}

fn position(job: &JobView) -> Timestamp {
    job.lease.as_ref().map_or(job.due, |lease| lease.ends_at)
}

/// Invariant 11: With one live waiter and capacity, a job is claimed within one wait slice of its due
/// time, whoever else dies.
fn who_waits_gets_work(facts: &Facts, event: &Event) -> Checked {
    let Happened::Audit { listed, waiting, .. } = &event.what else { return Ok(()) };
    for kind in waiting {
        if !facts.has_room(kind, event.at) {
            continue;
        }
        let is_late = |job: &&JobView| {
            job.state != JobState::Dead && position(job).saturating_add(WAIT_SLICE) <= event.at
        };
        if let Some(late) = listed.iter().filter(|job| job.kind == *kind).find(is_late) {
            return Err(format!("somebody waits, and nobody claims {late:?}"));
        }
    }
    Ok(())
}

/// Invariant 12: Counts equal enumeration; paging lists untouched jobs exactly once; one put per cron
/// occurrence.
fn counts_equal_enumeration(facts: &Facts, event: &Event) -> Checked {
    match &event.what {
        Happened::Audit { listed, paged, counted, .. } => {
            if listed != paged {
                return Err(format!("on one page {listed:?}, on small ones {paged:?}"));
            }
            for view in counted {
                let of_kind = || listed.iter().filter(|job| job.kind == view.kind);
                let count = |state| of_kind().filter(|job| job.state == state).count() as u64;
                let (leased, dead) = (count(JobState::Leased), count(JobState::Dead));
                let ready = count(JobState::Ready);
                let pending = ready + count(JobState::Waiting);
                let counts = Counts { pending, leased, dead, ready };
                if view.counts != counts {
                    return Err(format!("counted {:?}, and there are {counts:?}", view.counts));
                }
            }
            Ok(())
        }
        Happened::Pages { before, paged, after } => {
            let untouched =
                before.iter().filter(|job| after.iter().any(|other| is_same(job, other)));
            for job in untouched {
                let times = paged.iter().filter(|other| other.id == job.id).count();
                if times != 1 {
                    return Err(format!("{times} times on pages: {job:?}"));
                }
            }
            Ok(())
        }
        Happened::Tick { tick, ticked: Ticked::Put(_) } => {
            let occurrence = (tick.kind.clone(), tick.id.clone(), tick.expected);
            if facts.ticked.contains(&occurrence) {
                return Err(format!("{occurrence:?} was put twice"));
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Whether nobody has touched it. That it fell due meanwhile is not to touch it.
fn is_same(job: &JobView, other: &JobView) -> bool {
    job.id == other.id && job.updated_at == other.updated_at
}

fn settings(facts: &Facts, kind: &Kind) -> Settings {
    facts.settings.get(kind).cloned().unwrap_or_default()
}
