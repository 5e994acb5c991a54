"""Threat signalling by simulation: agents that imitate, well-mixed and on networks, against the exact distribution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from rolecraft._run import derive_seed
from rolecraft.errors import UserError
from rolecraft.systems._base import ROWS, Result, Verdict, put_row, row_key
from rolecraft.systems.societies._threat_game import (
    COOPERATORS,
    Payoffs,
    interaction_tables,
    theta_arm,
    unit_name,
)

if TYPE_CHECKING:
    from rolecraft._run import RunStore
    from rolecraft.societies import Game, Graph, NetworkRun, Occupancy

WITHIN = 0.1
"""How far time averages may lie from the stationary distribution where mutations are rare."""


@dataclass(frozen=True)
class AbmConfig(Payoffs):
    """Agents that look at each other; well-mixed at each rate of mutation, and on one network at the first rate."""

    seeds: tuple[int, ...] = (1, 2, 3, 4, 5)
    theta: tuple[float, ...] = (0.0, 0.25, 0.6)
    mutation: tuple[float, ...] = (0.01, 0.0001)
    """Per update, from high to low; the last one is compared with the limit of rare mutations."""
    mutants: int = 4000
    """Mutations per run, on average: a run has `mutants / mutation` updates."""
    network: str = "lattice"
    """lattice, scale-free, or none."""
    nodes: int = 400
    """Of the network; a square number for a lattice. Paper: up to 1000."""
    sweeps: int = 1000
    """Updates per node on the network; a fifth as many before are not counted."""

    def __post_init__(self) -> None:
        """Check sizes and rates."""
        super().__post_init__()
        if not self.mutation or not all(0 < rate <= 1 for rate in self.mutation):
            raise UserError(f"mutation: expected probabilities above 0, got {self.mutation}.")
        if list(self.mutation) != sorted(set(self.mutation), reverse=True):
            raise UserError(f"mutation: expected different rates from high to low, got {self.mutation}.")
        if self.mutants < 1 or self.sweeps < 1:
            raise UserError(f"mutants and sweeps must be at least 1, got {self.mutants} and {self.sweeps}.")
        if self.network not in ("lattice", "scale-free", "none"):
            raise UserError(f"network: expected lattice, scale-free or none, got {self.network!r}.")
        side = round(self.nodes**0.5)
        if self.network == "lattice" and (side * side != self.nodes or side < 3):
            raise UserError(f"nodes: a square lattice needs a square number of at least 9, got {self.nodes}.")

    @classmethod
    def full(cls) -> Self:
        """Return the heat maps' grid, and a scale-free network of 1000 agents."""
        return cls(**cls.grid(), seeds=tuple(range(1, 11)), network="scale-free", nodes=1000, sweeps=10_000)

    def graph(self, seed: int) -> Graph:
        """Return the network; a scale-free one differs by seed."""
        from rolecraft.societies import lattice, scale_free

        if self.network == "lattice":
            return lattice(round(self.nodes**0.5), round(self.nodes**0.5))
        return scale_free(self.nodes, seed=derive_seed("threat-graph", seed) % 2**32)

    def places(self) -> dict[str, float]:
        """Return where populations live, and the rate of mutation there."""
        mixed = {f"mixed,mu={rate:g}": rate for rate in self.mutation}
        return mixed | ({self.network: self.mutation[0]} if self.network != "none" else {})


def run_abm(config: AbmConfig, store: RunStore) -> Result:
    """Run what is missing side by side, by place and strategies; a row has the means over time of one population."""
    for place, rate in config.places().items():
        for names in dict.fromkeys(names for names, _ in config.arms().values()):
            lanes = [
                Lane(arm, seed, f"{place}:{unit_name(*costs)}", theta, config.game(names, *costs, theta))
                for seed in config.seeds
                for arm, (strategies, theta) in config.arms().items() if strategies == names
                for costs in config.settings
            ]  # fmt: skip
            keys = {row_key(lane.arm, lane.seed, lane.unit): lane for lane in lanes}
            missing = [keys[key] for key in store.missing(ROWS, keys)]
            # A scale-free network is a seed's own.
            groups = [[lane for lane in missing if lane.seed == seed] for seed in config.seeds]
            for group in groups if place == "scale-free" else [missing]:
                for lane, found in zip(group, simulate(config, group, place, rate), strict=True):
                    put_row(store, lane.arm, lane.seed, lane.unit, theta=lane.theta, **found)
    return Result.read(store)


