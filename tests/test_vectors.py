"""Vectors: word vectors from files, the look-up of a word, the numbers of words, and who learns a vector of its own."""

import itertools

import kernel
import numpy as np
import pytest


def write(path, *lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def read(path, *words, first=0):
    """What read_vectors gives of a file where these words are wanted, {word: list of numbers}."""
    vectors = kernel.read_vectors(path, {word.encode() for word in words}, first)
    assert {vector.dtype for vector in vectors.values()} == {np.dtype(np.float16)}
    return {word: vector.tolist() for word, vector in vectors.items()}


def vectors_of(files, words):
    """The vector of each word, float32 (words, width), from dicts {word: list of numbers}."""
    files = [
        {word: np.array(vector, np.float16) for word, vector in vectors.items()}
        for vectors in files
    ]
    embedding_matrix, scales = kernel.build_embedding_matrix(files, words)
    assert embedding_matrix.dtype == np.int8 and embedding_matrix.shape == (
        2 + len(words),
        len(scales),
    )
    assert not embedding_matrix[[0, -1]].any()  # padding, and all other words
    return embedding_matrix[1:-1] * scales.astype(np.float32)


@pytest.mark.parametrize("header", [(), ("3 2",), ("3 2 ",)])
@pytest.mark.parametrize("line_end", ["", " ", " \r"])
def test_header_and_line_ends(tmp_path, header, line_end):
    lines = [f"{line}{line_end}" for line in ("the 1 2", "café -0.5 3e-1", "3 5 6")]
    path = write(tmp_path / "words.vec", *header, *lines)
    expected = {
        "the": [1, 2],
        "café": [-0.5, np.float16(0.3)],
        "3": [5, 6],
    }  # a word, though the header begins with it
    assert read(path, "3", "café", "the") == expected


def test_of_a_file_the_wanted_words_and_the_first_ones_are_read(tmp_path):
    path = write(tmp_path / "words.vec", "4 2", "a 1 2", "b 3 4", "c 5 6", "d 7 8")
    assert list(read(path, "c", "e")) == ["c"]
    assert list(read(path, "c", "e", first=1)) == ["a", "c"]
    assert list(read(path, "c", "e", first=9)) == ["a", "b", "c", "d"]


def test_words_with_spaces_are_not_their_first_part(tmp_path):
    spaced = ". . . 9 9 9", "at name@domain.com 8 8 8"
    plain = ". 1 2 3", "at 4 5 6"
    for lines in ([*spaced, *plain], [*plain, *spaced]):
        assert read(write(tmp_path / "words.vec", "4 3", *lines), ".", "at") == {
            ".": [1, 2, 3],
            "at": [4, 5, 6],
        }


def test_first_of_two_lines_of_a_word_wins(tmp_path):
    assert read(write(tmp_path / "words.vec", "twice 1 2", "once 5 6", "twice 3 4"), "twice") == {
        "twice": [1, 2]
    }


def test_files_stand_side_by_side():
    wide, narrow = {"both": [1, 2, 3], "left": [4, 5, 6]}, {"right": [7, 8], "both": [9, 10]}
    expected = [[4, 5, 6, 0, 0], [1, 2, 3, 9, 10], [0, 0, 0, 0, 0], [0, 0, 0, 7, 8]]
    assert np.allclose(
        vectors_of([wide, narrow], ["left", "both", "neither", "right"]), expected, rtol=0.01
    )


def test_vectors_are_kept_to_half_a_scale_but_for_a_thousandth_of_each_column():
    vectors = np.random.default_rng(0).standard_t(3, (5_000, 4)).astype(np.float16) * [
        1,
        0.01,
        20,
        0,
    ]
    words = [f"w{number}" for number in range(len(vectors))]
    files = [dict(zip(words, vectors.astype(np.float16), strict=True))]
    embedding_matrix, scales = kernel.build_embedding_matrix(files, words)
    kept = embedding_matrix[1:-1] * scales.astype(np.float64)
    wrong = np.abs(kept - vectors) > 0.5 * scales + 2**-9 * np.abs(
        vectors
    )  # halves have eleven bits
    assert (wrong.mean(axis=0) <= 0.001).all()
    assert np.array_equal(np.abs(embedding_matrix[1:-1])[wrong], np.full(wrong.sum(), 127)), (
        "cut off at the same end"
    )
    assert np.array_equal(np.sign(kept[wrong]), np.sign(vectors[wrong]))
    assert (scales[:3] < np.abs(vectors).max(axis=0)[:3] / 127).all(), (
        "outliers cost the others no digits"
    )


SPELLINGS = [
    ("liBeral", "liBeral liberal Liberal LIBERAL"),
    ("Paris", "Paris paris PARIS"),
    ("nato", "nato Nato NATO"),
    ("SOOOO", "SOOOO soooo Soooo soo so"),
    ("ÉTÉ", "ÉTÉ été Été"),
    ("4711", "4711 0"),
]


@pytest.mark.parametrize("word, looked_up", SPELLINGS)
def test_order_of_look_up(word, looked_up):
    """In the vectors, and in the numbers of words."""
    forms = looked_up.split()
    for best in range(len(forms)):
        known = ["other", *forms[best:]]
        for in_order in (known, known[::-1]):
            vectors = {form: [1 + known.index(form), 1] for form in in_order}
            assert vectors_of([vectors], [word])[0] == pytest.approx([2, 1], rel=0.01)
            numbers = {form: number for number, form in enumerate(in_order, 1)}
            assert kernel.number_of(word, numbers) == numbers[forms[best]]


@pytest.mark.parametrize(
    "word, other", [("soooo", "sooo"), ("too", "to"), ("b2", "0"), ("1000", "10"), ("", "0")]
)
def test_no_look_up_under_another_word(word, other):
    assert not vectors_of([{other: [1, 2], "known": [3, 4]}], [word]).any()
    assert kernel.number_of(word, {other: 1, "known": 2}) == 3, (
        "the last number, which all unknown words share"
    )
    assert kernel.number_words([word], np.array([5]), {other}, set()) == {}


def test_words_share_a_number_by_their_best_spelling():
    words, counts = ["No", "NO", "nooo", "yes", "xyzzy", "YES"], np.array([1, 2, 3, 4, 100, 1])
    numbers = kernel.number_words(words, counts, {"no", "yes", "Yes", "unused"}, set())
    assert numbers == {"no": 1, "yes": 2}  # six times, five times
    assert [kernel.number_of(word, numbers) for word in words] == [1, 1, 1, 2, 3, 2]


def test_words_are_numbered_by_falling_frequency_and_each_number_has_a_word_of_its_own():
    letters = [*"abcdefghij"]
    counts = np.random.default_rng(1).permutation(10)
    numbers = kernel.number_words(
        letters, counts, set(letters), {"zoo", "it", "a", "two words", "don't"}
    )
    in_order = sorted(letters, key=lambda letter: -counts[letters.index(letter)])
    assert numbers == dict(zip([*in_order, "it", "zoo"], itertools.count(1))), (
        "and then those that can be tokens"
    )


def test_the_parts_of_the_notebook_agree_on_who_has_a_number():
    """Whichever spelling was counted or looked up: a word of the comments has the number of its vector."""
    words = [*"aA", "NOOO", "noo", "Paris", "PARIS", "7", "42", "rare", "often", ""]
    files = [
        {"a": [1.0], "no": [2.0], "paris": [3.0]},
        {"Paris": [4.0], "0": [5.0], "extra": [6.0]},
    ]
    numbers = kernel.number_words(words, np.arange(len(words)), {"often"}.union(*files), {"extra"})
    vectors = np.pad(vectors_of(files, numbers), [(1, 1), (0, 0)])  # row = number
    found = {word: vectors[kernel.number_of(word, numbers)] for word in words}
    expected = {
        "a": [1, 0],
        "A": [1, 0],
        "NOOO": [2, 0],
        "noo": [0, 0],
        "Paris": [3, 4],
        "PARIS": [3, 4],
    }
    expected |= {"7": [0, 5], "42": [0, 5], "rare": [0, 0], "often": [0, 0], "": [0, 0]}
    for word, vector in expected.items():
        assert found[word] == pytest.approx(vector, rel=0.01), word
    assert kernel.number_of("rare", numbers) == kernel.number_of("", numbers) == 1 + len(numbers)
    assert kernel.number_of("often", numbers) in numbers.values()
