"""Settings from the command line that leave an array study nothing to do are refused before anything is trained."""

from __future__ import annotations

import pytest

from rolecraft.errors import UserError
from rolecraft.systems._registry import find_entry
from rolecraft.systems._studies import make_config

BAD = [
    ("vdn", "switch", "arms=", "arms: expected some of iql"),
    ("vdn", "switch", "lr=nan", "finite number"),
    ("acorm", "learning", "arms=", "arms: expected some of qmix"),
    ("cammarl", "navigation", "arms=", "arms: expected some of noam"),
    ("cammarl", "navigation", "alpha=inf", "finite number"),
    ("maddpg", "tag", "seeds=", "expected at least one seed"),
    ("beso", "obstacle", "drop=0", "drop lie in"),
    ("beso", "obstacle", "denoising=0,3", "denoising must rise from 1"),
    ("decision-diffuser", "return", "steps=0", "steps be at least 2"),
    ("decision-diffuser", "return", "expert=1.5", "expert in"),
    ("decision-diffuser", "compose", "steps=-1", "steps must be at least 2, got -1"),
    ("leo", "grid", "timed_size=1", "timed_size must be at least 2"),
    ("leo", "grid", "walls=1", "walls lie in"),
    ("direct-punishment", "dqn", "mechanisms=", "expected a baseline that does not punish"),
    ("direct-punishment", "dqn", "mechanisms=DP,S", "expected a baseline that does not punish, S or none"),
    ("direct-punishment", "reputation", "mechanisms=none", "expected some of DP, DP-S"),
]


@pytest.mark.parametrize(("name", "study", "setting", "words"), BAD, ids=[f"{row[0]}-{row[2]}" for row in BAD])
def test_a_bad_setting_is_named(name: str, study: str, setting: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        make_config(find_entry(name).study(study).config, settings=[setting])


def test_a_part_refuses_what_it_cannot_do_before_it_is_trained() -> None:
    pytest.importorskip("jax")
    from rolecraft.control import DiffusionPolicyConfig
    from rolecraft.marl._ac_ppo import PpoConfig
    from rolecraft.marl._conformal_opponent import ConformalOpponentConfig

    with pytest.raises(UserError, match="Did you mean 'heun'"):
        DiffusionPolicyConfig(sampler="huen")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="entropy must be at least 0"):
        PpoConfig(entropy=-1.0)
    for wrong in ({"lr": 0.0}, {"penalty": -1.0}):
        with pytest.raises(UserError, match="lr must be above 0 and penalty at least 0"):
            ConformalOpponentConfig(**wrong)
