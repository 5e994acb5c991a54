"""The series of a population: its points are the states that a run which stops there ends in."""

from __future__ import annotations

import numpy as np

from rolecraft.societies import Dilemma, evolve


def test_a_point_of_the_series_is_where_a_shorter_run_ends() -> None:
    game, common = Dilemma().game(), {"size": 6, "beta": 0.3, "mutation": 0.4, "populations": 8, "seed": 5}
    for discard in (0, 7):
        run = evolve(game, steps=60, samples=12, discard=discard, **common)
        assert len(np.unique(run.series[:, :, 0])) > 3
        for point in range(12):
            # A run of s + 1 steps ends in the state that its last step began with, at s.
            short = evolve(game, steps=discard + 5 * point + 1, **common)
            assert (run.series[:, point] == short.final).all(), (discard, point)
