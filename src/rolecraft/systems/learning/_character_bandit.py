"""The bandit of Character-R1's small study: roles of four groups that can reach very different overlaps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rolecraft._run import derive_seed
from rolecraft.agents import FOCUS_POINTS
from rolecraft.learning import CharacterCase, character_reward, cluster_vectors, component_weights
from rolecraft.learning.character._rewards import COMPONENTS, PARTS
from rolecraft.learning.credit import Carry, CreditBatch, Group, Stage, assign_credit, ccrn_scale
from rolecraft.learning.losses import clipped_surrogate, kl_tokens, total
from rolecraft.learning.policy import TabularPolicy
from rolecraft.roles import Role

if TYPE_CHECKING:
    from rolecraft.systems.learning.character_r1 import BanditConfig

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LABELS = (*FOCUS_POINTS, "Mood", "")
"""What the first token says: one of the ten labels, one that is made up, or no block at all."""
ATTRIBUTES = (
    "calm", "brave", "sly", "proud", "weary", "merry", "stern", "tender", "restless", "curious", "bitter", "loyal",
)  # fmt: skip
WORDS = (
    "river", "lantern", "copper", "harvest", "orchard", "thunder", "velvet", "marble", "saffron", "willow", "ember",
    "harbour",
)  # fmt: skip
BEYOND = ("zephyr", "quartz", "mosaic")
"""Words of references that the policy cannot say."""
FOCUS, ATTRIBUTE, REPLY = slice(0, 1), slice(1, 4), slice(4, 10)
PLACES, VOCABULARY = REPLY.stop, len(LABELS)
LENGTH = REPLY.stop - REPLY.start
REFERENCE = component_weights(without=("format", "focus", "focus_attr"))


@dataclass
class Bandit:
    """The roles of one seed, and what their replies earn."""

    cases: list[CharacterCase]
    embeddings: Floats
    """Shape (roles, size)."""
    group: Ints
    """Shape (roles,): the group whose references a role has."""
    key: Ints
    """Shape (roles,): the group found by k-means over the embeddings."""
    shuffled: Ints
    """Shape (roles,): groups of the same sizes, each with a role of every true one."""
    ceiling: Floats
    """Shape (roles,): the largest overlap that a reply can reach."""
    earned: dict[tuple[int, ...], Floats] = field(default_factory=dict)

    def rewards(self, roles: Ints, tokens: Ints) -> Floats:
        """Return the raw components of replies, of shape (N, components), by way of their text."""
        return np.stack([self._reward(int(role), row.tolist()) for role, row in zip(roles, tokens, strict=True)])

    def _reward(self, role: int, tokens: list[int]) -> Floats:
        key = (role, *tokens)
        if key not in self.earned:
            raw = character_reward(say(tokens), self.cases[role]).raw
            self.earned[key] = np.array([raw[name] for name in COMPONENTS])
        return self.earned[key]


def say(tokens: Sequence[int]) -> str:
    """Return the text of a reply: a thought with at most one block, and a box."""
    label = LABELS[tokens[0]]
    attribute = " ".join(ATTRIBUTES[token] for token in tokens[ATTRIBUTE])
    block = f"<focus>{label}</focus><focus_attr>{attribute}</focus_attr>" if label else attribute
    words = " ".join(WORDS[token] for token in tokens[REPLY])
    return f"<think>{block}</think>\n\\boxed{{{words}}}"


def make_bandit(config: BanditConfig, seed: int) -> Bandit:
    """Draw roles, references and embeddings.

    Every reference begins with six words that the policy has, and goes on with a tail that it cannot say, as long as
    its group has it. So all roles have as much to learn, and what they can earn by it differs.
    """
    rng = np.random.default_rng(derive_seed("character-r1", "roles", seed))
    each = config.roles_per_group
    group = np.repeat(np.arange(len(config.tails)), each)
    centres = rng.standard_normal((len(config.tails), config.size))
    embeddings = centres[group] + config.spread * rng.standard_normal((len(group), config.size))
    cases = [_case(role, config.tails[index], rng) for role, index in enumerate(group)]
    key = cluster_vectors(embeddings, len(config.tails), seed=0)
    ceiling = np.array([reachable_overlap(case) for case in cases])
    return Bandit(cases, embeddings, group, key, np.tile(np.arange(each), len(config.tails)), ceiling)


def _case(role: int, tail: int, rng: np.random.Generator) -> CharacterCase:
    label = list(FOCUS_POINTS)[rng.integers(len(FOCUS_POINTS))]
    attribute = " ".join(rng.permutation(ATTRIBUTES)[: ATTRIBUTE.stop - ATTRIBUTE.start])
    words = [*rng.permutation(WORDS)[:LENGTH], *(f"{rng.choice(BEYOND)}{n}" for n in range(tail))]
    who = Role(id=f"role-{role}", name=f"role {role}", description="You are one arm of a bandit.")
    asked = {"role": "user", "content": "Speak."}
    return CharacterCase(f"case-{role}", who, (asked,), {label: attribute}, " ".join(words))  # type: ignore[arg-type]


def reachable_overlap(case: CharacterCase) -> float:
    """Return the largest overlap within reach: that of a reply which is the beginning of the reference.

    No reply does better: none of its six words and of their n-grams is without a match.
    """
    words = case.reference.split()[:LENGTH]
    return overlap_of(character_reward(f"\\boxed{{{' '.join(words)}}}", case).raw)


def overlap_of(raw: Mapping[str, float]) -> float:
    """Return the weighted mean of the seven overlap figures."""
    return sum(REFERENCE[name] * raw[name] for name in PARTS["reference"])


class RoleNetwork(TabularPolicy):
    """A policy whose table is written by a network from the roles' embeddings: roles share what is learned."""

    def __init__(self, embeddings: Floats, hidden: int, seed: int) -> None:
        """Start near uniform.

        Args:
            embeddings: Shape (roles, size).
            hidden: Width of the hidden layer.
            seed: Of the first weights.
        """
        super().__init__(len(embeddings), PLACES, VOCABULARY)
        del self.logits
        generator = torch.Generator().manual_seed(seed)
        self.embeddings = torch.as_tensor(embeddings)
        self.inner = torch.nn.Linear(embeddings.shape[1], hidden, dtype=torch.float64)
        self.outer = torch.nn.Linear(hidden, PLACES * VOCABULARY, dtype=torch.float64)
        with torch.no_grad():
            for layer, size in ((self.inner, embeddings.shape[1]), (self.outer, 100 * hidden)):
                layer.weight.normal_(0, size**-0.5, generator=generator)
                layer.bias.zero_()

    def log_softmax(self, contexts: NDArray[Any] | Tensor) -> Tensor:
        """Return log-probabilities of shape (N, places, vocabulary), with gradient."""
        logits = self.outer(torch.tanh(self.inner(self.embeddings)))
        table = torch.log_softmax(logits.view(-1, PLACES, VOCABULARY), -1)
        return table[torch.as_tensor(contexts)]


