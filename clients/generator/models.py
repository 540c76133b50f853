"""Which schemas become models of the clients, and what they are called there."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Model:
    """A schema of the document, as a type in each client. An empty name: the client has none."""

    schema: str
    python: str
    typescript: str
    go: str


RESPONSES = [
    Model("PutDone", "PutDone", "PutResult", "PutResult"),
    Model("SettleDone", "SettleDone", "Settled", "SettleResult"),
    Model("ClaimedJob", "ClaimedJob", "ClaimedJob", "Job"),
    Model("Job", "StoredJob", "JobInfo", "JobInfo"),
    Model("JobResult", "Result", "", ""),
    Model("Done", "Completion", "DoneInfo", "DoneInfo"),
    Model("Lease", "Lease", "LeaseInfo", "LeaseInfo"),
    Model("BulkChangeResult", "BulkChange", "ChangedJobs", "Changes"),
    Model("ErrorGroups", "ErrorGroups", "ErrorGroups", "ErrorGroups"),
    Model("Settings", "Settings", "Settings", "Settings"),
    Model("KindStats", "KindStats", "KindCounts", "KindInfo"),
    Model("KindDeleted", "KindDeleted", "DeletedKind", "Deleted"),
    Model("Schedule", "Schedule", "Schedule", "ScheduleInfo"),
    Model("Upcoming", "Upcoming", "Upcoming", "UpcomingCounts"),
    Model("Stats", "Stats", "Stats", "Stats"),
    Model("WorkerInfo", "WorkerInfo", "WorkerInfo", "WorkerInfo"),
]
"""What the server returns. Objects in their fields become models, too, with the names of their schemas."""

PUT = Model("PutAnyJob", "PutOptions", "PutFields", "PutJob")
RESCHEDULE = Model("RescheduleRequest", "RescheduleOptions", "RescheduleFields", "Reschedule")
FILTER = Model("JobFilter", "Filter", "JobFilter", "Filter")
CLAIM = Model("ClaimRequest", "ClaimOptions", "ClaimFields", "Claim")
SETTINGS = Model("SettingsPatch", "SettingsFields", "SettingsChange", "SettingsChange")
SCHEDULE = Model("ScheduleRequest", "ScheduleFields", "ScheduleChange", "ScheduleChange")

REQUESTS = [PUT, RESCHEDULE, FILTER, CLAIM, SETTINGS, SCHEDULE]
"""What programs pass. Objects in their fields become models, too, with `Fields` after the name."""

LEFT_OUT = {"cursor", "nonce"}
"""Fields that the clients use themselves."""

MORE_ENUMS = ["ChangeResult"]
"""Enums that no field of a model has."""

ENUMS = [
    Model("State", "State", "JobState", "State"),
    Model("PutMode", "Mode", "PutMode", "PutMode"),
    Model("ChangeResult", "ChangeResult", "ChangeResult", "ChangeOutcome"),
    Model("SettleResult", "SettleResult", "SettleResult", "SettleOutcome"),
]
"""Enums with other names than their schemas."""


def names(models: list[Model], language: str) -> dict[str, str]:
    """Returns the names of the models in a language, by their schemas."""
    return {model.schema: getattr(model, language) for model in models}
