"""How the command line fails: one message on stderr, an exit code, no traceback."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from typing import Any

import typer

from rolecraft.errors import RolecraftError

INTERRUPTED = 130
USAGE_ERROR: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")
"""Base of typer's errors about the command line itself; typer does not export it."""

resume_arguments: list[str] = []
"""Set by a command that does several runs, each of which is resumed by a command line of its own."""


def guarded(command: Callable[[], Any]) -> int:
    """Call a typer application that does not handle its own exits, and return the exit code."""
    try:
        code = command()
    except typer.Exit as leave:
        return int(leave.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        code = INTERRUPTED
    except RolecraftError as error:
        _say(f"error: {error}")
        return error.exit_code
    except USAGE_ERROR as error:
        error.show()
        return int(error.exit_code)
    if code == INTERRUPTED:  # typer returns it for Ctrl-C; older ones abort
        _say(f"interrupted{_resume_hint()}")
    return code if isinstance(code, int) else 0


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def _resume_hint() -> str:
    store = sys.modules.get("rolecraft._run._store")
    directory = store.last_run if store else None
    if directory is None:
        return ""
    arguments = [argument for argument in resume_arguments or sys.argv[1:] if argument != "--resume"]
    if not any(argument.split("=")[0] == "--out" for argument in arguments):
        arguments += ["--out", str(directory)]
    return f"; everything computed so far is stored. Resume with: rolecraft {shlex.join([*arguments, '--resume'])}"
