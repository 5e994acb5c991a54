"""A transformer whose roles are planted: what a screen of it must find is known in closed form.

Three decoder blocks, written by hand. The residual stream holds a constant component (which speaks the neutral words),
one component per role (which speaks that role's words), one for words that are nobody's, and one for a single looping
word. Where the prompt names a role, the attention of block 0 writes that role's `displacement` into every later
position, before the steering site (the output of block 1), and block 2 writes its `fulfilment` after it. So prompting
does both, steering by strength c adds c displacements, and the share of role words at each strength is a softmax that
`PlantedRole.share` evaluates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from rolecraft.measures import DIMENSIONS, JudgeItem, Score
from rolecraft.models._local import LocalModel
from rolecraft.roles import Inventory, Question, QuestionBank, Role
from rolecraft.testing._tiny import CHAT_TEMPLATE

WORDS = 12
"""Words of each kind: of every role, neutral, and nobody's."""
SHARPNESS = 7.0
"""Scale of the logits."""
SITES = 3
_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<unk>")


@dataclass(frozen=True)
class PlantedRole:
    """A role and what naming it does to the residual stream, in units of the constant component."""

    name: str
    """One word, which the prompt must hold."""
    role: float = 0.0
    """Displacement before the site towards the role's own words."""
    nobody: float = 0.0
    """... towards words that are nobody's, which need more of it but then win."""
    loop: float = 0.0
    """... towards one word, over and over."""
    fulfilment: float = 1.5
    """Displacement after the site towards the role's own words, which only the prompt brings."""
    speaks_neutral: bool = False
    """The role's words are the neutral ones: like an assistant, it is what the model is anyway."""

    def share(self, strength: float) -> float:
        """Return the share of the role's words in answers steered by a strength, at temperature 1."""
        role, nobody, loop = (strength * size for size in (self.role, self.nobody, self.loop))
        logits = np.array([1.0, role, _nobody(nobody), _loop(loop)])
        scaled = np.exp(SHARPNESS * logits / np.sqrt(2 + role**2 + nobody**2 + loop**2))
        counts = scaled * np.array([WORDS, WORDS, WORDS, 1])
        return float((counts[0] if self.speaks_neutral else counts[1]) / counts.sum())


def _nobody(size: float) -> float:
    return 2.2 * size - 1.2


def _loop(size: float) -> float:
    return 2.0 * size - 0.6


ROLES = (
    PlantedRole("riser", role=0.5),
    PlantedRole("peaker", role=0.72, nobody=0.62),
    PlantedRole("denier", nobody=0.5, fulfilment=0.0, speaks_neutral=True),
    PlantedRole("looper", role=0.5, loop=1.2),
    PlantedRole("prompter"),
    PlantedRole("ghoster", fulfilment=0.0),
)
"""One that rises to the largest strength; one that peaks inside; one that is anti-controllable; one whose text breaks
into loops; one that only the prompt brings about; one that the model does not know."""
EXPECTED = {
    "riser": "PASS",
    "peaker": "PASS",
    "denier": "FLAG",
    "looper": "PASS_PROMPT_ONLY",
    "prompter": "PASS_PROMPT_ONLY",
    "ghoster": "FLAG",
}


def planted_inventory(roles: Sequence[PlantedRole] = ROLES) -> Inventory:
    """Return the planted roles as an inventory that can be screened."""
    return Inventory(
        "planted",
        "1",
        tuple(
            Role(
                id=role.name,
                name=role.name,
                description=f"You are {role.name}.",
                instructions=(f"You are {role.name}.", f"Speak as {role.name}."),
                questions=tuple(f"what of matter {number} ?" for number in range(8)),
            )
            for role in roles
        ),
    )


def planted_questions(count: int = 12) -> QuestionBank:
    """Return role-agnostic questions for the planted model."""
    questions = tuple(Question(id=f"p{number:02}", text=f"tell of thing {number} .") for number in range(count))
    return QuestionBank("planted", "1", questions)


def words_of(role: PlantedRole | str) -> tuple[str, ...]:
    """Return the words of a role, or of the kinds `neutral` and `nobody`."""
    kind = role if isinstance(role, str) else "neutral" if role.speaks_neutral else role.name
    return tuple(f"{kind}{letter}" for letter in "abcdefghijkl"[:WORDS])


@dataclass(frozen=True)
class PlantedJudge:
    """Counts the role's words: `overall` over the whole answer, the other dimensions over every fifth word of it."""

    roles: Mapping[str, PlantedRole] = field(default_factory=lambda: {role.name: role for role in ROLES})
    name: str = "planted"
    rubric_hash: str = "1"
    dimensions: tuple[str, ...] = DIMENSIONS

    def score(self, items: Sequence[JudgeItem]) -> list[Score]:
        """Return shares of role words, 0..100."""
        return [self._score(item) for item in items]

    def _score(self, item: JudgeItem) -> Score:
        own = set(words_of(self.roles[item.role.id]))
        hits = np.array([word in own for word in item.answer.split()], float)
        slices = [hits, *(hits[start::5] for start in range(5))]
        return Score({name: 100 * float(part.mean()) if len(part) else 0.0
                      for name, part in zip(DIMENSIONS, slices, strict=True)})  # fmt: skip


