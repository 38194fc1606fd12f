"""Batches: identity terms swapped; every row once, among rows of its length, with its labels."""

import math
from unittest import mock

import kernel
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

NAN = float("nan")


def make_data(lengths, batch_size, **changed):
    """Comments of the given lengths; each token tells its row: 2 + row, 2 + row + 1, …"""
    lengths, size = np.array(lengths), len(lengths)
    offsets = np.append(0, np.cumsum(lengths))
    row = np.arange(size, dtype=np.float32)
    unless_given = {
        "tokens": np.concatenate([2 + n + np.arange(length) for n, length in enumerate(lengths)]),
        "offsets": offsets,
        "identity_terms": [],
        "rows": np.arange(size),
        "surplus": np.zeros(size, bool),
        "weights": row + 100,
        "toxicity": np.column_stack([row, row + 0.5]),
        "subtypes": np.column_stack([row + 0.25] * 6),
        "batch_size": batch_size,
    }
    return kernel.TrainingData(**unless_given | changed)


def generator(seed=0):
    return np.random.default_rng(seed)


def lengths_like_comments(rows):
    """Lengths as those of the competition's comments: median 36, mean 50, at most 220."""
    return generator(1).lognormal(math.log(36), 0.9, rows).astype(int).clip(1, 220)


LENGTHS = st.lists(st.integers(1, 9), min_size=1, max_size=60)


@settings(max_examples=60)
@given(lengths=LENGTHS, data=st.data())
def test_padded_comments_are_their_words_and_nothing_but_zeros_behind_them(lengths, data):
    comments, rows = make_data(lengths, 1), st.sampled_from(range(len(lengths)))
    chosen = np.array(data.draw(st.lists(rows, min_size=1)))
    padded = kernel.pad(comments.tokens.astype(np.int32), comments.offsets, chosen)
    longest = max(lengths[row] for row in chosen)
    assert padded.dtype == np.int32
    for row, tokens in zip(chosen.tolist(), padded.tolist(), strict=True):
        words = [2 + row + place for place in range(lengths[row])]
        assert tokens == words + [0] * (longest - lengths[row])


@settings(max_examples=60)
@given(
    lengths=LENGTHS, pool=st.sampled_from([1, 3, 50]), batch_size=st.integers(1, 8), data=st.data()
)
def test_an_epoch_holds_each_row_once_with_its_own_labels(lengths, pool, batch_size, data):
    rows = st.lists(st.sampled_from(range(len(lengths))), min_size=1, unique=True)
    rows = np.array(data.draw(rows))
    comments = make_data(lengths, batch_size, rows=rows)
    with mock.patch.object(kernel, "POOL", pool):
        for seed in range(2):
            seen = []
            for tokens, toxicity, subtypes, weights in comments.epoch(generator(seed)):
                row = tokens[:, 0] - 2.0  # the first token tells the row
                assert (toxicity == np.column_stack([row, row + 0.5])).all()
                assert (subtypes == row[:, None] + 0.25).all() and (weights == row + 100).all()
                assert len(row) <= batch_size
                seen += row.tolist()
            assert sorted(seen) == sorted(rows)


@settings(max_examples=100)
@given(rows=st.integers(1, 5000), batch_size=st.integers(1, 8))
@example(rows=401, batch_size=8)
@example(rows=9, batch_size=8)
def test_batches_are_almost_equal_in_size(rows, batch_size):
    """Every step moves the weights alike, so a row alone would count as much as a whole batch."""
    batches = make_data([1] * rows, batch_size).draw_batches(generator())
    assert min(map(len, batches)) >= min(rows, batch_size) / 2


STEPS = [(1, 32), (9_600, 32), (19_199, 32), (19_200, 64), (57_000, 128), (153_600, 512)]


@pytest.mark.parametrize("rows, batch_size", [*STEPS, (10**7, 512)])
def test_batch_size_gives_an_epoch_300_steps_and_more(rows, batch_size):
    assert kernel.batch_size_for(rows) == batch_size


@pytest.mark.parametrize(
    "lengths, batch_size, longest",
    [([4], 8, [4]), ([4, 2, 3], 8, [4]), ([5] * 6, 2, [5] * 3), ([1, 9, 1, 9], 2, [1, 9])],
)
def test_a_batch_is_as_long_as_its_longest_comment(lengths, batch_size, longest):
    batches = make_data(lengths, batch_size).epoch(generator())
    assert sorted(tokens.shape[1] for tokens, *_ in batches) == longest
    in_order = kernel.split_by_length(np.arange(len(lengths)), np.array(lengths), batch_size)
    assert [max(np.array(lengths)[rows]) for rows in in_order] == longest


def test_the_generator_decides_the_order_and_each_epoch_has_its_own():
    def two_epochs(seed):
        shared, comments = generator(seed), make_data(lengths_like_comments(500), 16)
        return [np.concatenate(comments.draw_batches(shared)).tolist() for _ in range(2)]

    first, second = two_epochs(1)
    assert first != second and two_epochs(1) == [first, second] and two_epochs(2)[0] != first


def test_batches_come_in_no_order_of_length():
    comments = make_data(lengths_like_comments(20_000), 64)
    lengths = np.diff(comments.offsets)
    longest = [lengths[rows].max() for rows in comments.draw_batches(generator())]
    assert abs(np.corrcoef(longest, range(len(longest)))[0, 1]) < 0.2


