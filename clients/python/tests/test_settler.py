from __future__ import annotations

from requeue_client import (
    Ack,
    Invalid,
    LeaseLost,
    NotDone,
    OutcomeUnknown,
    Retry,
    SettleDone,
    Unauthorized,
)
from requeue_client._settler import Pending


def pending() -> Pending:
    return Pending(Ack("receipt"), lambda final, rejection: None, ends_at=30.0)


def test_a_result_ends_the_settlement() -> None:
    done = SettleDone(result="done")
    assert pending().entry_ended(done, now=0) is done


def test_a_lost_lease_is_lost() -> None:
    assert pending().entry_ended(LeaseLost({}), now=0) == "lost"


def test_a_lost_lease_after_an_unknown_outcome_is_not_lost() -> None:
    settlement = pending()
    assert settlement.request_failed(OutcomeUnknown(), 1, now=0) is None
    assert settlement.entry_ended(LeaseLost({}), now=0) == "unknown"


def test_a_lost_lease_after_a_request_that_was_not_done_is_lost() -> None:
    settlement = pending()
    assert settlement.request_failed(NotDone(), 1, now=0) is None
    assert settlement.entry_ended(LeaseLost({}), now=0) == "lost"


def test_a_settlement_is_repeated_for_the_length_of_a_lease() -> None:
    settlement = pending()
    assert settlement.request_failed(NotDone(), 1, now=29) is None
    assert settlement.request_failed(NotDone(), 1, now=30) == "lost"


def test_a_rejected_request_does_not_change_the_settlement() -> None:
    settlement = pending()
    assert settlement.request_failed(Unauthorized({}), 1, now=0) is None
    assert settlement.settlement == Ack("receipt")


def test_a_settlement_that_the_server_never_accepts_becomes_a_failure() -> None:
    settlement = pending()
    assert settlement.entry_ended(Invalid({"detail": "delay: too long"}), now=0) is None
    expected = Retry("receipt", "the settlement was rejected: delay: too long")
    assert settlement.settlement == expected


def test_a_batch_that_is_rejected_is_sent_one_by_one() -> None:
    settlement = pending()
    assert settlement.request_failed(Invalid({}), 2, now=0) is None
    assert settlement.alone
    assert settlement.settlement == Ack("receipt")
    assert settlement.request_failed(Invalid({"detail": "no"}), 1, now=0) is None
    assert isinstance(settlement.settlement, Retry)
