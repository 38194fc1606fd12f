"""Vectors: word vectors from files, the look-up of a word, and who learns a vector of its own."""

import gzip
import zipfile

import kernel
import numpy as np
import pytest


def write(path, *lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def vectors_of(vocabulary, *paths):
    """The vector of each word of the vocabulary, lists of numbers."""
    embedding_matrix, has_vector = kernel.build_embedding_matrix(paths, vocabulary)
    assert embedding_matrix.dtype == np.float32 and has_vector.shape == (len(vocabulary),)
    assert not embedding_matrix[: kernel.UNKNOWN + 1].any()
    return embedding_matrix[kernel.UNKNOWN + 1 :].tolist()


@pytest.mark.parametrize("header", [(), ("3 2",), ("3 2 ",)])
@pytest.mark.parametrize("line_end", ["", " ", " \r"])
def test_header_and_line_ends(tmp_path, header, line_end):
    lines = [f"{line}{line_end}" for line in ("the 1 2", "café -0.5 3e-1", "3 5 6")]
    path = write(tmp_path / "words.vec", *header, *lines)
    expected = np.float32([[5, 6], [-0.5, 0.3], [1, 2]]).tolist()
    assert vectors_of(["3", "café", "the"], path) == expected  # "3" is a word, too, though the header begins with it


def test_packed_files(tmp_path):
    text = b"2 2\nyes 1 2\nno 3 4\n"
    with gzip.open(tmp_path / "words.vec.gz", "wb") as file:
        file.write(text)
    with zipfile.ZipFile(tmp_path / "words.zip", "w") as archive:
        archive.writestr("words.vec", text)
    files = tmp_path / "words.vec.gz", tmp_path / "words.zip"
    assert vectors_of(["no", "yes"], *files) == [[3, 4, 3, 4], [1, 2, 1, 2]]


def test_words_with_spaces_are_not_their_first_part(tmp_path):
    spaced = ". . . 9 9 9", "at name@domain.com 8 8 8"
    plain = ". 1 2 3", "at 4 5 6"
    for lines in ([*spaced, *plain], [*plain, *spaced]):
        assert vectors_of([".", "at"], write(tmp_path / "words.vec", "4 3", *lines)) == [[1, 2, 3], [4, 5, 6]]


def test_files_stand_side_by_side(tmp_path):
    wide = write(tmp_path / "wide.txt", "both 1 2 3", "left 4 5 6")
    narrow = write(tmp_path / "narrow.txt", "right 7 8", "both 9 10")
    vocabulary = ["left", "both", "neither", "right"]
    vectors = [[4, 5, 6, 0, 0], [1, 2, 3, 9, 10], [0, 0, 0, 0, 0], [0, 0, 0, 7, 8]]
    assert vectors_of(vocabulary, wide, narrow) == vectors
    _, has_vector = kernel.build_embedding_matrix((wide, narrow), vocabulary)
    assert has_vector.tolist() == [True, True, False, True]


def test_first_of_two_lines_of_a_word_wins(tmp_path):
    assert vectors_of(["twice"], write(tmp_path / "words.vec", "twice 1 2", "once 5 6", "twice 3 4")) == [[1, 2]]


def test_words_share_a_line(tmp_path):
    assert vectors_of(["No", "NO", "nooo"], write(tmp_path / "words.vec", "no 1 2", "yes 3 4")) == [[1, 2]] * 3


@pytest.mark.parametrize(
    "word, looked_up",
    [
        ("liBeral", "liBeral liberal Liberal LIBERAL"),
        ("Paris", "Paris paris PARIS"),
        ("nato", "nato Nato NATO"),
        ("SOOOO", "SOOOO soooo Soooo soo so"),
        ("ÉTÉ", "ÉTÉ été Été"),
        ("4711", "4711 0"),
    ],
)
def test_order_of_look_up(tmp_path, word, looked_up):
    forms = looked_up.split()
    for best in range(len(forms)):
        lines = [f"{form} {number} 1" for number, form in enumerate(forms[best:], best)]
        for in_order in (lines, lines[::-1]):
            assert vectors_of([word], write(tmp_path / "words.vec", "other 9 9", *in_order)) == [[best, 1]]


@pytest.mark.parametrize("word, other", [("soooo", "sooo"), ("too", "to"), ("b2", "0"), ("1000", "10")])
def test_no_look_up_under_another_word(tmp_path, word, other):
    assert vectors_of([word, "known"], write(tmp_path / "words.vec", f"{other} 1 2", "known 3 4"))[0] == [0, 0]
