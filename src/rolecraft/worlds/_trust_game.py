"""The trust game: what is sent is multiplied, and the other decides how much of it comes back.

The rules are those of Berg, Dickhaut and McCabe (1995), once or over several rounds; an endowment of 10 and a
multiplier of 3 are the usual ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rolecraft.errors import UserError
from rolecraft.worlds._world import World

TRUSTOR, TRUSTEE = "trustor", "trustee"


def trust_payoffs(sent: int, returned: int, endowment: int = 10, multiplier: int = 3) -> tuple[int, int]:
    """Return what a round pays: `endowment - sent + returned` and `multiplier * sent - returned`.

    Raises:
        UserError: If more is sent than there is, more comes back than has arrived, or an amount is negative.
    """
    if not 0 <= sent <= endowment:
        raise UserError(f"sent must lie in 0..{endowment}, got {sent}.")
    if not 0 <= returned <= multiplier * sent:
        raise UserError(f"returned must lie in 0..{multiplier * sent} where {sent} were sent, got {returned}.")
    return endowment - sent + returned, multiplier * sent - returned


def amount_of(action: str) -> int:
    """Return the number in `send 3` or `return 3`.

    Raises:
        UserError: If the text is no action of the trust game.
    """
    verb, _, number = action.partition(" ")
    if verb not in ("send", "return") or not number.isdecimal():
        raise UserError(f"expected 'send N' or 'return N', got {action!r}.")
    return int(number)


class TrustGame(World):
    """The trustor sends part of an endowment, it is multiplied, and the trustee returns part of what arrived.

    In every round the trustor gets a fresh endowment; what the two have earned does not change what they may do. Both
    know the rules and all past rounds. There is no chance in it.
    """

    name = "trust-game"
    agents = (TRUSTOR, TRUSTEE)

    def __init__(self, endowment: int = 10, multiplier: int = 3, rounds: int = 1) -> None:
        """Set the rules.

        Args:
            endowment: What the trustor has in each round, at least 1.
            multiplier: What a unit sent becomes, at least 1.
            rounds: At least 1.

        Raises:
            UserError: If a number is not an integer of at least 1.
        """
        for name, value in (("endowment", endowment), ("multiplier", multiplier), ("rounds", rounds)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise UserError(f"{name} must be an integer of at least 1, got {value!r}.")
        self.endowment, self.multiplier, self.rounds = endowment, multiplier, rounds
        self._sends = tuple(f"send {amount}" for amount in range(endowment + 1))
        self._returns = tuple(f"return {amount}" for amount in range(multiplier * endowment + 1))
        self.actions = self._sends + self._returns
        self.reset(0)

    def reset(self, seed: int) -> None:
        """Start an episode; the seed decides nothing."""
        self._past: list[tuple[int, int]] = []
        self._sent: int | None = None

    @property
    def past(self) -> tuple[tuple[int, int], ...]:
        """What was sent and returned in each finished round."""
        return tuple(self._past)

    @property
    def acting(self) -> tuple[str, ...]:
        """The trustor, then the trustee."""
        if len(self._past) == self.rounds:
            return ()
        return (TRUSTOR,) if self._sent is None else (TRUSTEE,)

    def rules(self) -> str:
        """Return the rules in words, without saying who is who."""
        often = "It is played once." if self.rounds == 1 else f"The same two play it {self.rounds} times."
        return (
            f"Two people, the trustor and the trustee, play for coins. The trustor has {self.endowment} coins and sends"
            f" any number of them, from 0 to {self.endowment}, to the trustee. Each coin sent becomes"
            f" {self.multiplier} coins. The trustee then returns any number of the coins that arrived. Both keep what"
            f" they have in the end. {often}"
        )

    def observe(self, agent: str) -> str:
        """Return the rules, the past rounds, what has arrived, and what to do."""
        lines = [self.rules(), f"You are the {agent}."]
        lines += [
            f"Round {number}: the trustor sent {sent}, the trustee returned {returned} of {self.multiplier * sent}."
            for number, (sent, returned) in enumerate(self._past, 1)
        ]
        if self._sent is not None:
            lines.append(f"Now the trustor sent {self._sent}; {self.multiplier * self._sent} coins arrived.")
        lines.append(self._prompt(agent))
        return "\n".join(lines)

    def _prompt(self, agent: str) -> str:
        if not self.acting:
            return "The game is over."
        if agent not in self.acting:
            return f"It is the turn of the {self.acting[0]}."
        now = f"Round {len(self._past) + 1} of {self.rounds}. " if self.rounds > 1 else ""
        if self._sent is None:
            return f"{now}How many coins do you send? Reply 'send' and a number from 0 to {self.endowment}."
        most = self.multiplier * self._sent
        return f"{now}How many coins do you return? Reply 'return' and a number from 0 to {most}."

    def legal(self, agent: str) -> tuple[str, ...]:
        """Return the amounts that can be sent, or returned of what arrived."""
        if agent not in self.acting:
            return ()
        return self._sends if self._sent is None else self._returns[: self.multiplier * self._sent + 1]

    def state(self) -> Mapping[str, Any]:
        """Return the rules' numbers, the past rounds and what was sent in this one."""
        return {
            "endowment": self.endowment,
            "multiplier": self.multiplier,
            "rounds": self.rounds,
            "past": [list(round_) for round_ in self._past],
            "sent": self._sent,
        }

    def rewards(self) -> Mapping[str, float]:
        """Return the payoffs of the finished rounds, added up."""
        paid = [trust_payoffs(sent, returned, self.endowment, self.multiplier) for sent, returned in self._past]
        return {TRUSTOR: float(sum(a for a, _ in paid)), TRUSTEE: float(sum(b for _, b in paid))}

    def outcome(self) -> Mapping[str, Any]:
        """Return what was sent and returned in each round."""
        return {"sent": [sent for sent, _ in self._past], "returned": [returned for _, returned in self._past]}

    def _apply(self, actions: Mapping[str, str]) -> None:
        if self._sent is None:
            self._sent = amount_of(actions[TRUSTOR])
            return
        self._past.append((self._sent, amount_of(actions[TRUSTEE])))
        self._sent = None
