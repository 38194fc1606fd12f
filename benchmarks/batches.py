"""How fast batches are made, and whether training waits for them: python benchmarks/batches.py FOLDER

FOLDER: made by benchmarks/stand_in.py with at least 100,000 rows. Speed: rows a second from LengthBuckets alone.
Waiting: the seconds spent on making an epoch's batches as a share of the epoch's seconds – the most that training can
wait, since batches are made in the background.
"""

import os
import sys
import time
from pathlib import Path

import numpy as np
from measure import print_machine

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
import kernel  # noqa: E402

ROWS, TRAINED_ROWS, WIDTH, EPOCHS = 100_000, 20_000, 300, 2


class TimedBuckets(kernel.LengthBuckets):
    """LengthBuckets that add up the seconds spent on making batches."""

    seconds = 0.0

    def __getitem__(self, index):
        start = time.perf_counter()
        batch = super().__getitem__(index)
        self.seconds += time.perf_counter() - start
        return batch

    def draw(self):
        start = time.perf_counter()
        super().draw()
        self.seconds += time.perf_counter() - start


def make_labels(rows):
    labels = {"toxicity": np.zeros((rows, 2), np.float32), "subtypes": np.zeros((rows, 6), np.float32)}
    return labels, np.ones(rows, np.float32)


if __name__ == "__main__":
    print_machine("keras", "tensorflow")
    comments = kernel.read_columns(Path(sys.argv[1]) / "train.csv", ["comment_text"])["comment_text"].iloc[:ROWS]
    numbers, offsets, words = kernel.tokenize(comments, max_tokens=220)
    tokens, offsets = kernel.fill_empty(numbers + 2, offsets)
    labels, weights = make_labels(ROWS)
    kernel.IDENTITY_TERMS = [" ".join(words[100:200])]  # the made-up comments have no real ones
    identity_terms = kernel.number_identity_terms(words)

    for batch_size in (256, 512):
        rows = np.arange(ROWS)
        buckets = kernel.LengthBuckets(tokens, offsets, rows, batch_size, labels, weights, 1, identity_terms)
        start = time.perf_counter()
        for index in range(len(buckets)):
            buckets[index]
        buckets.draw()
        print(f"batches of {batch_size}: {ROWS / (time.perf_counter() - start):,.0f} rows/s from LengthBuckets alone")

    matrix = np.random.default_rng(0).normal(0, 0.4, (len(words) + 2, WIDTH)).astype(np.float32)
    pretrained = kernel.PretrainedVectors(matrix)
    model = kernel.build_model(pretrained, len(words), lstm_units=128, spatial_dropout=0.3)
    buckets = TimedBuckets(tokens, offsets, np.arange(TRAINED_ROWS), 256, labels, weights, 1, identity_terms)
    training = kernel.Training(EPOCHS * len(buckets), float("inf"), 1e-3, lambda model: {})
    kernel.train_model(model, buckets, training)
    epoch_seconds, making = training.epoch_seconds[-1], buckets.seconds / EPOCHS
    print(
        f"an epoch of {TRAINED_ROWS:,} rows on the CPU: {epoch_seconds:.1f} s, of which making batches took "
        f"{making:.2f} s: training waits {making / epoch_seconds:.1%} at the most"
    )
