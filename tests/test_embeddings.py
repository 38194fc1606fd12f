"""Word vectors trained on comments, as embeddings/README.md says."""

import subprocess
import sys

import kernel
import numpy as np

FOLDER = kernel.NOTEBOOK.parent


def read_vectors(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    words = [line.split(" ")[0] for line in lines[1:]]
    return lines[0], words, np.array([line.split(" ")[1:] for line in lines[1:]], dtype=np.float32)


def test_sample_vectors_are_those_that_the_command_makes(tmp_path):
    made = tmp_path / "sample.vec"
    arguments = ["--width", "32", "--min-count", "2", "--epochs", "20", "--output", made]
    sample = [FOLDER / "tests" / "sample" / name for name in ("train.csv", "test.csv")]
    subprocess.run(
        [sys.executable, FOLDER / "embeddings" / "train.py", *sample, *arguments], check=True
    )
    header, words, vectors = read_vectors(made)
    stored_header, stored_words, stored_vectors = read_vectors(FOLDER / "embeddings" / "sample.vec")
    assert (header, words) == (stored_header, stored_words)
    assert header == f"{len(words)} 32"
    lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(stored_vectors, axis=1)
    assert (
        (vectors * stored_vectors).sum(axis=1) / lengths
    ).min() > 0.99  # sums differ between processors in their last digits


def test_vectors_are_found_for_the_words_as_the_notebook_cuts_them(tmp_path):
    comments = tmp_path / "comments.csv"
    comments.write_text("comment_text\n" + "I don’t think SO!\n" * 20, encoding="utf-8")
    output = tmp_path / "new folder" / "comments.vec"
    command = [
        sys.executable,
        FOLDER / "embeddings" / "train.py",
        comments,
        "--output",
        output,
        "--width",
        "5",
    ]
    subprocess.run(command, check=True)
    tokens = kernel.cut("I don’t think SO!")
    vectors = kernel.read_vectors(
        output, {form.encode() for token in tokens for form in kernel.spellings(token)}, first=0
    )
    assert {vector.shape for vector in vectors.values()} == {(5,)}
    assert all(vectors.keys() & kernel.spellings(token) for token in tokens)
