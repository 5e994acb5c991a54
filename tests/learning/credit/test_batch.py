from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rolecraft.errors import UserError
from rolecraft.learning.credit import (
    AuxLoss,
    CreditBatch,
    Group,
    NoBaseline,
    NoSignalWarning,
    assign_credit,
)
from rolecraft.learning.credit._batch import count_true

from ._random import random_batch

GOOD = {
    "mask": np.array([[True, False], [True, True]]),
    "keys": {"task": np.array([0, 1])},
    "row": {"outcome": np.array([1.0, 2.0])},
    "token": {"value": np.array([[0.5, 0.0], [1.0, 2.0]])},
}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"mask": np.ones((2, 2))}, "mask: expected booleans of shape (rows, tokens), got float64"),
        ({"mask": np.ones(2, bool)}, "got bool of shape (2,)"),
        ({"keys": {"task": np.array([0.0, 1])}}, "key 'task': expected 2 whole numbers, got float64"),
        ({"keys": {"task": np.array([0])}}, "got int64 of shape (1,)"),
        ({"row": {"outcome": np.array([1.0, np.nan])}}, "column 'outcome': row 1 holds nan"),
        ({"row": {"outcome": np.ones(3)}}, "column 'outcome': expected shape (2,), got (3,)"),
        ({"token": {"value": np.array([[0, 0], [0, np.inf]])}}, "row 1 holds inf at token 1"),
        ({"objectives": {"style": np.array([np.nan, 0])}}, "column 'style': row 0 holds nan"),
        ({"valid": np.array([1, 0])}, "valid: expected booleans of shape (2,)"),
    ],
)
def test_what_does_not_fit_is_named(change, words):
    with pytest.raises(UserError) as error:
        CreditBatch(**{**GOOD, **change})
    assert words in str(error.value)


def test_what_does_not_count_may_be_anything_and_is_taken_as_nothing():
    unknown = CreditBatch(**{**GOOD, "row": {"outcome": np.array([np.nan, 2])}, "valid": np.array([False, True])})
    assert unknown.row["outcome"].tolist() == [0, 2]
    masked = CreditBatch(**{**GOOD, "token": {"value": np.array([[1.0, np.nan], [1, 2]])}})
    assert masked.token["value"].tolist() == [[1, 0], [1, 2]]


def test_the_given_arrays_are_not_shared():
    outcome = np.array([1.0, 2.0])
    batch = CreditBatch(**{**GOOD, "row": {"outcome": outcome}})
    outcome[0] = 9
    assert batch.row["outcome"][0] == 1


@pytest.mark.parametrize("width", [0, 1, 4, 32, 33, 200])
def test_trained_tokens_are_counted(width):
    mask = np.random.default_rng(0).random((5, width)) < 0.5
    assert count_true(mask).tolist() == mask.sum(1).tolist()
    assert count_true(mask[:, ::-1]).tolist() == mask.sum(1).tolist()


def test_a_column_that_is_missing_is_named_with_the_stage():
    batch = random_batch(0)
    with pytest.raises(UserError, match=r"group\(taks\): the batch has no key 'taks' .*Did you mean 'task'"):
        assign_credit(batch, [Group(("taks",))])


def test_an_advantage_that_is_not_finite_is_named():
    def broken(batch, carry):
        return replace(carry, advantage=np.array([0.0, np.nan]))

    def broken_token(batch, carry):
        return replace(carry, token_advantage=np.array([[0.0, np.nan], [0, np.inf]]))

    with pytest.raises(UserError, match="advantage of row 1, token 0 is nan"):
        assign_credit(CreditBatch(**GOOD), [broken])
    with pytest.raises(UserError, match="advantage of row 1, token 1 is inf"):
        assign_credit(CreditBatch(**GOOD), [broken_token])


def test_rows_without_a_trained_token_are_left_out():
    batch = CreditBatch(**{**GOOD, "mask": np.array([[False, False], [True, True]])})
    result = assign_credit(batch, [NoBaseline()])
    assert result.keep.tolist() == [False, True]
    assert result.weights.tolist() == [0, 1]
    assert result.advantages.tolist() == [[0, 0], [2, 2]]
    assert (result.info["rows"], result.info["kept"]) == (2, 1)


def test_a_loss_beside_the_advantage_is_signal_enough():
    def beside(batch, carry):
        return replace(carry, aux=(AuxLoss("kl", 0.1, np.zeros(batch.shape)),))

    assert not assign_credit(CreditBatch(**GOOD), [beside]).info["no_signal"]
    with pytest.warns(NoSignalWarning, match="2 rows carries no signal"):
        assert assign_credit(CreditBatch(**GOOD), []).info["no_signal"]
