"""System 093: the arms, each study once very small, and the verdicts on made-up rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from rolecraft._run import RunStore
from rolecraft.errors import UserError
from rolecraft.systems import Result
from rolecraft.systems.societies import direct_punishment
from rolecraft.systems.societies.direct_punishment import (
    COSTLY,
    MECHANISMS,
    PUNISHING,
    DqnConfig,
    ReputationConfig,
    SocietyConfig,
    mechanism_of,
    run_society,
    verdict_dqn,
    verdict_reputation,
    verdict_tabular,
)


def test_arms_name_mechanisms() -> None:
    assert len(SocietyConfig().arms) == 8 + 6
    assert [mechanism_of(arm).name for arm in SocietyConfig().arms[:8]] == list(MECHANISMS)
    assert mechanism_of("TPP-S,costly").just_reward == -3
    odd = mechanism_of("TPP-S:punish:play")
    assert (odd.information, odd.state, odd.just_reward) == ("punish", "play", 2)
    assert len(set(ReputationConfig().arms)) == len(ReputationConfig().arms) == 4 + 2 * 7
    assert len(DqnConfig.full().arms) == 14
    assert SocietyConfig.full().episodes == 2000


def test_sizes_that_cannot_be_are_refused() -> None:
    with pytest.raises(UserError, match="at least 3 agents; got 2"):
        SocietyConfig(agents=2)
    with pytest.raises(UserError, match="late 1 to episodes"):
        SocietyConfig(episodes=10)
    with pytest.raises(UserError, match="at least 2 cliques"):
        SocietyConfig(caves=1)
    with pytest.raises(UserError, match="there is no mechanism 'TP'"):
        DqnConfig(mechanisms=("S", "TP"))


@pytest.mark.parametrize(
    "config",
    [
        SocietyConfig(seeds=(1,), episodes=4, late=2, rounds=3, agents=3, caves=2, game="centipede"),
        pytest.param(
            DqnConfig(seeds=(1,), episodes=6, late=2, rounds=3, agents=3, hidden=4, mechanisms=("S", "TPP-S")),
            marks=pytest.mark.slow,
        ),
        pytest.param(ReputationConfig(seeds=(1,), episodes=4, late=2, rounds=3, agents=3), marks=pytest.mark.slow),
    ],
    ids=["tabular", "dqn", "reputation"],
)
def test_each_study_very_small(tmp_path: Path, config: SocietyConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    with RunStore.open(tmp_path / "run", "study", {}) as store:
        result = run_society(config, store)
        assert result.arms == list(config.arms)
        assert len(store.rows("curves")) == len(result.rows)
        monkeypatch.setattr(direct_punishment, "figures", None)  # nothing is left to do
        assert run_society(config, store).rows == result.rows
    for row in result.rows:
        assert 0 <= row["cooperation"] <= 1
        assert 0 <= row["least_cooperative"] <= 1
        mechanism = mechanism_of(row["arm"])
        assert mechanism.direct or row["direct_rate"] == 0
        assert mechanism.third_party or row["third_rate"] == 0
        assert (row["third_just"] is None) == (row["third_rate"] == 0)


def made(levels: dict[str, float], early: dict[str, float] | None = None, spread: float = 0.01) -> Result:
    return Result(
        tuple(
            {"arm": arm, "seed": seed, "cooperation": level + spread * ((seed * 3 + number) % 5 - 2),
             "early": (early or {}).get(arm, 0.5) + spread * ((seed + number) % 3 - 1),
             "direct_just": 0.9, "third_just": None}
            for number, (arm, level) in enumerate(levels.items()) for seed in range(8)
        )
    )  # fmt: skip


GOOD = dict.fromkeys(MECHANISMS[:2], 0.0) | dict.fromkeys(PUNISHING, 0.95)
GOOD |= {f"{name}{COSTLY}": 0.05 for name in PUNISHING}
FASTER = {"DP": 0.5, "TPPDP": 0.8}


@pytest.mark.parametrize(
    ("levels", "early", "spread", "expected"),
    [
        ({}, FASTER, 0.01, "reproduced"),
        ({"TPP": 0.3}, FASTER, 0.01, "not reproduced"),
        ({"none": 0.9}, FASTER, 0.01, "not reproduced"),
        ({f"DP{COSTLY}": 0.9}, FASTER, 0.01, "not reproduced"),
        ({}, {"DP": 0.8, "TPPDP": 0.5}, 0.01, "not reproduced"),
        ({}, {"DP": 0.6, "TPPDP": 0.6}, 0.05, "inconclusive"),
        ({"DP": 0.5}, FASTER, 0.1, "inconclusive"),
    ],
)
def test_the_tabular_verdict(levels: dict[str, float], early: dict[str, float], spread: float, expected: str) -> None:
    assert verdict_tabular(made(GOOD | levels, early, spread)).verdict == expected


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        ({}, "reproduced"),
        ({"TPP-S": 0.2}, "not reproduced"),
        ({"DP-S,costly": 0.95}, "not reproduced"),
        ({"S": 0.7}, "not reproduced"),
    ],
)
def test_the_networks_verdict(levels: dict[str, float], expected: str) -> None:
    good = {"S": 0.0, "DP-S": 0.9, "TPP-S": 0.9, "DP-S,costly": 0.1, "TPP-S,costly": 0.0}
    found = verdict_dqn(made(good | levels))
    assert found.verdict == expected
    with pytest.raises(UserError, match="a rewarded and a costly arm"):
        verdict_dqn(made({"S": 0.0, "DP-S": 1.0}))


def test_the_reputation_verdict_and_where_states_matter() -> None:
    levels = {arm: 0.95 if arm.split(":")[0] in PUNISHING else 0.0 for arm in ReputationConfig().arms}
    found = verdict_reputation(made(levels))
    assert found.verdict == "reproduced"
    assert "TPP-S play 0" in found.note or "TPP-S play -" in found.note
    assert verdict_reputation(made(levels | {"S:play:play": 0.9})).verdict == "not reproduced"
    assert verdict_reputation(made(levels | {"DP-S:punish:none": 0.2})).verdict == "not reproduced"
