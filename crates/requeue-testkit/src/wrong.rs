//! Stores that are wrong on purpose: the suite must find every one.
//!
//! Each does one thing wrong that somebody has done before, and all else right: it is the
//! memory store with a falsified call or answer. A suite that all of them pass proves nothing.

mod leases;
mod puts;
mod restores;
mod store;
mod views;

use crate::fixture::{Fixture, MemoryFixture};
use leases::{
    CancelDeletes, DeletesBeforeAck, EarlyDelivery, ExpiredIsLost, ExpiredNotReported, ExpiryIs,
    ExtendChangesReceipt, ExtendShortens, FencesRepeat, FirstKindFirst, OutOfOrder, ReleaseCounts,
    ScoreAsReceipt, SettledReported, StaleReceipt, SuccessorLost, SuccessorTwice,
};
use puts::{
    AttemptsResetByPut, CancelErasedByPut, FloorIgnored, GenerationsRepeat, IfAbsentOverlooks,
    PlaceLostByPut, RoundedDown, WrongMode,
};
use requeue_jobs::{JobState, Store, Timestamp};
use restores::{CountersLeftBehind, LeasesForgotten, RestoreOverwrites};
use std::sync::Arc;
use std::time::Duration;
use store::{Right, Wrong, WrongStore};
use views::{
    CountsDrift, DeadLoseErrors, DeafWait, EagerReaper, NoReaper, NotEnforced, PagingSkips,
    TicksTwice,
};

/// What a wrong store does wrong.
pub struct Flaw {
    /// In a few words.
    pub name: &'static str,
    /// A case that it must fail, and perhaps others.
    pub breaks: &'static str,
    make: fn() -> Box<dyn Wrong>,
}

impl Flaw {
    /// A fresh store that has it.
    ///
    /// ```
    /// use requeue_testkit::{conformance, wrong};
    ///
    /// let flaw = &wrong::FLAWS[0];
    /// assert!(conformance::failures(|| flaw.fixture()).contains(&flaw.breaks));
    /// ```
    pub fn fixture(&self) -> WrongFixture {
        let memory = MemoryFixture::new();
        let right = Right { store: memory.memory(), wall_clock: memory.wall_clock() };
        WrongFixture { store: Arc::new(WrongStore::new(right, (self.make)())), memory }
    }
}

/// A store with a [`Flaw`].
pub struct WrongFixture {
    store: Arc<WrongStore>,
    memory: MemoryFixture,
}

impl Fixture for WrongFixture {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    fn now(&self) -> Timestamp {
        self.memory.now()
    }

    fn advance(&self, by: Duration) {
        self.memory.advance(by);
    }
}

