"""The study of a language model: beliefs once, plays per seed, and the arms that compare them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rolecraft._run import derive_seed
from rolecraft.agents import ChoicePolicy, Drawn, ScriptedPolicy, ask_numbers
from rolecraft.errors import UserError
from rolecraft.measures import (
    horizon_curve,
    individual_consistency,
    population_consistency,
    prior_compliance,
)
from rolecraft.measures._statistics import Floats
from rolecraft.models import Chat, LanguageModel
from rolecraft.models._base import FloatArray
from rolecraft.roles import Role, load_inventory
from rolecraft.systems.measures import _belief_questions as ask
from rolecraft.systems.measures._belief_planted import play_trust_games, send_back_half
from rolecraft.systems.measures.belief_behavior import SmolConfig, _figures, _number
from rolecraft.worlds import Policy, Rules, Table, TrustGame, play_all
from rolecraft.worlds._trust_game import TRUSTEE, TRUSTOR

if TYPE_CHECKING:
    from rolecraft._run import RunStore

Row = dict[str, float | None]


class _Remembering:
    """A model that scores nothing twice: seeds share all first rounds and all beliefs."""

    def __init__(self, model: LanguageModel) -> None:
        self._model = model
        self._known: dict[tuple[str, str], FloatArray] = {}
        self.name, self.revision, self.generate = model.name, model.revision, model.generate

    def logprobs(self, chats: Sequence[Chat], replies: Sequence[str]) -> list[FloatArray]:
        keys = [(json.dumps(list(one)), reply) for one, reply in zip(chats, replies, strict=True)]
        new = {key: place for place, key in enumerate(keys) if key not in self._known}
        places = list(new.values())
        scored = self._model.logprobs([chats[place] for place in places], [replies[place] for place in places])
        self._known |= dict(zip(new, scored, strict=True))
        return [self._known[key] for key in keys]


class Simulation:
    """Asks and plays on demand; every table is kept in the run's store and computed once."""

    def __init__(self, model: LanguageModel, config: SmolConfig, store: RunStore) -> None:
        """Bind a model and take the personas.

        Raises:
            UserError: If a persona lacks an attribute, or two of them are alike.
        """
        self._model, self._config, self._store = _Remembering(model), config, store
        self._game = TrustGame()
        self._roles = _personas(config)
        self._scale = self._game.endowment

    def arms(self, seed: int) -> dict[str, Callable[[], Row]]:
        """Return what is measured for a seed: arm to the function that measures it."""
        arms: dict[str, Callable[[], Row]] = {}
        for context in self._config.contexts:
            arms[f"outcome@{context}"] = partial(self._compare, "outcome", context, seed)
            arms[f"attribute@{context}"] = partial(self._compare, "attribute", context, seed)
        first = self._config.contexts[-1]
        arms["shuffled"] = partial(self._compare, "shuffled", first, seed)
        arms["own-plays"] = partial(self._compare, "own-plays", first, seed)
        arms["horizon"] = partial(self._horizon, seed)
        return arms | {f"theory@{theory}": partial(self._theory, theory, seed) for theory in self._config.theories}

    def _compare(self, kind: str, context: ask.Context, seed: int) -> Row:
        beliefs = self._beliefs(kind, context, seed)
        plays = self._plays(seed)
        options: dict[str, Any] = {"draws": self._config.draws, "seed": seed}
        found = individual_consistency(beliefs, plays, self._scale, **options)
        if kind in ("shuffled", "own-plays"):
            return _figures(found)
        traits = {name: [role.traits[name] for role in self._roles] for name in ask.ATTRIBUTES}
        stated = self._effects(context) if kind == "outcome" else None
        if stated is None:
            return _figures(found)
        return _figures(
            found, population_consistency(stated, traits, plays, kind="difference", scale=self._scale, **options)
        )

    def _beliefs(self, kind: str, context: ask.Context, seed: int) -> Floats:
        if kind == "attribute":
            return self._through_attributes(context)
        if kind == "own-plays":
            return self._plays(seed, label="own")
        said = self._outcomes(context)
        return np.random.default_rng(derive_seed(seed, "shuffle")).permutation(said) if kind == "shuffled" else said

    def _outcomes(self, context: ask.Context) -> Floats:
        """Return believed amounts, one column per phrasing."""
        chats = [
            ask.outcome_chat(role, context, self._game, phrasing)
            for role in self._roles
            for phrasing in range(ask.PHRASINGS)
        ]
        return self._kept(f"outcome/{context}", lambda: self._ask(chats, self._scale)).reshape(-1, ask.PHRASINGS)

    def _averages(self, context: ask.Context) -> Floats:
        """Return what the average person sends, shape (attributes, low and high, phrasings)."""
        chats = [
            ask.average_chat(attribute, high, context, self._game, phrasing)
            for attribute in ask.ATTRIBUTES
            for high in (False, True)
            for phrasing in range(ask.PHRASINGS)
        ]
        found = self._kept(f"average/{context}", lambda: self._ask(chats, self._scale))
        return found.reshape(len(ask.ATTRIBUTES), 2, ask.PHRASINGS)

    def _effects(self, context: ask.Context) -> dict[str, float]:
        """Return believed effects, as shares of the endowment."""
        low, high = self._averages(context).mean(2).T
        return dict(zip(ask.ATTRIBUTES, ((high - low) / self._scale).tolist(), strict=True))

    def _through_attributes(self, context: ask.Context) -> Floats:
        """Return amounts that follow from a persona's ratings and from what is believed of people high and low."""
        chats = [ask.rating_chat(role, attribute) for role in self._roles for attribute in ask.ATTRIBUTES]
        rated = self._kept("rating", lambda: self._ask(chats, 7, 1)).reshape(len(self._roles), -1, 1)
        low, high = self._averages(context).transpose(1, 0, 2)
        share = (rated - 1) / 6
        amounts: Floats = (low + share * (high - low)).mean(1)
        return amounts

    def _ask(self, chats: Sequence[Chat], top: int, bottom: int = 0) -> Floats:
        beliefs = ask_numbers(self._model, chats, range(bottom, top + 1))
        return np.array([belief.point(self._config.reading) for belief in beliefs])

    def _plays(self, seed: int, theory: str = "", label: str = "plays") -> Floats:
        """Return what was sent in single games, shape (personas, plays)."""
        texts = {role.id: ask.persona_text(role, theory) for role in self._roles}
        policy = ChoicePolicy(self._model, texts, Drawn(self._config.temperature))
        name = f"{label}/{seed}"
        return self._kept(
            name, lambda: play_trust_games(list(texts), self._config.plays, policy, seed, label, self._scale)
        )

    def _theory(self, theory: str, seed: int) -> Row:
        direction, _, strength = theory.partition("/")
        attribute = next(iter(ask.ATTRIBUTES))
        text, target = ask.theory_text(attribute, "more" if direction == "more" else "less", strength, self._scale)
        found = prior_compliance(
            [role.traits[attribute] for role in self._roles], self._plays(seed),
            self._plays(seed, text, theory), target, scale=self._scale, draws=self._config.draws, seed=seed,
        )  # fmt: skip
        return {"found": _number(found.estimate), "low": _number(found.low), "high": _number(found.high)}

    def _horizon(self, seed: int) -> Row:
        """Play the repeated game once per persona, and forecast the later rounds after the first."""
        game = TrustGame(rounds=self._config.rounds)
        later = range(2, game.rounds + 1)
        games = self._kept(f"repeated/{seed}", lambda: self._repeated(seed)).reshape(len(self._roles), game.rounds, 2)
        chats = [
            ask.forecast_chat(role, [(int(past[0, 0]), int(past[0, 1]))], about, game)
            for role, past in zip(self._roles, games, strict=True)
            for about in later
        ]
        said = self._kept(f"forecast/{seed}", lambda: self._ask(chats, self._scale)).reshape(-1, len(later))
        forecasts = np.full((len(self._roles), game.rounds, len(later)), np.nan)
        forecasts[:, 0] = said
        curve = horizon_curve(forecasts, games[:, :, 0], self._scale, draws=self._config.draws, seed=seed)
        row: Row = {f"error_{ahead}": _number(figure.estimate) for ahead, figure in enumerate(curve.errors, 1)}
        rise = curve.slope
        return row | {"slope": _number(rise.estimate), "low": _number(rise.low), "high": _number(rise.high)}

    def _repeated(self, seed: int) -> Floats:
        """Return what was sent and returned, shape (personas, rounds, 2)."""
        texts = {role.id: ask.persona_text(role) for role in self._roles}
        trustor = ChoicePolicy(self._model, texts, Drawn(self._config.temperature))
        policies: dict[str, Policy] = {TRUSTOR: trustor, TRUSTEE: ScriptedPolicy(send_back_half)}
        tables = [
            Table(TrustGame(rounds=self._config.rounds), policies, derive_seed(seed, "repeated", id_), {TRUSTOR: id_})
            for id_ in texts
        ]
        outcomes = [episode.outcome for episode in play_all(tables, Rules(hashes=False))]
        return np.array([list(zip(one["sent"], one["returned"], strict=True)) for one in outcomes], dtype=float)

    def _kept(self, key: str, compute: Callable[[], Floats]) -> Floats:
        """Return a table from the store, computed and stored first if it is not there."""
        known = self._store.get("tables", key)
        if known is None:
            known = compute().tolist()
            self._store.put("tables", key, known)
        return np.array(known, dtype=float)


def _personas(config: SmolConfig) -> tuple[Role, ...]:
    roles = load_inventory(config.personas_from).roles
    roles = roles[: config.personas or len(roles)]
    for role in roles:
        lacking = [name for name in ask.ATTRIBUTES if name not in role.traits]
        if lacking:
            raise UserError(
                f"role {role.id!r} of {config.personas_from} lacks the trait {lacking[0]!r} (a number in 0..1)."
            )
    texts = [ask.persona_text(role) for role in roles]
    for place, text in enumerate(texts):
        if text in texts[:place]:
            other = roles[texts.index(text)].id
            raise UserError(f"roles {other!r} and {roles[place].id!r} read the same; personas must differ.")
    return roles
