//! What happened to one job, as far as anybody was told.

use super::log::{Event, Happened, Span};
use requeue_jobs::{
    ChangeKind, ClaimedJob, Generation, JobId, Kind, Placed, Put, PutError, PutOutcome, Receipt,
    Settle, SettleError, Settled, Settlement, StoreError, Timestamp,
};
use std::collections::BTreeMap;

/// All that may have had an effect; what certainly had none is left out.
#[derive(Default)]
pub(super) struct Story<'a> {
    pub(super) puts: Vec<PutSeen<'a>>,
    /// By fence.
    pub(super) deliveries: Vec<Delivery<'a>>,
    /// By fence.
    pub(super) settlements: Vec<SettleSeen<'a>>,
    /// Cancelled, revived or to run now, or perhaps.
    pub(super) changes: Vec<(Span, ChangeKind, Known)>,
    /// Claims of its kind of which nobody knows what they got.
    pub(super) blind_claims: Vec<Span>,
}

/// Whether the outcome of a call is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    Done,
    Perhaps,
}

pub(super) struct PutSeen<'a> {
    pub(super) span: Span,
    pub(super) put: &'a Put,
    /// `None`: perhaps.
    pub(super) placed: Option<Placed>,
}

pub(super) struct Delivery<'a> {
    pub(super) span: Span,
    pub(super) job: &'a ClaimedJob,
}

pub(super) struct SettleSeen<'a> {
    pub(super) span: Span,
    pub(super) settle: &'a Settle,
    pub(super) outcome: Outcome,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Did(Settled),
    Lost,
    Perhaps,
}

impl SettleSeen<'_> {
    /// Whether it ended the lease, or may have.
    pub(super) fn ends(&self) -> bool {
        !matches!(self.settle.action, Settlement::Extend(_)) && self.outcome != Outcome::Lost
    }
}

pub(super) type Stories<'a> = BTreeMap<(Kind, JobId), Story<'a>>;

/// Tells the events of each job by itself.
pub(super) fn stories(events: &[Event]) -> Stories<'_> {
    let mut stories = Stories::new();
    let mut blind_claims: Vec<(&Kind, Span)> = Vec::new();
    for Event { span, what } in events {
        let (span, endless) = (*span, span.without_end());
        match what {
            Happened::Put(put, answer) => {
                let story = stories.entry((put.kind.clone(), put.id.clone())).or_default();
                match answer {
                    Ok(placed) => {
                        let placed = Some(*placed);
                        story.puts.push(PutSeen { span, put, placed });
                    }
                    Err(PutError::Store(StoreError::Unknown { .. })) => {
                        story.puts.push(PutSeen { span: endless, put, placed: None });
                    }
                    Err(_) => {}
                }
            }
            Happened::Claim(_, Ok(claimed)) => {
                for job in &claimed.jobs {
                    let name = (job.kind().clone(), job.id().clone());
                    stories.entry(name).or_default().deliveries.push(Delivery { span, job });
                }
                let unknown = |(_, error): &&(_, _)| matches!(error, StoreError::Unknown { .. });
                let blind = claimed.errors.iter().filter(unknown);
                blind_claims.extend(blind.map(|(kind, _)| (kind, endless)));
            }
            Happened::Claim(claim, Err(StoreError::Unknown { .. })) => {
                blind_claims.extend(claim.kinds.iter().map(|kind| (kind, endless)));
            }
            Happened::Claim(_, Err(_)) => {}
            Happened::Settle(settle, answer) => {
                let (span, outcome) = match answer {
                    Ok(settled) => (span, Outcome::Did(*settled)),
                    Err(SettleError::LeaseLost { .. }) => (span, Outcome::Lost),
                    Err(SettleError::Store(StoreError::Unknown { .. })) => {
                        (endless, Outcome::Perhaps)
                    }
                    Err(_) => continue,
                };
                let name = (settle.receipt.kind().clone(), settle.receipt.id().clone());
                let settlement = SettleSeen { span, settle, outcome };
                stories.entry(name).or_default().settlements.push(settlement);
            }
            Happened::Change(change, answer) => {
                let (span, known) = match answer {
                    Ok(_) => (span, Known::Done),
                    Err(requeue_jobs::ChangeError::Store(StoreError::Unknown { .. })) => {
                        (endless, Known::Perhaps)
                    }
                    Err(_) => continue,
                };
                let name = (change.kind.clone(), change.id.clone());
                stories.entry(name).or_default().changes.push((span, change.action, known));
            }
        }
    }
    for ((kind, _), story) in &mut stories {
        story.deliveries.sort_by_key(|delivery| delivery.job.receipt.fence());
        story.settlements.sort_by_key(|settlement| settlement.settle.receipt.fence());
        let of_kind = blind_claims.iter().filter(|(of, _)| *of == kind);
        story.blind_claims = of_kind.map(|(_, span)| *span).collect();
    }
    stories
}

impl Story<'_> {
    /// Puts that were answered, and what they were given.
    pub(super) fn placed(&self) -> impl Iterator<Item = (&PutSeen<'_>, Generation)> {
        self.puts.iter().filter_map(|seen| {
            let placed = seen.placed.filter(|placed| placed.outcome != PutOutcome::Kept)?;
            Some((seen, placed.generation))
        })
    }

    /// The delivery that this is the receipt of.
    pub(super) fn delivery(&self, receipt: &Receipt) -> Option<&Delivery<'_>> {
        let fence = |delivery: &Delivery<'_>| delivery.job.receipt.fence();
        let from = self.deliveries.partition_point(|of| fence(of) < receipt.fence());
        let mut same = self.deliveries[from..].iter().take_while(|of| fence(of) == receipt.fence());
        same.find(|of| of.job.receipt == *receipt)
    }

    /// What was settled, or not, with this receipt.
    pub(super) fn settled(&self, receipt: &Receipt) -> impl Iterator<Item = &SettleSeen<'_>> {
        let fence = |settlement: &SettleSeen<'_>| settlement.settle.receipt.fence();
        let from = self.settlements.partition_point(|of| fence(of) < receipt.fence());
        let same =
            self.settlements[from..].iter().take_while(move |of| fence(of) == receipt.fence());
        same.filter(move |of| of.settle.receipt == *receipt)
    }

    /// Until when a delivery was leased for certain: as it was told, and as extensions were
    /// answered that were over before `until` began.
    pub(super) fn lease_end(&self, job: &ClaimedJob, until: &Span) -> Timestamp {
        let extended = self.settled(&job.receipt).filter(|of| of.span.is_before(until));
        let ends = extended.filter_map(|settlement| match settlement.outcome {
            Outcome::Did(Settled::Extended(end)) => Some(end),
            _ => None,
        });
        ends.fold(job.lease_ends_at, Timestamp::max)
    }

    /// Whether somebody may have made it due now after `since` began and before `until` was over.
    pub(super) fn is_rushed(&self, since: &Span, until: &Span) -> bool {
        let rushes = |action: ChangeKind| matches!(action, ChangeKind::RunNow | ChangeKind::Revive);
        self.changes.iter().any(|(span, what, _)| {
            rushes(*what) && !span.is_before(since) && !until.is_before(span)
        })
    }

    /// Whether a claim of which nobody knows may have taken it after `since` and before `until`.
    pub(super) fn is_blind(&self, since: &Span, until: &Span) -> bool {
        let between = |span: &Span| !span.is_before(since) && !until.is_before(span);
        self.blind_claims.iter().any(between)
    }
}
