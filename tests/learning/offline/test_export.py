"""Rows for other trainers: token for token what was played, and TRL's GRPO takes and trains on them."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from rolecraft.errors import UserError
from rolecraft.learning import export_rollouts, rollout_rows, word_tokenizer
from rolecraft.learning.credit import make_rule
from rolecraft.learning.policy import WordCodec, tiny_policy
from rolecraft.learning.trainer import TrainConfig, Trainer
from tests.learning.trainer.small_worlds import Pick, Say


def trainer(agents=("ann",), turns=1, group=2, episodes=8, **options):
    def make():
        return Say(agents, turns)

    codec = WordCodec([*agents, *" ".join(Pick.COLOURS).split(), "."])
    policy = tiny_policy(codec, hidden=16, heads=2, max_tokens=3, seed=1)
    return Trainer(make, policy, make_rule("grpo"), TrainConfig(episodes=episodes, group=group, **options), seed=4)


def played(made):
    starts = made.starts()
    return made.rows(made.collect(starts), starts)


def test_the_trl_form_holds_what_was_played():
    rows = played(trainer())
    found = rollout_rows(rows)
    assert set(found) == {"prompt_ids", "completion_ids", "logprobs", "env_mask", "reward", "group"}
    assert [tuple(ids) for ids in found["prompt_ids"]] == [row.prompt for row in rows.replies]
    assert [tuple(ids) for ids in found["completion_ids"]] == [row.tokens for row in rows.replies]
    for ids, logp, mask in zip(found["completion_ids"], found["logprobs"], found["env_mask"], strict=True):
        assert len(ids) == len(logp) == len(mask)
        assert set(mask) == {1}
    assert found["logprobs"][3] == rows.turns[3].notes["logp"]
    assert found["reward"] == rows.batch.row["outcome"].tolist()
    json.dumps(found)


def test_rows_of_a_group_stand_together():
    made = trainer(agents=("ann", "bob"), turns=2)
    rows = played(made)
    found = rollout_rows(rows)
    assert len(found["group"]) == len(rows.replies)
    changes = sum(one != other for one, other in zip(found["group"], found["group"][1:], strict=False))
    assert changes == len(set(found["group"])) - 1
    assert rollout_rows(rows, "verl")[0]["extra_fields"]["uid"] == found["group"][0]


def test_the_verl_form_has_the_fields_of_its_output():
    rows = played(trainer(agents=("ann", "bob")))
    found = rollout_rows(rows, "verl", reward=np.arange(len(rows.replies)))
    fields = {"prompt_ids", "response_ids", "response_mask", "response_logprobs", "reward_score", "num_turns"}
    assert set(found[0]) == fields | {"metrics", "extra_fields"}
    assert {each["extra_fields"]["agent"] for each in found} == {"ann", "bob"}
    by_tokens = {(tuple(r.prompt), tuple(r.tokens)): None for r in rows.replies}
    assert {(tuple(each["prompt_ids"]), tuple(each["response_ids"])) for each in found} == set(by_tokens)
    assert sorted(each["reward_score"] for each in found) == list(range(len(rows.replies)))


def test_tokens_that_could_not_be_otherwise_and_unknown_rewards_are_marked():
    from dataclasses import replace

    def make():
        return Pick()  # "light blue" is two tokens, of which the second is the only one possible

    policy = tiny_policy(WordCodec.of_world(make), hidden=16, heads=2, max_tokens=3, seed=1)
    made = Trainer(make, policy, make_rule("reinforce"), TrainConfig(episodes=32), seed=4)
    rows = played(made)
    assert {tuple(mask) for mask in rollout_rows(rows)["env_mask"]} == {(1,), (1, 0)}
    known = np.arange(32) != 5
    unknown = replace(rows, batch=replace(rows.batch, valid=known))
    assert rollout_rows(unknown)["reward"].count(None) == 1


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
@pytest.mark.parametrize("form", ["trl", "verl"])
def test_files_can_be_read_again(tmp_path, form, suffix):
    rows = played(trainer())
    path = tmp_path / f"rows.{suffix}"
    assert export_rollouts(rows, path, form) == 8
    if suffix == "jsonl":
        found = [json.loads(line) for line in path.read_text().splitlines()]
    else:
        import pandas as pd

        found = pd.read_parquet(path).to_dict("records")
    assert [list(each["prompt_ids"]) for each in found] == [list(row.prompt) for row in rows.replies]


def test_bad_input(tmp_path):
    rows = played(trainer())
    with pytest.raises(UserError, match=r"expected trl or verl, got 'verk'.*verl"):
        rollout_rows(rows, "verk")
    with pytest.raises(UserError, match="score"):
        rollout_rows(rows, reward="score")
    with pytest.raises(UserError, match=r"\(8\), got shape \(2,\)"):
        rollout_rows(rows, reward=[1, 2])
    with pytest.raises(UserError, match=r"expected .jsonl or .parquet, got '.csv'"):
        export_rollouts(rows, tmp_path / "rows.csv")


@pytest.mark.filterwarnings("ignore")
def test_grpo_of_trl_trains_on_them(tmp_path):
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    made = trainer(episodes=8, group=4)
    policy = made.policies["policy"]
    before = {name: each.detach().clone() for name, each in policy.parameters().items()}
    seen = []

    def roll(prompts, trl_trainer):
        starts = made.starts()
        found = rollout_rows(made.rows(made.collect(starts), starts))
        made.iteration += 1
        assert len(found["prompt_ids"]) == len(prompts)
        return found

    def paid(completions, reward, **kwargs):
        seen.append((list(reward), list(completions)))
        return reward

    arguments = GRPOConfig(
        str(tmp_path), per_device_train_batch_size=8, num_generations=4, max_completion_length=3, max_steps=3, beta=0.0,
        learning_rate=0.01, gradient_checkpointing=False, bf16=False, use_cpu=True, save_strategy="no",
        report_to="none", disable_tqdm=True, dataloader_pin_memory=False, logging_steps=1,
    )  # fmt: skip
    data = Dataset.from_dict({"prompt": ["<begin> ann <split> red . <split>"] * 6})
    with torch.random.fork_rng():
        theirs = GRPOTrainer(
            policy.network.model,
            paid,
            arguments,
            data,
            processing_class=word_tokenizer(policy.codec),
            rollout_func=roll,
        )  # fmt: skip
        theirs.train()
    assert len(seen) == 3
    rewards, said = seen[0]
    assert any(rewards) == any("red" in text.split() for text in said)
    logged = [each for each in theirs.state.log_history if "reward" in each]
    assert logged[0]["reward"] == pytest.approx(np.mean(rewards))
    after = policy.parameters()
    assert any(not torch.equal(before[name], after[name]) for name in before)
