"""Batches: identity terms swapped; every row once, among rows of its length, with its own labels."""

import itertools
import math
from unittest import mock

import kernel
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

SEEDS = [None, 3]  # sorted, shuffled
NAN = float("nan")


def make_batches(lengths, batch_size, seed=None, rows=None, **arguments):
    """Batches of comments of the given lengths; each token tells its row: 2 + row, 2 + row + 1, …"""
    offsets, size = np.append(0, np.cumsum(lengths)), len(lengths)
    tokens = np.array([2 + row + place for row, length in enumerate(lengths) for place in range(length)], np.int32)
    unless_given = {"weights": np.ones(size, np.float32), "surplus": np.zeros(size, bool), "labels": {}}
    rows = np.arange(size) if rows is None else rows
    return kernel.Batches(tokens, offsets, rows, batch_size, seed=seed, **unless_given | arguments)


def lengths_like_comments(rows):
    """Lengths as those of the competition's comments: median 36, mean 50, at most 220."""
    return np.random.default_rng(1).lognormal(math.log(36), 0.9, rows).astype(int).clip(1, 220)


@pytest.mark.parametrize("seed", SEEDS)
@settings(max_examples=60, deadline=None)
@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=60), data=st.data())
def test_epoch_holds_each_row_once(seed, lengths, data):
    rows = np.array(data.draw(st.lists(st.sampled_from(range(len(lengths))), min_size=1, unique=True)))
    batch_size = data.draw(st.integers(1, 8))
    with mock.patch.object(kernel.Batches, "POOL", data.draw(st.sampled_from([1, 3, 50]))):
        check_epochs(make_batches(lengths, batch_size, seed, rows), lengths, batch_size, rows)


def check_epochs(batches, lengths, batch_size, rows):
    for _ in range(2):
        seen = []
        for index in range(len(batches)):
            padded = batches[index][0]
            batch_rows = (padded[:, 0] - 2).tolist()  # the first token tells the row
            longest = max(lengths[row] for row in batch_rows)
            for row, tokens in zip(batch_rows, padded.tolist(), strict=True):
                assert tokens == [2 + row + place for place in range(lengths[row])] + [0] * (longest - lengths[row])
            assert len(batch_rows) <= batch_size and padded.dtype == np.int32
            seen += batch_rows
        assert sorted(seen) == sorted(rows)
        assert seen == batches.order.tolist()
        batches.draw()


@settings(max_examples=100, deadline=None)
@given(rows=st.integers(1, 5000), batch_size=st.integers(1, 8))
@example(rows=401, batch_size=8)
@example(rows=9, batch_size=8)
def test_batches_are_almost_equal_in_size(rows, batch_size):
    """Every step moves the weights alike, so a row alone in a batch would count as much as a whole batch."""
    sizes = [len(batch) for batch in make_batches([1] * rows, batch_size, seed=0).batches]
    assert min(sizes) >= min(rows, batch_size) / 2


@pytest.mark.parametrize(
    "rows, batch_size", [(1, 32), (9_600, 32), (19_199, 32), (19_200, 64), (57_000, 128), (153_600, 512), (10**7, 512)]
)
def test_batch_size_gives_an_epoch_300_steps_and_more(rows, batch_size):
    assert kernel.batch_size_for(rows) == batch_size


@pytest.mark.parametrize(
    "lengths, batch_size, shapes",
    [
        ([4], 8, [(1, 4)]),
        ([4, 2, 3], 8, [(3, 4)]),
        ([5] * 6, 2, [(2, 5)] * 3),
        ([1, 9, 1, 9], 2, [(2, 1), (2, 9)]),
    ],
)
@pytest.mark.parametrize("seed", SEEDS)
def test_shapes(lengths, batch_size, shapes, seed):
    batches = make_batches(lengths, batch_size, seed)
    assert sorted(batches[index][0].shape for index in range(len(batches))) == shapes


def test_seed_decides_the_order():
    def two_epochs(seed):
        batches = make_batches(lengths_like_comments(500), 16, seed)
        first = batches.order.tolist()
        batches.draw()
        return first, batches.order.tolist()

    first, second = two_epochs(1)
    assert first != second
    assert two_epochs(1) == (first, second)
    assert two_epochs(2)[0] != first
    sorted_first, sorted_second = two_epochs(None)
    assert sorted_first == sorted_second