@settings(max_examples=60)
@given(surplus=st.lists(st.booleans(), min_size=1, max_size=60), unlabelled=st.integers(0, 40))
def test_an_epoch_draws_two_surplus_and_half_an_unlabelled_row_for_each_other(surplus, unlabelled):
    """At most; and each of them has its turn."""
    surplus = np.array([False, *surplus] + [False] * unlabelled)  # one row at least is none
    rows, extra = np.split(np.arange(len(surplus)), [len(surplus) - unlabelled])
    comments = make_data(np.ones(len(surplus), int), 8, rows=rows, surplus=surplus)
    comments.unlabelled_rows = extra
    shared, drawn, labelled = generator(), set(), {*rows[~surplus[rows]]}
    most = min(surplus.sum(), 2 * len(labelled))
    for _ in range(60):
        epoch = comments.draw_rows(shared)
        assert len({*epoch}) == len(epoch) and labelled <= {*epoch}
        assert surplus[epoch].sum() == most
        assert len({*epoch} & {*extra}) == min(unlabelled, (len(labelled) + most) // 2)
        drawn |= {*epoch}
    assert drawn == {*range(len(surplus))} or len(surplus) > 4 * len(labelled)


WORDS = ["the", "muslim", "Gay", "idiot", "gay", "Muslims", "women", "person", "GAY"]  # from 1
NUMBERS = {word: number for number, word in enumerate(WORDS, 1)}
SWAPPED_WITH = {2: (2, 3), 3: (2, 3), 5: (2, 3), 9: (2, 3), 6: (6, 7), 7: (6, 7)}


@pytest.fixture(scope="module")
def identity_terms():
    lists = [["gay", "muslim", "jewish"], ["muslims", "women", "men"]]
    with mock.patch.object(kernel, "LISTED_TERMS", lists):
        return kernel.number_identity_terms(NUMBERS)


def test_identity_terms_are_found_in_all_spellings_and_drawn_in_the_most_frequent(identity_terms):
    found = [(np.flatnonzero(is_term).tolist(), sorted(drawn)) for is_term, drawn in identity_terms]
    assert found == [([2, 3, 5, 9], [2, 3]), ([6, 7], [6, 7])]


def test_terms_may_be_listed_with_capitals():
    """As German nouns are written."""
    cells = ("".join(cell["source"]) for cell in kernel.CELLS)
    lists, names = next(cell for cell in cells if "\nLISTED_TERMS = " in cell), vars(kernel) | {}
    exec(lists.replace('("man male boy", "men males boys")', '("Mann", "Männer")'), names)
    assert "mann" in names["LISTED_TERMS"][0] and "männer" in names["LISTED_TERMS"][1]


def test_identity_terms_stand_once_and_in_one_list():
    terms = [term for terms in kernel.LISTED_TERMS for term in terms]
    assert len(set(terms)) == len(terms) and all(term == term.lower() for term in terms)


@settings(max_examples=60)
@given(comments=st.lists(st.integers(0, 10), min_size=1, max_size=30), seed=st.integers(0, 100))
def test_a_swap_keeps_to_the_list_and_leaves_all_other_words(identity_terms, comments, seed):
    tokens = np.array([comments], np.int32)
    before = tokens.copy()
    swapped = kernel.swap_identity_terms(tokens, identity_terms, generator(seed))
    assert np.array_equal(tokens, before) and swapped.dtype == np.int32
    for old, new in zip(tokens[0].tolist(), swapped[0].tolist(), strict=True):
        assert new in SWAPPED_WITH.get(old, (old,))


@pytest.mark.parametrize("lists", [[], [[], []], [["jude", "frau"], ["juden", "frauen"]]])
def test_without_identity_terms_nothing_is_swapped(lists):
    with mock.patch.object(kernel, "LISTED_TERMS", lists):
        terms = kernel.number_identity_terms(NUMBERS)
    tokens = np.arange(11, dtype=np.int32)[None]
    assert np.array_equal(kernel.swap_identity_terms(tokens, terms, generator()), tokens)


def words_and_labels(comments, generator):
    """Of comments of one word each: the word and whether it is toxic, by row, (2000, 2)."""
    words = np.empty((2000, 2))
    for tokens, toxicity, _, weights in comments.epoch(generator):
        words[weights.astype(int)] = np.column_stack([tokens, toxicity])
    return words


def test_in_training_no_identity_is_more_of_a_sign_of_toxicity_than_another(identity_terms):
    """Of comments of one word: all about gays are toxic, all about Muslims harmless."""
    comments = make_data([1] * 2000, 64, identity_terms=identity_terms)
    comments.tokens = np.tile([3, 2], 1000).astype(np.int32)
    comments.toxicity = np.tile([[1.0], [0.0]], (1000, 1))
    comments.weights = np.arange(2000)
    shared = generator(1)
    (words, toxic), (again, _) = (words_and_labels(comments, shared).T for _ in range(2))
    assert [toxic[words == word].mean() for word in (2, 3)] == pytest.approx([0.5, 0.5], abs=0.06)
    assert 0.4 < (words != again).mean() < 0.6, "terms are swapped anew in each epoch"
    words = words.reshape(-1, 50)
    assert len(np.unique(words, axis=0)) == len(words), "and each batch draws its own"


def test_little_padding():
    comments = make_data(lengths_like_comments(60_000), 256)
    lengths = np.diff(comments.offsets)
    in_order = kernel.split_by_length(comments.rows, lengths, 256)
    for batches, most in ((in_order, 0.02), (comments.draw_batches(generator()), 0.05)):
        computed = sum(lengths[rows].max() * len(rows) for rows in batches)
        assert 1 - lengths.sum() / computed < most
    assert 1 - lengths.mean() / lengths.max() > 0.7  # with all rows padded alike


def test_sample_weights():
    weights = kernel.sample_weights(np.float32([4, 98, 1, NAN]))
    assert weights.mean() == pytest.approx(1) and weights.dtype == np.float32
    expected = [math.log(6) / math.log(3), math.log(100) / math.log(3), 1, 1]
    assert weights / weights[2] == pytest.approx(expected)
