"""BLEU and ROUGE of one pair: hand-computed cases, a slow reference, bad input."""

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolecraft.errors import UserError
from rolecraft.measures import bleu, overlap_tokens, rouge_l, rouge_n, text_overlap, token_overlap

SAID = ["the", "cat", "sat", "on", "the", "mat"]
WANTED = ["the", "cat", "is", "on", "the", "mat"]
tokens = st.lists(st.sampled_from("abc"), max_size=8)
some = st.lists(st.sampled_from("abc"), min_size=1, max_size=8)


def test_hand_computed_figures():
    assert bleu(SAID, WANTED, 1) == pytest.approx(5 / 6)
    # bigrams: 3 of 5, smoothed (3 + 1) / (5 + 1); trigrams: 1 of 4, (1 + 1) / (4 + 1); 4-grams: 0 of 3, 1 / 4
    assert bleu(SAID, WANTED, 2) == pytest.approx(math.sqrt(5 / 6 * 4 / 6))
    assert bleu(SAID, WANTED, 3) == pytest.approx((5 / 6 * 4 / 6 * 2 / 5) ** (1 / 3))
    assert bleu(SAID, WANTED, 4) == pytest.approx((5 / 6 * 4 / 6 * 2 / 5 * 1 / 4) ** (1 / 4))
    assert rouge_n(SAID, WANTED, 1) == pytest.approx(5 / 6)
    assert rouge_n(SAID, WANTED, 2) == pytest.approx(3 / 5)
    assert rouge_l(SAID, WANTED) == pytest.approx(5 / 6)


def test_short_replies_pay_brevity_and_repeated_words_are_clipped():
    assert bleu(["the", "cat"], WANTED, 1) == pytest.approx(math.exp(1 - 6 / 2))
    assert bleu(["the"] * 6, WANTED, 1) == pytest.approx(2 / 6)
    assert bleu(WANTED + ["x"] * 6, WANTED, 1) == pytest.approx(0.5)  # longer: no penalty, lower precision
    assert rouge_l(list("cba"), list("abc")) == pytest.approx(1 / 3)
    assert rouge_n(["the"], WANTED, 1) == pytest.approx(2 / 7)


def test_a_reply_shorter_than_the_order_scores_nothing_and_says_so():
    found = text_overlap("Aye, north.", "Aye, north.")
    assert (found.bleu1, found.bleu2, found.bleu3, found.bleu4, found.rouge2) == (1, 1, 0, 0, 1)
    assert found.notes == ("bleu3 is 0: the reply has 2 tokens", "bleu4 is 0: the reply has 2 tokens")
    empty = text_overlap("...", "Aye.")
    assert set(empty.scores().values()) == {0}
    assert len(empty.notes) == 5
    assert text_overlap("one two", "one").notes[-1] == "rouge2 is 0: the reference has 1 tokens"


def test_an_empty_reference_is_an_error():
    for call in (lambda: text_overlap("a", " ... "), lambda: bleu(["a"], []), lambda: rouge_n(["a"], []),
                 lambda: rouge_l(["a"], [])):  # fmt: skip
        with pytest.raises(UserError, match="the reference is empty"):
            call()
    with pytest.raises(UserError, match="order of BLEU must be at least 1, got 0"):
        bleu(SAID, WANTED, 0)
    with pytest.raises(UserError, match="order of ROUGE must be at least 1, got 0"):
        rouge_n(SAID, WANTED, 0)


def test_case_and_punctuation_do_not_count_and_chinese_is_cut_into_characters():
    assert overlap_tokens("The Cat's, mat!") == ("the", "cat's", "mat")
    assert overlap_tokens("我爱Tea三", "zh") == ("我", "爱", "tea", "三")
    assert overlap_tokens("我爱茶") == ("我爱茶",)
    assert text_overlap("我爱茶", "我爱水", "zh").rouge1 == pytest.approx(2 / 3)
    with pytest.raises(UserError, match=r"language 'de' is unknown \(known: en, zh\)"):
        overlap_tokens("a", "de")


def slow_bleu(said, wanted, order):
    """The formula, n-gram by n-gram."""
    if len(said) < order:
        return 0.0
    product = 1.0
    for n in range(1, order + 1):
        grams = [tuple(said[i : i + n]) for i in range(len(said) - n + 1)]
        left = [tuple(wanted[i : i + n]) for i in range(len(wanted) - n + 1)]
        hits = 0
        for gram in grams:
            if gram in left:
                left.remove(gram)
                hits += 1
        product *= hits / len(grams) if n == 1 else (hits + 1) / (len(grams) + 1)
    brevity = 1.0 if len(said) >= len(wanted) else math.exp(1 - len(wanted) / len(said))
    return brevity * product ** (1 / order)


def slow_common(a, b):
    """The table of the textbook."""
    rows = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, x in enumerate(a, 1):
        for j, y in enumerate(b, 1):
            rows[i][j] = rows[i - 1][j - 1] + 1 if x == y else max(rows[i - 1][j], rows[i][j - 1])
    return rows[-1][-1]


@given(tokens, some)
def test_the_figures_equal_a_slow_reference(said, wanted):
    found = token_overlap(said, wanted)
    for n in range(1, 5):
        assert getattr(found, f"bleu{n}") == pytest.approx(slow_bleu(said, wanted, n), abs=1e-12)
        assert bleu(said, wanted, n) == getattr(found, f"bleu{n}")
    assert found.rouge_l == pytest.approx(2 * slow_common(said, wanted) / (len(said) + len(wanted)))
    assert found.rouge1 == pytest.approx(2 * (Counter(said) & Counter(wanted)).total() / (len(said) + len(wanted)))
    assert found.rouge2 == rouge_n(said, wanted, 2) == rouge_n(wanted, said, 2) if said else True
    assert all(0 <= value <= 1 for value in found.scores().values())


@given(st.lists(st.sampled_from("abc"), min_size=4, max_size=8))
def test_a_reply_equal_to_the_reference_is_perfect_and_a_strange_one_worthless(wanted):
    assert list(token_overlap(wanted, wanted).scores().values()) == pytest.approx([1] * 7)
    assert set(token_overlap(["x"] * len(wanted), wanted).scores().values()) == {0}


def test_bleu_equals_nltk():
    translate = pytest.importorskip("nltk.translate.bleu_score")
    smooth = translate.SmoothingFunction().method2
    for said in (SAID, WANTED, ["on", "the", "mat", "the", "cat", "is"], ["the", "cat", "is", "on", "a", "red", "mat"]):
        for n in range(1, 5):
            theirs = translate.sentence_bleu([WANTED], said, [1 / n] * n, smoothing_function=smooth)
            assert bleu(said, WANTED, n) == pytest.approx(theirs)