/// All of them.
pub const FLAWS: &[Flaw] = &[
    Flaw {
        name: "delete before ack",
        breaks: "lease::an_expired_lease_is_delivered_again",
        make: || Box::new(DeletesBeforeAck),
    },
    Flaw {
        name: "score as receipt",
        breaks: "lease::a_released_lease_is_lost",
        make: || Box::new(ScoreAsReceipt::default()),
    },
    Flaw {
        name: "kind and id as receipt",
        breaks: "lease::at_most_one_receipt_can_ack",
        make: || Box::new(StaleReceipt::is_valid()),
    },
    Flaw {
        name: "a stale receipt changes something",
        breaks: "lease::a_stale_receipt_changes_nothing",
        make: || Box::new(StaleReceipt::acts()),
    },
    Flaw {
        name: "fences that repeat after the job is created again",
        breaks: "claim::fences_rise_over_the_end_of_the_job",
        make: || Box::new(FencesRepeat::default()),
    },
    Flaw {
        name: "generations that repeat",
        breaks: "put::generations_rise_over_the_end_of_the_job",
        make: || Box::new(GenerationsRepeat::default()),
    },
    Flaw {
        name: "attempts reset by a put",
        breaks: "retry::a_put_does_not_reset_the_attempts",
        make: || Box::new(AttemptsResetByPut),
    },
    Flaw {
        name: "place in line lost by a put",
        breaks: "put::a_put_that_is_due_now_keeps_the_place_in_line",
        make: || Box::new(PlaceLostByPut),
    },
    Flaw {
        name: "backoff cut short by a put",
        breaks: "retry::a_put_does_not_cut_the_backoff_short",
        make: || Box::new(FloorIgnored),
    },
    Flaw {
        name: "cancel erased by a put",
        breaks: "cancel::a_put_does_not_erase_a_cancel",
        make: || Box::new(CancelErasedByPut::default()),
    },
    Flaw {
        name: "cancel deletes a leased job",
        breaks: "cancel::a_leased_job_is_marked_and_ends_with_its_ack",
        make: || Box::new(CancelDeletes::default()),
    },
    Flaw {
        name: "if_absent overlooks leased jobs",
        breaks: "conditions::if_absent_fails_on_a_leased_job",
        make: || Box::new(IfAbsentOverlooks(JobState::Leased)),
    },
    Flaw {
        name: "if_absent overlooks dead jobs",
        breaks: "conditions::if_absent_fails_on_a_dead_job",
        make: || Box::new(IfAbsentOverlooks(JobState::Dead)),
    },
    Flaw {
        name: "keep replaces",
        breaks: "modes::keep_changes_nothing_of_a_waiting_job",
        make: || Box::new(WrongMode::KEEP_REPLACES),
    },
    Flaw {
        name: "earliest takes the later time",
        breaks: "modes::earliest_keeps_the_sooner_time_and_takes_the_body",
        make: || Box::new(WrongMode::EARLIEST_REPLACES),
    },
    Flaw {
        name: "debounce without end",
        breaks: "modes::debounce_ends_after_its_longest_wait",
        make: || Box::new(WrongMode::DEBOUNCE_WITHOUT_END),
    },
    Flaw {
        name: "delivery up to a second early",
        breaks: "claim::nothing_is_delivered_early",
        make: || Box::new(EarlyDelivery),
    },
    Flaw {
        name: "delays rounded down",
        breaks: "put::due_times_round_up_to_a_millisecond",
        make: || Box::new(RoundedDown),
    },
    Flaw {
        name: "the latest first",
        breaks: "claim::jobs_come_in_due_order",
        make: || Box::new(OutOfOrder),
    },
    Flaw {
        name: "release counted as an attempt",
        breaks: "lease::a_released_job_is_not_a_failed_one",
        make: || Box::new(ReleaseCounts),
    },
    Flaw {
        name: "expiry not counted as an attempt",
        breaks: "lease::a_job_that_kills_its_worker_ends_up_dead",
        make: || Box::new(ExpiryIs::uncounted()),
    },
    Flaw {
        name: "expiry backed off like a failure",
        breaks: "lease::an_expiry_needs_no_further_backoff",
        make: || Box::new(ExpiryIs::backed_off()),
    },
    Flaw {
        name: "lease over when its time is, taken or not",
        breaks: "lease::an_expired_lease_is_valid_until_the_job_is_taken",
        make: || Box::new(ExpiredIsLost),
    },
    Flaw {
        name: "expired leases not reported by claims",
        breaks: "lease::a_claim_reports_the_leases_that_it_found_expired",
        make: || Box::new(ExpiredNotReported),
    },
    Flaw {
        name: "expired leases not reported by the reaper",
        breaks: "lease::the_reaper_reports_the_leases_that_it_found_expired",
        make: || Box::new(ExpiredNotReported),
    },
    Flaw {
        name: "settled leases reported as expired",
        breaks: "lease::a_settled_lease_is_not_reported_as_expired",
        make: || Box::new(SettledReported::default()),
    },
    Flaw {
        name: "time ends leases",
        breaks: "lease::time_alone_changes_no_leased_job",
        make: || Box::new(EagerReaper),
    },
    Flaw {
        name: "no reaper",
        breaks: "lease::the_reaper_ends_an_expired_lease",
        make: || Box::new(NoReaper),
    },
    Flaw {
        name: "extend changes the receipt",
        breaks: "lease::extend_does_not_change_the_receipt",
        make: || Box::new(ExtendChangesReceipt::default()),
    },
    Flaw {
        name: "extend shortens the lease",
        breaks: "lease::extend_never_shortens_a_lease",
        make: || Box::new(ExtendShortens),
    },
    Flaw {
        name: "successor run twice",
        breaks: "successor::many_puts_are_one_successor_of_the_last_generation",
        make: || Box::new(SuccessorTwice::default()),
    },
    Flaw {
        name: "successor lost by the ack",
        breaks: "successor::a_successor_runs_after_the_ack_and_not_before",
        make: || Box::new(SuccessorLost),
    },
    Flaw {
        name: "dead jobs lose their errors",
        breaks: "dead::a_dead_job_keeps_its_error",
        make: || Box::new(DeadLoseErrors),
    },
    Flaw {
        name: "concurrency not enforced",
        breaks: "kinds::no_more_are_leased_at_once_than_may_be",
        make: || Box::new(NotEnforced(|settings| settings.concurrency = None)),
    },
    Flaw {
        name: "paused and claimed all the same",
        breaks: "kinds::nothing_is_claimed_of_a_paused_kind",
        make: || Box::new(NotEnforced(|settings| settings.paused = false)),
    },
    Flaw {
        name: "the first kind always first",
        breaks: "kinds::of_several_kinds_each_is_first_in_turn",
        make: || Box::new(FirstKindFirst),
    },
    Flaw {
        name: "paging that skips",
        breaks: "list::pages_show_every_job_exactly_once",
        make: || Box::new(PagingSkips),
    },
    Flaw {
        name: "counts that drift",
        breaks: "list::counts_equal_what_is_listed_whatever_happens",
        make: || Box::new(CountsDrift::default()),
    },
    Flaw {
        name: "a wait that nothing ends but its limit",
        breaks: "wait::a_put_ends_a_wait",
        make: || Box::new(DeafWait),
    },
    Flaw {
        name: "a tick that puts twice",
        breaks: "cron::of_two_ticks_one_succeeds",
        make: || Box::new(TicksTwice),
    },
    Flaw {
        name: "a restored job replaces what is there",
        breaks: "restore::a_job_that_is_there_is_kept_whatever_its_state",
        make: || Box::new(RestoreOverwrites),
    },
    Flaw {
        name: "a restored kind counts anew",
        breaks: "restore::generations_go_on_above_the_restored",
        make: || Box::new(CountersLeftBehind),
    },
    Flaw {
        name: "a restored lease is forgotten",
        breaks: "restore::a_leased_job_arrives_pending_until_its_lease_ends",
        make: || Box::new(LeasesForgotten),
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::failures;

    struct Nothing;

    impl Wrong for Nothing {}

    #[test]
    fn a_store_that_does_nothing_wrong_passes() {
        let flaw = Flaw { name: "none", breaks: "nothing", make: || Box::new(Nothing) };
        assert_eq!(failures(|| flaw.fixture()), [""; 0]);
    }
}
