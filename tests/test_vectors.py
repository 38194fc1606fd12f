"""Vectors: word vectors from files, the look-up of a word, and the numbers of words."""

import itertools

import kernel
import numpy as np
import pytest


def write(path, *lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def read(path, *words, first=0):
    """What read_vectors gives of a file where these words are wanted, {word: list of numbers}."""
    found = {}
    wanted = {word.encode() for word in words}
    for word, vector in kernel.read_vectors(path, wanted, first).items():
        assert vector.dtype == np.float16
        found[word] = vector.tolist()
    return found


def vectors_of(files, words):
    """The vector of each word, float32 (words, width), from dicts {word: list of numbers}."""
    files = [{word: np.float16(file[word]) for word in file} for file in files]
    embedding_matrix, scales = kernel.build_embedding_matrix(files, words)
    assert embedding_matrix.dtype == np.int8
    assert embedding_matrix.shape == (2 + len(words), len(scales))
    assert not embedding_matrix[[0, -1]].any()  # padding, and all other words
    return embedding_matrix[1:-1] * scales.astype(np.float32)


@pytest.mark.parametrize("header", [(), ("3 2",), ("3 2 ",)])
@pytest.mark.parametrize("line_end", ["", " ", " \r"])
def test_header_and_line_ends(tmp_path, header, line_end):
    lines = [f"{line}{line_end}" for line in ("the 1 2", "café -0.5 3e-1", "3 5 6")]
    path = write(tmp_path / "words.vec", *header, *lines)
    # 3 is a word, though the header begins with it
    expected = {"the": [1, 2], "café": [-0.5, np.float16(0.3)], "3": [5, 6]}
    assert read(path, "3", "café", "the") == expected


def test_of_a_file_the_wanted_words_and_the_first_ones_are_read(tmp_path):
    path = write(tmp_path / "words.vec", "4 2", "a 1 2", "b 3 4", "c 5 6", "d 7 8")
    assert "".join(read(path, "c", "e")) == "c"
    assert "".join(read(path, "c", "e", first=1)) == "ac"
    assert "".join(read(path, "c", "e", first=9)) == "abcd"


def test_words_with_spaces_are_not_their_first_part(tmp_path):
    spaced = [". . . 9 9 9", "at name@domain.com 8 8 8"]
    plain = [". 1 2 3", "at 4 5 6"]
    for lines in (spaced + plain, plain + spaced):
        path = write(tmp_path / "words.vec", "4 3", *lines)
        assert read(path, ".", "at") == {".": [1, 2, 3], "at": [4, 5, 6]}


def test_first_of_two_lines_of_a_word_wins(tmp_path):
    path = write(tmp_path / "words.vec", "twice 1 2", "once 5 6", "twice 3 4")
    assert read(path, "twice") == {"twice": [1, 2]}


def test_files_stand_side_by_side():
    wide = {
        "both": [1, 2, 3],
        "left": [4, 5, 6],
    }
    narrow = {
        "right": [7, 8],
        "both": [9, 10],
    }
    expected = {
        "left": [4, 5, 6, 0, 0],
        "both": [1, 2, 3, 9, 10],
        "neither": [0, 0, 0, 0, 0],
        "right": [0, 0, 0, 7, 8],
    }
    found = vectors_of([wide, narrow], list(expected))
    assert np.allclose(found, list(expected.values()), rtol=0.01)


def test_a_number_that_few_words_have_is_kept():
    """One of a thousand words: the scale of its column is its own, not that of the zeros."""
    vectors = {f"w{number}": np.array([0, 0.5], np.float16) for number in range(1_000)}
    vectors["w7"] = np.array([1, -0.5], np.float16)
    found = vectors_of([vectors], ["w7", "w8"])
    assert np.allclose(found, [[1, -0.5], [0, 0.5]], rtol=0.01)


def test_vectors_are_kept_to_half_a_scale_but_for_a_thousandth_of_each_column():
    vectors = np.random.default_rng(0).standard_t(3, (5_000, 4))
    vectors *= [1, 0.01, 20, 0]
    words = [f"w{number}" for number in range(len(vectors))]
    halves = vectors.astype(np.float16)
    file = dict(zip(words, halves, strict=True))
    embedding_matrix, scales = kernel.build_embedding_matrix([file], words)
    numbers = embedding_matrix[1:-1]
    sizes = np.abs(vectors)
    errors = np.abs(numbers * scales.astype(np.float64) - vectors)
    wrong = errors > 0.5 * scales + 2**-9 * sizes  # halves have eleven bits
    assert (wrong.mean(axis=0) <= 0.001).all()
    # cut off at the same end
    assert np.array_equal(numbers[wrong], 127 * np.sign(vectors[wrong]))
    # outliers cost the others no digits
    largest = sizes.max(axis=0)
    assert (scales[:3] < largest[:3] / 127).all()


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
            (found,) = vectors_of([vectors], [word])
            assert found == pytest.approx([2, 1], rel=0.01)
            numbers = {form: number for number, form in enumerate(in_order, 1)}
            assert kernel.number_of(word, numbers) == numbers[forms[best]]


@pytest.mark.parametrize(
    "word, other",
    [
        ("soooo", "sooo"),
        ("too", "to"),
        ("b2", "0"),
        ("1000", "10"),
        ("", "0"),
    ],
)
def test_no_look_up_under_another_word(word, other):
    vectors = {other: [1, 2], "known": [3, 4]}
    assert not vectors_of([vectors], [word]).any()
    # the last number, which all unknown words share
    assert kernel.number_of(word, {other: 1, "known": 2}) == 3
    assert kernel.number_words([word], np.array([5]), {other}, set()) == {}


def test_words_share_a_number_by_their_best_spelling():
    words = "No NO nooo yes xyzzy YES".split()
    counts = np.array([1, 2, 3, 4, 100, 1])
    known = {"no", "yes", "Yes", "unused"}
    numbers = kernel.number_words(words, counts, known, set())
    assert numbers == {"no": 1, "yes": 2}  # six times, five times
    found = [kernel.number_of(word, numbers) for word in words]
    assert found == [1, 1, 1, 2, 3, 2]


def test_words_are_numbered_by_falling_frequency_and_each_number_has_a_word_of_its_own():
    letters = [*"abcdefghij"]
    counts = np.random.default_rng(1).permutation(10)
    listed = {"zoo", "it", "a", "two words", "don't"}
    numbers = kernel.number_words(letters, counts, set(letters), listed)
    in_order = [letters[place] for place in np.argsort(-counts)]
    in_order += ["it", "zoo"]  # of those listed, what can be a token
    assert numbers == dict(zip(in_order, itertools.count(1)))


def test_the_parts_of_the_notebook_agree_on_who_has_a_number():
    """Whichever spelling was counted or looked up: a word has the number of its vector."""
    expected = {
        "a": [1, 0],
        "A": [1, 0],
        "NOOO": [2, 0],
        "noo": [0, 0],
        "Paris": [3, 4],
        "PARIS": [3, 4],
        "7": [0, 5],
        "42": [0, 5],
        "rare": [0, 0],
        "often": [0, 0],
        "": [0, 0],
    }
    left = {"a": [1.0], "no": [2.0], "paris": [3.0]}
    right = {"Paris": [4.0], "0": [5.0], "extra": [6.0]}
    counts = np.arange(len(expected))
    known = {"often", *left, *right}
    numbers = kernel.number_words(list(expected), counts, known, {"extra"})
    vectors = vectors_of([left, right], numbers)
    vectors = np.pad(vectors, [(1, 1), (0, 0)])  # row = number
    for word, vector in expected.items():
        found = vectors[kernel.number_of(word, numbers)]
        assert found == pytest.approx(vector, rel=0.01), word
    for word in ("rare", ""):
        assert kernel.number_of(word, numbers) == 1 + len(numbers)
    assert kernel.number_of("often", numbers) in numbers.values()
