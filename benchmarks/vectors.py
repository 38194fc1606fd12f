"""Reading word vectors, ours and the usual way in turn: python benchmarks/vectors.py FOLDER

Makes in FOLDER a text file of 300 numbers a word, of which the vocabulary needs 15 %, and a packed one of 2,000,000
words, of which the vocabulary is 300,000. The usual way is a dict of all vectors of the file, then a matrix: vectors
as np.asarray(line.split(" ")[1:]), which keeps them as text until they are used, or turned into float32 at once.
"""

import os
import sys
from pathlib import Path
from statistics import median

import numpy as np
from measure import in_new_process, print_machine
from stand_in import make_vectors, make_words

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
sys.path.insert(0, str(Path(__file__).parent.parent / "embeddings"))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

WIDTH, ROUNDS = 300, 3
TEXT_WORDS, SHARE_NEEDED = 400_000, 0.15
PACK_WORDS, PACK_VOCABULARY = 2_000_000, 300_000


def known_words(count):
    words = make_words(np.random.default_rng(2019))
    return [f"{word}{ending}" for ending in ("", "s", "ed", "ing", "er") for word in words][:count]


def make_file(path, words):
    if not path.exists():
        make_vectors(path, known_words(words), WIDTH, header=path.suffix == ".vec")


def prepare(path, words_in_file, words_needed):
    """The path, and a vocabulary of words from all over the file."""
    import kernel  # noqa: F401  so that the import is not measured

    words = known_words(words_in_file)
    return path, [words[i] for i in np.random.default_rng(0).choice(words_in_file, words_needed, replace=False)]


def ours(prepared):
    import kernel

    path, vocabulary = prepared
    embedding_matrix, has_vector = kernel.build_embedding_matrix([path], vocabulary)
    return summary(embedding_matrix, int(has_vector.sum()))


def usual(prepared, dtype=None):
    path, vocabulary = prepared
    vectors = {}
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            values = line.rstrip().split(" ")
            vectors[values[0]] = np.asarray(values[1:], dtype=dtype)
    embedding_matrix = np.zeros((len(vocabulary) + 2, WIDTH), np.float32)
    found = 0
    for row, word in enumerate(vocabulary, 2):
        if word in vectors:
            embedding_matrix[row] = vectors[word]
            found += 1
    return summary(embedding_matrix, found)


def usual_float32(prepared):
    return usual(prepared, "float32")


def summary(embedding_matrix, found):
    """Megabytes of the matrix, words found, and a sum that shows whether two ways found the same vectors."""
    return round(embedding_matrix.nbytes / 2**20), found, float(embedding_matrix[::10].sum(dtype=np.float64))


def print_median(way, rounds):
    seconds, megabytes, results = zip(*rounds, strict=True)
    matrix = results[0][0]
    print(f"{way:14} {median(seconds):6.2f} s {median(megabytes):7,.0f} MB at the peak, {matrix} of it the matrix")


def compare_text(folder):
    path = folder / "glove_400k.txt"
    make_file(path, TEXT_WORDS)
    arguments = (path, TEXT_WORDS, int(TEXT_WORDS * SHARE_NEEDED))
    ways = (ours, usual, usual_float32)
    rounds = [[in_new_process(prepare, way, *arguments) for way in ways] for _ in range(ROUNDS)]
    assert len({result for measured in rounds for _, _, result in measured}) == 1, "not the same vectors"
    print(f"Text, {TEXT_WORDS:,} words of {WIDTH} numbers, {SHARE_NEEDED:.0%} of them needed:")
    for place, way in enumerate(ways):
        print_median(way.__name__, [measured[place] for measured in rounds])
        if way is not ours:
            ratio = median(measured[place][0] / measured[0][0] for measured in rounds)
            print(f"{'':14} ours is {ratio:.1f} times as fast")


def compare_pack(folder):
    from pack import pack

    path, packed = folder / "crawl_2m.vec", folder / "crawl_2m.vectors.npy"
    if not packed.exists():
        make_file(path, PACK_WORDS)
        pack(path, folder)
        path.unlink()
    rounds = [in_new_process(prepare, ours, packed, PACK_WORDS, PACK_VOCABULARY) for _ in range(ROUNDS)]
    size = (packed.stat().st_size + packed.with_suffix(".txt").stat().st_size) / 2**20
    print(f"Pack of {PACK_WORDS:,} words, {size:,.0f} MB, opened for a vocabulary of {PACK_VOCABULARY:,}:")
    print_median("ours", rounds)


if __name__ == "__main__":
    print_machine()
    compare_text(Path(sys.argv[1]))
    compare_pack(Path(sys.argv[1]))
