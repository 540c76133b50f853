//! Stores with a deliberate flaw, and the checks that must find it.
//!
//! Each store makes one mistake and is correct in everything else. A suite that such a store passes
//! proves nothing.

mod by_time;
mod contents;
mod leases;
mod priorities;
mod puts;
mod reschedules;
mod restores;
mod store;
pub(crate) mod unordered;
mod views;

use crate::fixture::ManualFixture;
use Check::{Case, Concurrent, History, Schedules, Simulation};
use by_time::{CursorNeedsItsJob, OrderedBy};
use leases::{
    CancelDeletes, DeletesBeforeAck, DueTimeAsReceipt, ExpiredNotReported, ExpiryIs,
    ExtendChangesReceipt, FencesFall, FencesRepeat, SettledReported, StaleReceipt, SuccessorTwice,
};
use priorities::{ConditionIs, ReapNeedsAToken};
use puts::{CancelErasedByPut, GenerationsRepeat, IfAbsentOverlooks, KindsCountForever, WrongMode};
use requeue_jobs::rules::List;
use requeue_jobs::{Condition, JobState, Priority, Rate, Retention, Store, WallClock};
use requeue_testkit::{
    Concurrent as ConcurrentRun, check_history, check_schedules, conformance, simulate,
};
use reschedules::{NotDebounced, RescheduleFlaw, WakesNobody};
use std::panic::catch_unwind;
use std::sync::Arc;
use std::time::Duration;
use store::{Deviation, FlawedStore, Hook};
use unordered::{Order, UnorderedStore};
use views::{
    CountsDrift, EmptyKindsAreNew, NoReaper, NotEnforced, SetsAnySchedule, TicksTwice, WaitNotWoken,
};

/// A mistake that a store can make.
struct Flaw {
    name: &'static str,
    /// Checks that must find it. Others may find it too.
    found_by: &'static [Check],
    /// Whether the store claims to order jobs with the same time by their puts.
    orders_ties: bool,
    create: fn(WallClock) -> Arc<dyn Store>,
}