def test_shuffled_batches_come_in_no_order_of_length():
    batches = make_batches(lengths_like_comments(20_000), 64, seed=0)
    longest = [batches.lengths[rows].max() for rows in batches.batches]
    assert abs(np.corrcoef(longest, range(len(longest)))[0, 1]) < 0.2


@settings(max_examples=60, deadline=None)
@given(surplus=st.lists(st.booleans(), min_size=1, max_size=60), batch_size=st.integers(1, 9), seed=st.integers(0, 9))
def test_an_epoch_draws_two_surplus_rows_for_each_other_one_at_most(surplus, batch_size, seed):
    surplus = np.array(surplus) & (np.arange(len(surplus)) > 0)  # one row at least is none
    batches = make_batches(np.arange(1, len(surplus) + 1), batch_size, seed, surplus=surplus)
    number_of_batches, drawn = len(batches), set()
    for _ in range(30):
        assert len(batches) == number_of_batches
        assert len(set(batches.order)) == len(batches.order)
        assert set(np.flatnonzero(~surplus)) <= set(batches.order)
        assert surplus[batches.order].sum() == min(surplus.sum(), 2 * (~surplus).sum())
        drawn |= set(batches.order)
        batches.draw()
    assert surplus.sum() > 4 * (~surplus).sum() or len(drawn) == len(surplus)  # each has its turn
    assert len(make_batches(np.arange(1, len(surplus) + 1), batch_size, None, surplus=surplus).order) == len(surplus)


