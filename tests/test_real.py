"""Real comments and vectors, where they are at hand beside the repository: ../shared/real."""

import kernel
import pytest

REAL = kernel.NOTEBOOK.parent.parent / "shared" / "real"
pytestmark = pytest.mark.skipif(not REAL.is_dir(), reason="the real comments are not at hand")


def test_real_comments_are_read_cut_and_covered_by_their_vectors():
    train = kernel.read_train(REAL / "train.csv")
    test = kernel.read_test(REAL / "test.csv", REAL / "sample_submission.csv")
    assert (len(train), len(test)) == (62_884, 39_002)
    numbers, offsets, words = kernel.tokenize(train["comment_text"], max_tokens=220)
    assert len(offsets) == len(train) + 1
    vocabulary, word_counts, _ = kernel.build_vocabulary(numbers, words)
    files = [REAL / "glove.6B.50d.20k.txt", REAL / "comments.100d.vec"]
    embedding_matrix, has_vector = kernel.build_embedding_matrix(files, vocabulary)
    assert embedding_matrix.shape == (len(vocabulary) + 2, 150)
    assert word_counts[has_vector].sum() > 0.97 * word_counts.sum()