/// A check that fails on a store with a flaw.
#[derive(Debug)]
enum Check {
    /// The conformance case with this name.
    Case(&'static str),
    /// One of 4000 random histories.
    History,
    /// One of 200 simulations: it reports that this invariant is violated.
    Simulation(u32),
    /// One of 20 concurrent runs: it reports that this invariant is violated, in a message that
    /// contains this text.
    Concurrent(u32, &'static str),
    /// Ten days of schedules on two nodes that crash.
    Schedules,
}

const fn flaw(
    name: &'static str,
    found_by: &'static [Check],
    create: fn(WallClock) -> Arc<dyn Store>,
) -> Flaw {
    Flaw { name, found_by, orders_ties: true, create }
}

const FLAWS: &[Flaw] = &[
    flaw(
        "a claim deletes the job",
        &[
            Case("lease::an_expired_lease_is_delivered_again"),
            History,
            Simulation(1),
            Simulation(2),
            Concurrent(2, "is lost"),
        ],
        |clock| FlawedStore::create(clock, DeletesBeforeAck),
    ),
    flaw(
        "the due time is the receipt",
        &[Case("lease::the_receipt_of_a_released_lease_is_refused"), History, Simulation(1)],
        |clock| FlawedStore::create(clock, DueTimeAsReceipt::default()),
    ),
    flaw(
        "a stale receipt is accepted",
        &[
            Case("lease::at_most_one_receipt_can_ack"),
            History,
            Simulation(1),
            Simulation(5),
            Concurrent(5, "is older than"),
        ],
        |clock| FlawedStore::create(clock, StaleReceipt::is_valid()),
    ),
    flaw(
        "a stale receipt is rejected, but takes effect",
        &[Case("lease::a_stale_receipt_changes_nothing"), History, Simulation(5)],
        |clock| FlawedStore::create(clock, StaleReceipt::acts()),
    ),
    flaw(
        "fences repeat",
        &[
            Case("claim::fences_keep_rising_after_a_job_has_ended"),
            History,
            Simulation(1),
            Concurrent(1, "was issued twice"),
        ],
        |clock| FlawedStore::create(clock, FencesRepeat::default()),
    ),
    flaw(
        "generations repeat",
        &[
            Case("put::generations_keep_rising_after_a_job_has_ended"),
            History,
            Simulation(4),
            Simulation(7),
            Concurrent(1, "was issued twice"),
        ],
        |clock| FlawedStore::create(clock, GenerationsRepeat::default()),
    ),
    flaw(
        "a put loses the head",
        &[Case("content::get_list_and_claim_return_the_content"), History],
        |clock| FlawedStore::create(clock, Hook::Put(contents::lost_by_put)),
    ),
    flaw(
        "a claim returns no head",
        &[Case("content::get_list_and_claim_return_the_content"), History],
        |clock| FlawedStore::create(clock, Hook::Claim(contents::not_claimed)),
    ),
    flaw(
        "a successor is shown with the head of its job",
        &[Case("content::a_successor_has_a_content_of_its_own"), History],
        |clock| FlawedStore::create(clock, Hook::View(contents::shown_for_successors)),
    ),
    flaw(
        "a put keeps the head of the job",
        &[Case("content::a_put_replaces_the_whole_content"), History],
        |clock| FlawedStore::create(clock, Hook::Put(contents::kept_by_put)),
    ),
    flaw(
        "a retry loses the head",
        &[Case("content::a_content_stays_with_its_job"), History],
        |clock| FlawedStore::create(clock, Hook::Settle(contents::lost_by_retry)),
    ),
    flaw(
        "a reschedule without a body removes the envelope",
        &[
            Case("content::a_reschedule_keeps_the_head_and_a_new_body_removes_the_envelope"),
            History,
        ],
        |clock| FlawedStore::create(clock, Hook::Change(contents::lost_by_reschedule)),
    ),
    flaw("an import loses the head", &[Case("content::a_restored_job_has_its_content")], |clock| {
        FlawedStore::create(clock, Hook::Restore(contents::lost_by_restore))
    }),
    flaw(
        "a put resets the attempts",
        &[Case("retry::a_put_does_not_reset_the_attempts"), History, Simulation(6), Simulation(10)],
        |clock| FlawedStore::create(clock, Hook::Put(puts::attempts_reset_by_put)),
    ),
    flaw(
        "a put that is due now moves a ready job back",
        &[Case("put::a_put_that_is_due_now_keeps_the_position"), History, Simulation(10)],
        |clock| FlawedStore::create(clock, Hook::Put(puts::order_lost_by_put)),
    ),
    flaw(
        "a put ends the backoff",
        &[
            Case("retry::a_put_does_not_end_the_backoff"),
            History,
            Simulation(3),
            Concurrent(3, "is in backoff until"),
        ],
        |clock| FlawedStore::create(clock, Hook::Put(puts::backoff_ended_by_put)),
    ),
    flaw(
        "a put removes a cancellation",
        &[Case("cancel::a_put_does_not_erase_a_cancel"), History],
        |clock| FlawedStore::create(clock, CancelErasedByPut::default()),
    ),
    flaw(
        "a cancel deletes a leased job",
        &[Case("cancel::a_cancelled_leased_job_ends_with_its_ack"), History],
        |clock| FlawedStore::create(clock, CancelDeletes::default()),
    ),
    flaw(
        "if_absent ignores leased jobs",
        &[Case("conditions::if_absent_fails_on_a_leased_job"), History, Simulation(8)],
        |clock| FlawedStore::create(clock, IfAbsentOverlooks(JobState::Leased)),
    ),
    flaw(
        "if_absent ignores dead jobs",
        &[Case("conditions::if_absent_fails_on_a_dead_job"), History],
        |clock| FlawedStore::create(clock, IfAbsentOverlooks(JobState::Dead)),
    ),
    flaw(
        "keep replaces",
        &[
            Case("modes::keep_does_not_change_a_waiting_job"),
            Case("priority::keep_does_not_change_the_priority"),
            History,
        ],
        |clock| FlawedStore::create(clock, WrongMode::KEEP_REPLACES),
    ),
    flaw(
        "earliest replaces",
        &[
            Case("modes::earliest_keeps_the_sooner_time_and_replaces_the_body"),
            Case("priority::earliest_keeps_the_higher_priority"),
            History,
        ],
        |clock| FlawedStore::create(clock, WrongMode::EARLIEST_REPLACES),
    ),
    flaw(
        "debounce has no limit",
        &[Case("modes::debounce_waits_no_longer_than_max_wait"), History],
        |clock| FlawedStore::create(clock, WrongMode::DEBOUNCE_WITHOUT_END),
    ),
    flaw(
        "jobs are delivered up to a second early",
        &[
            Case("claim::nothing_is_delivered_early"),
            History,
            Simulation(3),
            Concurrent(3, "is not due before"),
        ],
        |clock| FlawedStore::create(clock, Hook::Claim(leases::early_delivery)),
    ),
    flaw(
        "delays are rounded down",
        &[Case("put::due_times_round_up_to_a_millisecond"), History],
        |clock| FlawedStore::create(clock, Hook::Put(puts::rounded_down)),
    ),
    flaw(
        "a claim returns jobs in reverse order",
        &[Case("claim::jobs_are_claimed_in_due_order"), History, Simulation(1)],
        |clock| FlawedStore::create(clock, Hook::Claim(leases::out_of_order)),
    ),
    flaw(
        "a release counts as an attempt",
        &[
            Case("lease::a_release_does_not_count_as_a_failure"),
            History,
            Simulation(6),
            Concurrent(6, "at most"),
        ],
        |clock| FlawedStore::create(clock, Hook::Settle(leases::release_counts)),
    ),
    flaw(
        "an expiry does not count as an attempt",
        &[Case("lease::a_job_that_kills_its_worker_ends_up_dead"), History, Simulation(6)],
        |clock| FlawedStore::create(clock, ExpiryIs::uncounted()),
    ),
    flaw(
        "an expiry is followed by a backoff",
        &[Case("lease::an_expiry_has_no_backoff"), History],
        |clock| FlawedStore::create(clock, ExpiryIs::backed_off()),
    ),
    flaw(
        "an expired lease cannot be settled",
        &[Case("lease::an_expired_lease_is_valid_until_the_job_is_claimed_again"), History],
        |clock| FlawedStore::create(clock, Hook::Settle(leases::expired_is_lost)),
    ),
    flaw(
        "expired leases are not reported",
        &[
            Case("lease::a_claim_reports_the_leases_that_it_found_expired"),
            Case("lease::the_reaper_reports_the_leases_that_it_found_expired"),
            History,
        ],
        |clock| FlawedStore::create(clock, ExpiredNotReported),
    ),
    flaw(
        "settled leases are reported as expired",
        &[Case("lease::a_settled_lease_is_not_reported_as_expired"), History],
        |clock| FlawedStore::create(clock, SettledReported::default()),
    ),
    flaw(
        "reading a job ends its expired lease",
        &[Case("lease::time_alone_changes_no_leased_job"), History],
        |clock| FlawedStore::create(clock, Hook::View(views::eager_reaper)),
    ),
    flaw(
        "reap does nothing",
        &[Case("lease::the_reaper_ends_an_expired_lease"), History, Simulation(1), Simulation(5)],
        |clock| FlawedStore::create(clock, NoReaper),
    ),
    flaw(
        "an extension makes the receipt invalid",
        &[Case("lease::extend_does_not_change_the_receipt"), History],
        |clock| FlawedStore::create(clock, ExtendChangesReceipt::default()),
    ),
    flaw(
        "an extension can shorten the lease",
        &[Case("lease::extend_never_shortens_a_lease"), History],
        |clock| FlawedStore::create(clock, Hook::Settle(leases::extend_shortens)),
    ),
    flaw(
        "a successor runs twice",
        &[
            Case("successor::many_puts_make_one_successor_with_the_last_generation"),
            History,
            Simulation(4),
            Concurrent(4, "which was never put"),
        ],
        |clock| FlawedStore::create(clock, SuccessorTwice::default()),
    ),
    flaw(
        "an ack deletes the successor",
        &[Case("successor::a_successor_runs_after_the_ack_and_not_before"), History, Simulation(2)],
        |clock| FlawedStore::create(clock, Hook::Settle(leases::successor_lost)),
    ),
    flaw(
        "dead jobs lose their errors",
        &[Case("dead::a_dead_job_keeps_its_error"), History],
        |clock| FlawedStore::create(clock, Hook::View(views::dead_lose_errors)),
    ),
    flaw(
        "the concurrency limit is not enforced",
        &[Case("kinds::no_more_jobs_are_leased_than_the_concurrency_allows"), History],
        |clock| FlawedStore::create(clock, NotEnforced(|settings| settings.concurrency = None)),
    ),
    flaw(
        "settings that contradict themselves are accepted",
        &[Case("limits::settings_that_contradict_themselves_are_rejected")],
        |clock| {
            FlawedStore::create(
                clock,
                NotEnforced(|settings| {
                    settings.backoff.jitter_percent = settings.backoff.jitter_percent.min(100);
                    settings.backoff.base = settings.backoff.base.min(settings.backoff.max);
                    settings.concurrency = settings.concurrency.map(|limit| limit.max(1));
                }),
            )
        },
    ),
    flaw(
        "a paused kind is claimed",
        &[Case("kinds::nothing_is_claimed_of_a_paused_kind"), History],
        |clock| FlawedStore::create(clock, NotEnforced(|settings| settings.paused = false)),
    ),
    flaw(
        "a claim always begins with the first kind",
        &[Case("kinds::several_kinds_take_turns_at_being_first"), Simulation(10)],
        |clock| FlawedStore::create(clock, Hook::Claim(leases::first_kind_first)),
    ),
    flaw(
        "a kind without jobs has no generation",
        &[Case("kinds::a_kind_without_jobs_keeps_its_generation_and_fence")],
        |clock| FlawedStore::create(clock, EmptyKindsAreNew),
    ),
    flaw(
        "pages skip a job",
        &[Case("list::pages_contain_every_job_exactly_once"), History, Simulation(12)],
        |clock| FlawedStore::create(clock, Hook::List(views::paging_skips)),
    ),
    flaw(
        "counts drift",
        &[Case("list::counts_always_equal_the_listed_jobs"), History, Simulation(12)],
        |clock| FlawedStore::create(clock, CountsDrift::default()),
    ),
    flaw(
        "a wait ends only with its limit",
        &[Case("wait::a_put_ends_a_wait"), Simulation(11)],
        |clock| FlawedStore::create(clock, WaitNotWoken),
    ),
    flaw(
        "a tick puts twice",
        &[Case("cron::of_two_ticks_one_succeeds"), History, Simulation(12), Schedules],
        |clock| FlawedStore::create(clock, TicksTwice),
    ),
    flaw(
        "a schedule is set although its condition does not hold",
        &[Case("cron::a_schedule_is_set_only_if_its_condition_holds"), History],
        |clock| FlawedStore::create(clock, SetsAnySchedule),
    ),
    flaw(
        "a restored job replaces an existing one",
        &[
            Case("restore::an_existing_job_is_kept_in_any_state"),
            Case("done::a_restored_job_that_is_done_is_not_restored_again"),
        ],
        |clock| FlawedStore::create(clock, Hook::Restore(restores::restore_overwrites)),
    ),
    flaw(
        "counters are not restored",
        &[Case("restore::new_generations_are_above_the_restored_ones")],
        |clock| FlawedStore::create(clock, Hook::Restore(restores::counters_not_restored)),
    ),
    flaw(
        "generations that others restore are rejected",
        &[Case("restore::no_restore_uses_up_the_numbers_of_a_kind")],
        |clock| FlawedStore::create(clock, Hook::Restore(restores::low_restore_limit)),
    ),
    flaw(
        "kinds without jobs count towards the limit",
        &[Case("limits::ten_thousand_kinds_have_jobs_settings_or_schedules_at_most")],
        |clock| FlawedStore::create(clock, KindsCountForever::default()),
    ),
    flaw(
        "a restored lease is forgotten",
        &[Case("restore::a_leased_job_is_restored_as_pending_until_its_lease_ends")],
        |clock| FlawedStore::create(clock, Hook::Restore(restores::leases_forgotten)),
    ),
    flaw(
        "a claimed job can be claimed again",
        &[
            Case("claim::a_leased_job_is_not_delivered_to_another"),
            History,
            Simulation(1),
            Simulation(6),
            Concurrent(1, "is leased until"),
        ],
        |clock| FlawedStore::create(clock, Hook::Claim(leases::leased_twice)),
    ),
    flaw(
        "fences fall",
        &[
            Case("claim::each_lease_has_a_higher_fence"),
            History,
            Simulation(1),
            Concurrent(1, "was issued after"),
        ],
        |clock| FlawedStore::create(clock, FencesFall::default()),
    ),
    flaw(
        "a claimed job has an old generation",
        &[
            Case("put::put_get_and_claim_return_the_same_generation"),
            History,
            Simulation(4),
            Concurrent(4, "was put before"),
        ],
        |clock| FlawedStore::create(clock, Hook::Claim(leases::old_generation)),
    ),
    flaw(
        "an ack always succeeds",
        &[
            Case("lease::a_second_ack_changes_nothing"),
            History,
            Simulation(1),
            Concurrent(8, "was settled twice"),
        ],
        |clock| FlawedStore::create(clock, Hook::Settle(leases::ack_always_succeeds)),
    ),
    flaw(
        "an ack is lost",
        &[
            Case("lease::an_ack_ends_the_job"),
            History,
            Simulation(1),
            Simulation(4),
            Simulation(6),
            Concurrent(2, "never done"),
            Concurrent(4, "was acked before"),
        ],
        |clock| FlawedStore::create(clock, Hook::Settle(leases::ack_lost)),
    ),
    flaw("a third of all receipts is refused", &[History, Concurrent(5, "was refused")], |clock| {
        FlawedStore::create(clock, Hook::Settle(leases::receipts_refused))
    }),
    flaw(
        "an extension counts from the end of the lease",
        &[Case("lease::extend_counts_from_now"), History, Simulation(8)],
        |clock| FlawedStore::create(clock, Hook::Settle(leases::extend_from_end)),
    ),
    flaw(
        "a cancel is lost",
        &[
            Case("cancel::a_pending_job_is_removed"),
            History,
            Simulation(6),
            Simulation(7),
            Concurrent(7, "was cancelled"),
        ],
        |clock| FlawedStore::create(clock, Hook::Change(leases::cancel_lost)),
    ),
    flaw("a put is lost", &[History, Simulation(2), Concurrent(2, "is lost")], |clock| {
        FlawedStore::create(clock, Hook::Put(puts::puts_lost))
    }),
    flaw(
        "a claim of several kinds returns sixteen mebibytes of each",
        &[Case("limits::a_claim_returns_sixteen_mebibytes_of_all_its_kinds_together")],
        |clock| FlawedStore::create(clock, Hook::Claim(leases::bytes_per_kind)),
    ),
    flaw(
        "a claim ends an expired lease that it has no room for",
        &[Case("limits::an_expired_lease_that_does_not_fit_into_a_claim_is_not_ended")],
        |clock| FlawedStore::create(clock, Hook::Claim(leases::ends_without_room)),
    ),
    flaw(
        "successors do not count towards the bytes of a page",
        &[Case("limits::a_page_has_sixteen_mebibytes_including_successors")],
        |clock| FlawedStore::create(clock, Hook::List(views::successors_not_counted)),
    ),
    flaw(
        "no job ever dies",
        &[
            Case("retry::a_job_dies_after_its_last_attempt"),
            History,
            Simulation(6),
            Concurrent(6, "an attempt too many"),
        ],
        |clock| {
            FlawedStore::create(clock, NotEnforced(|settings| settings.max_attempts = u32::MAX))
        },
    ),
    flaw(
        "priorities are ignored",
        &[
            Case("priority::a_job_has_the_priority_of_its_put"),
            Case("priority::higher_priorities_are_claimed_first"),
            Case("priority::without_ageing_a_higher_priority_is_always_first"),
            History,
        ],
        |clock| UnorderedStore::create(clock, Order::Altered(priorities::priorities_ignored)),
    ),
    flaw(
        "a high priority makes a job due",
        &[Case("priority::a_priority_makes_no_job_due_earlier"), History, Simulation(3)],
        |clock| UnorderedStore::create(clock, Order::Altered(priorities::high_priorities_are_due)),
    ),
    flaw(
        "jobs do not age",
        &[Case("priority::a_ready_job_gains_a_level_for_each_span_of_the_ageing"), History],
        |clock| FlawedStore::create(clock, NotEnforced(|settings| settings.ageing = None)),
    ),
    flaw(
        "jobs age too fast",
        &[Case("priority::the_ageing_counts_from_the_due_time"), History],
        |clock| {
            FlawedStore::create(
                clock,
                NotEnforced(|settings| {
                    settings.ageing =
                        settings.ageing.map(|ageing| (ageing / 4).max(Duration::from_millis(1)))
                }),
            )
        },
    ),
    flaw(
        "a put keeps the priority of a pending job",
        &[Case("priority::a_put_changes_the_priority_of_a_pending_job"), History],
        |clock| UnorderedStore::create(clock, Order::Altered(priorities::puts_keep_the_priority)),
    ),
    flaw(
        "a successor has the priority of its job",
        &[
            Case("priority::a_successor_has_its_own_priority"),
            Case("priority::a_successor_after_an_expired_lease_has_its_own_priority"),
            Case("priority::a_successor_after_a_failure_has_its_own_priority"),
            Case("priority::a_restored_job_has_its_priority"),
            History,
        ],
        |clock| {
            UnorderedStore::create(clock, Order::Altered(priorities::successors_share_the_priority))
        },
    ),
    flaw(
        "a failure loses the priority",
        &[
            Case("priority::retry_release_and_requeue_keep_the_priority"),
            Case("priority::an_expired_lease_keeps_the_priority"),
            History,
        ],
        |clock| {
            UnorderedStore::create(clock, Order::Altered(priorities::a_failure_loses_the_priority))
        },
    ),
    flaw(
        "a release loses the priority",
        &[Case("priority::retry_release_and_requeue_keep_the_priority"), History],
        |clock| {
            UnorderedStore::create(clock, Order::Altered(priorities::a_release_loses_the_priority))
        },
    ),
    flaw(
        "a dead job loses its priority",
        &[Case("priority::a_dead_job_has_its_priority_when_it_is_revived"), History],
        |clock| UnorderedStore::create(clock, Order::Altered(priorities::death_loses_the_priority)),
    ),
    flaw(
        "run now loses the priority",
        &[Case("priority::run_now_keeps_the_priority"), History],
        |clock| {
            UnorderedStore::create(clock, Order::Altered(priorities::run_now_loses_the_priority))
        },
    ),
    flaw(
        "a done job loses its priority",
        &[Case("done::a_done_job_keeps_its_due_time_and_its_priority"), History],
        |clock| {
            UnorderedStore::create(clock, Order::Altered(priorities::done_jobs_lose_the_priority))
        },
    ),
    flaw(
        "results do not count towards the bytes of a page",
        &[Case("done::a_page_has_sixteen_mebibytes_of_results")],
        |clock| FlawedStore::create(clock, Hook::List(views::successors_not_counted)),
    ),
    flaw(
        "a kind without tokens is not reaped",
        &[Case("rate::a_reap_ends_expired_leases_without_a_token"), History],
        |clock| FlawedStore::create(clock, ReapNeedsAToken),
    ),
    flaw(
        "no done job is kept",
        &[
            Case("done::a_done_job_shows_when_and_by_whom_it_was_done"),
            Case("done::if_new_fails_if_the_job_is_done"),
            History,
        ],
        |clock| FlawedStore::create(clock, NotEnforced(|settings| settings.keep_done = None)),
    ),
    flaw(
        "done jobs are kept for ever",
        &[
            Case("done::done_jobs_are_dropped_when_they_are_too_old"),
            Case("done::done_jobs_are_dropped_when_there_are_too_many"),
            History,
        ],
        |clock| {
            FlawedStore::create(
                clock,
                NotEnforced(|settings| {
                    let forever = Retention { age: Duration::MAX, count: usize::MAX };
                    settings.keep_done = settings.keep_done.map(|_| forever);
                }),
            )
        },
    ),
    flaw(
        "done jobs are kept as long as dead ones",
        &[Case("done::done_and_dead_jobs_have_retentions_of_their_own"), History],
        |clock| {
            FlawedStore::create(
                clock,
                NotEnforced(|settings| {
                    settings.keep_done = settings.keep_done.map(|_| settings.retention);
                }),
            )
        },
    ),
    flaw(
        "results are lost",
        &[Case("done::a_done_job_keeps_the_result_of_its_ack"), History],
        |clock| UnorderedStore::create(clock, Order::Altered(priorities::results_lost)),
    ),
    flaw(
        "the start of a run is lost when it is done",
        &[Case("done::a_done_job_shows_when_and_by_whom_it_was_done"), History],
        |clock| UnorderedStore::create(clock, Order::Altered(priorities::start_of_the_run_lost)),
    ),
    flaw(
        "a done job keeps its body",
        &[Case("done::a_done_job_shows_when_and_by_whom_it_was_done"), History],
        |clock| {
            UnorderedStore::create(clock, Order::Altered(priorities::done_jobs_keep_their_bodies))
        },
    ),
    flaw(
        "if_new ignores done jobs",
        &[Case("done::if_new_fails_if_the_job_is_done"), History, Simulation(14)],
        |clock| FlawedStore::create(clock, ConditionIs(Condition::IfNew, Condition::IfAbsent)),
    ),
    flaw(
        "if_absent fails on done jobs",
        &[Case("done::for_a_put_a_done_job_is_absent"), History],
        |clock| FlawedStore::create(clock, ConditionIs(Condition::IfAbsent, Condition::IfNew)),
    ),
    flaw("a put does not replace a done job", &[History], |clock| {
        FlawedStore::create(clock, Hook::Put(priorities::puts_keep_done))
    }),
    flaw(
        "a done job can run",
        &[Case("done::a_done_job_can_be_removed_but_not_run"), History],
        |clock| FlawedStore::create(clock, Hook::Change(priorities::done_can_run)),
    ),
    flaw(
        "a done job cannot be removed",
        &[Case("done::a_done_job_can_be_removed_but_not_run"), History],
        |clock| FlawedStore::create(clock, Hook::Change(priorities::done_stays)),
    ),
    flaw(
        "a long result is discarded",
        &[Case("done::a_result_that_is_too_long_is_rejected")],
        |clock| FlawedStore::create(clock, Hook::Settle(priorities::long_results_discarded)),
    ),
    flaw(
        "the rate is not limited",
        &[
            Case("rate::a_claim_returns_no_more_than_the_rate_allows"),
            Case("rate::the_limit_holds_across_claims_of_several_kinds"),
            Simulation(13),
            History,
        ],
        |clock| FlawedStore::create(clock, NotEnforced(|settings| settings.rate = None)),
    ),
    flaw(
        "one job more than the burst",
        &[Case("rate::a_claim_returns_no_more_than_the_rate_allows"), History],
        |clock| {
            FlawedStore::create(
                clock,
                NotEnforced(|settings| {
                    settings.rate =
                        settings.rate.map(|rate| Rate { burst: Some(rate.bucket() + 1), ..rate });
                }),
            )
        },
    ),
    flaw(
        "the default burst is a second of the rate",
        &[
            Case("rate::by_default_claims_are_spaced_evenly"),
            Case("rate::by_default_a_burst_is_what_the_rate_allows_in_100_ms"),
            History,
        ],
        |clock| {
            FlawedStore::create(
                clock,
                NotEnforced(|settings| {
                    settings.rate = settings.rate.map(|rate| {
                        let second = u128::from(rate.jobs) * 1000 / rate.per.as_millis();
                        let second = u32::try_from(second).unwrap_or(u32::MAX).max(1);
                        Rate { burst: Some(rate.burst.unwrap_or(second)), ..rate }
                    });
                }),
            )
        },
    ),
    flaw(
        "a release takes a token",
        &[Case("rate::a_release_gives_its_token_back"), History, Simulation(11)],
        |clock| FlawedStore::create(clock, Hook::Settle(priorities::release_takes_a_token)),
    ),
    flaw(
        "pending jobs are listed by their creation",
        &[Case("by_time::pending_jobs_are_listed_by_their_due_time"), History],
        |clock| FlawedStore::create(clock, OrderedBy(JobState::Waiting, |job| job.created_at)),
    ),
    flaw(
        "leased jobs are listed by their due time",
        &[Case("by_time::leased_jobs_are_listed_by_the_end_of_their_leases"), History],
        |clock| FlawedStore::create(clock, OrderedBy(JobState::Leased, |job| job.version.due)),
    ),
    flaw(
        "dead jobs are listed by their creation",
        &[Case("by_time::dead_jobs_are_listed_by_the_time_of_their_death"), History],
        |clock| FlawedStore::create(clock, OrderedBy(JobState::Dead, |job| job.created_at)),
    ),
    flaw(
        "done jobs are listed by their creation",
        &[Case("by_time::done_jobs_are_listed_by_the_time_of_their_ack")],
        |clock| FlawedStore::create(clock, OrderedBy(JobState::Done, |job| job.created_at)),
    ),
    flaw(
        "lists by time always begin with the earliest job",
        &[Case("by_time::the_newest_can_be_first"), History],
        |clock| FlawedStore::create(clock, Hook::ListByTime(by_time::newest_ignored)),
    ),
    flaw(
        "lists by time begin with the highest priority",
        &[Case("by_time::priorities_do_not_change_the_order"), History],
        |clock| FlawedStore::create(clock, Hook::ListByTime(by_time::priority_first)),
    ),
    flaw(
        "lists of ready jobs contain waiting ones",
        &[Case("by_time::only_jobs_of_the_kind_and_state_are_listed"), History],
        |clock| FlawedStore::create(clock, Hook::ListByTime(by_time::waiting_are_ready)),
    ),
    flaw(
        "lists by time contain all kinds",
        &[Case("by_time::only_jobs_of_the_kind_and_state_are_listed"), History],
        |clock| FlawedStore::create(clock, Hook::ListByTime(by_time::all_kinds)),
    ),
    flaw(
        "a page by time lacks its last job",
        &[Case("by_time::pages_contain_every_job_exactly_once"), History],
        |clock| FlawedStore::create(clock, Hook::ListByTime(by_time::last_missing)),
    ),
    flaw(
        "a cursor skips the rest of its millisecond",
        &[
            Case("by_time::jobs_of_the_same_millisecond_are_in_the_same_order_on_all_pages"),
            History,
        ],
        |clock| FlawedStore::create(clock, Hook::ListByTime(by_time::ties_skipped)),
    ),
    flaw(
        "a cursor counts the jobs before it",
        &[Case("by_time::an_unchanged_job_is_on_exactly_one_page")],
        |clock| FlawedStore::create(clock, Hook::ListByTime(by_time::cursor_is_number)),
    ),
    flaw(
        "a cursor is lost with its job",
        &[Case("by_time::a_cursor_whose_job_is_gone_continues_at_its_place")],
        |clock| FlawedStore::create(clock, CursorNeedsItsJob::default()),
    ),
    flaw(
        "a malformed cursor is ignored",
        &[Case("by_time::a_malformed_cursor_is_invalid")],
        |clock| FlawedStore::create(clock, Hook::ListByTime(by_time::any_cursor_is_valid)),
    ),
    flaw(
        "a page by time has no limits of its own",
        &[
            Case("by_time::a_page_has_a_thousand_jobs_at_most"),
            Case("by_time::a_page_has_sixteen_mebibytes_of_bodies"),
        ],
        |clock| FlawedStore::create(clock, Hook::ListByTime(by_time::only_query_limits)),
    ),
    flaw(
        "a reschedule loses the body",
        &[
            Case("reschedule::a_new_due_time_changes_nothing_else"),
            Case("reschedule::a_leased_job_gets_a_successor_with_its_content"),
            History,
        ],
        |clock| FlawedStore::create(clock, RescheduleFlaw::LosesTheBody),
    ),
    flaw(
        "a reschedule loses the priority",
        &[Case("reschedule::a_new_body_changes_nothing_else"), History],
        |clock| FlawedStore::create(clock, RescheduleFlaw::LosesThePriority),
    ),
    flaw(
        "a reschedule makes a job due",
        &[Case("reschedule::a_new_priority_changes_nothing_else"), History],
        |clock| FlawedStore::create(clock, RescheduleFlaw::IsDueNow),
    ),
    flaw(
        "a reschedule creates the job again",
        &[Case("reschedule::it_keeps_attempts_and_failures"), History],
        |clock| FlawedStore::create(clock, RescheduleFlaw::CreatesAgain),
    ),
    flaw(
        "a reschedule moves a ready job back",
        &[Case("reschedule::a_ready_job_that_stays_ready_keeps_its_position"), History],
        |clock| FlawedStore::create(clock, RescheduleFlaw::LosesThePosition),
    ),
    flaw(
        "a reschedule returns the generation of before",
        &[Case("reschedule::every_reschedule_has_a_higher_generation"), History],
        |clock| FlawedStore::create(clock, RescheduleFlaw::KeepsTheGeneration),
    ),
    flaw(
        "a reschedule ends the backoff",
        &[Case("reschedule::it_does_not_end_the_backoff"), History],
        |clock| FlawedStore::create(clock, RescheduleFlaw::EndsTheBackoff),
    ),
    flaw(
        "a leased job cannot be rescheduled",
        &[
            Case("reschedule::a_leased_job_gets_a_successor_with_its_content"),
            Case("reschedule::a_job_whose_lease_has_expired_is_leased"),
            History,
        ],
        |clock| FlawedStore::create(clock, RescheduleFlaw::RefusesLeasedJobs),
    ),
    flaw(
        "a rescheduled successor is due as its job was",
        &[Case("reschedule::a_successor_is_rescheduled"), History],
        |clock| FlawedStore::create(clock, RescheduleFlaw::SuccessorIsDueAsTheJob),
    ),
    flaw(
        "a rescheduled successor has the body of its job",
        &[Case("reschedule::a_successor_is_rescheduled"), History],
        |clock| FlawedStore::create(clock, RescheduleFlaw::SuccessorHasTheBodyOfTheJob),
    ),
    flaw(
        "a reschedule makes a successor after a cancel",
        &[Case("reschedule::a_cancelled_leased_job_is_absent"), History],
        |clock| FlawedStore::create(clock, RescheduleFlaw::FollowsACancel),
    ),
    flaw(
        "a reschedule does not revive a dead job",
        &[Case("reschedule::a_due_time_revives_a_dead_job"), History],
        |clock| FlawedStore::create(clock, RescheduleFlaw::LeavesDeadJobs),
    ),
    flaw(
        "a reschedule without a due time revives a dead job",
        &[Case("reschedule::without_a_due_time_a_dead_job_stays_dead"), History],
        |clock| FlawedStore::create(clock, RescheduleFlaw::RevivesAlways),
    ),
    flaw(
        "a reschedule runs a done job again",
        &[Case("reschedule::a_done_job_cannot_be_rescheduled"), History],
        |clock| FlawedStore::create(clock, RescheduleFlaw::RevivesDoneJobs),
    ),
    flaw(
        "a reschedule creates an absent job",
        &[Case("reschedule::an_absent_job_is_not_created"), History],
        |clock| FlawedStore::create(clock, RescheduleFlaw::CreatesAbsentJobs),
    ),
    flaw(
        "a reschedule ignores its condition",
        &[Case("reschedule::a_condition_that_fails_changes_nothing"), History],
        |clock| FlawedStore::create(clock, RescheduleFlaw::IgnoresConditions),
    ),
    flaw(
        "the condition of a reschedule ignores the successor",
        &[Case("reschedule::if_generation_compares_with_the_newest_put"), History],
        |clock| FlawedStore::create(clock, RescheduleFlaw::ComparesWithTheJob),
    ),
    flaw(
        "a reschedule keeps a dead job for longer",
        &[Case("reschedule::without_a_due_time_a_dead_job_stays_dead")],
        |clock| FlawedStore::create(clock, RescheduleFlaw::RestartsTheRetention),
    ),
    flaw(
        "a reschedule revives a dead job with its attempts",
        &[Case("reschedule::a_due_time_revives_a_dead_job"), History],
        |clock| FlawedStore::create(clock, RescheduleFlaw::KeepsTheAttempts),
    ),
    flaw(
        "a debounce does not count a reschedule",
        &[Case("reschedule::debounce_counts_a_reschedule_as_a_put"), History],
        |clock| FlawedStore::create(clock, NotDebounced::default()),
    ),
    flaw(
        "a reschedule does not end a wait",
        &[Case("reschedule::a_job_that_is_rescheduled_sooner_ends_a_wait")],
        |clock| FlawedStore::create(clock, WakesNobody::default()),
    ),
    flaw(
        "a reschedule of nothing succeeds",
        &[Case("reschedule::a_reschedule_of_nothing_is_invalid")],
        |clock| FlawedStore::create(clock, RescheduleFlaw::AcceptsNothing),
    ),
    flaw(
        "a reschedule shortens delays that are too long",
        &[Case("reschedule::a_due_time_that_is_too_far_changes_nothing")],
        |clock| FlawedStore::create(clock, RescheduleFlaw::ShortensLongDelays),
    ),
    Flaw {
        name: "jobs due in the same millisecond come by id",
        found_by: &[History],
        orders_ties: true,
        create: |clock| UnorderedStore::create(clock, Order::TiesById),
    },
    Flaw {
        name: "jobs due in the same millisecond come in reverse order",
        found_by: &[History],
        orders_ties: true,
        create: |clock| UnorderedStore::create(clock, Order::TiesLatestFirst),
    },
    Flaw {
        name: "the last pending job comes first",
        found_by: &[History, Simulation(10)],
        orders_ties: false,
        create: |clock| {
            UnorderedStore::create(clock, Order::LastOf(List::Pending(Priority::default())))
        },
    },
    Flaw {
        name: "the lease that expired last ends first",
        found_by: &[History],
        orders_ties: false,
        create: |clock| {
            UnorderedStore::create(clock, Order::LastOf(List::Leased(Priority::default())))
        },
    },
    Flaw {
        name: "the job that died last is dropped first",
        found_by: &[History],
        orders_ties: false,
        create: |clock| UnorderedStore::create(clock, Order::LastOf(List::Dead)),
    },
];

impl Flaw {
    fn fixture(&self) -> ManualFixture {
        ManualFixture::new(self.orders_ties, self.create)
    }

    fn is_found_by(&self, check: &Check) -> bool {
        match check {
            Case(name) => catch_unwind(|| conformance::run(name, || self.fixture())).is_err(),
            History => (0..4000).any(|seed| check_history(&self.fixture(), seed).is_err()),
            Simulation(invariant) => (0..200).any(|seed| {
                let violation = simulate(Arc::new(self.fixture()), seed).err().unwrap_or_default();
                violation.contains(&format!("\ninvariant {invariant}: "))
            }),
            Schedules => (0..5).any(|seed| {
                let span = Duration::from_secs(10 * 86_400);
                check_schedules(Arc::new(self.fixture()), seed, span).is_err()
            }),
            Concurrent(invariant, message) => (0..20).any(|seed| {
                let store = (self.create)(WallClock::system());
                let patience = Duration::from_millis(300);
                let run = ConcurrentRun { operations: 200, patience, ..Default::default() };
                let violations = run.check(&vec![store; 4], seed, || ()).err().unwrap_or_default();
                violations.lines().any(|line| {
                    line.starts_with(&format!("invariant {invariant}: ")) && line.contains(message)
                })
            }),
        }
    }
}

#[test]
fn every_flaw_is_found() {
    let mut missed = Vec::new();
    for flaw in FLAWS {
        let checks = flaw.found_by.iter().filter(|check| !flaw.is_found_by(check));
        missed.extend(checks.map(|check| format!("{check:?} does not find: {}", flaw.name)));
    }
    assert_eq!(missed, [""; 0], "{missed:#?}");
}

#[test]
fn a_store_without_a_flaw_passes() {
    struct NoDeviation;
    impl Deviation for NoDeviation {}
    let fixture = || ManualFixture::new(true, |clock| FlawedStore::create(clock, NoDeviation));
    assert_eq!(conformance::failures(fixture), [""; 0]);
}
