"""How fast the network trains, and how fast it would elsewhere: python benchmarks/speed.py FOLDER

FOLDER: comments in the competition's layout with word vectors (.vec, .txt) beside them.

First, rows a second in batches of similar length, and of the same network and rows padded to 220, in turn. Then seconds
of an epoch as the notebook gives its batches to Keras, and as Keras would read them itself. Then rows a second at
three lengths, measured and as counting the operations predicts them. What the count assumes:

- a step takes seconds_per_flop for each operation of the matrix products, seconds_per_word for each word that
  an LSTM reads one after the other, however many comments there are, and seconds_per_step;
- the backward pass does twice the operations of the forward pass;
- the three are the same at all lengths. They are fitted on other lengths and batches than those that are predicted.

With a GPU's figures in place of the fitted ones the same count says how many epochs of the competition's comments fit
into two hours. These figures are assumptions, too, since no GPU was to be had: see GPU below.
"""

import os
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from unittest.mock import patch

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np
from experiment import run_sections, vector_files
from measure import print_machine
from scipy.optimize import nnls

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
import kernel

UNITS = kernel.Settings().lstm_units
MAX_TOKENS = kernel.Settings().max_tokens
ROWS, TURNS = 2_048, 2  # trained on in similar-length and in padded batches
TUNED_ROWS = 6_144  # in an epoch of some seconds: the tuner's sleep doubles each time
FITTED = [(8, 256), (48, 64), (48, 512), (160, 256)]  # tokens, batch size
PREDICTED = [(32, 256), (64, 256), (128, 256)]
STEPS = 6  # measured at each

# The competition: its rows to fit, the mean of their words with padding, and both files of vectors.
COMPETITION = {"rows": 1_624_000, "tokens": 58, "width": 600, "batch_size": 512}
GPU = {  # one T4 in half precision
    "seconds_per_flop": 1 / (65e12 * 0.15),  # 65e12 a second at best; products of this size reach about 15 %
    "seconds_per_word": 40e-6,  # one step of cuDNN's LSTM, forward and backward
    "seconds_per_step": 20e-3,  # start of the other kernels, optimiser, batch to the GPU
}


class Padded(kernel.LengthBuckets):
    """Batches in random order of length, all padded to MAX_TOKENS."""

    def draw(self):
        super().draw()
        self.batches = np.array_split(self.generator.permutation(self.rows), len(self.batches))
        self.order = np.concatenate(self.batches)

    def __getitem__(self, index):
        tokens, *rest = super().__getitem__(index)
        return np.pad(tokens, [(0, 0), (0, MAX_TOKENS - tokens.shape[1])]), *rest


def model_of(width, words):
    matrix = np.random.default_rng(0).normal(0, 0.4, (words, width)).astype(np.float32)
    pretrained = kernel.PretrainedVectors(matrix)
    return kernel.build_model(pretrained, words, UNITS, kernel.Settings().spatial_dropout)


def seconds_of_epochs(model, batches, epochs):
    """Seconds of each epoch but the first, which builds the graph."""
    training = kernel.Training(epochs * len(batches), float("inf"), 1e-3, lambda model: {})
    with redirect_stdout(StringIO()):
        kernel.train_model(model, batches, training)
    return training.epoch_seconds[1:]


