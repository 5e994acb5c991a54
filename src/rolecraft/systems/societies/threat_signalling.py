"""Threat signalling: advertised punishment and those who fear it in the evolution of cooperation (IEEE CEC 2020).

Exact: the one-shot prisoner's dilemma, a population of 100 under pairwise comparison, fixation probabilities and the
stationary distribution at rare mutations, asynchronous Fermi updates with mutation, well-mixed and on networks.
Inferred (the full text was not at hand): the payoffs and the five strategies. C cooperates; D defects; SP, a silent
punisher, cooperates and pays epsilon so that a defector loses delta; TP does the same and pays theta in every
interaction to signal it; FD, a fearful defector, cooperates with those who signal and defects on all others. The parts
are `societies.small_mutation`, `societies.evolve` and `societies.evolve_on_graph`; this file is the studies.
Controls that must fail: FD where nobody signals, which must be another D to the last digit, and a signal whose price
is beyond (R - P) / 2, where TP no longer takes over FD.
Small: `rolecraft systems run threat-signalling --study stationary`, and `abm`; with `--full` the heat maps over
epsilon, delta and theta, and a network of 1000 agents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Self

from rolecraft.systems._base import ROWS, Result, System, Verdict, put_row, row_key
from rolecraft.systems.societies._threat_abm import AbmConfig, run_abm, verdict_abm
from rolecraft.systems.societies._threat_game import COOPERATORS, Payoffs, theta_arm, unit_name

if TYPE_CHECKING:
    from rolecraft._run import RunStore

SYSTEM = System(
    number=95,
    name="threat-signalling",
    title="Making an Example: Signalling Threat in the Evolution of Cooperation",
    arxiv="IEEE CEC 2020",
    family="societies",
    claim="signalling a threat of punishment catalyses cooperation once defectors can fear it, even where the signal "
    "is costly or punishing would not pay",
    published="cooperation is catalysed 'even when signalling is costly or when punishment would be impractical'; no "
    "figures known beyond the abstract",
)

# (a) Rare mutations, exactly


@dataclass(frozen=True)
class StationaryConfig(Payoffs):
    """Stationary distributions; nothing is drawn, so one seed is enough."""

    seeds: tuple[int, ...] = (0,)

    @classmethod
    def full(cls) -> Self:
        """Return heat maps over epsilon, delta and theta."""
        return cls(**cls.grid())


def run_stationary(config: StationaryConfig, store: RunStore) -> Result:
    """Store one row per arm and setting: the share of time of every strategy, exactly."""
    from rolecraft.societies import small_mutation

    for arm, (names, theta) in config.arms().items():
        for epsilon, delta in config.settings:
            unit = unit_name(epsilon, delta)
            for seed in config.seeds:
                if not store.missing(ROWS, [row_key(arm, seed, unit)]):
                    continue
                game = config.game(names, epsilon, delta, theta)
                chain = small_mutation(game, config.size, config.beta)
                shares = {name: float(share) for name, share in zip(chain.names, chain.stationary, strict=True)}
                margin = game.risk_margin("TP", "FD") if "TP" in names else None
                put_row(
                    store, arm, seed, unit, cooperation=chain.share(*COOPERATORS),
                    defection=chain.share("D", "FD"), theta=theta, tp_over_fd=margin, **shares,
                )  # fmt: skip
    return Result.read(store)


def by_setting(result: Result, metric: str) -> dict[str, list[tuple[float, float]]]:
    """Return, per setting, a metric over the prices of a signal, from low to high; means over seeds."""
    found: dict[str, dict[float, list[float]]] = {}
    for row in result.rows:
        if str(row["arm"]).startswith("theta=") and row.get(metric) is not None:
            found.setdefault(row["unit"], {}).setdefault(row["theta"], []).append(row[metric])
    return {
        unit: [(theta, sum(values) / len(values)) for theta, values in sorted(prices.items())]
        for unit, prices in found.items()
    }


def verdict_stationary(result: Result) -> Verdict:
    """Demand that signals raise cooperation in every setting, that it falls with their price, that fear pays beyond.

    (a) Cooperation at the lowest price exceeds that without signals in every setting; (b) it falls with every step of
    the price; (c) the share of FD is larger at every price at which TP does not risk-dominate FD than at any at which
    it does. The control is FD where nobody signals: D and FD must have one share, and cooperation must not rise.
    """
    cooperation, fear = by_setting(result, "cooperation"), by_setting(result, "FD")
    without = {row["unit"]: row["cooperation"] for row in result.rows if row["arm"] == "without"}
    margins = {row["theta"]: row["tp_over_fd"] for row in result.rows if row.get("tp_over_fd") is not None}
    held = {
        "a": [points[0][1] > without[unit] for unit, points in cooperation.items()],
        "b": [_falls([value for _, value in points]) for points in cooperation.values()],
        "c": [_jumps(points, margins) for points in fear.values()],
    }
    twins, first = _twins(result), theta_arm(min(margins))
    control = result.difference("cooperation", "unsignalled", "without")
    counts = ", ".join(f"({name}) {sum(found)} of {len(found)}" for name, found in held.items())
    table = "; ".join(
        f"{unit}: without {without[unit]:.2f}, " + ", ".join(f"{theta:g} {value:.2f}" for theta, value in points)
        for unit, points in list(cooperation.items())[:4]
    )
    return Verdict.when(
        reproduced=all(all(found) for found in held.values()) and twins and control.estimate <= 0,
        effect=result.difference("cooperation", first, "without"),
        control=control,
        note=f"cooperation with the cheapest signals less without, mean over settings; held in {counts}; control: FD "
        f"where nobody signals less none, and it {'is' if twins else 'is not'} a second D; cooperation by price of a "
        f"signal: {table}",
    )


def _falls(values: Sequence[float]) -> bool:
    return all(later < earlier for earlier, later in pairwise(values))


def _jumps(points: Sequence[tuple[float, float]], margins: Mapping[float, float]) -> bool:
    """Tell whether FD's share is larger wherever TP no longer risk-dominates FD than wherever it does."""
    above = [share for theta, share in points if margins[theta] < 0]
    below = [share for theta, share in points if margins[theta] > 0]
    return bool(above and below) and min(above) > max(below)


def _twins(result: Result) -> bool:
    """Tell whether D and FD have one share where nobody signals, to rounding."""
    rows = [row for row in result.rows if row["arm"] == "unsignalled"]
    return bool(rows) and all(abs(row["D"] - row["FD"]) < 1e-9 for row in rows)


STUDIES = {
    "stationary": (StationaryConfig, run_stationary, verdict_stationary),
    "abm": (AbmConfig, run_abm, verdict_abm),
}
