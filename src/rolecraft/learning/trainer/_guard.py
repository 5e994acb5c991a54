"""Guards while policies are trained: what a blocked reply is taught, and what is counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from rolecraft.guard import GuardChoice, GuardedPolicy
from rolecraft.guard._choice import decision_rows
from rolecraft.worlds import Episode, Policy, Turn

if TYPE_CHECKING:
    from rolecraft.guard import RoleGuards


class TrainGuardChoice(GuardChoice):
    """Which policies hold for whom in training, and what becomes of a blocked reply."""

    tries: int = Field(default=0, ge=0)
    """How often a blocked reply is drawn anew before the turn is passed; the last one drawn is the one on record."""
    blocked: Literal["mask", "penalty"] = "mask"
    """What a blocked reply teaches; see `TrainGuard`."""
    penalty: float = Field(default=1.0, gt=0)
    """Taken off an agent's outcome for each of its blocked replies, where `blocked` is `penalty`."""


@dataclass(frozen=True)
class TrainGuard:
    """Guards of policies under training, and of their opponents.

    A blocked reply is never trained as if it had been played. With `mask`, only allowed actions are offered where the
    world lists legal ones, and probabilities are those among the offered; a reply in free text that is blocked is left
    out of the loss, and silence is played. With `penalty`, all legal actions are offered, a blocked one is replaced by
    silence or by a random allowed action, and it is trained with the agent's outcome less `penalty` for each block: it
    teaches what trying it has brought. An episode that a guard ends is not trained.

    Args:
        guards: By role; an agent without a role has the guard of its own name.
        blocked: `mask` or `penalty`.
        penalty: Taken off an agent's outcome for each of its blocked replies.
        tries: How often a blocked reply is drawn anew.
    """

    guards: RoleGuards
    blocked: Literal["mask", "penalty"] = "mask"
    penalty: float = 1.0
    tries: int = 0

    def seated(self, policy: Policy, *, trained: bool) -> GuardedPolicy:
        """Return a policy whose actions pass the guards."""
        mask = not trained or self.blocked == "mask"
        return GuardedPolicy(policy, self.guards, tries=self.tries, repairs=0, mask=mask)

    def price(self, episode: Episode, agent: str) -> float:
        """Return what is taken off an agent's outcome."""
        if self.blocked == "mask":
            return 0.0
        blocked = sum(row["effect"] != "allow" for turn in episode.of(agent) for row in _said(turn))
        return float(self.penalty * blocked)

    def untrained(self, turn: Turn) -> bool:
        """Return whether a reply is left out of the loss, for it was not what was played."""
        return self.blocked == "mask" and bool((turn.notes.get("guard") or {}).get("passed"))


def guard_figures(episodes: Sequence[Episode]) -> dict[str, Any]:
    """Return what guards did, for the log: decisions, refusals, turns passed or narrowed, episodes ended."""
    turns = [turn for episode in episodes for turn in episode.turns]
    said = [row for turn in turns for row in _said(turn)]
    noted = [turn.notes.get("guard") or {} for turn in turns]
    return {
        "guard_decisions": len(said),
        "guard_refused": sum(row["effect"] != "allow" for row in said),
        "guard_passed": sum(bool(note.get("passed")) for note in noted),
        "guard_narrowed": sum("permitted" in turn.notes for turn in turns),
        "guard_ended": sum(bool(note.get("stopped")) and "failed" in turn.notes
                           for note, turn in zip(noted, turns, strict=True)),
    }  # fmt: skip


def refusals(iteration: int, episodes: Sequence[Episode]) -> dict[str, dict[str, Any]]:
    """Return the decisions of an iteration that did not allow, by a key that is the same whenever it is played."""
    return {
        f"{iteration:06}/{place}/{turn.step}/{turn.agent}/{number}": {
            "iteration": iteration, "episode": place, "step": turn.step, "agent": turn.agent, **row,
        }
        for place, episode in enumerate(episodes)
        for turn in episode.turns
        for number, row in enumerate(_said(turn))
        if row["effect"] != "allow"
    }  # fmt: skip


def _said(turn: Turn) -> Sequence[Mapping[str, Any]]:
    return decision_rows(turn.notes)
