"""A stand-in for the competition's data, of any size, which full_size.py writes.

The words mean nothing, but their number, lengths and frequencies are like the competition's: words
a comment are log-normal with a mean of about 51, at most 1,000 characters; word frequencies follow
Zipf's law, and 1.8 million comments hold about 400,000 distinct words. Vector files come in GloVe's
and in fastText's format.
"""

import csv
import itertools

import measure  # noqa: F401

# isort: split
import numpy as np
from make_sample import COLUMNS  # the competition's 45 columns in their order

WORDS = 600_000  # those that can occur
LETTERS = np.array([*"etaoinshrdlucmfwypvbgkjqxz"])
END_OF_SENTENCE = ". . . , , ! ? ...".split()
RATED = ["target", "insult", "obscene", "threat"]
first, behind = COLUMNS.index("asian"), COLUMNS.index("created_date")
IDENTITIES = COLUMNS[first:behind]


def make_words(generator, count=WORDS):
    """Distinct made-up words, list of str: short ones first, as frequent words are short."""
    words = {}
    frequency = 1 / (1.5 + np.arange(len(LETTERS)))
    frequency /= frequency.sum()
    while len(words) < count:
        mean_length = 2 + 0.45 * np.log2(2 + len(words))
        lengths = generator.poisson(mean_length, 50_000).clip(1, 20)
        letters = "".join(generator.choice(LETTERS, lengths.sum(), p=frequency))
        start = 0
        for end in np.cumsum(lengths):
            words[letters[start:end]] = True
            start = end
    return list(words)[:count]


def make_comments(generator, words, rows):
    """Yield comments, str, of at most 1,000 characters: log-normal lengths, some punctuation."""
    rank = np.arange(len(words))
    frequency = 1 / (rank + 2.7)  # Zipf's law
    frequency /= 1 + rank / 5_000  # and its steeper tail beyond the common words
    cumulative = np.cumsum(frequency / frequency.sum())
    for done in range(0, rows, 10_000):
        few = min(10_000, rows - done)
        lengths = np.exp(generator.normal(3.62, 0.95, few))
        lengths = lengths.astype(int).clip(1, 400)
        drawn = np.searchsorted(cumulative, generator.random(lengths.sum()))
        drawn = drawn.clip(max=len(words) - 1)
        marks = generator.choice(END_OF_SENTENCE, few)
        start = 0
        for end, mark in zip(np.cumsum(lengths), marks, strict=True):
            text = [words[place] for place in drawn[start:end]]
            text[len(text) // 2] += mark
            start = end
            comment = " ".join(text).capitalize()
            yield f"{comment}."[:1000]


def make_rows(generator, words, rows):
    """Yield the rows of train.csv: one of five has identity labels, and mentions one."""
    shares = generator.beta(0.3, 1.8, (rows, 4)).round(6)
    raters = generator.integers(3, 12, rows)
    annotated = generator.random(rows) < 0.22
    mentioned = generator.integers(len(IDENTITIES), size=rows)
    for row, comment in enumerate(make_comments(generator, words, rows)):
        values = dict.fromkeys(COLUMNS, 0)
        values["id"] = row
        values["comment_text"] = comment
        values["toxicity_annotator_count"] = raters[row]
        values |= zip(RATED, shares[row], strict=True)
        if annotated[row]:
            values[IDENTITIES[mentioned[row]]] = 1
        else:
            values |= dict.fromkeys(IDENTITIES, "")
        yield values.values()


def make_competition(folder, rows, seed=2019):
    """Write train.csv of so many rows, test.csv of a tenth, sample_submission.csv.

    Returns the words that may occur.
    """
    generator = np.random.default_rng(seed)
    words = make_words(generator)
    ids = range(10_000_000, 10_000_000 + rows // 10)
    folder.mkdir(parents=True, exist_ok=True)

    def write(name, header, lines):
        with (folder / name).open("w", encoding="utf-8", newline="") as output:
            csv.writer(output).writerows(itertools.chain([header], lines))

    comments = make_comments(generator, words, len(ids))
    write("train.csv", COLUMNS, make_rows(generator, words, rows))
    write("test.csv", ["id", "comment_text"], zip(ids, comments, strict=True))
    write("sample_submission.csv", ["id", "prediction"], ((number, 0.0) for number in ids))
    return words


def make_vectors(path, words, width, header, seed=2019):
    """Write word vectors as text, a line a word in shuffled order; with fastText's header or, like
    GloVe's, without.
    """
    generator = np.random.default_rng(seed)
    with path.open("w", encoding="utf-8", newline="\n") as output:
        if header:
            output.write(f"{len(words)} {width}\n")
        # to draw from: formatting is slow
        drawn = generator.normal(0, 0.4, 200_000)
        numbers = [f"{number:.5f}" for number in drawn]
        starts = generator.integers(len(numbers) - width, size=len(words))
        for word, start in zip(generator.permutation(words), starts, strict=True):
            vector = " ".join(numbers[start : start + width])
            output.write(f"{word} {vector}\n")
