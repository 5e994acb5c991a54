"""What one file in `systems/` is made of: a system, its configuration, a study, the result, the verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

from rolecraft.errors import UserError, did_you_mean

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rolecraft._run import RunStore, RunView
    from rolecraft.measures import Interval

ROWS = "rows"
"""The stage of a study's run store that holds its rows."""
NOT_METRICS = ("arm", "seed", "unit")


@dataclass(frozen=True)
class System:
    """A published system."""

    number: int
    """Stable number of its dossier, 1 to 120."""
    name: str
    """Name on the command line: lower case, words joined by hyphens."""
    title: str
    """Title of the paper."""
    arxiv: str
    """arXiv identifier, or the place of a paper that has none."""
    family: str
    """The folder it lies in."""
    claim: str
    """The key claim that the study tests, in one sentence."""
    published: str
    """What the paper reports for it, with numbers."""

    @property
    def id(self) -> str:
        """Number and name, as in `011-spiral`."""
        return f"{self.number:03}-{self.name}"

    @property
    def source(self) -> str:
        """Where the paper is, as in `arXiv 2506.24119`."""
        return f"arXiv {self.arxiv}" if self.arxiv[:1].isdigit() else self.arxiv


@dataclass(frozen=True)
class StudyConfig:
    """Base of a study's configuration: a frozen dataclass whose defaults are the small study."""

    NO_FULL: ClassVar[str] = ""
    """Where the paper's size is not offered: its model, hardware and figure, and what is missing here."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Independent repetitions."""

    @classmethod
    def full(cls) -> Self:
        """Return the paper's size.

        Raises:
            UserError: If the study has none.
        """
        why = f" ({cls.NO_FULL})" if cls.NO_FULL else ""
        raise UserError(f"this study has no --full size{why}; change single fields by --set FIELD=VALUE.")


class Study(NamedTuple):
    """One study of a system; a plain tuple of the three does as well."""

    config: type[StudyConfig]
    run: Callable[[Any, RunStore], Result]
    verdict: Callable[[Result], Verdict]


@dataclass(frozen=True)
class Result:
    """The rows of a study: one per arm and seed, or one per arm, seed and unit.

    A row is `{"arm": ..., "seed": ..., "unit": ..., metric: number or None, ...}`; `unit` (a question, an episode, a
    role) may be left out. Rows of two arms with the same seed and unit are a pair.
    """

    rows: tuple[Mapping[str, Any], ...]

    @classmethod
    def read(cls, store: RunView, stage: str = ROWS) -> Result:
        """Take the rows of a stage of a run."""
        return cls(tuple(store.rows(stage).values()))

    @property
    def arms(self) -> list[str]:
        """The arms, in order of appearance."""
        return list(dict.fromkeys(str(row["arm"]) for row in self.rows))

    @property
    def seeds(self) -> list[int]:
        """The seeds, in order of appearance."""
        return list(dict.fromkeys(int(row["seed"]) for row in self.rows))

    @property
    def metrics(self) -> list[str]:
        """The numeric fields of the rows, in order of appearance."""
        return list(
            dict.fromkeys(
                name
                for row in self.rows
                for name, value in row.items()
                if name not in NOT_METRICS and isinstance(value, bool | int | float)
            )
        )

    def mean(self, metric: str, arm: str, *, by: str | None = None) -> Interval:
        """Return the mean of a metric in one arm with its bootstrap interval; see `difference`."""
        from rolecraft.measures import bootstrap_mean

        pairs, labels = self._matched(metric, (arm,), by)
        return bootstrap_mean(pairs[:, 0], labels)

    def difference(self, metric: str, a: str, b: str, *, by: str | None = None) -> Interval:
        """Return the mean of a - b over pairs, with a bootstrap interval.

        Args:
            metric: Name of a field.
            a: An arm.
            b: Another arm.
            by: Field whose values are resampled together: `unit` or `seed`. None is `unit` if the rows have
                units, else `seed`.

        Raises:
            UserError: If an arm or the metric is unknown, or the arms have no pair.
        """
        from rolecraft.measures import paired_bootstrap

        pairs, labels = self._matched(metric, (a, b), by)
        return paired_bootstrap(pairs[:, 0] - pairs[:, 1], labels)

    def ratio(self, metric: str, a: str, b: str, *, by: str | None = None, draws: int = 2000) -> Interval:
        """Return mean(a) / mean(b) over pairs, numerator and denominator resampled together; see `difference`.

        The bounds are NaN where the denominator's interval reaches 0: a ratio says nothing there.
        """
        import numpy as np

        from rolecraft.measures import Interval

        pairs, labels = self._matched(metric, (a, b), by)
        _, members = np.unique(labels, return_inverse=True)
        sums = np.stack([np.bincount(members, pairs[:, column]) for column in (0, 1)], axis=1)
        n = len(sums)
        top, bottom = sums.sum(0)
        estimate = float(top / bottom) if bottom else float("nan")
        if n < 2:
            return Interval(estimate, float("nan"), float("nan"), n)
        drawn = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), size=draws) @ sums
        lower, upper = np.quantile(drawn[:, 1], [0.025, 0.975])
        if lower <= 0 <= upper:
            return Interval(estimate, float("nan"), float("nan"), n)
        kept = drawn[drawn[:, 1] * bottom > 0]
        low, high = np.quantile(kept[:, 0] / kept[:, 1], [0.025, 0.975])
        return Interval(estimate, float(low), float(high), n)

    def summary(self) -> dict[str, dict[str, dict[str, float | None]]]:
        """Return `{arm: {metric: {"mean", "low", "high", "n"}}}`, None where a figure is undefined."""
        return {
            arm: {
                metric: {"mean": figures["estimate"], **{name: figures[name] for name in ("low", "high", "n")}}
                for metric in self.metrics
                if self._values(metric, arm)
                for figures in [interval_row(self.mean(metric, arm))]
            }
            for arm in self.arms
        }

    def _values(self, metric: str, arm: str) -> dict[tuple[Any, Any], float]:
        found: dict[tuple[Any, Any], list[float]] = {}
        for row in self.rows:
            if row["arm"] == arm and row.get(metric) is not None:
                found.setdefault((row["seed"], row.get("unit")), []).append(float(row[metric]))
        return {pair: sum(values) / len(values) for pair, values in found.items()}

    def _matched(self, metric: str, arms: Sequence[str], by: str | None) -> tuple[NDArray[np.float64], list[str]]:
        """Return an array of shape (pairs, arms) and the resampling label of each pair."""
        import numpy as np

        for what, name, known in [("arm", arm, self.arms) for arm in arms] + [("metric", metric, self.metrics)]:
            if name not in known:
                raise UserError(f"{what} {name!r} is not in the rows ({', '.join(known)}).{did_you_mean(name, known)}")
        if by not in (None, "unit", "seed"):
            raise UserError(f"by: expected 'unit' or 'seed', got {by!r}.")
        tables = [self._values(metric, arm) for arm in arms]
        pairs = [pair for pair in tables[0] if all(pair in table for table in tables)]
        if not pairs:
            raise UserError(f"metric {metric!r}: arms {', '.join(arms)} have no row of the same seed and unit.")
        by_unit = by == "unit" or (by is None and all(unit is not None for _, unit in pairs))
        array = np.array([[table[pair] for table in tables] for pair in pairs], dtype=float)
        return array, [str(unit if by_unit else seed) for seed, unit in pairs]