def seconds_on_comments(pretrained, number_of_rows, kind=kernel.LengthBuckets):
    """Seconds of the second epoch on so many of the comments, in batches of a kind."""
    rows = kernel.fit_rows[:: len(kernel.fit_rows) // number_of_rows][:number_of_rows]
    model = kernel.build_model(pretrained, kernel.frequent_words, UNITS, kernel.settings.spatial_dropout)
    data = kernel.tokens, kernel.offsets, rows, kernel.batch_size, kernel.labels, kernel.weights
    return seconds_of_epochs(model, kind(*data, 1, kernel.identity_terms), 2)[0]


def compare_padding(pretrained):
    """Rows a second of similar-length and of padded batches: two floats."""
    kinds = kernel.LengthBuckets, Padded
    seconds = [[seconds_on_comments(pretrained, ROWS, kind) for kind in kinds] for _ in range(TURNS)]
    return ROWS / np.mean(seconds, axis=0)


def compare_tuner(pretrained):
    """Seconds of an epoch without the tuner of tf.data, and with it: two floats."""
    seconds = []
    for _ in range(TURNS):
        without = seconds_on_comments(pretrained, TUNED_ROWS)
        with patch.object(kernel, "without_tuner", lambda batches: batches):
            seconds.append((without, seconds_on_comments(pretrained, TUNED_ROWS)))
    return np.mean(seconds, axis=0)


def seconds_of_step(tokens, batch_size, width=150, words=1_000):
    """Measured seconds of a training step on batches of so many tokens."""
    rows = STEPS * batch_size
    offsets = np.arange(rows + 1) * tokens
    numbers = np.random.default_rng(0).integers(2, words, rows * tokens).astype(np.int32)
    columns = kernel.HEADS | {"toxicity": 2}
    labels = {name: np.zeros((rows, size), np.float32) for name, size in columns.items()}
    weights = np.ones(rows, np.float32)
    batches = kernel.LengthBuckets(numbers, offsets, np.arange(rows), batch_size, labels, weights, seed=1)
    return min(seconds_of_epochs(model_of(width, words), batches, 3)) / STEPS


def counts(tokens, batch_size, width=150):
    """What a training step does: operations of matrix products, words read one after the other, steps (1)."""
    lstm = 2 * (width + kernel.TRAINED_WIDTH + UNITS) * 4 * UNITS  # two directions; inputs and state to four gates
    gru = 2 * (2 * UNITS + UNITS) * 3 * UNITS  # to three
    dense = 2 * (4 * UNITS) ** 2 + 4 * UNITS * sum(kernel.HEADS.values())
    flops = 2 * 3 * batch_size * (tokens * (lstm + gru) + dense)  # a product and a sum; forward once, backward twice
    return np.array([flops, 4 * tokens, 1])


def fit_costs():
    """Seconds per operation, per word and per step, none below zero, from the measured steps of FITTED."""
    measured = np.array([seconds_of_step(*case) for case in FITTED])
    counted = np.array([counts(*case) for case in FITTED])
    scale = counted.max(axis=0)
    costs, _ = nnls(counted / scale / measured[:, None], np.ones(len(FITTED)))  # relative errors
    return costs / scale


def print_competition(machine, costs, hours):
    size = COMPETITION
    step = counts(size["tokens"], size["batch_size"], size["width"]) @ costs
    epoch = size["rows"] / size["batch_size"] * step
    print(
        f"{machine}: {size['batch_size'] / step:,.0f} rows/s, {epoch:,.0f} s an epoch, "
        f"{hours * 3600 / epoch:.1f} epochs in {hours} h"
    )


if __name__ == "__main__":
    print_machine("keras", "tensorflow")
    folder = Path(sys.argv[1])
    run_sections({"KERNEL_INPUT_DIR": str(folder), "KERNEL_VECTOR_FILES": vector_files(folder)})
    pretrained = kernel.PretrainedVectors(kernel.embedding_matrix)
    buckets, padded = compare_padding(pretrained)
    print(f"similar lengths {buckets:.0f} rows/s, all padded to {MAX_TOKENS} {padded:.0f} rows/s: ", end="")
    print(f"{buckets / padded:.1f} times as fast")
    without, tuned = compare_tuner(pretrained)
    print(f"an epoch of {TUNED_ROWS:,} rows: {without:.1f} s; with the tuner of tf.data {tuned:.1f} s")

    costs = fit_costs()
    print(f"fitted: {1e-9 / costs[0]:.0f} Gflop/s, {costs[1] * 1e6:.0f} us a word, {costs[2] * 1e3:.1f} ms a step")
    for tokens, batch_size in PREDICTED:
        measured = batch_size / seconds_of_step(tokens, batch_size)
        predicted = batch_size / (counts(tokens, batch_size) @ costs)
        print(f"{tokens:3} tokens: {measured:5.0f} rows/s measured, {predicted:5.0f} predicted: ", end="")
        print(f"{predicted / measured:.2f} of it")

    size = COMPETITION
    print(f"The competition, {size['rows']:,} rows to fit, {size['tokens']} tokens a row, {size['width']}-d vectors:")
    print_competition("this machine", costs, 9)
    print_competition("one T4 as assumed", np.array(list(GPU.values())), 2)
    memory = size["batch_size"] * MAX_TOKENS * (2 * size["width"] + 40 * UNITS) * 2 + 400_000 * size["width"] * 4
    print(f"GPU memory at the most, matrix of 400,000 words and the longest batch: {memory / 1e9:.1f} GB")