def planted_model(roles: Sequence[PlantedRole] = ROLES) -> LocalModel:
    """Build the model of some roles (at most 16), float32."""
    tokenizer = _tokenizer(roles)
    layout = _Layout(roles, tokenizer.get_vocab())
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=layout.size,
        intermediate_size=8,
        num_hidden_layers=SITES,
        num_attention_heads=1,
        num_key_value_heads=1,
        max_position_embeddings=2048,
        rope_parameters={"rope_type": "default", "rope_theta": 1e15},
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
        tie_word_embeddings=False,
    )
    model: Any = LlamaForCausalLM(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.fill_(1.0 if "norm" in name else 0.0)
        model.model.embed_tokens.weight.copy_(torch.from_numpy(layout.embeddings()))
        model.lm_head.weight.copy_(torch.from_numpy(layout.head()))
        for block, displacements in ((0, layout.displacements()), (SITES - 1, layout.fulfilments())):
            layout.write_attention(model.model.layers[block].self_attn, displacements)
    return LocalModel(model, tokenizer, name="local:planted")


def _tokenizer(roles: Sequence[PlantedRole]) -> Any:
    kinds = [words_of(role) for role in roles if not role.speaks_neutral]
    words = [word for kind in (*kinds, words_of("neutral"), words_of("nobody")) for word in kind]
    names = [role.name for role in roles]
    vocabulary = {word: number for number, word in enumerate([*_SPECIAL, *names, *words, "loop"])}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    core.add_special_tokens(list(_SPECIAL[:3]))
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=core,
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        unk_token="<unk>",
        chat_template=CHAT_TEMPLATE,
    )


class _Layout:
    """Which component of the residual stream means what, and the weights that follow."""

    def __init__(self, roles: Sequence[PlantedRole], vocabulary: Mapping[str, int]) -> None:
        self.roles, self.vocabulary = roles, vocabulary
        self.size = 64
        count = len(roles)
        self.constant, self.start, self.nobody, self.loop = range(4)
        self.speech = {role.name: 4 + number for number, role in enumerate(roles)}
        self.naming = {role.name: 4 + count + number for number, role in enumerate(roles)}
        self.filler = range(4 + 2 * count, self.size - 2)

    def embeddings(self) -> NDArray[np.float32]:
        """Every token: the constant, and one component of length 1 that says what it is."""
        table = np.zeros((len(self.vocabulary), self.size), np.float32)
        table[:, self.constant] = 1
        random = np.random.default_rng(0)
        for word, number in self.vocabulary.items():
            if word in self.naming:
                table[number, self.naming[word]] = 1
            elif word == "<|im_start|>":
                table[number, self.start] = 1
            else:
                noise = random.standard_normal(len(self.filler))
                table[number, self.filler] = noise / np.linalg.norm(noise)
        return table

    def head(self) -> NDArray[np.float32]:
        """Rows of the output: what each component speaks."""
        rows = np.zeros((len(self.vocabulary), self.size), np.float32)
        rows[:, self.constant] = -3  # names and special tokens are never spoken
        spoken = {word: {self.constant: 1.0} for word in words_of("neutral")}
        spoken |= {word: {self.nobody: 2.2, self.constant: -1.2} for word in words_of("nobody")}
        spoken["loop"] = {self.loop: 2.0, self.constant: -0.6}
        for role in self.roles:
            if not role.speaks_neutral:
                spoken |= {word: {self.speech[role.name]: 1.0} for word in words_of(role)}
        for word, parts in spoken.items():
            row = rows[self.vocabulary[word]]
            row[self.constant] = 0
            for component, weight in parts.items():
                row[component] = weight
        return rows * np.float32(SHARPNESS / np.sqrt(self.size))  # the final norm makes |h| the root of the size

    def displacements(self) -> dict[str, NDArray[np.float32]]:
        """What naming a role adds before the site."""
        return {
            role.name: self._vector({self.speech[role.name]: role.role, self.nobody: role.nobody, self.loop: role.loop})
            for role in self.roles
        }

    def fulfilments(self) -> dict[str, NDArray[np.float32]]:
        """What naming a role adds after the site."""
        return {role.name: self._vector({self.speech[role.name]: role.fulfilment}) for role in self.roles}

    def write_attention(self, attention: Any, values: Mapping[str, NDArray[np.float32]]) -> None:
        """Let every position attend to the name in the prompt, or else to the start, and copy what the name adds.

        The rotary embedding leaves the last component alone (its frequency is 1e-15), so that is where keys meet.
        """
        norm = np.sqrt(self.size / 2)  # what the norm makes of a component of length 1 in an embedding
        last = self.size - 1
        attention.q_proj.weight[last, self.constant] = float(np.sqrt(self.size) / norm)
        attention.k_proj.weight[last, self.start] = float(8 / norm)
        for name, vector in values.items():
            attention.k_proj.weight[last, self.naming[name]] = float(24 / norm)
            attention.v_proj.weight[:, self.naming[name]] = torch.from_numpy(vector / np.float32(norm))
        attention.o_proj.weight.copy_(torch.eye(self.size))

    def _vector(self, parts: Mapping[int, float]) -> NDArray[np.float32]:
        vector = np.zeros(self.size, np.float32)
        for component, size in parts.items():
            vector[component] = size
        return vector
