"""The door to time and chance: the only module that reads a clock or asks for random bytes."""

import os
import time

from subagent_cli.core.ids import uuid7
from subagent_cli.core.moment import Moment

_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock:
    """The machine's own time. Tests hand in another one."""

    def __init__(self) -> None:
        self._boot: str | None = None
        self._latest, self._latest_id = 0, ""

    def now(self) -> Moment:
        if self._boot is None:
            self._boot = _boot_id()
        return Moment(time.time_ns() // 1_000_000, self._boot, int(time.clock_gettime(_BOOT_CLOCK) * 1000))

    def new_id(self) -> str:
        """Ids of one clock never go back, so that what was made in one go sorts as it was made."""
        self._latest = max(self._latest, time.time_ns() // 1_000_000)
        new = uuid7(self._latest, os.urandom(10))
        if new <= self._latest_id:
            self._latest += 1
            new = uuid7(self._latest, os.urandom(10))
        self._latest_id = new
        return new

    def new_token(self) -> str:
        return os.urandom(32).hex()


def _boot_id() -> str:
    """Eight digits that name this boot; empty where the system does not tell, and then only the wall clock counts."""
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            return file.read(8).decode()
    except OSError:
        return ""
