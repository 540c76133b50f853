"""An empty job for rq."""


def empty() -> None:
    pass
