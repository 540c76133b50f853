//! The calls for one job, and what is known about their effects.

use super::log::{Call, Event, Span};
use requeue_jobs::{
    ChangeKind, ClaimedJob, Generation, JobId, Kind, Placed, Put, PutError, PutOutcome, Receipt,
    Settle, SettleError, Settled, Settlement, StoreError, Timestamp,
};
use std::collections::BTreeMap;

/// All calls that may have had an effect. Those that certainly had none are left out.
#[derive(Default)]
pub(super) struct JobHistory<'a> {
    pub(super) puts: Vec<PutCall<'a>>,
    /// In the order of fences.
    pub(super) deliveries: Vec<Delivery<'a>>,
    /// In the order of fences.
    pub(super) settlements: Vec<SettleCall<'a>>,
    /// Cancels, revivals and `run_now`.
    pub(super) changes: Vec<(Span, ChangeKind, Certainty)>,
    /// Claims of its kind with an unknown outcome.
    pub(super) unknown_claims: Vec<Span>,
}

/// Whether a call certainly took effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Certainty {
    Certain,
    Possible,
}

pub(super) struct PutCall<'a> {
    pub(super) span: Span,
    pub(super) put: &'a Put,
    /// `None` if the outcome is unknown.
    pub(super) placed: Option<Placed>,
}

pub(super) struct Delivery<'a> {
    pub(super) span: Span,
    pub(super) job: &'a ClaimedJob,
}

pub(super) struct SettleCall<'a> {
    pub(super) span: Span,
    pub(super) settle: &'a Settle,
    pub(super) outcome: Outcome,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Settled(Settled),
    /// The lease was lost.
    Lost,
    Unknown,
}

impl SettleCall<'_> {
    /// Returns whether it ended the lease, or may have.
    pub(super) fn ends(&self) -> bool {
        !matches!(self.settle.action, Settlement::Extend(_)) && self.outcome != Outcome::Lost
    }
}

pub(super) type JobHistories<'a> = BTreeMap<(Kind, JobId), JobHistory<'a>>;

/// Returns the history of each job.
pub(super) fn histories(events: &[Event]) -> JobHistories<'_> {
    let mut histories = JobHistories::new();
    let mut unknown_claims: Vec<(&Kind, Span)> = Vec::new();
    for Event { span, call } in events {
        let (span, endless) = (*span, span.without_end());
        match call {
            Call::Put(put, result) => {
                let history = histories.entry((put.kind.clone(), put.id.clone())).or_default();
                match result {
                    Ok(placed) => {
                        let placed = Some(*placed);
                        history.puts.push(PutCall { span, put, placed });
                    }
                    Err(PutError::Store(StoreError::Unknown { .. })) => {
                        history.puts.push(PutCall { span: endless, put, placed: None });
                    }
                    Err(_) => {}
                }
            }
            Call::Claim(_, Ok(claimed)) => {
                for job in &claimed.jobs {
                    let name = (job.kind().clone(), job.id().clone());
                    histories.entry(name).or_default().deliveries.push(Delivery { span, job });
                }
                let is_unknown = |(_, error): &&(_, _)| matches!(error, StoreError::Unknown { .. });
                let unknown = claimed.errors.iter().filter(is_unknown);
                unknown_claims.extend(unknown.map(|(kind, _)| (kind, endless)));
            }
            Call::Claim(claim, Err(StoreError::Unknown { .. })) => {
                unknown_claims.extend(claim.kinds.iter().map(|kind| (kind, endless)));
            }
            Call::Claim(_, Err(_)) => {}
            Call::Settle(settle, result) => {
                let (span, outcome) = match result {
                    Ok(settled) => (span, Outcome::Settled(*settled)),
                    Err(SettleError::LeaseLost { .. }) => (span, Outcome::Lost),
                    Err(SettleError::Store(StoreError::Unknown { .. })) => {
                        (endless, Outcome::Unknown)
                    }
                    Err(_) => continue,
                };
                let name = (settle.receipt.kind().clone(), settle.receipt.id().clone());
                let settlement = SettleCall { span, settle, outcome };
                histories.entry(name).or_default().settlements.push(settlement);
            }
            Call::Change(change, result) => {
                let (span, known) = match result {
                    Ok(_) => (span, Certainty::Certain),
                    Err(requeue_jobs::ChangeError::Store(StoreError::Unknown { .. })) => {
                        (endless, Certainty::Possible)
                    }
                    Err(_) => continue,
                };
                let name = (change.kind.clone(), change.id.clone());
                histories.entry(name).or_default().changes.push((
                    span,
                    change.action.clone(),
                    known,
                ));
            }
        }
    }
    for ((kind, _), history) in &mut histories {
        history.deliveries.sort_by_key(|delivery| delivery.job.receipt.fence());
        history.settlements.sort_by_key(|settlement| settlement.settle.receipt.fence());
        let of_kind = unknown_claims.iter().filter(|(of, _)| *of == kind);
        history.unknown_claims = of_kind.map(|(_, span)| *span).collect();
    }
    histories
}

