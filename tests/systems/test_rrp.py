import re
import zlib
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from rolecraft._run import RunStore
from rolecraft.agents import Call, CallRules, ToolRegistry
from rolecraft.errors import UserError
from rolecraft.learning import Gradient, Tried
from rolecraft.learning.prompts._search import refusal, summarise
from rolecraft.systems import find_entry
from rolecraft.systems.conditioning._rrp_agent import PromptPair, Scenario, ShopAgent, serve, shop_scenario
from rolecraft.systems.conditioning.rrp import (
    ARMS,
    HEF,
    RULE_BANK,
    VARIANTS,
    Config,
    run_on,
    score_turn,
    scripted_editor,
    similarities,
    verdict,
)
from rolecraft.testing import ScriptedModel
from rolecraft.worlds import MISSING_FUNCTIONS, shop_turns
from rolecraft.worlds._weapon_shop import _ASKED, ITEMS, PURPOSES

CONFIG = Config(turns=24, seeds=(0, 1))
_FORMS = [
    (name, re.compile(re.escape(text).replace(r"\{", "{").replace(r"\}", "}").replace("{item}", "(.+?)")
                      .replace("{other}", "(.+?)").replace("{quantity}", "(.+?)").replace("{order}", "(.+?)")
                      .replace("{purpose}", "(.+?)")))
    for name, texts in [*_ASKED.items(), *((n, (t,)) for n, t in MISSING_FUNCTIONS.items())]
    for text in texts
]  # fmt: skip


def keeper(obeys=True, mends=True):
    """Return a shopkeeper that reads its prompt: without the rules it calls in vain and invents functions."""

    def script(chat, seed):
        system, said = chat[0]["content"], chat[-1]["content"]
        customer = next(m["content"] for m in reversed(chat) if m["role"] == "user" and "Refused:" not in m["content"])
        if said == "...":
            return "Yes?"
        if "What is the value of" in said:
            name = re.search(r"What is the value of (\w+)\?", said)[1]
            return f'"{value(customer, name)}"'
        if "Reply with the name of one function" not in system:
            results = system.rpartition("Results: ")[2]
            short = "one short sentence" in system
            return (
                f"It is {results}"
                if short
                else f"Well, dear friend, let me think about it for a while. It is {results}"
            )
        name = next((name for name, form in _FORMS if form.search(customer)), None)
        if "Refused:" in said and mends:
            return "none"
        if name in MISSING_FUNCTIONS:
            return "none" if obeys and HEF[1] in system else name
        if name is None or customer.startswith("Sorry"):
            return "none" if obeys and HEF[5] in system else "opening_hours"
        return name

    return ScriptedModel(script)


def value(said, name):
    if name in ("quantity", "order"):
        return re.search(r"\d+", said)[0]
    found = sorted((said.find(word), word) for word in (PURPOSES if name == "purpose" else ITEMS) if word in said)
    return found[1 if name == "other" and len(found) > 1 else 0][1] if found else name


class Words:
    """Embeds texts by their words."""

    def encode(self, texts):
        vectors = np.zeros((len(texts), 512), dtype=np.float32)
        for row, text in enumerate(texts):
            for word in re.findall(r"\w+", text.lower()):
                vectors[row, zlib.crc32(word.encode()) % 512] += 1
        return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)


def scenario(count=40, seed=0):
    return shop_scenario(seed, shop_turns(count, seed))


def study(tmp_path, model, config=CONFIG):
    with RunStore.open(tmp_path / "run", "study", {}) as store:
        return run_on(model, Words(), config, store), store.rows("search")


@pytest.mark.parametrize("name", VARIANTS)
def test_the_variants_hold_the_placeholders_they_need_and_are_filled(name):
    pair, scene = VARIANTS[name], scenario()
    assert "{functions}" in pair.function
    assert "{results}" in pair.dialogue
    assert "{" not in scene.filled(pair.function).replace(scene.functions.text, "") + scene.filled(pair.dialogue, "x")


