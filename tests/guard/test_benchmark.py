"""The benchmark of decisions: its form, and that the guard is far ahead of checks by `jsonschema`."""

from __future__ import annotations

import importlib
from pathlib import Path


def test_decisions_are_far_faster_than_the_reference(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    benchmark, run = importlib.import_module("guard"), importlib.import_module("run")
    monkeypatch.setattr(benchmark, "times", lambda decide, rounds, real=benchmark.times: real(decide, min(rounds, 100)))
    found = benchmark.entries(quick=True)
    assert all(set(entry) == set(run.KEYS) for entry in found)
    ratios = {entry["name"]: entry["ours"] / entry["peer"] for entry in found}
    each_time = [ratio for name, ratio in ratios.items() if "each time" in name]
    assert len(each_time) == 2
    assert all(ratio < 0.05 for ratio in each_time), "hundreds of times faster, when the machine is quiet"
