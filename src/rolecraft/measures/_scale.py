"""The social scale of a text: how much it speaks of institutions and policy, and how little of the speaker."""

from __future__ import annotations

from rolecraft.measures._health import words

FIRST_PERSON = frozenset(
    ("i", "me", "my", "mine", "myself", "we", "us", "our", "ours", "i'm", "i've", "i'd", "i'll", "we're", "we've")
)
POLICY = frozenset(
    """
    policy policies government governments public national nations nation international global world
    society societies economic economy economies institution institutions institutional organization
    organizations community communities citizens population populations country countries state law laws
    regulation regulations program programs infrastructure development resources strategy strategies
    system systems framework stakeholders governance sector sustainable security leaders political
    social
    """.split()  # noqa: SIM905  # a list literal would be one word per line
)


def scale_of(answer: str) -> float:
    """Return the share of policy words less the share of first-person words, in [-1, 1]; NaN without a word.

    The text metrics of the Granularity Axis (arXiv 2605.06196); they depend on the text alone.
    """
    found = words(answer)
    if not found:
        return float("nan")
    return (sum(word in POLICY for word in found) - sum(word in FIRST_PERSON for word in found)) / len(found)