def test_the_variants_grow_from_nothing_to_rules():
    assert all(rule in VARIANTS["rrp"].function for rule in HEF)
    assert not any(rule in VARIANTS[name].function for rule in HEF for name in ("zero-shot", "basic", "improved"))
    assert "{role}" not in VARIANTS["zero-shot"].dialogue
    assert "{role}" in VARIANTS["basic"].dialogue


def test_a_right_call_without_a_function_is_refused():
    scene = scenario()
    with pytest.raises(UserError, match=r"the right call '.*' names no function"):
        Scenario("", "", "", "", ToolRegistry([scene.functions["opening_hours"]]), scene.turns)


def test_rules_in_the_prompt_reach_a_model_that_reads_them():
    scene, agent = scenario(), ShopAgent(keeper(), 40)
    before, after = (serve(agent, VARIANTS[name], scene) for name in ("zero-shot", "rrp"))
    invented = [
        sum(call.name in MISSING_FUNCTIONS for one in served for call in one.calls) for served in (before, after)
    ]
    assert invented == [6, 0]
    for turn, one in zip(scene.turns, after, strict=True):
        assert [(call.name, dict(call.arguments)) for call in one.calls] == [(n, dict(g)) for n, g in turn.gold_calls]
        assert all(result.text in one.reply for result in one.results)


def test_the_validator_removes_what_a_disobedient_model_invents_and_says_why():
    scene, model = scenario(), keeper(obeys=False)
    served = serve(ShopAgent(model, 40), VARIANTS["rrp"], scene, CallRules(scene.functions))
    assert all(call.name in scene.functions for one in served for call in one.calls)
    kinds = Counter(flaw.kind for one in served for flaw in one.violations)
    assert kinds["unknown-name"] == 6


def test_a_refused_call_gets_one_more_try_with_the_reason():
    seen = []

    def script(chat, seed):
        if "Refused:" in chat[-1]["content"]:
            seen.append(chat)
        return keeper(obeys=False)._script(chat, seed)

    scene = scenario()
    rules = CallRules(scene.functions)
    served = serve(ShopAgent(ScriptedModel(script), 40), VARIANTS["rrp"], scene, rules)
    assert seen
    assert all(chat[-2]["role"] == "assistant" and "does not exist" in chat[-1]["content"] for chat in seen)
    stubborn = serve(ShopAgent(keeper(obeys=False, mends=False), 40), VARIANTS["rrp"], scene, rules)
    invented = [one for one in stubborn if any(flaw.kind == "unknown-name" for flaw in one.violations)]
    assert len(invented) == 6
    assert all(not one.calls and len(one.violations) == 2 for one in invented)  # both tries, and then no call
    assert len(served) == len(stubborn) == 40


def test_an_error_of_a_function_reaches_the_dialogue_step():
    scene = scenario(20)
    calls = [[Call("price", {"item": "cannon"})] for _ in scene.turns]
    served = serve(ShopAgent(keeper(), 60), VARIANTS["rrp"], scene, given=calls)
    assert all("error: KeyError" in one.reply for one in served)


def test_a_model_may_write_json_and_bad_json_is_no_call():
    def script(chat, seed):
        if "as JSON" not in chat[0]["content"]:
            return "fine"
        return '{"name": "opening_hours"}' if "Refused" in chat[-1]["content"] else '{"name": "opening_'

    scene = scenario(20)
    agent = ShopAgent(ScriptedModel(script), 40, writes_json=True)
    free = serve(agent, VARIANTS["rrp"], scene)
    assert all(not one.calls and [flaw.kind for flaw in one.violations] == ["parse-error"] for one in free)
    enforced = serve(agent, VARIANTS["rrp"], scene, CallRules(scene.functions))
    assert all(one.calls == (Call("opening_hours"),) for one in enforced)


