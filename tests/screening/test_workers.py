"""A whole screen over processes and over a local Ray cluster: the same rows as in one process."""

from pathlib import Path

import pytest

from rolecraft._run import RunStore
from rolecraft.screening import ScreenConfig, ScreenRun

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

CONFIG = ScreenConfig(
    roles=("pirate", "tutor"), questions=6, strengths=(1.0, 2.0), control=("axis", "random"), seeds=(0, 1, 2),
    instructions=1, role_questions=4, max_tokens=8, accept="all",
)  # fmt: skip


def screened(directory: Path, workers: str) -> dict[str, dict]:
    with ScreenRun.open(CONFIG, directory, workers=workers, quiet=True) as run:
        run.run()
    with RunStore.read(directory) as store:
        return {stage: store.rows(stage) for stage in ("answers", "scores0")}


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> dict[str, dict]:
    return screened(tmp_path_factory.mktemp("alone") / "run", "1")


@pytest.mark.parametrize("workers", ["2", "ray"])
def test_workers_find_the_same_rows(workers, alone, tmp_path, monkeypatch):
    monkeypatch.setattr("rolecraft.screening._answers.SHARD", 64)
    monkeypatch.setattr("rolecraft.screening._scores.SHARD", 64)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    found = screened(tmp_path / "run", workers)
    assert found["answers"].keys() == alone["answers"].keys()
    assert found["scores0"].keys() == alone["scores0"].keys()
