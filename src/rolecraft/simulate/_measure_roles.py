"""Measuring the roles of a simulation apart from its episodes: each fills in a questionnaire as it was put on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from rolecraft._run import Progress
from rolecraft.agents._part import Part, steering_of
from rolecraft.errors import RunMismatchError
from rolecraft.measures import administer, load_questionnaire
from rolecraft.models import Chat, Completion, LanguageModel, Sampling
from rolecraft.models._base import FloatArray
from rolecraft.simulate._cast import cast_facts, check_study
from rolecraft.simulate._measured import QUESTIONNAIRE, stage_of

if TYPE_CHECKING:
    from rolecraft.conditioning import Steering
    from rolecraft.screening import Admission
    from rolecraft.simulate._measure import Measuring


class _SteeredModel:
    """A model that replies and scores replies under the same interventions in every row."""

    def __init__(self, model: LanguageModel, part: Part) -> None:
        self._model, self._part = model, part
        self.name, self.revision = model.name, model.revision

    def generate(
        self,
        chats: Sequence[Chat],
        sampling: Sampling,
        steering: Steering | None = None,
        seeds: Sequence[int] | None = None,
    ) -> list[Completion]:
        return self._model.generate(chats, sampling, steering or steering_of([self._part] * len(chats)), seeds)

    def logprobs(self, chats: Sequence[Chat], replies: Sequence[str]) -> list[FloatArray]:
        steering = steering_of([self._part] * len(chats))
        if steering is None:
            return self._model.logprobs(chats, replies)
        return list(self._model.logprobs(chats, replies, steering))  # type: ignore[call-arg]  # a local model


def put_questionnaire(measuring: Measuring) -> None:
    """Put the Big Five to every role of the cast, as each arm puts it on; without roles, to the model once."""
    store, stage, instrument = measuring.store, stage_of(QUESTIONNAIRE), load_questionnaire()
    cast, _ = check_study(measuring.study, measuring.player)
    if cast_facts(cast) != store.config["cast"]:
        raise RunMismatchError(
            f"{measuring.study.lock}: roles are now put on otherwise than when the run was played; give back its lock."
        )
    sheets: dict[str, tuple[str, str, Admission | None]] = {}
    for conditioning in dict.fromkeys(measuring.study.arms.values()):
        for name, part in cast.items() if conditioning != "none" else ():
            put_on = replace(part, conditioner="prompt", strength=None, direction=None)
            shown = part if conditioning == "locked" else put_on
            sheets[f"{instrument.hash}/{conditioning}/{name}"] = (conditioning, name, shown)
        if conditioning == "none":
            sheets[f"{instrument.hash}/none/"] = (conditioning, "", None)
    todo = store.missing(stage, sheets)
    with (
        store.timed(stage),
        Progress(len(sheets), QUESTIONNAIRE, done=len(sheets) - len(todo), quiet=measuring.quiet) as bar,
    ):
        for key in todo:
            put_on_by, role, admission = sheets[key]
            sheet = Part.of(admission)
            asked = _SteeredModel(measuring.player, sheet)
            keyed = instrument.keyed(administer(asked, instrument, [sheet.chat("")[:-1]]))[0]
            answers = [
                {"item": item.id, "trait": item.trait, "keyed": float(value) if np.isfinite(value) else None}
                for item, value in zip(instrument.items, keyed, strict=True)
            ]
            row = {"instrument": instrument.name, "conditioning": put_on_by, "role": role, "answers": answers}
            store.put(stage, key, row)
            bar.advance(1)
