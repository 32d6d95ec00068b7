"""Beside the program itself: the same services in this process, for tables of cases too long for a process each."""

from tests.services.conftest import clock, desk, foreign_desk, foreign_runs

__all__ = ["clock", "desk", "foreign_desk", "foreign_runs"]