def test_scores_of_a_turn():
    registry = scenario().functions
    turn = next(turn for turn in shop_turns(40, 0) if turn.gold_calls and turn.gold_calls[0][0] == "price")
    [(name, given)] = turn.gold_calls
    right = Call(name, given)
    full = score_turn(turn, [right], 1.0, registry)
    assert full["overall"] == full["task1"] == full["task2"] == full["exact_arguments"] == 1
    assert full["unnecessary"] is None
    half = score_turn(turn, [Call(name, {"item": "x"})], 0.5, registry)
    assert (half["calls_score"], half["name_accuracy"], half["exact_arguments"]) == (0.5, 1, 0)
    assert half["task1"] == 0.5
    twice = score_turn(turn, [right, right], 1.0, registry)
    assert (twice["duplicate"], twice["calls_score"]) == (1, 0.5)
    assert score_turn(turn, [Call("fly")], 0, registry)["hallucinated"] == 1
    idle = next(turn for turn in shop_turns(40, 0) if not turn.gold_calls)
    assert score_turn(idle, [], 0.0, registry)["calls_score"] == 1
    needless = score_turn(idle, [right], 0.0, registry)
    assert (needless["unnecessary"], needless["calls_score"], needless["name_accuracy"]) == (1, 0, None)


def test_an_empty_reply_resembles_nothing():
    assert similarities(Words(), ["the sword", ""], ["the sword", "the sword"]) == pytest.approx([1, 0], abs=1e-6)


def test_the_bank_holds_twelve_lines_for_both_prompts():
    assert len(RULE_BANK) == 12
    assert {target for target, _ in RULE_BANK.values()} == {"function", "dialogue"}


def test_the_scripted_editor_adds_lines_before_the_facts_and_heeds_the_memory():
    start = VARIANTS["zero-shot"].texts
    found = summarise([Gradient("function", "c", HEF[1], 2.0), Gradient("dialogue", "c", "Be kind.")])
    together, single = scripted_editor(start, found, [], 2)
    assert HEF[1] in together["function"].partition("\nFunctions:")[0]
    assert "Be kind." in together["dialogue"].partition("\nResults:")[0]
    assert single["dialogue"] == start["dialogue"]
    assert all(not refusal(one, start, 4000) for one in (together, single))
    bank = summarise([Gradient("function", "c", HEF[1], 2.0), Gradient("function", "c", HEF[5])])
    harmful = Tried(0, {**start, "function": f"{start['function']} {HEF[1]}"}, -0.1, False)
    [only] = scripted_editor(start, bank, [harmful], 2)
    assert HEF[5] in only["function"]
    assert HEF[1] not in only["function"]


def test_a_disobedient_model_is_put_right_by_the_validator(tmp_path):
    result, _ = study(tmp_path, keeper(obeys=False))
    found = verdict(result)
    assert result.arms == list(ARMS)
    assert result.mean("hallucinated", "zero-shot").estimate > 0.1
    assert result.mean("hallucinated", "rrp+validator").estimate == 0
    assert found.effect.low > 0
    assert found.control.estimate < found.effect.estimate
    assert result.mean("overall", "oracle").estimate >= result.mean("overall", "rrp+validator").estimate


def test_the_search_finds_rules_that_help_and_reports_on_turns_it_did_not_use(tmp_path):
    result, search = study(tmp_path, keeper(), replace(CONFIG, iterations=4, seeds=(0,)))
    trace = search["trace"]
    assert trace["test"][1] > trace["test"][0] + 0.05
    assert any(line in trace["best"]["function"] for line in HEF)
    assert result.mean("overall", "apo").estimate > result.mean("overall", "zero-shot").estimate
    assert PromptPair(**trace["best"]) not in VARIANTS.values()


def test_a_model_that_never_invents_leaves_nothing_to_remove(tmp_path):
    config = replace(CONFIG, iterations=1, seeds=(0,))

    def script(chat, seed):
        return "none" if "Reply with the name" in chat[0]["content"] and chat[-1]["content"] != "..." else "Good day."

    found = verdict(study(tmp_path, ScriptedModel(script), config)[0])
    assert found.verdict == "inconclusive"


def test_a_finished_study_needs_no_model(tmp_path):
    config = replace(CONFIG, iterations=1, seeds=(0,))
    first, _ = study(tmp_path, keeper(), config)
    again, _ = study(tmp_path, ScriptedModel(lambda *_: pytest.fail("asked again")), config)
    assert first == again


def test_the_system_is_found():
    assert find_entry("rrp").system.number == 89
    assert Config.full().editor == "model"
