"""What scoring new text costs: python benchmarks/scoring.py MODELS COMMENTS.csv [--rows 20000]

MODELS: the folder models/ of a run. COMMENTS.csv: with a column comment_text. All on one core,
comments a second

- in Python, of all networks, of the best one, and of a network of RoBERTa-base's size;
- through the shell, of the best network, with the memory at the peak: of a csv of so many rows,
  made of these comments again and again, and of a tenth of it.
"""

import csv
import itertools
import os
import random
import subprocess
import sys
import tempfile
import time

from measure import parse_arguments, print_machine

# isort: split
import numpy as np


def make_roberta():
    """A network of RoBERTa-base's size with random weights, as a function of texts, as load gives
    it: {label: list}. Of as many tokens as it would cut a text into: four for three words.
    """
    from keras import Input, Model, layers

    sequence = tokens = Input((None, 768))
    for _ in range(12):
        attended = layers.MultiHeadAttention(12, 64)(sequence, sequence)
        sequence = layers.LayerNormalization()(layers.add([sequence, attended]))
        hidden = layers.Dense(768)(layers.Dense(3072, activation="gelu")(sequence))
        sequence = layers.LayerNormalization()(layers.add([sequence, hidden]))
    network = Model(tokens, layers.Dense(1, activation="sigmoid")(sequence[:, 0]))

    def score(texts):
        lengths = sorted(min(510, 2 + len(text.split()) * 4 // 3) for text in texts)
        for batch in (lengths[first : first + 32] for first in range(0, len(lengths), 32)):
            network(np.ones((len(batch), max(batch), 768), np.float32))
        return {"toxicity": [0.5] * len(texts)}

    return score


def score_in_python(models, comments):
    sys.path.insert(0, str(models))
    from toxicity import load

    ways = {
        "all networks": load(models),
        "the best network": load(models, networks=1),
        "RoBERTa-base": make_roberta(),
    }
    for name, score in [*ways.items()] * 2:  # in turn, since machines are shared
        begun = time.perf_counter()
        score(comments)
        a_second = len(comments) / (time.perf_counter() - begun)
        print(f"{name}: {a_second:.0f} comments a second", flush=True)


def score_in_shell(models, comments, rows):
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8", newline="") as file,
        tempfile.TemporaryFile() as scores,
    ):
        writer = csv.writer(file)
        writer.writerow(["comment_text"])
        writer.writerows([comment] for comment in itertools.islice(itertools.cycle(comments), rows))
        file.seek(0)
        begun = time.perf_counter()
        command = [sys.executable, models / "toxicity.py", "--networks", "1"]
        process = subprocess.Popen(command, stdin=file, stdout=scores, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - begun
    assert status == 0
    speed, memory = f"{rows / seconds:.0f} a second", f"{usage.ru_maxrss / 1024:.0f} MB at the peak"
    print(f"{rows:,} through the shell: {speed}, {memory}")


def main():
    arguments = parse_arguments(__doc__, "models", "comments", rows=20_000)
    os.sched_setaffinity(0, {0})  # before NumPy counts the cores
    print_machine()
    csv.field_size_limit(2**31 - 1)
    with arguments.comments.open(encoding="utf-8-sig", newline="") as file:
        comments = [row["comment_text"] for row in csv.DictReader(file)]
    random.Random(0).shuffle(comments)
    score_in_python(arguments.models, comments[:512])
    for rows in (arguments.rows // 10, arguments.rows):
        score_in_shell(arguments.models, comments, rows)


if __name__ == "__main__":
    main()
