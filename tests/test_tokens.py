"""Section 5, Tokens: how comments are cut, and the numbers and offsets that stand for them."""

from collections import Counter
from itertools import chain, groupby
from unittest import mock

import kernel
import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

PIECES = ["don't", "N’T", "!", "aaa", "_", "a", "B", "&amp;", "&#39;s", "http://a.b", "www.", "\0", "é", "\u0301", "😀"]
WRITTEN = st.lists(st.sampled_from([*PIECES, " ", " ", "\n"]), max_size=12).map("".join)
COMMENTS = st.lists(WRITTEN | st.text(max_size=8))
ROWS = st.lists(st.lists(st.integers(0, 2), max_size=12), min_size=1, max_size=8)
checked = settings(max_examples=100, deadline=None)


def flat(rows):
    """Numbers and offsets of a list of lists."""
    lengths = np.array([len(row) for row in rows])
    return np.array([*chain(*rows)], np.int32), np.append(0, np.cumsum(lengths))


def nested(numbers, offsets):
    """The list of lists that numbers and offsets stand for."""
    assert offsets[0] == 0 and offsets[-1] == len(numbers)
    return [numbers[start:end].tolist() for start, end in zip(offsets[:-1], offsets[1:], strict=True)]


def cut(comment):
    *tokens, end = kernel.cut([comment])
    assert end == kernel.END and kernel.END not in tokens
    return tokens


def without_repeats(row):
    return [token for _, run in groupby(row) for token in [*run][:3]]


def head_and_tail(row, max_tokens):
    tail = max_tokens // 4
    return row if len(row) <= max_tokens else row[: max_tokens - tail] + row[-tail:]


def shortened(row, max_tokens):
    return head_and_tail(without_repeats(row), max_tokens)


@pytest.mark.parametrize(
    "comment, tokens",
    [
        # contractions, as GloVe's tokeniser splits them
        ("don't", "do n't"),
        ("CAN'T", "CA N'T"),
        ("I'm she's we're they've he'll you'd", "I 'm she 's we 're they 've he 'll you 'd"),
        ("IT'S", "IT 'S"),
        ("isn’t it’s", "is n't it 's"),
        ("isn‘t isn`t isn´t", "is n't is n't is n't"),
        ("isn`t", "is n't"),
        ("I'd've", "I 'd 've"),
        ("'sure' 'real'", "' sure ' ' real '"),
        ("“so”", '" so "'),
        # symbols
        ("Well,this...(yes!)", "Well , this . . . ( yes ! )"),
        ("$5.00 a well-known 50%", "$ 5 . 00 a well - known 50 %"),
        ("snake_case __init__", "snake _ case _ _ init _ _"),
        ("3rd B2B", "3rd B2B"),
        # emoji
        ("so funny😀😀ok", "so funny 😀 😀 ok"),
        ("I❤️it", "I ❤ it"),
        # html entities
        ("Tom &amp; Jerry &lt;3", "Tom & Jerry < 3"),
        ("don&#39;t&nbsp;say &quot;no&quot;", 'do n\'t say " no "'),
        # web addresses
        ("see https://example.org/a/b?c=d_e now", "see https now"),
        ("(http://example.org)", "( http"),
        ("HTTPS://example.org", "HTTPS"),
        ("http: is no address: //", "http : is no address : / /"),
        # invisible characters
        ("ig\u200bnore\ufeff soft\u00adly \u200ethis", "ignore softly this"),
        ("no\u00a0break \t\r\n space", "no break space"),
        ("a\0b\0", "a b"),
        # other languages and other ways to write the same
        ("Größe naïve señor", "Größe naïve señor"),
        ("cafe\u0301", "café"),
        ("Привет, мир! 日本語", "Привет , мир ! 日本語"),
        ("ｆｒｅｅ ﬁsh", "free fish"),
        # case stays, and nothing is no token
        ("So MUCH cAsE", "So MUCH cAsE"),
        ("", ""),
        (" \n\t\u200b", ""),
    ],
)
def test_cut(comment, tokens):
    assert cut(comment) == tokens.split()


@checked
@given(COMMENTS.filter(len), st.sampled_from([1, 2, 3, 10_000]))
@example(["a http:", "b", "", "", "\u0301c", "&", "amp;"], 10_000)
def test_rows_hold_the_tokens_of_their_comment(comments, chunk):
    with mock.patch.object(kernel, "CHUNK", chunk):
        numbers, offsets, words = kernel.tokenize(pd.Series(comments), max_tokens=8)
    rows = [cut(comment) for comment in comments]
    assert words == list(dict.fromkeys(chain(*rows)))  # in the order of their first appearance
    assert nested(numbers, offsets) == [[words.index(word) for word in shortened(row, 8)] for row in rows]
    assert numbers.dtype == np.int32 and offsets.dtype == np.int64


def test_rows_keep_their_order_whatever_the_index():
    numbers, offsets, words = kernel.tokenize(pd.Series(["a b", "b", "c"], index=[1, 0, 0]), 220)
    assert (nested(numbers, offsets), words) == ([[0, 1], [1], [2]], ["a", "b", "c"])


@checked
@given(ROWS)
@example([[0, 0, 0], [0, 0], [], [0, 0, 0, 0, 0], [0]])
def test_repeats_are_shortened_within_a_comment(rows):
    assert nested(*kernel.shorten_repeats(*flat(rows))) == [without_repeats(row) for row in rows]


@checked
@given(st.lists(st.integers(0, 30), min_size=1, max_size=8), st.integers(4, 12))
@example([4, 5, 4, 0, 9], 4)
def test_head_and_tail_are_kept(lengths, max_tokens):
    rows = [list(range(100 * row, 100 * row + length)) for row, length in enumerate(lengths)]
    kept = [head_and_tail(row, max_tokens) for row in rows]
    assert nested(*kernel.keep_head_and_tail(*flat(rows), max_tokens)) == kept


@checked
@given(st.lists(st.integers(0, 9), max_size=60))
def test_vocabulary_falls_in_frequency(numbers):
    words = list("jihgfedcba")
    count = Counter(words[number] for number in numbers)
    tokens = np.array(numbers, np.int32)
    vocabulary, counts = kernel.build_vocabulary(tokens, words)
    assert vocabulary == sorted(words, key=lambda word: -count[word])  # sorted() leaves ties in their order
    assert counts.tolist() == [count[word] for word in vocabulary]
    # 0 is padding, 1 the unknown word
    assert tokens.tolist() == [2 + vocabulary.index(words[number]) for number in numbers]


@checked
@given(st.lists(st.lists(st.integers(2, 9), max_size=3), min_size=1, max_size=8))
@example([[], [2], [], [], [3, 4], []])
@example([[], []])
def test_empty_comments_get_one_unknown_token(rows):
    tokens, offsets = kernel.fill_empty(*flat(rows))
    assert nested(tokens, offsets) == [row or [kernel.UNKNOWN] for row in rows]
    assert tokens.dtype == np.int32
