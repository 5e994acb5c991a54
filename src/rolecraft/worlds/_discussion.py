"""A panel of referees who discuss two answers to a question, one after the other, and then score them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, get_args

from rolecraft.errors import IllegalActionError, UserError
from rolecraft.roles import Role
from rolecraft.worlds._discussion_items import JudgedItem, Stance
from rolecraft.worlds._world import World

Decision = Literal["mean", "majority"]
"""How the panel decides: by the mean scores, or by the most votes (a draw is a tie)."""

_SCORE = re.compile(
    r"^\W*(?:the )?scores? (?:of|for) (?:answer|assistant|response) ([12])\W*[:=]\W*(\d+(?:\.\d+)?)\s*(?:/\s*10)?\W*$",
    re.IGNORECASE,
)
_CLAIM = re.compile(r"\b(?:answer|assistant|response) ([12]) is (?:the )?(?:clearly |much |a little )?better\b", re.I)
_LEVEL = re.compile(r"\b(?:equally good|a tie|no better than each other)\b", re.I)
_LEAK = re.compile(
    r"\b(?:answer|assistant|response)\s*(?:[12]|one|two)\b|\b(?:first|second) (?:answer|response)\b", re.I
)


def read_scores(text: str) -> tuple[float, float] | None:
    """Return the two scores, 1 to 10, that the last two lines give; None if they do not give both.

    Blank lines do not count. The two lines may come in either order, as in `Score of answer 1: 7`.
    """
    lines = [line for line in text.splitlines() if line.strip()][-2:]
    found = {match[1]: float(match[2]) for line in lines if (match := _SCORE.match(line.strip()))}
    if len(found) != 2 or not all(1 <= score <= 10 for score in found.values()):
        return None
    return found["1"], found["2"]


def read_stance(text: str) -> Stance | None:
    """Return the stance that a message states in so many words, in the order in which the answers were shown.

    Scores count before words. A message that says "answer 1 is better" and of answer 2 the same has no stance. Free
    speech of a model needs a reader that understands more.
    """
    scores = read_scores(text)
    if scores:
        return verdict_of(scores)
    claims = set(_CLAIM.findall(text))
    if len(claims) == 1:
        return "A1" if claims == {"1"} else "A2"
    return "tie" if not claims and _LEVEL.search(text) else None


def verdict_of(scores: tuple[float, float]) -> Stance:
    """Return which answer the scores put first."""
    return "tie" if scores[0] == scores[1] else "A1" if scores[0] > scores[1] else "A2"


class Discussion(World):
    """Referees speak in turn, see what was said, and give scores in the last turn that each of them has.

    The turn rules are those of ChatEval (arXiv 2308.07201): `max_turns` counts single turns; from turn
    `max_turns - n` on (counted from 0), so in the last turn of each of n referees, the final format is demanded. A
    final message without it is refused with the reason, so that `play(repairs=...)` asks again; an empty message
    abstains. Verdicts and stances are told in the item's own order of answers, also where `swapped` shows them in the
    other one.
    """

    name = "discussion"

    def __init__(
        self, item: JudgedItem, roles: Mapping[str, Role], *, max_turns: int = 12, swapped: bool = False,
        blind: bool = False, decide: Decision = "mean",
    ) -> None:  # fmt: skip
        """Seat a panel.

        Args:
            item: What is judged.
            roles: Seat to role, in speaking order. All see a role's name; its own seat also sees its description.
            max_turns: Single turns in all.
            swapped: Show the answers in the other order.
            blind: Messages of the last round are seen by their speaker alone.
            decide: How the verdict of the panel follows from the scores.

        Raises:
            UserError: If there are fewer than two seats, or more than turns; a seat's name would break the record of
                what was said; a role speaks of one of the answers; `decide` is unknown.
        """
        if not 2 <= len(roles) <= max_turns:
            raise UserError(
                f"{len(roles)} referees and max_turns {max_turns}: expected at least 2 referees and a turn for each; "
                "give more turns or fewer seats."
            )
        if decide not in get_args(Decision):
            raise UserError(f"decide must be mean or majority, got {decide!r}.")
        for seat, role in roles.items():
            if re.search(r"[,\[\]\n]", seat) or re.search(r"[\[\]\n]", role.name):
                raise UserError(
                    f"seat {seat!r} ({role.name!r}): names may hold no brackets, seats no commas; rename it."
                )
            leak = _LEAK.search(f"{role.name} {role.description}")
            if leak:
                raise UserError(
                    f"the role of {seat} speaks of {leak[0]!r}: a role must not hint at the verdict; cut it."
                )
        self.item, self.roles = item, dict(roles)
        self.max_turns, self.swapped, self.blind, self.decide = max_turns, swapped, blind, decide
        self.agents = tuple(roles)
        self._said: list[tuple[str, str]] = []

    def reset(self, seed: int) -> None:
        """Start with nobody having spoken; the panel itself knows no chance."""
        self._said = []

    @property
    def turn(self) -> int:
        """Turns taken so far."""
        return len(self._said)

    @property
    def final(self) -> bool:
        """Whether the turn that comes now must end with scores."""
        return self.turn >= self.max_turns - len(self.agents)

    @property
    def acting(self) -> tuple[str, ...]:
        """The next speaker."""
        return () if self.turn >= self.max_turns else (self.agents[self.turn % len(self.agents)],)

    @property
    def messages(self) -> tuple[tuple[str, str], ...]:
        """Who said what, in order."""
        return tuple(self._said)

    @property
    def stances(self) -> tuple[tuple[str, Stance | None], ...]:
        """Who took which stance, turn by turn: by scores or plain words; None where a message took none."""
        return tuple((agent, self._unswapped(read_stance(text))) for agent, text in self._said)

    def visible(self, agent: str) -> tuple[tuple[str, str], ...]:
        """Return the messages that an agent may see."""
        public = self.max_turns - len(self.agents) if self.blind else self.max_turns
        return tuple(said for turn, said in enumerate(self._said) if turn < public or said[0] == agent)

    def observe(self, agent: str) -> str:
        """Return role, question, both answers, what was said, and what is asked for now."""
        first, second = self.item.answers[::-1] if self.swapped else self.item.answers
        said = [
            f"[{speaker}, {self.roles[speaker].name}] " + (text.strip() or "(says nothing)").replace("\n", "\n    ")
            for speaker, text in self.visible(agent)
        ]
        return "\n".join([
            f"You are {agent}, {self.roles[agent].name}. {self.roles[agent].description}",
            f"\nQuestion: {self.item.question}\nAnswer 1: {first}\nAnswer 2: {second}",
            "\nSaid so far:",
            *(said or ["(nothing yet)"]),
            "\n" + self._request(agent),
        ])  # fmt: skip

    def _request(self, agent: str) -> str:
        if agent not in self.acting:
            return "The discussion is over." if not self.acting else f"{self.acting[0]} speaks now."
        head = f"Turn {self.turn + 1} of {self.max_turns}."
        if not self.final:
            return (
                f"{head} Discuss with the other referees which answer is better. Weigh what they say, and be critical."
            )
        return (
            f"{head} This is your last word. Write one paragraph with your evidence, then end with these two lines, "
            "each with a score from 1 to 10:\nScore of answer 1: <score>\nScore of answer 2: <score>"
        )

    def legal(self, agent: str) -> tuple[str, ...] | None:
        """Return None, for any text, on an agent's turn."""
        return None if agent in self.acting else ()

    def check(self, agent: str, action: str) -> None:
        """Refuse a last word without scores; silence is taken as an abstention.

        Raises:
            IllegalActionError: Naming the lines that are expected.
        """
        super().check(agent, action)
        if self.final and action.strip() and read_scores(action) is None:
            raise IllegalActionError(
                f"{self.name}: the last word of {agent} must end with the lines 'Score of answer 1: <1-10>' and "
                f"'Score of answer 2: <1-10>'; got {action.strip().splitlines()[-1][:60]!r} at the end."
            )

    def _apply(self, actions: Mapping[str, str]) -> None:
        [(agent, text)] = actions.items()
        self._said.append((agent, text))

    def state(self) -> Mapping[str, Any]:
        """Return the item, how it is shown, and all messages."""
        return {
            "item": self.item.id, "swapped": self.swapped, "blind": self.blind, "max_turns": self.max_turns,
            "roles": {seat: role.id for seat, role in self.roles.items()}, "said": [list(said) for said in self._said],
        }  # fmt: skip

    def final_scores(self) -> dict[str, tuple[float, float] | None]:
        """Return each referee's scores of the item's answers in its last turn; None where it abstained."""
        scores: dict[str, tuple[float, float] | None] = dict.fromkeys(self.agents)
        for agent, text in self._said[self.max_turns - len(self.agents) :]:
            found = read_scores(text)
            scores[agent] = found[::-1] if found and self.swapped else found
        return scores

    def outcome(self) -> Mapping[str, Any]:
        """Return the panel's verdict, votes, mean scores, who abstained, and whether the better answer won."""
        scores = self.final_scores()
        given = [pair for pair in scores.values() if pair]
        votes = {agent: verdict_of(pair) if pair else None for agent, pair in scores.items()}
        verdict = self._verdict(given)
        return {
            "verdict": verdict,
            "votes": votes,
            "scores": [sum(column) / len(given) for column in zip(*given, strict=True)] if given else None,
            "abstained": [agent for agent, pair in scores.items() if pair is None],
            "correct": verdict == self.item.better if self.item.better else None,
        }

    def rewards(self) -> Mapping[str, float]:
        """Return 1 for all once the panel has put the better answer first, else 0."""
        right = not self.acting and bool(self.outcome()["correct"])
        return dict.fromkeys(self.agents, float(right))

    def _verdict(self, given: list[tuple[float, float]]) -> Stance | None:
        if not given:
            return None
        if self.decide == "mean":
            return verdict_of((sum(first for first, _ in given), sum(second for _, second in given)))
        votes = [verdict_of(pair) for pair in given]
        ranked: list[Stance] = sorted(set(votes), key=votes.count, reverse=True)
        drawn = len(ranked) > 1 and votes.count(ranked[0]) == votes.count(ranked[1])
        return "tie" if drawn else ranked[0]

    def _unswapped(self, stance: Stance | None) -> Stance | None:
        return {"A1": "A2", "A2": "A1"}.get(stance, stance) if self.swapped and stance else stance  # type: ignore[return-value]