@given(rows=st.integers(1, 30), extra=st.integers(0, 40), batch_size=st.integers(1, 9), seed=st.integers(0, 9))
def test_extra_rows_are_drawn_besides_half_as_many_at_most(rows, extra, batch_size, seed):
    extra_rows, drawn = np.arange(30, 30 + extra), set()
    batches = make_batches([3] * 70, batch_size, seed, np.arange(rows), extra=extra_rows)
    for _ in range(60):
        assert len(batches.order) == len(set(batches.order)) == rows + min(extra, rows // 2)
        assert set(range(rows)) <= set(batches.order) <= {*range(rows), *extra_rows}
        drawn |= set(batches.order)
        batches.draw()
    assert drawn == {*range(rows), *extra_rows} or rows // 2 < extra / 4  # each has its turn


def test_labels_and_weights_belong_to_their_rows():
    row = np.arange(40, dtype=np.float32)
    labels = {"one": row[:, None], "many": np.column_stack([row + 0.25, row + 0.5])}
    batches = make_batches(lengths_like_comments(40), 7, 3, labels=labels, weights=row + 100)
    for index in range(len(batches)):
        padded, batch_labels, batch_weights = batches[index]
        row = padded[:, 0] - 2.0  # the first token tells the row
        assert np.array_equal(batch_labels["one"], row[:, None])
        assert np.array_equal(batch_labels["many"], np.column_stack([row + 0.25, row + 0.5]))
        assert np.array_equal(batch_weights, row + 100)


WORDS = ["the", "muslim", "Gay", "idiot", "gay", "Muslims", "women", "person", "GAY"]  # numbered from 1
NUMBERS = {word: number for number, word in enumerate(WORDS, 1)}
SWAPPED_WITH = {2: (2, 3), 3: (2, 3), 5: (2, 3), 9: (2, 3), 6: (6, 7), 7: (6, 7)}


@pytest.fixture(scope="module")
def identity_terms():
    with mock.patch.object(kernel, "LISTED_TERMS", [["gay", "muslim", "jewish"], ["muslims", "women", "men"]]):
        return kernel.number_identity_terms(NUMBERS)


def test_identity_terms_are_found_in_all_spellings_and_drawn_in_the_most_frequent(identity_terms):
    found = [(np.flatnonzero(is_term).tolist(), sorted(drawn)) for is_term, drawn in identity_terms]
    assert found == [([2, 3, 5, 9], [2, 3]), ([6, 7], [6, 7])]


def test_terms_may_be_listed_with_capitals():
    """As German nouns are written."""
    lists = next("".join(c["source"]) for c in kernel.CELLS if "\nLISTED_TERMS = " in "".join(c["source"]))
    names = vars(kernel) | {}
    exec(lists.replace('("man male boy", "men males boys")', '("Mann", "Männer")'), names)
    assert "mann" in names["LISTED_TERMS"][0] and "männer" in names["LISTED_TERMS"][1]


def test_identity_terms_stand_once_and_in_one_list():
    terms = [term for terms in kernel.LISTED_TERMS for term in terms]
    assert len(set(terms)) == len(terms) and all(term == term.lower() for term in terms)


@settings(max_examples=60, deadline=None)
@given(comments=st.lists(st.integers(0, 10), min_size=1, max_size=30), seed=st.integers(0, 100))
def test_a_swap_keeps_to_the_list_and_leaves_all_other_words(identity_terms, comments, seed):
    tokens = np.array([comments], np.int32)
    before = tokens.copy()
    swapped = kernel.swap_identity_terms(tokens, identity_terms, np.random.default_rng(seed))
    assert np.array_equal(tokens, before) and swapped.dtype == np.int32
    for old, new in zip(tokens[0].tolist(), swapped[0].tolist(), strict=True):
        assert new in SWAPPED_WITH.get(old, (old,))


@pytest.mark.parametrize("lists", [[], [[], []], [["jude", "frau"], ["juden", "frauen"]]])
def test_without_identity_terms_nothing_is_swapped(lists):
    with mock.patch.object(kernel, "LISTED_TERMS", lists):
        terms = kernel.number_identity_terms(NUMBERS)
    tokens = np.arange(11, dtype=np.int32)[None]
    assert np.array_equal(kernel.swap_identity_terms(tokens, terms, np.random.default_rng(0)), tokens)


def gay_toxic_muslim_harmless(identity_terms, seed):
    """Batches of comments of one word: all about gays are toxic, all about Muslims harmless."""
    tokens, labels = np.tile([3, 2], 1000).astype(np.int32), {"toxicity": np.tile([[1.0], [0.0]], (1000, 1))}
    others = np.ones(2000, np.float32), np.zeros(2000, bool), identity_terms, seed, labels
    return kernel.Batches(tokens, np.arange(2001), np.arange(2000), 64, *others)


def words_and_labels(batches):
    read = [batches[index] for index in range(len(batches))]
    return np.concatenate([np.column_stack([padded, labels["toxicity"]]) for padded, labels, _ in read])


def test_in_training_no_identity_is_more_of_a_sign_of_toxicity_than_another(identity_terms):
    words, toxic = words_and_labels(gay_toxic_muslim_harmless(identity_terms, seed=1)).T
    assert [toxic[words == word].mean() for word in (2, 3)] == pytest.approx([0.5, 0.5], abs=0.06)


def test_terms_are_swapped_anew_with_each_draw_and_only_then(identity_terms):
    batches = gay_toxic_muslim_harmless(identity_terms, seed=1)
    first, again = words_and_labels(batches), words_and_labels(batches)
    assert np.array_equal(first, again)
    words_of_row = np.empty((2, 2000))
    words_of_row[0, batches.order] = first[:, 0]
    batches.draw()
    words_of_row[1, batches.order] = words_and_labels(batches)[:, 0]
    assert 0.4 < (words_of_row[0] != words_of_row[1]).mean() < 0.6


def test_each_batch_draws_its_own_replacements(identity_terms):
    """Of batches of the same comments; with one draw for all, a comment's words would depend on its place alone."""
    batches = gay_toxic_muslim_harmless(identity_terms, seed=1)
    read = [batches[number][0] for number in range(len(batches))]
    assert not any(np.array_equal(*pair) for pair in itertools.pairwise(read))


def test_to_predict_no_term_is_swapped(identity_terms):
    batches = gay_toxic_muslim_harmless(identity_terms, seed=None)
    assert np.array_equal(np.concatenate([batches[number][0][:, 0] for number in range(len(batches))]), batches.tokens)


@pytest.mark.parametrize("seed, most", [(None, 0.02), (3, 0.05)])
def test_little_padding(seed, most):
    lengths = lengths_like_comments(60_000)
    batches = make_batches(lengths, 256, seed)
    assert 1 - lengths.sum() / sum(lengths[rows].max() * len(rows) for rows in batches.batches) < most
    assert 1 - lengths.mean() / lengths.max() > 0.7  # with all rows padded alike


def test_sample_weights():
    weights = kernel.sample_weights(np.float32([4, 98, 1, NAN]))
    assert weights.mean() == pytest.approx(1) and weights.dtype == np.float32
    assert weights / weights[2] == pytest.approx([math.log(6) / math.log(3), math.log(100) / math.log(3), 1, 1])
