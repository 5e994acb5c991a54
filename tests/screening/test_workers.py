"""A whole screen over processes and over a local Ray cluster: the same answers, and scores up to rounding."""

from pathlib import Path
from typing import Any

import pytest

from rolecraft._run import RunStore
from rolecraft.screening import ScreenConfig, ScreenRun

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

CONFIG = ScreenConfig(
    roles=("pirate", "tutor"), questions=6, strengths=(1.0, 2.0), control=("axis", "random"), seeds=(0, 1, 2),
    instructions=1, role_questions=4, max_tokens=8, accept="all",
)  # fmt: skip


def screened(directory: Path, workers: str) -> dict[str, Any]:
    with ScreenRun.open(CONFIG, directory, workers=workers, quiet=True) as run:
        run.run()
    with RunStore.read(directory) as store:
        return {stage: store.rows(stage) for stage in ("answers", "scores0")}


def test_workers_find_the_same_rows(tmp_path, monkeypatch):
    monkeypatch.setattr("rolecraft.screening._answers.SHARD", 64)
    monkeypatch.setattr("rolecraft.screening._scores.SHARD", 64)
    alone = screened(tmp_path / "alone", "1")
    for workers in ("2", "ray"):
        found = screened(tmp_path / workers, workers)
        assert found["answers"] == alone["answers"], workers
        assert found["scores0"].keys() == alone["scores0"].keys()
        pairs = [(row["scores"]["overall"], alone["scores0"][key]["scores"]["overall"]) for key, row in
                 found["scores0"].items()]  # fmt: skip
        gaps = [abs(a - b) for a, b in pairs]
        assert max(gaps) < 6, "bfloat16 rounds with the batch and the threads: see OfflineJudge"
        assert sum(gaps) / len(gaps) < 0.5