@dataclass(frozen=True)
class Shift:
    """Take the running mean of each component and group away and leave the scale: the control.

    All replies for one prompt are of one group, so that this cancels in the advantage.
    """

    weights: Mapping[str, float]
    keys: tuple[str, ...] = ("group",)
    decay: float = 0.99
    name: str = "shift"

    def __call__(self, batch: CreditBatch, carry: Carry) -> Carry:
        """Set the reward and move the running means."""
        index, _ = batch.group_index(self.keys, self.name)
        _, state = ccrn_scale(batch.objectives, index, carry.state.get(self.name), decay=self.decay, where=carry.keep)
        reward = np.zeros(len(index))
        for name, weight in self.weights.items():
            means = np.array([state[str(group)][name]["mean"] for group in range(len(state))])
            reward += weight * (batch.objectives[name] - means[index])
        return replace(carry, reward=reward, state={**carry.state, self.name: state})


def train(bandit: Bandit, scalariser: Stage, config: BanditConfig, seed: int) -> RoleNetwork:
    """Train on every role at every update: samples, ten rewards, one number, GRPO's advantage, one clipped step."""
    network = RoleNetwork(bandit.embeddings, config.hidden, derive_seed("character-r1", "weights", seed) % 2**31)
    optimiser = torch.optim.Adam(network.parameters(), lr=config.learning_rate)
    rng = np.random.default_rng(derive_seed("character-r1", "samples", seed))
    roles = np.repeat(np.arange(len(bandit.cases)), config.samples)
    mask = np.ones((len(roles), PLACES), dtype=bool)
    with torch.no_grad():
        start = network.log_softmax(roles)
    keys = {"task": roles, "group": bandit.key[roles], "shuffled": bandit.shuffled[roles]}
    state: Mapping[str, Any] = {}
    for _ in range(config.updates):
        tokens, old = network.sample(roles, rng)
        rewards = bandit.rewards(roles, tokens)
        objectives = {name: rewards[:, place] for place, name in enumerate(COMPONENTS)}
        credit = assign_credit(CreditBatch(mask, keys, objectives=objectives), [scalariser, Group()], state)
        state = credit.state
        logp, _ = network.log_probs(roles, tokens)
        kept = torch.as_tensor(mask)
        loss = clipped_surrogate(logp, torch.as_tensor(old), torch.as_tensor(credit.advantages), kept).loss
        reference = start.gather(-1, torch.as_tensor(tokens)[..., None])[..., 0]
        loss = loss + config.kl * total(kl_tokens(logp, reference), kept)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return network


def measure(bandit: Bandit, network: RoleNetwork, config: BanditConfig, seed: int) -> dict[str, Any]:
    """Return what fresh replies of the policy score, by group and in all."""
    rng = np.random.default_rng(derive_seed("character-r1", "evaluation", seed))
    roles = np.repeat(np.arange(len(bandit.cases)), config.evaluated)
    tokens, _ = network.sample(roles, rng)
    raw = bandit.rewards(roles, tokens)
    weights = np.array([REFERENCE[name] for name in COMPONENTS])
    figures = {
        "overlap": raw @ weights / bandit.ceiling[roles],
        "focus": raw[:, COMPONENTS.index("focus")],
        "attr": raw[:, COMPONENTS.index("focus_attr")],
    }
    figures["score"] = (figures["overlap"] + figures["focus"]) / 2
    found: dict[str, Any] = {}
    for name, values in figures.items():
        by_group = np.bincount(bandit.group[roles], values) / np.bincount(bandit.group[roles])
        found |= {f"worst_{name}": float(by_group.min()), f"mean_{name}": float(by_group.mean())}
        found |= {f"{name}_{group}": float(value) for group, value in enumerate(by_group)}
    return found
