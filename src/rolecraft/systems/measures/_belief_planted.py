"""A population whose beliefs and behaviour are known: maps from attributes, mixed by a planted agreement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rolecraft._run import derive_seed
from rolecraft.agents import ScriptedPolicy
from rolecraft.measures._statistics import Floats
from rolecraft.worlds import Policy, Rules, Table, TrustGame, View, play_all
from rolecraft.worlds._trust_game import TRUSTEE, TRUSTOR

BELIEF_WEIGHTS = (0.7, 0.5, 0.4, -0.3)
"""How attributes are believed to raise what is sent."""
OTHER_WEIGHTS = (0.3, -0.5, 0.6, 0.6667)
"""What moves behaviour where it does not follow beliefs; nearly orthogonal to the beliefs, and made exactly so."""
THEORIES = {"more": 0.3, "less": -0.3}
"""Imposed effects of the first attribute, as shares of the endowment."""


def send_back_half(view: View) -> str:
    """Return half of what arrived, rounded down: a trustee that never varies."""
    legal = view.legal or ()
    return legal[(len(legal) - 1) // 2]


@dataclass(frozen=True)
class PlantedPopulation:
    """Personas with four attributes, a belief map and a behaviour map whose correlation is `agreement` exactly."""

    attributes: Floats
    """Shape (personas, 4): uncorrelated, mean 0, variance 1."""
    agreement: float
    endowment: int = 10
    spread: float = 1.0
    """Standard deviation of both maps over personas, in coins: small, so that few amounts are cut at 0 or all."""
    belief_noise: float = 1.0
    """Standard deviation of one asking, in coins."""
    play_noise: float = 1.3

    @classmethod
    def drawn(cls, personas: int, agreement: float, seed: int, endowment: int = 10) -> PlantedPopulation:
        """Draw attributes; the same seed gives the same ones at every agreement."""
        raw = np.random.default_rng(derive_seed(seed, "attributes")).normal(size=(personas, 4))
        basis, _ = np.linalg.qr(raw - raw.mean(0))
        return cls(basis * np.sqrt(personas), agreement, endowment)

    @property
    def believed(self) -> Floats:
        """What each persona is believed to send, without noise."""
        weights = _unit(np.array(BELIEF_WEIGHTS))
        latent: Floats = self.endowment / 2 + self.spread * self.attributes @ weights
        return latent

    @property
    def behaviour(self) -> Floats:
        """What each persona tends to send, without noise."""
        belief = _unit(np.array(BELIEF_WEIGHTS))
        other = np.array(OTHER_WEIGHTS)
        other = _unit(other - (other @ belief) * belief)
        mixed = self.agreement * belief + np.sqrt(1 - self.agreement**2) * other
        latent: Floats = self.endowment / 2 + self.spread * self.attributes @ mixed
        return latent

    def state_beliefs(self, askings: int, seed: int) -> Floats:
        """Return stated beliefs, whole coins, shape (personas, askings)."""
        rng = np.random.default_rng(derive_seed(seed, "beliefs", self.agreement))
        said = self.believed[:, None] + self.belief_noise * rng.normal(size=(len(self.attributes), askings))
        return np.clip(np.rint(said), 0, self.endowment)

    def played(self, plays: int, seed: int, tendency: Floats | None = None, label: str = "") -> Floats:
        """Play trust games and return what was sent, shape (personas, plays).

        Args:
            plays: Games per persona.
            seed: Every game's own seed follows from it.
            tendency: Instead of `behaviour`.
            label: Tells games of one seed apart.
        """
        latent = self.behaviour if tendency is None else tendency

        def send(view: View) -> str:
            coins = latent[int(view.role or 0)] + self.play_noise * view.rng().normal()
            return f"send {int(np.clip(np.rint(coins), 0, self.endowment))}"

        names = [str(place) for place in range(len(latent))]
        return play_trust_games(names, plays, ScriptedPolicy(send), seed, f"{label}/{self.agreement}", self.endowment)

    def under_theory(self, target: float, compliance: float) -> Floats:
        """Return tendencies moved towards an effect of the first attribute; 1 reaches it, 0 does not move."""
        from rolecraft.measures import attribute_effect

        first = self.attributes[:, 0]
        now = attribute_effect(first, self.behaviour, "difference", self.endowment)
        side = np.sign(first - (first.max() + first.min()) / 2) / 2
        moved: Floats = self.behaviour + compliance * (target - now) * self.endowment * side
        return moved


def play_trust_games(
    roles: Sequence[str], plays: int, trustor: Policy, seed: int, label: str, endowment: int = 10
) -> Floats:
    """Let each role play the trustor in single games, all in one batch; return what was sent, (roles, plays)."""
    trustee = ScriptedPolicy(send_back_half)
    tables = [
        Table(
            TrustGame(endowment),
            {TRUSTOR: trustor, TRUSTEE: trustee},
            derive_seed(seed, label, role, play),
            {TRUSTOR: role},
        )
        for role in roles
        for play in range(plays)
    ]
    episodes = play_all(tables, Rules(hashes=False))
    return np.array([float(episode.outcome["sent"][0]) for episode in episodes]).reshape(len(roles), plays)


def _unit(weights: Floats) -> Floats:
    unit: Floats = weights / np.sqrt(weights @ weights)
    return unit
