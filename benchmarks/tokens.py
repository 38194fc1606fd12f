"""Cutting and numbering comments, ours and the usual way in turn: python benchmarks/tokens.py FOLDER

FOLDER: made by benchmarks/stand_in.py; 200,000 comments are read from its train.csv. The usual way is the old Keras
Tokenizer (fit_on_texts, texts_to_sequences, pad_sequences to 220); ours is the notebook's section Tokens. One core.
"""

import sys
from pathlib import Path
from statistics import median

import pandas as pd
from measure import in_new_process, print_machine

ROWS, ROUNDS = 200_000, 3


def read_for_ours(path):
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
    import kernel  # noqa: F401  so that the import is not measured

    return read_comments(path)


def read_for_usual(path):
    import keras.src.legacy.preprocessing.text  # noqa: F401

    return read_comments(path)


def read_comments(path):
    return pd.read_csv(path, usecols=["comment_text"], dtype=str, keep_default_na=False, nrows=ROWS)["comment_text"]


def ours(comments):
    import kernel

    tokens, offsets, words = kernel.tokenize(comments, max_tokens=220)
    vocabulary, _, tokens = kernel.build_vocabulary(tokens, words)
    tokens, _ = kernel.fill_empty(tokens, offsets)
    return f"{len(tokens):,} tokens, {len(vocabulary):,} distinct"


def usual(comments):
    from keras.src.legacy.preprocessing.text import Tokenizer
    from keras.utils import pad_sequences

    comments = comments.tolist()
    tokenizer = Tokenizer()
    tokenizer.fit_on_texts(comments)
    padded = pad_sequences(tokenizer.texts_to_sequences(comments), maxlen=220)
    return f"{(padded > 0).sum():,} tokens, {len(tokenizer.word_index):,} distinct"


if __name__ == "__main__":
    path = Path(sys.argv[1]) / "train.csv"
    print_machine("pandas", "keras")
    figures = {"ours": [], "usual": []}
    for _ in range(ROUNDS):
        figures["ours"].append(in_new_process(read_for_ours, ours, path, core=0))
        figures["usual"].append(in_new_process(read_for_usual, usual, path, core=0))
    for way, rounds in figures.items():
        seconds, megabytes, result = (list(column) for column in zip(*rounds, strict=True))
        print(f"{way:6} {median(seconds):6.2f} s  {median(megabytes):6.0f} MB at the peak  {result[0]}")
    ratios = [usual[0] / ours[0] for ours, usual in zip(figures["ours"], figures["usual"], strict=True)]
    memory_ratios = [ours[1] / usual[1] for ours, usual in zip(figures["ours"], figures["usual"], strict=True)]
    print(f"ours is {median(ratios):.1f} times as fast with {median(memory_ratios):.2f} of the memory")
