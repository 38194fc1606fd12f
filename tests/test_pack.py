"""Packed word vectors, as embeddings/README.md says: the same vectors, opened fast, damage noticed."""

import subprocess
import sys

import kernel
import numpy as np
import pytest

sys.path.insert(0, str(kernel.NOTEBOOK.parent / "embeddings"))
import pack  # noqa: E402

WORDS = [f"word{number}" for number in range(25)]
WIDTH = 6


@pytest.fixture
def text_file(tmp_path):
    """25 words with a header, and as in GloVe 840B one with spaces."""
    vectors = np.random.default_rng(0).normal(0, 0.5, (len(WORDS), WIDTH))
    lines = [
        f"{word} {' '.join(f'{number:.5f}' for number in row)}\n" for word, row in zip(WORDS, vectors, strict=True)
    ]
    lines.insert(10, ". . . " + " ".join(["0.5"] * WIDTH) + "\n")
    path = tmp_path / "text.vec"
    path.write_text(f"{len(lines)} {WIDTH}\n" + "".join(lines), encoding="utf-8")
    return path


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "packed"
    folder.mkdir()
    return folder


def test_packed_vectors_are_the_text_vectors(text_file, folder):
    packed = pack.pack(text_file, folder)
    assert np.load(packed).shape == (len(WORDS), WIDTH)
    vocabulary = ["Word3", "word24", "unknown", "word0"]
    from_text, found_in_text = kernel.build_embedding_matrix([text_file], vocabulary)
    from_pack, found_in_pack = kernel.build_embedding_matrix([packed], vocabulary)
    assert np.array_equal(found_in_pack, found_in_text)
    assert from_pack.dtype == np.float32
    assert np.allclose(from_pack, from_text, rtol=2**-11, atol=1e-7)  # half precision keeps 11 bits
    assert from_text.any()


def test_folder_stands_for_all_its_packs_side_by_side(text_file, folder):
    other = text_file.with_name("other.txt")
    other.write_text("word1 1 2\nword2 3 4\n")
    pack.pack(text_file, folder)
    pack.pack(other, folder)
    settings = kernel.settings_from({"KERNEL_VECTOR_FILES": str(folder)})
    files = kernel.find_vector_files(settings, folder)
    assert [path.name for path in files] == ["other.vectors.npy", "text.vectors.npy"]
    embedding_matrix, _ = kernel.build_embedding_matrix(files, ["word2"])
    assert embedding_matrix.shape == (3, 2 + WIDTH)
    assert embedding_matrix[2, :2].tolist() == [3, 4]


def test_packs_attached_on_kaggle_are_found(text_file, tmp_path):
    attached = tmp_path / "input" / "datasets" / "someone" / "packed-word-vectors"
    attached.mkdir(parents=True)
    packed = pack.pack(text_file, attached)
    assert kernel.find_vector_files(kernel.Settings(), tmp_path, tmp_path / "input") == (packed,)


def test_scores_from_packed_vectors_are_those_from_text(text_file, folder):
    scores = []
    for path in (text_file, pack.pack(text_file, folder)):
        kernel.keras.utils.set_random_seed(1)
        embedding_matrix, _ = kernel.build_embedding_matrix([path], WORDS)
        model = kernel.build_model(kernel.pretrained_vectors(embedding_matrix), 0, lstm_units=8)
        tokens = np.random.default_rng(0).integers(2, len(embedding_matrix), (50, 12))
        scores.append(kernel.ops.convert_to_numpy(kernel.ops.sigmoid(model(tokens)["toxicity"])))
    assert np.abs(scores[0] - scores[1]).max() < 1e-3
    assert np.ptp(scores[0]) > 1e-2


def test_changed_text_is_packed_anew(text_file, folder):
    pack.pack(text_file, folder)
    with text_file.open("a") as text:
        text.write("word30 1 2 3 4 5 6\n")
    embedding_matrix, _ = kernel.build_embedding_matrix([pack.pack(text_file, folder)], ["word30"])
    assert embedding_matrix[2].tolist() == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("ending", ["npy", "txt"])
def test_a_file_that_was_cut_off_is_noticed(text_file, folder, ending):
    packed = pack.pack(text_file, folder)
    damaged = folder / f"text.vectors.{ending}"
    damaged.write_bytes(damaged.read_bytes()[:-8])
    with pytest.raises(ValueError, match="text.vectors.npy"):
        kernel.build_embedding_matrix([packed], WORDS)


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("word30 1 2 3 4 5\n", "text.vec: line 28, word 'word30'"),
        ("word30 1 2 3 4 5 x\n", "text.vec: line 28, word 'word30'"),
        ("word30 1 2 3 4 5 1e9\n", "text.vec, word 'word30': .*half precision"),
    ],
)
def test_broken_line_is_named(text_file, folder, line, named):
    with text_file.open("a") as text:
        text.write(line)
    with pytest.raises(ValueError, match=named):
        pack.pack(text_file, folder)


def test_of_a_word_that_stands_twice_the_first_vector_counts(text_file, folder):
    with text_file.open("a") as text:
        text.write("word3 9 9 9 9 9 9\n")
    test_packed_vectors_are_the_text_vectors(text_file, folder)


def test_a_file_without_vectors_is_named(tmp_path, folder):
    (tmp_path / "none.vec").write_text("1000 6\n")
    with pytest.raises(ValueError, match="none.vec: holds no vectors"):
        pack.pack(tmp_path / "none.vec", folder)
    assert not list(folder.glob("none*"))


def test_two_files_are_never_packed_under_one_name(tmp_path):
    command = [sys.executable, pack.__file__, "a/words.vec", "b/words.txt", "--output", "packed"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode and "under one name" in done.stderr and not (tmp_path / "packed").exists()
