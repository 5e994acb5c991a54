"""Errors that users meet, each saying what was given, what was expected and how to mend it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class RolecraftError(Exception):
    """Base of every error Rolecraft raises on purpose; the command line prints it without a traceback."""

    exit_code = 2


class UserError(RolecraftError):
    """A mistake in what the user gave: a file, a flag, an argument."""


class RoleError(UserError):
    """A role, an inventory or a question bank that cannot be used."""


class MissingDependencyError(UserError):
    """A package or weights file of an optional extra is not installed; the message holds the install line."""


class ModelError(RolecraftError):
    """A language model cannot do what was asked: unknown name, failed load, non-finite logits."""


class ServerError(ModelError):
    """A served model did not answer within its retries."""


class SteeringShapeError(UserError):
    """A direction does not fit the model: site out of range, other hidden size, other model."""


class ExtractionError(RolecraftError):
    """A direction cannot be extracted: nothing to pool, zero or non-finite vector, too few pairs."""


class GridError(UserError):
    """A sweep cannot be laid out: empty, duplicate or non-finite strengths, unknown roles, leaking questions."""


class JudgeError(RolecraftError):
    """A judge cannot be relied on: calibration failed, or too many replies could not be parsed."""


class RunMismatchError(UserError):
    """A run directory was made with another configuration, or is held by another process."""


class BudgetExceededError(RolecraftError):
    """The budget was reached; everything computed so far is stored and the run can be resumed."""

    exit_code = 3


class LockError(UserError):
    """`roles.lock` refuses a role: never screened, flagged, or screened for another model or revision."""


class IllegalActionError(RolecraftError):
    """A world refuses an action: out of turn, of another phase, or against its rules. The world is unchanged."""


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """Return `` Did you mean 'x'?`` for the nearest of `known`, or an empty string."""
    near = difflib.get_close_matches(given, list(known), n=1, cutoff=0.6)
    return f" Did you mean {near[0]!r}?" if near else ""
