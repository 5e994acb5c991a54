"""Worlds of a few words, whose best play is plain."""

from __future__ import annotations

from rolecraft.errors import IllegalActionError
from rolecraft.worlds import World


class Pick(World):
    """Every seat is shown a colour in turn and names one; it earns 1 where they agree, else 0."""

    name = "pick"
    COLOURS = ("red", "green", "light blue")

    def __init__(self, agents=("ann",), turns=1, free=False, pay=1.0):
        self.agents = tuple(agents)
        self.actions = None if free else self.COLOURS
        self._turns, self._free, self._pay = turns, free, pay
        self.reset(0)

    def reset(self, seed):
        self._seed, self._played = seed, []
        self._earned = dict.fromkeys(self.agents, 0.0)

    @property
    def acting(self):
        place = len(self._played)
        return () if place >= self._turns * len(self.agents) else (self.agents[place % len(self.agents)],)

    def _shown(self):
        return self.COLOURS[(self._seed + len(self._played)) % 3]

    def observe(self, agent):
        return f"{self._shown()} ."

    def legal(self, agent):
        return None if self._free else (self.COLOURS if agent in self.acting else ())

    def check(self, agent, action):
        if self._free and action not in self.COLOURS:
            raise IllegalActionError(f"{action!r} is no colour")
        super().check(agent, action)

    def _apply(self, actions):
        for agent, action in actions.items():
            self._earned[agent] += self._pay if action == self._shown() else 0.0
            self._played.append(action)

    def state(self):
        return {"seed": self._seed, "played": self._played}

    def rewards(self):
        return dict(self._earned)


class Say(Pick):
    """Anything may be said; a seat earns 1 for every "red" in it."""

    name = "say"

    def __init__(self, agents=("ann",), turns=1):
        super().__init__(agents, turns, free=True)

    def check(self, agent, action):
        """Take any text."""

    def _apply(self, actions):
        for agent, action in actions.items():
            self._earned[agent] += action.split().count("red")
            self._played.append(action)
