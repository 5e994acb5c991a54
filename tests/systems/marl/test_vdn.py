from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

pytest.importorskip("jaxmarl")

from rolecraft._cli.main import app
from rolecraft._run import RunStore
from rolecraft.errors import UserError
from rolecraft.systems._base import Result
from rolecraft.systems._registry import find_entry
from rolecraft.systems._studies import run_study
from rolecraft.systems.marl.vdn import (
    ARMS,
    STUDIES,
    CheckersConfig,
    FetchConfig,
    SwitchConfig,
    verdict,
    verdict_checkers,
)

TINY: dict[str, Any] = {
    "seeds": (1, 2), "steps": 1000, "tests": 3, "test_episodes": 2, "hidden": 4, "fits": 1, "buffer": 8,
}  # fmt: skip


def rows(**areas: list[float]) -> Result:
    """Rows of planted areas under the curve by arm; lazier where `central`."""
    base = {arm: [0.5, 0.52, 0.48, 0.51, 0.5] for arm in ARMS} | {
        "iql": [0.3, 0.31, 0.29, 0.3, 0.32], "central": [0.2, 0.22, 0.21, 0.2, 0.19],
        "vdn-role": [0.6, 0.61, 0.6, 0.62, 0.6],
    }  # fmt: skip
    base["random"] = [0.0, 0.1, -0.1, 0.0, 0.1]
    lazy = {arm: 0.1 if arm == "central" else 0.4 for arm in base}
    return Result(
        tuple(
            {"arm": arm, "seed": seed, "auc": area, "late": area, "lazy": lazy[arm]}
            for arm, found in (base | {name.replace("_", "-"): found for name, found in areas.items()}).items()
            for seed, area in enumerate(found)
        )
    )


def test_the_verdict_follows_the_planted_truth() -> None:
    found = verdict_checkers(rows())
    assert found.verdict == "reproduced"
    assert found.effect.estimate == pytest.approx(0.198)
    assert "ahead of both in 5 of 5 seeds" in found.note
    assert verdict(rows(iql=[0.7, 0.71, 0.69, 0.7, 0.7])).verdict == "not reproduced"
    assert verdict(rows(iql=[0.3, 0.9, 0.2, 0.8, 0.3])).verdict == "inconclusive"
    helped = rows(vdn_scrambled=[0.7, 0.71, 0.7, 0.7, 0.72])
    assert verdict(helped).verdict == "not reproduced"  # the control must not help
    worse = rows(vdn_role=[0.4, 0.4, 0.41, 0.4, 0.4])
    assert (verdict_checkers(worse).verdict, verdict(worse).verdict) == ("not reproduced", "reproduced")
    eager = Result(tuple({**row, "lazy": 0.4 if row["arm"] == "central" else 0.3} for row in rows().rows))
    assert verdict(eager).verdict == "not reproduced"
    part = Result(tuple(row for row in rows().rows if row["arm"] != "central"))
    assert verdict(part).verdict == "inconclusive"
    assert "not run: central" in verdict(part).note
    unlearned = verdict(rows(random=[0.5, 0.5, 0.5, 0.5, 0.5]))  # ahead of the others, and of nothing
    assert unlearned.verdict == "not reproduced"
    assert "less that of a team which draws its actions: 0.002" in unlearned.note


@pytest.mark.slow
def test_a_small_study_of_checkers_can_be_shown(tmp_path: Path) -> None:
    arms = ("central",)
    config = CheckersConfig(arms=arms, **TINY)
    outcome = run_study(find_entry("vdn"), "checkers", config, tmp_path / "run")
    assert outcome.verdict == "inconclusive"
    with RunStore.read(tmp_path / "run") as view:
        stored, curves = view.rows("rows"), view.rows("curves")
    assert set(stored) == {f"{arm}/{seed}" for arm in (*arms, "random") for seed in (1, 2)}
    assert stored["random/1"]["late"] != stored["random/2"]["late"]
    for key in (key for key in stored if key in curves):
        row, returns = stored[key], np.array(curves[key]["return"])
        assert len(returns) == 3
        assert row["auc"] == pytest.approx(returns.mean() / 6)
        assert 0 <= row["lazy"] <= 0.5
    folder = tmp_path / "run" / "marl" / "central"
    assert not list(folder.glob("state-*"))  # the replay goes once a training is done
    assert len(list(folder.glob("weights-*"))) == 1
    _show(tmp_path, np.mean([curves[f"central/{seed}"]["return"] for seed in (1, 2)], 0).tolist())


def _show(tmp_path: Path, means: list[float]) -> None:
    def ask(*options: str) -> Any:
        return CliRunner().invoke(app, ["show", str(tmp_path / "run"), *options])

    shown = ask("--json")
    assert shown.exit_code == 0, shown.output
    teams = json.loads(shown.output)["teams"]
    assert [team["name"] for team in teams] == ["central"]
    assert teams[0]["checkpoints"] == [3]
    assert teams[0]["curves"]["return"] == pytest.approx(means, abs=1e-6)
    assert "central" in ask().output
    played = ask("--checkpoint", "3", "--episode", "central/2/5")
    assert played.exit_code == 0, played.output
    assert "agent_0 (sensitive), agent_1 (less-sensitive)" in played.output
    assert "--- step 0\nx" in played.output
    assert "return of the team" in played.output
    written = ask("--checkpoint", "-1", "--export", str(tmp_path / "team.gif"))
    assert written.exit_code == 0, written.output
    image = pytest.importorskip("PIL.Image").open(tmp_path / "team.gif")
    assert 2 <= image.n_frames <= 40
    for options, match in [
        (("--episode", "centre"), "there is no training 'centre'"),
        (("--episode", "central/7"), "no seed 7; it was trained from 1, 2"),
        (("--checkpoint", "2"), "no checkpoint 2; there are 3"),
        (("--episode", "central/x"), "expected NAME, NAME/SEED or NAME/SEED/EPISODE"),
    ]:
        refused = ask(*options)
        assert isinstance(refused.exception, UserError)
        assert match in str(refused.exception)


@pytest.mark.slow
@pytest.mark.parametrize("game", ["switch", "fetch"])
def test_a_small_study_of_each_other_game_runs(game: str, tmp_path: Path) -> None:
    outcome = run_study(find_entry("59"), game, STUDIES[game][0](arms=("vdn-channels",), **TINY), tmp_path)
    assert "not run: iql, central, vdn" in outcome.note
    assert 0 <= outcome.rows["vdn-channels"]["auc"]["mean"] <= 1  # type: ignore[operator]


def test_settings_that_compare_nothing_are_refused() -> None:
    with pytest.raises(UserError, match="tests must be at least 3, got 2"):
        SwitchConfig(tests=2)
    with pytest.raises(UserError, match=r"there is no arm 'vdn-roles'.*Did you mean 'vdn-role'"):
        FetchConfig(arms=("vdn", "vdn-roles"))
    assert CheckersConfig.full().steps >= 50_000 * 40
