from __future__ import annotations

from requeue_client._leases import LeaseTable


def table() -> LeaseTable[str]:
    leases: LeaseTable[str] = LeaseTable(30)
    leases.add("a", claimed_at=0)
    return leases


def test_a_lease_is_extended_when_a_third_has_passed() -> None:
    leases = table()
    assert leases.pause(now=4) == 6
    assert leases.take_due(now=9.9) == []
    assert leases.take_due(now=10) == ["a"]


def test_a_lease_is_extended_by_one_request_at_a_time() -> None:
    leases = table()
    leases.take_due(now=10)
    assert leases.take_due(now=20) == []


def test_all_leases_that_are_due_are_extended_together() -> None:
    leases = table()
    leases.add("b", claimed_at=1)
    leases.add("c", claimed_at=5)
    assert leases.take_due(now=11) == ["a", "b"]


def test_an_extended_lease_counts_from_the_request() -> None:
    leases = table()
    leases.take_due(now=10)
    leases.extended("a", sent_at=10)
    assert leases.take_expired(now=39) == []
    assert leases.take_due(now=20) == ["a"]


def test_after_a_failure_the_lease_is_extended_every_tenth_of_its_length() -> None:
    leases = table()
    for now in (10, 13, 16, 19, 22, 25, 28):
        assert leases.take_due(now) == ["a"]
        leases.failed("a", now)
        assert leases.take_due(now + 2.9) == []
    assert leases.pause(now=28) == 2


def test_a_lease_ends_even_if_there_is_no_response_to_its_extension() -> None:
    leases = table()
    leases.take_due(now=10)
    assert leases.pause(now=25) == 5
    assert leases.take_expired(now=29.9) == []
    assert leases.take_expired(now=30) == ["a"]
    assert leases.take_expired(now=31) == []


def test_a_late_response_does_not_bring_an_ended_lease_back() -> None:
    leases = table()
    leases.take_due(now=10)
    leases.remove("a")
    leases.extended("a", sent_at=10)
    leases.failed("a", now=11)
    assert leases.take_due(now=100) == []
    assert leases.take_expired(now=100) == []


def test_a_lease_that_is_added_during_a_pause_needs_nothing_before_its_end() -> None:
    leases: LeaseTable[str] = LeaseTable(30)
    pause = leases.pause(now=0)
    leases.add("a", claimed_at=0)
    assert pause == leases.pause(now=0) == 10
