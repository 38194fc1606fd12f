"""Batches: identity terms swapped; every row once, among rows of its length, with its labels."""

import math
from unittest import mock

import kernel
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st


def make_data(lengths, batch_size, **changed):
    """Comments of the given lengths; each token tells its row: 2 + row, 2 + row + 1, …"""
    row = np.arange(len(lengths), dtype=np.float32)
    words = [2 + number + np.arange(length) for number, length in enumerate(lengths)]
    unless_given = {
        "tokens": np.concatenate(words).astype(np.int32),
        "offsets": np.append(0, np.cumsum(lengths)),
        "identity_terms": [],
        "labels": np.column_stack([row + 1, row + 0.5]),
        "rows": np.arange(len(lengths)),
        "unlabelled_rows": [],
        "batch_size": batch_size,
    }
    return kernel.TrainingData(**unless_given | changed)


def generator(seed=0):
    return np.random.default_rng(seed)


def lengths_like_comments(rows):
    """Lengths as those of the competition's comments: median 36, mean 50, at most 220."""
    lengths = generator(1).lognormal(math.log(36), 0.9, rows)
    return lengths.astype(int).clip(1, 220)


LENGTHS = st.lists(st.integers(1, 9), min_size=1)


@given(lengths=LENGTHS, pool=st.sampled_from([1, 3, 50]), batch_size=st.integers(1, 8))
def test_an_epoch_holds_each_row_once_with_its_own_words_and_labels(lengths, pool, batch_size):
    """And with nothing but zeros behind its words, as many as the longest of the batch needs."""
    rows = np.arange(0, len(lengths), 2)
    comments = make_data(lengths, batch_size, rows=rows)
    seen = []
    with mock.patch.object(kernel, "POOL", pool):
        for tokens, labels in comments.epoch(generator()):
            row = tokens[:, 0] - 2  # the first token tells the row
            longest = max(lengths[number] for number in row)
            for number, found in zip(row, tokens.tolist(), strict=True):
                words = [2 + number + place for place in range(lengths[number])]
                assert found == words + [0] * (longest - len(words))
            assert tokens.dtype == np.int32
            assert np.array_equal(labels, np.column_stack([row + 1, row + 0.5]))
            assert len(row) <= batch_size
            seen += row.tolist()
    assert sorted(seen) == rows.tolist()


@given(rows=st.integers(1, 5000), batch_size=st.integers(1, 8))
@example(rows=401, batch_size=8)
@example(rows=9, batch_size=8)
def test_batches_are_almost_equal_in_size(rows, batch_size):
    """Every step moves the weights alike, so a row alone would count as much as a whole batch."""
    batches = make_data([1] * rows, batch_size).draw_batches(generator())
    assert min(map(len, batches)) >= min(rows, batch_size) / 2


@given(st.integers(1, 10**7))
@example(19_199)
@example(19_200)
def test_the_largest_batch_that_gives_an_epoch_300_steps_and_more(rows):
    """Of 32 to 512."""
    size = kernel.batch_size_for(rows)
    assert size in (32, 64, 128, 256, 512)
    assert size == 32 or rows >= 300 * size
    assert size == 512 or rows < 600 * size


def test_the_generator_decides_the_order_and_each_epoch_has_its_own():
    comments = make_data(lengths_like_comments(500), 16)

    def epoch(generator):
        return np.concatenate(comments.draw_batches(generator)).tolist()

    shared = generator(1)
    again = generator(1)
    first = epoch(shared)
    assert epoch(again) == first
    assert epoch(generator(2)) != first
    assert epoch(shared) != first


def test_batches_are_of_similar_length_and_come_in_no_order_of_it():
    comments = make_data(lengths_like_comments(60_000), 256)
    lengths = np.diff(comments.offsets)

    def padding(batches):
        computed = sum(lengths[rows].max() * len(rows) for rows in batches)
        return 1 - lengths.sum() / computed

    assert padding(kernel.split_by_length(comments.rows, lengths, 256)) < 0.02
    batches = comments.draw_batches(generator())
    assert padding(batches) < 0.05
    longest = [lengths[rows].max() for rows in batches]
    correlation = np.corrcoef(longest[1:], longest[:-1])[0, 1]  # of neighbours
    assert abs(correlation) < 0.2


