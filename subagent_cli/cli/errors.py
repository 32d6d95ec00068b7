"""Errors at the command line: which exit code each kind has, and how it is told.

One line that says what is wrong, then what helps: a hint, what may have been meant, the next command. With JSON the
same as an object on standard output. Never a traceback, unless SUBAGENT_DEBUG asks for one.
"""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import click

from subagent_cli.cli.output import print_json, print_talk
from subagent_cli.core import errors
from subagent_cli.services.settings import wants_debug, wants_json

EXIT_CODES: dict[type[BaseException], int] = {
    errors.Failed: 1,
    errors.InvalidInput: 2,
    errors.NotFound: 3,
    errors.Refused: 4,
    errors.Denied: 5,
    errors.Busy: 7,
    errors.Damaged: 8,
    errors.OutcomeUnknown: 9,
    errors.Stalled: 124,
    click.UsageError: 2,
    click.Abort: 130,
    KeyboardInterrupt: 130,
}


def exit_code_of(error: BaseException) -> int:
    if isinstance(error, SystemExit | click.exceptions.Exit):
        code = error.code if isinstance(error, SystemExit) else error.exit_code
        return code if isinstance(code, int) else 0
    for kind in type(error).__mro__:
        if kind in EXIT_CODES:
            return EXIT_CODES[kind]
    return 1


def text_of(error: BaseException) -> str:
    """What a reader is told."""
    return _text(_told(error))


def report(error: BaseException, words: Sequence[str]) -> None:
    """Tells the user, in the form that was asked for."""
    if wants_debug() and not isinstance(error, SystemExit | click.exceptions.Exit | KeyboardInterrupt):
        import traceback

        traceback.print_exception(error)
    if isinstance(error, SystemExit | click.exceptions.Exit):
        return
    if not isinstance(error, BrokenPipeError):
        try:
            _tell(error, words)
        except BrokenPipeError:
            # A reader that has gone wants to hear no more.
            pass
        except OSError:
            with suppress(OSError):
                print_talk(text_of(error))
    _silence()


def _silence() -> None:
    """Keeps the interpreter's last flush from complaining about a reader that has gone or a disk that is full."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _tell(error: BaseException, words: Sequence[str]) -> None:
    told = _told(error)
    options = words[: words.index("--")] if "--" in words else words
    if "--json" in options or "output=json" in options or wants_json():
        print_json({"success": False, "error": told})
    elif isinstance(error, click.exceptions.NoArgsIsHelpError):
        # Who types nothing behind it wants to know what there is.
        print_talk(error.format_message())
    else:
        print_talk(_text(told))


def _told(error: BaseException) -> dict[str, Any]:
    if isinstance(error, KeyboardInterrupt | click.Abort):
        # click hides the interrupt itself behind an error of its own.
        said = str(error.__cause__ or error)
        return {"code": "interrupted", "message": said or "interrupted; nothing was cancelled", "hint": None}
    if isinstance(error, errors.SubagentError):
        told: dict[str, Any] = {"code": error.code, "message": error.message, "hint": error.hint}
        if error.candidates:
            told["candidates"] = list(error.candidates)
        if error.next:
            told["next"] = error.next
        return told
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        return {"code": "usage", "message": "no command is named", "hint": _usage_hint(error)}
    if isinstance(error, click.ClickException):
        return {"code": "usage", "message": error.format_message(), "hint": _usage_hint(error)}
    if isinstance(error, OSError):
        where = f": {error.filename}" if error.filename else ""
        return {"code": "io_error", "message": f"{error.strerror or error}{where}", "hint": None}
    name = type(error).__name__
    hint = "this is a fault of subagent itself: please report it, with what SUBAGENT_DEBUG=1 prints"
    return {"code": "internal", "message": f"{name}: {error}", "hint": hint}


def _usage_hint(error: click.ClickException) -> str | None:
    context = getattr(error, "ctx", None)
    help_page = f"{context.command_path} --help" if context else "subagent --help"
    if isinstance(error, click.NoSuchOption) and context and context.info_name == "run":
        return f"a task that begins with - can be piped in, with - in its place; see {help_page}"
    if isinstance(error, click.NoSuchOption):
        return f"a text that begins with - goes behind --; see {help_page}"
    return f"see {help_page}"


def _text(told: dict[str, Any]) -> str:
    lines = [f"error: {' '.join(told['message'].split())}"]
    candidates = told.get("candidates", ())
    if candidates and max(map(len, candidates)) > 40:
        lines += [f"  {' '.join(candidate.split())[:160]}" for candidate in candidates]
    elif candidates:
        lines.append(f"one of: {', '.join(candidates)}")
    if told["hint"]:
        lines.append(f"hint: {told['hint']}")
    if told.get("next"):
        lines.append(f"next: {told['next']}")
    return "\n".join(lines)
