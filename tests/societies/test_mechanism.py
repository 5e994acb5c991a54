"""Punishment and reputation event by event, and the mechanisms that are none."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from rolecraft.errors import UserError
from rolecraft.societies import CONDITIONS, ReputationLedger, Sanction, SocialMechanism


def sanction(punisher: int, target: int, other: int, *, punished: bool = True, defected: bool = True) -> Sanction:
    return Sanction(punisher, target, other, punished, defected, direct=punisher == other)


def test_names_are_the_papers() -> None:
    assert [SocialMechanism.named(name).name for name in CONDITIONS] == list(CONDITIONS)
    assert SocialMechanism.named("TPPDP-S", costly=True).just_reward == -3
    assert not SocialMechanism.named("S").direct
    with pytest.raises(UserError, match="Did you mean 'DP-S'"):
        SocialMechanism.named("DPS")


def test_a_round_of_the_dilemma_is_entered() -> None:
    """Agent 0 cooperates, agent 1 defects: 0 punishes justly, bystander 2 punishes the victim, 3 spares."""
    ledger = ReputationLedger(4, SocialMechanism.named("TPPDP"))
    ledger.play((0, 1), (False, True), (0, 4))
    assert ledger.sanction(sanction(0, 1, 0)) == 2
    assert ledger.sanction(sanction(1, 0, 1, punished=False, defected=False)) == 0
    assert ledger.sanction(sanction(2, 0, 1, defected=False)) == -10
    assert ledger.sanction(sanction(3, 1, 0, punished=False)) == 0
    assert ledger.rewards.tolist() == [0 - 3, 4 - 3, 0, 0]
    assert ledger.sanction_rewards.tolist() == [2, 0, -10, 0], "a stream of its own"
    assert ledger.seen_by(3).tolist() == [1 + 2, -1, -3, 0]
    assert [event.just for event in ledger.sanctions] == [True, None, False, None]


@pytest.mark.parametrize(
    ("information", "expected"), [("play", [1, -1, 0]), ("punish", [0, 0, 2]), ("play-punish", [1, -1, 2])]
)
def test_information_decides_what_counts(information: str, expected: list[float]) -> None:
    ledger = ReputationLedger(3, SocialMechanism.named("TPP", information=information))
    ledger.play((0, 1), (False, True), (0, 4))
    ledger.sanction(sanction(2, 1, 0))
    assert (ledger.views == np.array(expected)).all(), "all views are one"


def test_individual_views_differ_by_what_was_done_to_oneself() -> None:
    ledger = ReputationLedger(4, SocialMechanism.named("TPP", information="individual"))
    ledger.sanction(sanction(2, 1, 0))
    assert ledger.views[:, 2].tolist() == [2 + 5, 2 - 5, 0, 2], "victim, punished, itself, onlooker"
    ledger = ReputationLedger(3, SocialMechanism.named("DP", information="individual"))
    ledger.sanction(sanction(0, 1, 0))
    assert ledger.views[:, 0].tolist() == [0, 2 - 5, 2], "who avenges itself is no avenger to itself"


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(UserError, match="at least 3 agents; got 2"):
        ReputationLedger(2, SocialMechanism.named("TPP"))
    with pytest.raises(UserError, match="at least 2, got 1"):
        ReputationLedger(1, SocialMechanism())
    ledger = ReputationLedger(3, SocialMechanism.named("TPP"))
    with pytest.raises(UserError, match="agent 3 is not in a society of 3"):
        ledger.sanction(sanction(3, 0, 1))
    with pytest.raises(UserError, match="direct punisher is the target's partner"):
        ledger.sanction(Sanction(2, 0, 1, True, True, direct=True))
    with pytest.raises(UserError, match="partner other than its target"):
        ledger.sanction(Sanction(2, 0, 0, True, True, direct=False))
    with pytest.raises(UserError, match="one length"):
        ledger.play((0, 1), (True,), (0, 0))
    with pytest.raises(UserError, match="penalty"):
        SocialMechanism(penalty=-1)
    with pytest.raises(UserError, match="just_reward: expected a finite number"):
        SocialMechanism(just_reward=float("nan"))
    with pytest.raises(UserError, match="information: expected one of"):
        SocialMechanism(information="gossip")  # type: ignore[arg-type]


def test_punishers_without_a_reason_to_be_just_are_warned_of() -> None:
    with pytest.warns(UserWarning, match=r"unjust_reward \(3\) is not below just_reward \(2\)"):
        SocialMechanism(direct=True, unjust_reward=3.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SocialMechanism(unjust_reward=3.0)
        SocialMechanism.named("DP", costly=True)