@given(surplus=st.lists(st.booleans(), min_size=1, max_size=60), unlabelled=st.integers(0, 40))
@example([False] * 3 + [True] * 9, 0)
def test_an_epoch_draws_two_surplus_and_half_an_unlabelled_row_for_each_other(surplus, unlabelled):
    """At most; and each of them has its turn."""
    surplus = [False, *surplus]  # one row at least is none
    lengths = [1] * (len(surplus) + unlabelled)
    rows, extra = np.split(np.arange(len(lengths)), [len(surplus)])
    comments = make_data(lengths, 8, rows=rows, unlabelled_rows=[extra])
    comments.labels[rows, 0] = ~np.array(surplus)
    wanted = {*rows[comments.labels[rows, 0] > 0]}
    most = min(sum(surplus), 2 * len(wanted))
    shared = generator()
    drawn = set()
    for _ in range(60):
        rows_of_epoch = comments.draw_rows(shared)
        epoch = {*rows_of_epoch}
        assert len(epoch) == len(rows_of_epoch)
        assert wanted <= epoch
        assert (comments.labels[rows_of_epoch, 0] == 0).sum() == most
        of_others = (len(wanted) + most) // 2
        assert len(epoch & {*extra}) == min(unlabelled, of_others)
        drawn |= epoch
    assert drawn == {*rows, *extra} or len(lengths) > 4 * len(wanted)


WORDS = ["the", "muslim", "Gay", "idiot", "gay", "Muslims", "women", "person", "GAY"]  # from 1
NUMBERS = {word: number for number, word in enumerate(WORDS, 1)}


def terms_of(*lists):
    with mock.patch.object(kernel, "LISTED_TERMS", lists):
        return kernel.number_identity_terms(NUMBERS)


TERMS = terms_of(["gay", "muslim", "jewish"], ["muslims", "women", "men"])


def test_identity_terms_stand_once_and_in_one_list():
    terms = [term for terms in kernel.LISTED_TERMS for term in terms]
    assert len(set(terms)) == len(terms)


@given(comments=st.lists(st.integers(0, 10), min_size=1))
def test_a_swap_keeps_to_the_list_and_leaves_all_other_words(comments):
    """A term is found in all spellings, and replaced by the most frequent one of another."""
    tokens = np.array([comments], np.int32)
    swapped = kernel.swap_identity_terms(tokens, TERMS, generator())
    assert tokens.tolist() == [comments]
    assert swapped.dtype == np.int32
    for old, new in zip(comments, swapped[0], strict=True):
        if old in (2, 3, 5, 9):
            assert new in (2, 3)
        elif old in (6, 7):
            assert new in (6, 7)
        else:
            assert new == old


def test_without_identity_terms_nothing_is_swapped():
    """Where there are none, and where none occurs."""
    tokens = np.arange(11, dtype=np.int32)[None]
    swapped = kernel.swap_identity_terms(tokens, terms_of([], ["jude", "frau"]), generator())
    assert np.array_equal(swapped, tokens)


def test_in_training_no_identity_is_more_of_a_sign_of_toxicity_than_another():
    """Of comments of one word: all about gays are toxic, all about Muslims harmless."""
    rows = np.arange(2000)
    comments = make_data([1] * 2000, 64, identity_terms=TERMS)
    comments.tokens = np.where(rows % 2, 2, 3)
    shared, epochs, of_batches = generator(1), np.empty((2, 2000)), []
    for words in epochs:
        for tokens, labels in comments.epoch(shared):
            words[labels[:, 0].astype(int) - 1] = tokens[:, 0]
            of_batches.append(tokens[:50, 0])
    is_muslim, again = epochs == 2
    for other in rows % 2, again:  # terms are swapped anew in each epoch
        assert 0.45 < (is_muslim == other).mean() < 0.55
    assert len(np.unique(of_batches, axis=0)) == len(of_batches), "and each batch draws its own"


def test_sample_weights():
    weights = kernel.sample_weights(np.float32([4, 98, 1, np.nan]))
    raters = np.log([6, 100, 3, 3])
    assert weights == pytest.approx(raters / raters.mean())
    assert weights.dtype == np.float32
