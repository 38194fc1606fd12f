"""What batches of similar length gain, and to do without the tuner of tf.data: python benchmarks/speed.py FOLDER

FOLDER: comments in the competition's layout with word vectors (.vec, .txt) beside them. Rows a second in batches of
similar length, and of the same network and rows padded to 220, in turn. Then seconds of an epoch as the notebook gives
its batches to Keras, and as Keras would read them itself.
"""

import os
import sys
import time
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from unittest.mock import patch

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np
from experiment import run_sections, vector_files
from measure import print_machine

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
import kernel

MAX_TOKENS = kernel.Settings().max_tokens
ROWS, TURNS = 2_048, 2  # trained on in similar-length and in padded batches
TUNED_ROWS = 6_144  # in an epoch of some seconds: the tuner's sleep doubles each time


class Padded(kernel.LengthBuckets):
    """Batches in random order of length, all padded to MAX_TOKENS."""

    def draw(self):
        super().draw()
        self.batches = np.array_split(self.generator.permutation(self.rows), len(self.batches))
        self.order = np.concatenate(self.batches)

    def __getitem__(self, index):
        tokens, *rest = super().__getitem__(index)
        return np.pad(tokens, [(0, 0), (0, MAX_TOKENS - tokens.shape[1])]), *rest


class SecondEpoch(kernel.Training):
    """Seconds of the second epoch: in the first one the graph is built."""

    def on_epoch_begin(self, epoch, logs=None):
        super().on_epoch_begin(epoch, logs)
        self.epoch_begun = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        super().on_epoch_end(epoch, logs)
        self.seconds = time.perf_counter() - self.epoch_begun


def seconds_of_epoch(pretrained, number_of_rows, kind=kernel.LengthBuckets):
    """Seconds of an epoch on so many of the comments, in batches of a kind."""
    rows = kernel.fit_rows[:: len(kernel.fit_rows) // number_of_rows][:number_of_rows]
    model = kernel.build_model(pretrained, kernel.frequent_words, kernel.settings.lstm_units)
    data = kernel.tokens, kernel.offsets, rows, kernel.batch_size, kernel.labels, kernel.weights
    batches = kind(*data, 1, kernel.identity_terms)
    training = SecondEpoch("speed", 2 * len(batches), 1e-3, float("inf"))
    with redirect_stdout(StringIO()):
        kernel.train_model(model, batches, training)
    return training.seconds


def compare_padding(pretrained):
    """Rows a second of similar-length and of padded batches: two floats."""
    kinds = kernel.LengthBuckets, Padded
    seconds = [[seconds_of_epoch(pretrained, ROWS, kind) for kind in kinds] for _ in range(TURNS)]
    return ROWS / np.mean(seconds, axis=0)


def compare_tuner(pretrained):
    """Seconds of an epoch without the tuner of tf.data, and with it: two floats."""
    seconds = []
    for _ in range(TURNS):
        without = seconds_of_epoch(pretrained, TUNED_ROWS)
        with patch.object(kernel, "as_dataset", lambda batches: batches):
            seconds.append((without, seconds_of_epoch(pretrained, TUNED_ROWS)))
    return np.mean(seconds, axis=0)


if __name__ == "__main__":
    print_machine("keras", "tensorflow")
    folder = Path(sys.argv[1])
    run_sections({"KERNEL_INPUT_DIR": str(folder), "KERNEL_VECTOR_FILES": vector_files(folder)})
    pretrained = kernel.pretrained_vectors(kernel.embedding_matrix)
    buckets, padded = compare_padding(pretrained)
    print(f"similar lengths {buckets:.0f} rows/s, all padded to {MAX_TOKENS} {padded:.0f} rows/s: ", end="")
    print(f"{buckets / padded:.1f} times as fast")
    without, tuned = compare_tuner(pretrained)
    print(f"an epoch of {TUNED_ROWS:,} rows: {without:.1f} s; with the tuner of tf.data {tuned:.1f} s")
