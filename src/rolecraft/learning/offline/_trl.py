"""Supervised and preference training of a policy through TRL's trainers, on the policy's own tokens."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rolecraft.errors import MissingDependencyError, ModelError, UserError

if TYPE_CHECKING:
    from rolecraft.learning.policy import Reply, TokenPolicy, WordCodec
    from rolecraft.learning.trainer import Rows

Figures = list[dict[str, float]]


@dataclass(frozen=True)
class Pair:
    """Two replies to one prompt, of which one is preferred."""

    chosen: Reply
    rejected: Reply
    margin: float = 1.0
    """By how much more the chosen one earned."""


def preference_pairs(rows: Rows, *, keys: Sequence[str] = ("task", "policy"), margin: float = 0.0) -> list[Pair]:
    """Pair the best with the worst reply to each prompt, by the mean outcome of the rows that gave it.

    Rows are compared where they agree in `keys` and have the same prompt; of a group of episodes from one start
    (`train.group`) that is at least the first decision. Rows whose reward is not known are left out.

    Args:
        rows: Of `Trainer.rows`.
        keys: Which rows may be compared.
        margin: A pair is kept where its outcomes differ by more than this.

    Returns:
        One pair at most per prompt, in the order of the prompts' first rows. Where outcomes tie, the reply that came
        first is taken.

    Raises:
        UserError: If `margin` is negative, or the rows lack a key.
    """
    if not margin >= 0:
        raise UserError(f"margin must be 0 or more, got {margin}.")
    groups, _ = rows.batch.group_index(keys, "preference_pairs")
    earned: dict[tuple[Any, ...], dict[tuple[int, ...], list[int]]] = {}
    for row in np.flatnonzero(rows.batch.known).tolist():
        reply = rows.replies[row]
        earned.setdefault((int(groups[row]), reply.prompt), {}).setdefault(reply.tokens, []).append(row)
    outcome = rows.batch.column("outcome", "preference_pairs")
    pairs = []
    for replies in earned.values():
        means = {found[0]: float(outcome[found].mean()) for found in replies.values()}
        best, worst = max(means, key=means.__getitem__), min(means, key=means.__getitem__)
        if means[best] - means[worst] > margin:
            pairs.append(Pair(rows.replies[best], rows.replies[worst], means[best] - means[worst]))
    return pairs


def sft(
    policy: TokenPolicy,
    rows: Sequence[Reply],
    *,
    epochs: float = 1,
    lr: float = 1e-3,
    batch: int = 64,
    seed: int = 0,
    **options: Any,
) -> Figures:
    """Fine-tune on replies with TRL's `SFTTrainer`; prompts are not trained.

    TRL compares a token with the whole vocabulary at temperature 1: options and the policy's temperature do not count
    here. Where they should, see `fit_replies`.

    Args:
        policy: Changed in place; a critic is left as it is.
        rows: Prompts with the replies to learn, the end included where a reply should end.
        epochs: Passes over the rows.
        lr: Learning rate at the start; it falls linearly unless options say otherwise.
        batch: Rows per step.
        seed: Of the order of the rows.
        options: More fields of TRL's `SFTConfig`.

    Returns:
        What TRL logs at each step, such as `loss`.

    Raises:
        UserError: If there is no row, one is empty, or TRL refuses an option.
        ModelError: If a loss is not finite.
        MissingDependencyError: If TRL is not installed.
    """
    _check(rows, "row")
    with _imports():
        from trl import SFTConfig, SFTTrainer  # type: ignore[attr-defined]
    columns = {
        "input_ids": [[*row.prompt, *row.tokens] for row in rows],
        "labels": [[-100] * len(row.prompt) + list(row.tokens) for row in rows],
    }
    given = {"max_length": None, **options}
    return _train(policy, SFTTrainer, SFTConfig, columns, given, epochs=epochs, lr=lr, batch=batch, seed=seed)


def dpo(
    policy: TokenPolicy,
    pairs: Sequence[Pair],
    *,
    beta: float = 0.1,
    epochs: float = 1,
    lr: float = 1e-4,
    batch: int = 32,
    seed: int = 0,
    **options: Any,
) -> Figures:
    """Prefer some replies to others with TRL's `DPOTrainer` (arXiv 2305.18290); the reference is the policy of now.

    Args:
        policy: Changed in place; as in `sft`, neither options nor temperature count.
        pairs: See `preference_pairs`.
        beta: How dear it is to leave the reference.
        epochs: Passes over the pairs.
        lr: Learning rate at the start.
        batch: Pairs per step.
        seed: Of the order of the pairs.
        options: More fields of TRL's `DPOConfig`, such as `loss_type`.

    Returns:
        What TRL logs at each step, such as `loss` and `rewards/margins`.

    Raises:
        UserError: As `sft`; also if the prompts of a pair differ.
        ModelError: As `sft`.
        MissingDependencyError: As `sft`.
    """
    for number, pair in enumerate(pairs):
        if pair.chosen.prompt != pair.rejected.prompt:
            raise UserError(f"pair {number}: its replies have different prompts; a pair is two replies to one prompt.")
    _check([reply for pair in pairs for reply in (pair.chosen, pair.rejected)], "reply")
    with _imports():
        from trl import DPOConfig, DPOTrainer  # type: ignore[attr-defined]
    columns = {
        "prompt_ids": [list(pair.chosen.prompt) for pair in pairs],
        "chosen_ids": [list(pair.chosen.tokens) for pair in pairs],
        "rejected_ids": [list(pair.rejected.tokens) for pair in pairs],
    }
    given = {"max_length": None, "beta": beta, "precompute_ref_log_probs": True, **options}
    return _train(policy, DPOTrainer, DPOConfig, columns, given, epochs=epochs, lr=lr, batch=batch, seed=seed)


def kto(
    policy: TokenPolicy,
    rows: Sequence[Reply],
    good: Sequence[bool],
    *,
    beta: float = 0.1,
    epochs: float = 1,
    lr: float = 1e-4,
    batch: int = 32,
    seed: int = 0,
    **options: Any,
) -> Figures:
    """Train on replies that are each good or bad with TRL's `KTOTrainer` (arXiv 2402.01306).

    The KL to the reference, which is the policy of now, is estimated from each batch's replies paired with the prompts
    that follow theirs, so rows stay in an order drawn from the seed.

    Args:
        policy: Changed in place; as in `sft`, neither options nor temperature count.
        rows: Prompts with replies.
        good: One per row.
        beta: How dear it is to leave the reference.
        epochs: Passes over the rows.
        lr: Learning rate at the start.
        batch: Rows per step, two or more.
        seed: Of the order of the rows.
        options: More fields of TRL's `KTOConfig`, such as `desirable_weight`.

    Returns:
        What TRL logs at each step.

    Raises:
        UserError: As `sft`; also if `good` has another length.
        ModelError: As `sft`.
        MissingDependencyError: As `sft`.
    """
    _check(rows, "row")
    if len(good) != len(rows) or batch < 2:
        raise UserError(f"kto wants a judgement per row and batches of 2 or more, got {len(good)} for {len(rows)} rows "
                        f"and batch {batch}.")  # fmt: skip
    with _imports():
        from trl import KTOConfig, KTOTrainer  # type: ignore[attr-defined]
    order = np.random.default_rng(seed).permutation(len(rows)).tolist()
    replies = [list(rows[row].tokens) for row in order]
    turned = [
        reply
        for at in range(0, len(order), batch)
        for reply in (replies[at : at + batch][-1:] + replies[at : at + batch][:-1])
    ]
    columns = {
        "prompt_ids": [list(rows[row].prompt) for row in order],
        "completion_ids": replies,
        "KL_completion_ids": turned,
        "label": [bool(good[row]) for row in order],
    }
    given = {"max_length": None, "beta": beta, "precompute_ref_log_probs": True, **options}
    return _train(policy, KTOTrainer, KTOConfig, columns, given, epochs=epochs, lr=lr, batch=batch, seed=seed)


def word_tokenizer(codec: WordCodec) -> Any:
    """Return the tokenizer of transformers that cuts text as a `WordCodec` does, for other programs.

    `<begin> ann <split> red . <split>` is a prompt as text; decoded tokens are joined by spaces.
    """
    with _imports():
        from tokenizers import Tokenizer, models, pre_tokenizers
        from transformers import PreTrainedTokenizerFast

    from rolecraft.learning.policy._codec import BEGIN, END, PAD, SPLIT, UNKNOWN

    numbers = {word: number for number, word in enumerate(codec.tokens)}
    made = Tokenizer(models.WordLevel(numbers, unk_token=UNKNOWN))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=made,
        bos_token=BEGIN,
        eos_token=END,
        pad_token=PAD,
        unk_token=UNKNOWN,
        additional_special_tokens=[SPLIT],
        clean_up_tokenization_spaces=False,
    )


def _stand_in(policy: TokenPolicy) -> Any:
    """Return a tokenizer that TRL may hold; only token ids reach TRL, so all that counts is padding and the end."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    config, end = policy.network.model.config, policy.codec.end
    pad = end if config.pad_token_id is None else config.pad_token_id
    numbers = {str(number): number for number in range(config.vocab_size)}
    made = Tokenizer(models.WordLevel(numbers, unk_token=str(pad)))
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=made, eos_token=str(end), pad_token=str(pad), unk_token=str(pad), padding_side="left"
    )