class Lane(NamedTuple):
    """One population."""

    arm: str
    seed: int
    unit: str
    theta: float
    game: Game


def simulate(config: AbmConfig, lanes: Sequence[Lane], place: str, rate: float) -> list[dict[str, float]]:
    """Return the figures of some populations of the same strategies in one place."""
    import numpy as np

    from rolecraft.societies import evolve, evolve_on_graph, small_mutation

    if not lanes:
        return []
    game, payoffs = lanes[0].game, np.stack([lane.game.payoffs for lane in lanes])
    common: dict[str, Any] = {"beta": config.beta, "mutation": rate, "payoffs": payoffs, "populations": len(lanes)}
    common["seed"] = [derive_seed("threat-abm", lane.seed, lane.arm, lane.unit) for lane in lanes]
    run: Occupancy | NetworkRun
    if place.startswith("mixed"):
        steps = round(config.mutants / rate)
        run = evolve(game, size=config.size, steps=steps, discard=steps // 10, **common)
    else:
        steps = config.sweeps * config.nodes
        run = evolve_on_graph(game, config.graph(lanes[0].seed), steps=steps, discard=steps // 5, **common)
    rates = {name: run.rate(table) for name, table in interaction_tables(game.names).items()}
    rates["welfare"] = np.einsum("bij,bij->b", run.pairs, payoffs)
    found = []
    for number, lane in enumerate(lanes):
        shares = dict(zip(game.names, run.shares[number].tolist(), strict=True))
        exact = small_mutation(lane.game, config.size, config.beta).share(*COOPERATORS)
        cooperation = sum(shares[name] for name in COOPERATORS if name in shares)
        figures = {name: float(values[number]) for name, values in rates.items()}
        found.append({"cooperation": cooperation, "exact": exact, "off": cooperation - exact, **figures, **shares})
    return found


def at_place(result: Result, place: str) -> Result:
    """Return the rows of one place."""
    return Result(tuple(row for row in result.rows if str(row["unit"]).startswith(f"{place}:")))


def verdict_abm(result: Result) -> Verdict:
    """Demand agreement with the exact distribution where mutations are rare, and more cooperation with signals.

    At the lowest rate of mutation the mean over seeds of every arm and setting must lie within `WITHIN` of the
    stationary share on average over settings, by its whole interval; and free signals must raise cooperation by whole
    intervals at every rate and on the network. The control is FD where nobody signals, which must not.
    """
    places = list(dict.fromkeys(str(row["unit"]).split(":")[0] for row in result.rows))
    rare = [place for place in places if place.startswith("mixed")][-1]
    free = theta_arm(min(row["theta"] for row in result.rows if str(row["arm"]).startswith("theta=")))
    near = at_place(result, rare)
    gaps = {arm: near.mean("off", arm, by="seed") for arm in near.arms}
    worst = max(gaps, key=lambda arm: abs(gaps[arm].estimate))
    agree = all(abs(gap.low) < WITHIN and abs(gap.high) < WITHIN for gap in gaps.values())
    apart = any(gap.low > WITHIN or gap.high < -WITHIN for gap in gaps.values())
    gains = {place: at_place(result, place).difference("cooperation", free, "without", by="seed") for place in places}
    control = near.difference("cooperation", "unsignalled", "without", by="seed")
    raised = all(gain.low > 0 for gain in gains.values())
    against = any(gain.high <= 0 for gain in gains.values())
    gains_text = ", ".join(f"{place} {gain}" for place, gain in gains.items())
    far = max(
        abs(sum(row["off"] for row in rows) / len(rows))
        for arm in near.arms for unit in dict.fromkeys(row["unit"] for row in near.rows)
        if (rows := [row for row in near.rows if row["arm"] == arm and row["unit"] == unit])
    )  # fmt: skip
    return Verdict.when(
        reproduced=agree and raised and control.low <= 0,
        inconclusive=not (agree and raised) and not apart and not against,
        effect=gains[rare],
        control=control,
        note=f"cooperation with free signals less without ({gains_text}); time averages less the stationary share at "
        f"{rare}: farthest arm {worst} {gaps[worst]}, farthest setting {far:.3f}; control: FD where nobody signals "
        "less without",
    )
