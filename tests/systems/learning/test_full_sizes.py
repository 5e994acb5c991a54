"""Studies without the paper's size say what it is and what is missing."""

import pytest

from rolecraft.errors import UserError
from rolecraft.systems import find_entry
from rolecraft.systems._studies import make_config


@pytest.mark.parametrize(
    ("system", "told"),
    [
        ("triage", r"Qwen2.5-7B .*87.5 / 79.6 on ALFWorld.* not here"),
        ("moa", r"8 billion weights .*21% above it on RoleMRC.*neither"),
        ("at-grpo", r"Qwen3-1.7B and 8B .*96% and 93%.*missing here"),
        ("adrs", r"Qwen2.5-3B-Instruct .*94.5% solved.* not here"),
        ("skill-sd", r"Qwen3-4B .*14.0 and 10.9 points over GRPO.* not here"),
    ],
)
def test_a_full_size_that_is_not_offered_is_explained(system, told):
    for study in find_entry(system).studies.values():
        with pytest.raises(UserError, match=rf"no --full size \(the paper trains .*{told}.*--set FIELD=VALUE"):
            make_config(study.config, full=True)


@pytest.mark.parametrize(
    ("system", "told"), [("omar", r"Qwen2.5-7B .*55% to 72%"), ("cory", r"GPT-2 on IMDB.* lower KL.* not here")]
)
def test_one_that_is_told_in_other_words_is_explained_too(system, told):
    for study in find_entry(system).studies.values():
        with pytest.raises(UserError, match=rf"no --full size \(.*{told}.*--set FIELD=VALUE"):
            make_config(study.config, full=True)


def test_what_at_grpo_offers_in_its_place_can_be_set():
    config = make_config(find_entry("at-grpo").studies["small"].config, settings=["size=10", "turns=5"])
    assert (config.size, config.turns) == (10, 5)
