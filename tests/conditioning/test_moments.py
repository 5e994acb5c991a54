import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from rolecraft.conditioning import RunningMoments, spearman_brown
from rolecraft.errors import ExtractionError

samples = hnp.arrays(
    np.float32,
    st.tuples(st.integers(2, 12), st.just(2), st.just(3)),
    elements=st.floats(-1e4, 1e4, width=32),
)


@given(samples, st.data())
def test_moments_of_any_split_equal_numpy(values: np.ndarray, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(values)))
    one_by_one, batch = RunningMoments((2, 3)), RunningMoments((2, 3))
    for value in values[:cut]:
        one_by_one.add(value)
    batch.add_batch(values[cut:])
    one_by_one.merge(batch)

    exact = values.astype(np.float64)
    assert one_by_one.count == len(values)
    np.testing.assert_allclose(one_by_one.mean, exact.mean(0), rtol=1e-10, atol=1e-9)
    np.testing.assert_allclose(one_by_one.variance(), exact.var(0, ddof=1), rtol=1e-8, atol=1e-6)


def test_a_large_offset_does_not_swallow_the_spread() -> None:
    noise = np.random.default_rng(0).standard_normal((500, 4))
    moments = RunningMoments((4,))
    for value in noise + 1e8:
        moments.add(value)
    np.testing.assert_allclose(moments.variance(), noise.var(0, ddof=1), rtol=1e-5)


def test_arrays_restore_exactly_and_are_copies() -> None:
    moments = RunningMoments((2,))
    moments.add_batch(np.array([[1.0, 2.0], [4.0, -1.0], [0.3, 0.1]]))
    arrays = moments.arrays()
    restored = RunningMoments.from_arrays(arrays)
    moments.add(np.array([100.0, 100.0]))
    assert restored.count == 3
    np.testing.assert_array_equal(restored.mean, arrays["mean"])
    np.testing.assert_allclose(restored.variance(), np.var([[1, 2], [4, -1], [0.3, 0.1]], axis=0, ddof=1))


@pytest.mark.parametrize("bad", [np.array([1.0, np.nan]), np.array([np.inf, 0.0]), np.zeros(3)])
def test_what_cannot_be_averaged_is_refused_and_leaves_no_trace(bad: np.ndarray) -> None:
    moments = RunningMoments((2,))
    moments.add(np.array([1.0, 2.0]))
    with pytest.raises(ExtractionError):
        moments.add(bad)
    with pytest.raises(ExtractionError):
        moments.add_batch(np.stack([bad, bad]))
    assert moments.count == 1
    np.testing.assert_array_equal(moments.mean, [1.0, 2.0])


def test_variance_needs_two() -> None:
    moments = RunningMoments((1,))
    assert np.isnan(moments.variance()).all()
    moments.add(np.array([3.0]))
    assert np.isnan(moments.variance()).all()
    assert moments.variance(ddof=0) == 0


def test_spearman_brown_of_published_value() -> None:
    assert spearman_brown(0.94) == pytest.approx(0.97, abs=0.005)
    assert spearman_brown(0.0) == 0.0
