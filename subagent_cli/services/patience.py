"""Waits that somebody else may call off: a thread that sleeps has to look up every now and then."""

from collections.abc import Callable

PULSE_SECONDS = 0.5

Stop = Callable[[], bool]


def nap(seconds: float | None, stop: Stop | None) -> float | None:
    """How long to sleep at most before `stop` is asked again."""
    if stop is None:
        return seconds
    return PULSE_SECONDS if seconds is None else min(seconds, PULSE_SECONDS)
