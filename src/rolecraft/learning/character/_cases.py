"""Characters with short talks, what their next reply must get right, and a reference; and their grouping by profile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from rolecraft._files import Record, bundled, read_records
from rolecraft.agents import FOCUS_POINTS, role_profile
from rolecraft.errors import MissingDependencyError, UserError, did_you_mean
from rolecraft.measures import overlap_tokens
from rolecraft.roles import Role, parse_role

if TYPE_CHECKING:
    from rolecraft.measures import Language
    from rolecraft.models import Embedder, Message

_SPEAKERS: Mapping[str, Literal["user", "assistant"]] = {"user": "user", "character": "assistant"}


@dataclass(frozen=True)
class CharacterCase:
    """A talk that a character has to go on with.

    Raises:
        UserError: If no gold label is given or one is unknown, an attribute or the reference has no word, or the talk
            does not end with the user; the case is named.
    """

    id: str
    role: Role
    messages: tuple[Message, ...]
    """The talk so far, from a user's message to a user's message."""
    focus: Mapping[str, str]
    """Gold labels with their attributes."""
    reference: str
    group: str = ""
    """Group of characters that it belongs to; empty: the role's family."""
    language: Language = "en"

    def __post_init__(self) -> None:
        where = f"case {self.id!r}"
        if not self.focus:
            raise UserError(f"{where}: no gold label; give at least one of {', '.join(FOCUS_POINTS)} under `focus`.")
        for label, attribute in self.focus.items():
            if label not in FOCUS_POINTS:
                known = ", ".join(FOCUS_POINTS)
                raise UserError(
                    f"{where}: gold label {label!r} is unknown (known: {known}).{did_you_mean(label, FOCUS_POINTS)}"
                )
            if not overlap_tokens(attribute, self.language):
                raise UserError(f"{where}: the attribute of {label!r} has no word; write N/A for a label without one.")
        if not overlap_tokens(self.reference, self.language):
            raise UserError(f"{where}: the reference is empty, so no overlap with it is defined; write a reply.")
        if not self.messages or self.messages[-1]["role"] != "user":
            raise UserError(f"{where}: the talk must end with a message of the user.")
        if not self.group:
            object.__setattr__(self, "group", self.role.family)


def load_character_cases(source: str | Path = "characters-v1") -> list[CharacterCase]:
    """Read characters with their cases.

    Args:
        source: Name of a bundled set, or a YAML, JSON or JSONL file of `characters`: the fields of a `Role` and
            `cases`, a list of mappings with `id`, `messages` (a list of `{user: ...}` and `{character: ...}`), `focus`
            (label to attribute), `reference`, and optionally `group` and `language` (en or zh).

    Raises:
        UserError: If a field is missing or unusable, or two cases share an id; file and record are named.
        RoleError: If a role is refused.
    """
    cases: list[CharacterCase] = []
    for record in read_records(bundled("learning", source), "characters"):
        if not isinstance(record.data, dict) or not isinstance(record.data.get("cases"), list):
            raise UserError(f"{record.where}: expected a mapping of a role's fields and a list of cases.")
        role = parse_role({key: value for key, value in record.data.items() if key != "cases"}, record.where)
        cases += [_case(role, data, record, number) for number, data in enumerate(record.data["cases"])]
    if not cases:
        raise UserError(f"{source}: no character has a case.")
    ids = [case.id for case in cases]
    twice = next((one for one in ids if ids.count(one) > 1), None)
    if twice is not None:
        raise UserError(f"{source}: two cases have the id {twice!r}; ids must differ.")
    return cases


def _case(role: Role, data: Any, record: Record, number: int) -> CharacterCase:
    where = f"{record.where}: case {number}"
    if not isinstance(data, dict):
        raise UserError(f"{where}: expected a mapping, got {data!r}.")
    for field, kind in (("id", str), ("messages", list), ("focus", dict), ("reference", str)):
        if not isinstance(data.get(field), kind):
            raise UserError(f"{where}: {field} must be a {kind.__name__}, got {data.get(field)!r}.")
    focus = {str(label): str(attribute) for label, attribute in data["focus"].items()}
    talk = tuple(_message(each, f"{where}: message {place}") for place, each in enumerate(data["messages"]))
    language = data.get("language", "en")
    try:
        return CharacterCase(data["id"], role, talk, focus, data["reference"], str(data.get("group", "")), language)
    except UserError as error:
        raise UserError(f"{record.where}: {error}") from None


def _message(data: Any, where: str) -> Message:
    speaker = str(next(iter(data))) if isinstance(data, dict) and len(data) == 1 else ""
    if speaker not in _SPEAKERS or not isinstance(data[speaker], str) or not data[speaker].strip():
        raise UserError(f"{where}: expected {{user: text}} or {{character: text}}, got {data!r}.")
    return cast("Message", {"role": _SPEAKERS[speaker], "content": data[speaker]})


def group_profiles(
    roles: Sequence[Role], groups: int = 7, seed: int = 0, embedder: Embedder | None = None
) -> dict[str, int]:
    """Group characters by k-means over the embeddings of their profiles.

    Args:
        roles: Distinct ids.
        groups: How many. Character-R1 (arXiv 2601.04611) is said to use 7.
        seed: Of the k-means.
        embedder: Default: MiniLM.

    Returns:
        Role id to number of the group, counted in order of appearance.

    Raises:
        UserError: If ids repeat, or there are fewer roles than groups.
        MissingDependencyError: If scikit-learn is not installed.
    """
    from rolecraft.models import Embedder

    ids = [role.id for role in roles]
    if len(set(ids)) < len(ids):
        raise UserError(f"two roles have the id {next(one for one in ids if ids.count(one) > 1)!r}; ids must differ.")
    _check_groups(len(roles), groups)
    vectors = (embedder or Embedder.load()).encode([role_profile(role) for role in roles])
    return {name: int(group) for name, group in zip(ids, cluster_vectors(vectors, groups, seed), strict=True)}


def cluster_vectors(vectors: NDArray[Any], groups: int, seed: int = 0) -> NDArray[np.int64]:
    """Group vectors of shape (N, D) by k-means (10 starts), numbered in order of appearance.

    Raises:
        UserError: If there are fewer vectors than groups.
        MissingDependencyError: If scikit-learn is not installed.
    """
    _check_groups(len(vectors), groups)
    try:
        from sklearn.cluster import KMeans
    except ImportError:
        raise MissingDependencyError("grouping needs scikit-learn: pip install 'rolecraft[analysis]'") from None
    labels = KMeans(groups, n_init=10, random_state=seed).fit(np.asarray(vectors, dtype=np.float64)).labels_
    order = {int(label): place for place, label in enumerate(dict.fromkeys(labels.tolist()))}
    return np.array([order[int(label)] for label in labels], dtype=np.int64)


def _check_groups(n: int, groups: int) -> None:
    if not 1 <= groups <= n:
        raise UserError(f"groups: expected 1 to {n} (the number of profiles), got {groups}.")