@dataclass(frozen=True)
class Verdict:
    """Whether the claim held here, by how much, and what the control did."""

    verdict: Literal["reproduced", "not reproduced", "inconclusive"]
    effect: Interval
    control: Interval | None = None
    """The same measure on the control, which must not show the effect."""
    note: str = ""
    """What a reader must know beside the figures, in one sentence."""

    @classmethod
    def when(
        cls,
        *,
        reproduced: bool,
        effect: Interval,
        control: Interval | None = None,
        inconclusive: bool = False,
        note: str = "",
    ) -> Verdict:
        """Decide from intervals.

        Args:
            reproduced: The intervals support the claim (and the control failed, as it must).
            effect: The effect with its interval.
            control: The control's figure.
            inconclusive: The intervals can support neither the claim nor its opposite; weighs more than `reproduced`.
                An effect without an interval is always inconclusive.
            note: For the reader.
        """
        unknown = any(value != value for value in (effect.estimate, effect.low, effect.high))
        if inconclusive or unknown:
            return cls("inconclusive", effect, control, note)
        return cls("reproduced" if reproduced else "not reproduced", effect, control, note)


def interval_row(interval: Interval | None) -> dict[str, Any]:
    """Return an interval as a row: NaN becomes None."""
    if interval is None:
        return {}
    figures = {name: getattr(interval, name) for name in ("estimate", "low", "high", "n")}
    return {name: None if value != value else value for name, value in figures.items()}


def row_key(arm: str, seed: int, unit: Any = None) -> str:
    """Return the usual key of a study's row."""
    return f"{arm}/{seed}" + ("" if unit is None else f"/{unit}")


def missing_rows(store: RunStore, arms: Iterable[str], seeds: Iterable[int]) -> list[tuple[str, int]]:
    """Return the (arm, seed) pairs without a row, for studies with one row per arm and seed; seeds outermost."""
    pairs = {row_key(arm, seed): (arm, seed) for seed in seeds for arm in arms}
    return [pairs[key] for key in store.missing(ROWS, pairs)]


def put_row(store: RunStore, arm: str, seed: int, unit: Any = None, **metrics: Any) -> None:
    """Store a row of a study."""
    identity = {"arm": arm, "seed": seed} | ({} if unit is None else {"unit": unit})
    store.put(ROWS, row_key(arm, seed, unit), identity | metrics)