impl JobHistory<'_> {
    /// Returns the puts that succeeded, with their generations.
    pub(super) fn placed(&self) -> impl Iterator<Item = (&PutCall<'_>, Generation)> {
        self.puts.iter().filter_map(|seen| {
            let placed = seen.placed.filter(|placed| placed.outcome != PutOutcome::Kept)?;
            Some((seen, placed.generation))
        })
    }

    /// Returns the delivery with this receipt.
    pub(super) fn delivery(&self, receipt: &Receipt) -> Option<&Delivery<'_>> {
        let fence = |delivery: &Delivery<'_>| delivery.job.receipt.fence();
        let from = self.deliveries.partition_point(|of| fence(of) < receipt.fence());
        let mut same = self.deliveries[from..].iter().take_while(|of| fence(of) == receipt.fence());
        same.find(|of| of.job.receipt == *receipt)
    }

    /// Returns all settlements with this receipt.
    pub(super) fn settled(&self, receipt: &Receipt) -> impl Iterator<Item = &SettleCall<'_>> {
        let fence = |settlement: &SettleCall<'_>| settlement.settle.receipt.fence();
        let from = self.settlements.partition_point(|of| fence(of) < receipt.fence());
        let same =
            self.settlements[from..].iter().take_while(move |of| fence(of) == receipt.fence());
        same.filter(move |of| of.settle.receipt == *receipt)
    }

    /// Returns the time until which a delivery was certainly leased: as the claim returned it, and as
    /// extensions that ended before `until` began returned it.
    pub(super) fn lease_end(&self, job: &ClaimedJob, until: &Span) -> Timestamp {
        let extended = self.settled(&job.receipt).filter(|of| of.span.is_before(until));
        let ends = extended.filter_map(|settlement| match settlement.outcome {
            Outcome::Settled(Settled::Extended(end)) => Some(end),
            _ => None,
        });
        ends.fold(job.lease_ends_at, Timestamp::max)
    }

    /// Returns whether a change may have made the job due between the beginning of `since` and the end
    /// of `until`.
    pub(super) fn may_have_been_made_due(&self, since: &Span, until: &Span) -> bool {
        let makes_due =
            |action: &ChangeKind| matches!(action, ChangeKind::RunNow | ChangeKind::Revive);
        self.changes.iter().any(|(span, action, _)| {
            makes_due(action) && !span.is_before(since) && !until.is_before(span)
        })
    }

    /// Returns whether a claim with an unknown outcome may have leased the job between `since` and
    /// `until`.
    pub(super) fn may_have_been_claimed(&self, since: &Span, until: &Span) -> bool {
        let between = |span: &Span| !span.is_before(since) && !until.is_before(span);
        self.unknown_claims.iter().any(between)
    }
}