def _train(
    policy: TokenPolicy,
    trainer: Any,
    config: Any,
    columns: Mapping[str, Any],
    options: Mapping[str, Any],
    *,
    epochs: float,
    lr: float,
    batch: int,
    seed: int,
) -> Figures:
    from datasets import Dataset
    from transformers import PrinterCallback

    if not epochs > 0 or not lr > 0 or batch < 1:
        raise UserError(f"epochs and lr must be above 0 and batch at least 1, got {epochs}, {lr} and {batch}.")
    with tempfile.TemporaryDirectory() as folder, policy.active(), _restored(policy.network.model):
        fields = {
            "output_dir": folder,
            "num_train_epochs": epochs,
            "learning_rate": lr,
            "per_device_train_batch_size": batch,
            "seed": seed,
            "logging_steps": 1,
            "logging_first_step": True,
            "save_strategy": "no",
            "report_to": "none",
            "disable_tqdm": True,
            "gradient_checkpointing": False,
            "bf16": False,
            "use_cpu": policy.network.device.type == "cpu",
            "dataloader_pin_memory": False,
            **options,
        }
        try:
            arguments = config(**fields)
        except (TypeError, ValueError) as error:
            raise UserError(f"TRL refuses an option: {error}.") from None
        made = _taking_tokens(trainer)(
            model=policy.network.model,
            args=arguments,
            train_dataset=Dataset.from_dict(dict(columns)),
            processing_class=_stand_in(policy),
        )
        made.remove_callback(PrinterCallback)
        made.train()
        logged = [each for each in made.state.log_history if "loss" in each]
    for step, each in enumerate(logged):
        if not np.isfinite(each["loss"]) or not np.isfinite(each.get("grad_norm", 0.0)):
            raise ModelError(f"step {step}: the loss is {each['loss']}; lower lr, or look at the rows.")
    return [{name: float(value) for name, value in each.items()} for each in logged]


