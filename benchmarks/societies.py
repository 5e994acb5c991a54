"""Societies: steps of evolutionary simulation per second, ours beside EGTtools (C++), taken in turns on one core.

The population of threat signalling: 100 agents, five strategies. A step takes one agent and may copy or mutate it. Both
give the mean share of every strategy over time; the entry is refused if the two do not agree.
"""

from __future__ import annotations

import os
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from _entries import Entry, entry
from rolecraft.societies import Dilemma, evolve
from rolecraft.systems.societies._threat_game import threat_game

SIZE, BETA = 100, 0.1
MUTATIONS = (0.1, 0.01, 0.001)
POPULATIONS = (1, 10, 1000)


def entries(quick: bool = False) -> list[Entry]:
    """Time both at several rates of mutation and numbers of populations."""
    from egttools.games import Matrix2PlayerGameHolder
    from egttools.numerical import PairwiseComparisonNumerical

    game = threat_game(Dilemma(), 1.0, 3.0, 0.25)
    holder = Matrix2PlayerGameHolder(len(game), np.array(game.payoffs))
    rounds = 2 if quick else 5
    found = []
    for mutation in MUTATIONS:
        for populations in POPULATIONS:
            steps = round((1e4 if quick else 5e4) * min(4, 0.1 / mutation) / min(populations, 10) ** 0.5)
            peer_runs = min(populations, 10)  # its runs follow each other, so that ten tell its speed
            ours, theirs, shares = [], [], np.zeros((2, len(game)))
            for number in range(rounds):
                start = time.perf_counter()
                mine = evolve(
                    game, size=SIZE, beta=BETA, mutation=mutation, steps=steps, populations=populations, seed=number
                )
                ours.append(steps * populations / (time.perf_counter() - start))
                peer = PairwiseComparisonNumerical(SIZE, holder, 100_000)
                start = time.perf_counter()
                other = peer.estimate_strategy_distribution(peer_runs, steps, 0, BETA, mutation)
                theirs.append(steps * peer_runs / (time.perf_counter() - start))
                shares += np.stack([mine.shares.mean(0), other]) / rounds
            if mutation == max(MUTATIONS) and populations > 1 and np.abs(shares[0] - shares[1]).max() > 0.1:
                raise SystemExit(f"the two simulations do not agree: {shares.round(3).tolist()}")
            conditions = (
                f"EGTtools PairwiseComparisonNumerical, {SIZE} agents, {len(game)} strategies, {steps} steps each, "
                "one thread"
            )
            name = f"societies: mutation {mutation:g}, {populations} populations"
            found.append(entry(name, "steps/s", ours, theirs, conditions))
    return found
