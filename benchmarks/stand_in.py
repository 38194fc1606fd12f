"""Make a stand-in for the competition's data, of any size: python benchmarks/stand_in.py FOLDER --rows 1800000

The words mean nothing, but their number, lengths and frequencies are like the competition's: words a comment are
log-normal with a mean of about 51, at most 1,000 characters; word frequencies follow Zipf's law, and 1.8 million
comments hold about 400,000 distinct words. Vector files come in GloVe's and in fastText's format.
Used by the other benchmarks, which call make_competition and make_vectors.
"""

import argparse
import csv
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from make_sample import COLUMNS  # noqa: E402  the competition's 45 columns in their order

WORDS = 600_000  # those that can occur
LETTERS = np.array(list("etaoinshrdlucmfwypvbgkjqxz"))
END_OF_SENTENCE = [".", ".", ".", ",", ",", "!", "?", "..."]


def make_words(generator, count=WORDS):
    """Distinct made-up words, list of str: short ones first, as frequent words are short."""
    words = {}
    frequency = 1 / np.arange(1.5, len(LETTERS) + 1.5)
    while len(words) < count:
        lengths = np.clip(generator.poisson(2 + 0.45 * np.log2(2 + len(words)), 50_000), 1, 20)
        letters = "".join(generator.choice(LETTERS, lengths.sum(), p=frequency / frequency.sum()))
        ends = np.cumsum(lengths)
        words.update(dict.fromkeys(letters[end - length : end] for end, length in zip(ends, lengths, strict=True)))
    return list(words)[:count]


def make_comments(generator, words, rows):
    """Yield comments, str: log-normal lengths, Zipf frequencies, some punctuation, cut at 1,000 characters."""
    rank = np.arange(len(words))
    frequency = 1 / (rank + 2.7) / (1 + rank / 5_000)  # Zipf's law, and its steeper tail beyond the common words
    cumulative = np.cumsum(frequency / frequency.sum())
    for start in range(0, rows, 10_000):
        lengths = np.clip(np.exp(generator.normal(3.62, 0.95, min(10_000, rows - start))).astype(int), 1, 400)
        drawn = np.searchsorted(cumulative, generator.random(lengths.sum())).clip(max=len(words) - 1)
        ends = np.cumsum(lengths)
        marks = generator.integers(len(END_OF_SENTENCE), size=len(lengths))
        for end, length, mark in zip(ends, lengths, marks, strict=True):
            text = [words[i] for i in drawn[end - length : end]]
            text[length // 2] += END_OF_SENTENCE[mark]
            yield (" ".join(text).capitalize() + ".")[:1000]


def make_competition(folder, rows, seed=2019):
    """Write train.csv of so many rows, test.csv of a tenth, sample_submission.csv; return the words that may occur."""
    generator = np.random.default_rng(seed)
    words = make_words(generator)
    folder.mkdir(parents=True, exist_ok=True)
    empty_row = dict.fromkeys(COLUMNS, 0)
    with (folder / "train.csv").open("w", encoding="utf-8", newline="") as output:
        writer = csv.DictWriter(output, COLUMNS)
        writer.writeheader()
        shares = np.round(generator.beta(0.3, 1.8, (rows, 4)), 6)
        raters = generator.integers(3, 12, rows)
        annotated = generator.random(rows) < 0.22
        identities = COLUMNS[COLUMNS.index("asian") : COLUMNS.index("created_date")]
        mentioned = generator.integers(len(identities), size=rows)
        for row, comment in enumerate(make_comments(generator, words, rows)):
            values = dict(zip(("target", "insult", "obscene", "threat"), shares[row], strict=True))
            values |= dict.fromkeys(identities, 0 if annotated[row] else "")
            values |= {identities[mentioned[row]]: 1} if annotated[row] else {}
            values |= {"id": row, "comment_text": comment, "toxicity_annotator_count": raters[row]}
            writer.writerow(empty_row | values)
    for name, header in (("test.csv", "id,comment_text"), ("sample_submission.csv", "id,prediction")):
        with (folder / name).open("w", encoding="utf-8", newline="") as output:
            writer = csv.writer(output)
            writer.writerow(header.split(","))
            comments = make_comments(generator, words, rows // 10) if name == "test.csv" else [0.0] * (rows // 10)
            writer.writerows((10_000_000 + row, value) for row, value in enumerate(comments))
    return words


def make_vectors(path, words, width, header, seed=2019):
    """Write word vectors as text, a line a word in shuffled order; with fastText's header or, like GloVe's, without."""
    generator = np.random.default_rng(seed)
    with path.open("w", encoding="utf-8", newline="\n") as output:
        if header:
            output.write(f"{len(words)} {width}\n")
        numbers = [f"{number:.5f}" for number in generator.normal(0, 0.4, 200_000)]  # to draw from: formatting is slow
        starts = generator.integers(len(numbers) - width, size=len(words))
        for word, start in zip(generator.permutation(words), starts, strict=True):
            output.write(f"{word} {' '.join(numbers[start : start + width])}\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where to write; outside the repository")
    parser.add_argument(
        "--rows", type=int, default=100_000, help="of train.csv (default: 100000); test.csv gets a tenth"
    )
    parser.add_argument("--vectors", type=int, default=0, help="words in each of two vector files (default: none)")
    arguments = parser.parse_args()
    words = make_competition(arguments.folder, arguments.rows)
    if arguments.vectors:
        rare = [f"{word}{number}" for number in range(9) for word in words]  # words that do not occur
        known = (words + rare)[: arguments.vectors]
        make_vectors(arguments.folder / "glove.txt", known, 300, header=False)
        make_vectors(arguments.folder / "crawl.vec", known, 300, header=True, seed=2020)