def _taking_tokens(trainer: Any) -> Any:
    """Return a TRL trainer that takes its data as they are: they are tokens already."""

    class Taking(trainer):  # type: ignore[misc]
        def _prepare_dataset(self, dataset: Any, *_: Any, **__: Any) -> Any:
            return dataset

    return Taking


@contextmanager
def _restored(model: Any) -> Iterator[None]:
    """Leave the model's own forward, its mode, its pad token and all global generators as they were."""
    import random
    import warnings

    import torch
    from datasets import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    own = model.__dict__.get("forward")
    config, training = model.config.pad_token_id, model.training
    generators = random.getstate(), np.random.get_state()  # noqa: NPY002
    quiet, silent = os.environ.get("TQDM_DISABLE"), are_progress_bars_disabled()
    os.environ["TQDM_DISABLE"] = "1"
    disable_progress_bars()
    try:
        with torch.random.fork_rng(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*is deprecated", category=FutureWarning)  # TRL's own fields
            yield
    finally:
        if own is None:
            model.__dict__.pop("forward", None)
        else:
            model.forward = own
        model.config.pad_token_id = config
        model.train(training)
        random.setstate(generators[0])
        np.random.set_state(generators[1])  # noqa: NPY002
        if not silent:
            enable_progress_bars()
        if quiet is None:
            del os.environ["TQDM_DISABLE"]
        else:
            os.environ["TQDM_DISABLE"] = quiet


@contextmanager
def _imports() -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise MissingDependencyError(f"this needs TRL ({error}): pip install 'rolecraft[train]'.") from None


def _check(rows: Sequence[Reply], what: str) -> None:
    if not rows:
        raise UserError(f"there is no {what} to learn from.")
    for number, row in enumerate(rows):
        if not row.prompt or not row.tokens:
            raise UserError(f"{what} {number} has no {'tokens' if row.prompt else 'prompt'}; leave it out.")
