"""Train small models on logical CPUs, save what came of them: train_on_devices.py WORKERS PRECISION MODELS OUTPUT.npz

A process of its own, since TensorFlow fixes its devices when it starts. The sizes are odd: rows, batches, models.
"""

import resource
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import kernel
import numpy as np
import pandas as pd

ROWS, HOLDOUT, WORDS, WIDTH, BATCH_SIZE, EPOCHS = 507, 101, 30, 6, 32, 4


class Watched(kernel.Schedule):
    """Notes for each step of each model its device, and when the step began."""

    steps_seen = []

    def on_train_batch_begin(self, batch, logs=None):
        super().on_train_batch_begin(batch, logs)
        device = int(self.model.trainable_weights[0].value.device.rsplit(":", 1)[1])
        self.steps_seen.append((id(self), device, time.monotonic()))


def make_data():
    """Comments that are toxic where token 1 occurs and mention identities where others do: tokens, offsets, labels."""
    generator = np.random.default_rng(0)
    offsets = np.append(0, np.cumsum(generator.integers(1, 12, ROWS)))
    tokens = generator.integers(1, WORDS, offsets[-1]).astype(np.int32)
    comments = np.split(tokens, offsets[1:-1])
    occurs = np.array([np.isin(np.arange(1, 2 + len(kernel.IDENTITIES)), comment) for comment in comments], np.float32)
    labels = {"toxicity": occurs, "subtypes": np.repeat(occurs[:, :1], len(kernel.SUBTYPES), axis=1)}
    labels["subtypes"][::2, 1:] = np.nan
    return tokens, offsets, labels


def main(workers, precision, models, output):
    devices, peaks, dtypes = kernel.find_devices(workers), [], []
    kernel.Schedule, kernel.SPATIAL_DROPOUT = Watched, 0.0
    tokens, offsets, labels = make_data()
    weights = np.random.default_rng(2).uniform(0.5, 1.5, ROWS).astype(np.float32)
    data = tokens, offsets, np.arange(HOLDOUT, ROWS), BATCH_SIZE, weights, np.zeros(ROWS, bool), ()
    matrix = np.random.default_rng(1).normal(size=(WORDS, WIDTH)).astype(np.float16)
    write_models = kernel.write_models

    def write_and_note(folder, *others):
        write_models(folder, *others)
        peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
        dtypes.extend({str(array.dtype) for path in folder.glob("*.npz") for array in dict(np.load(path)).values()})

    kernel.write_models = write_and_note
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "models").mkdir()
        ensemble = kernel.Ensemble(
            kernel.Settings(output_dir=Path(folder), models=models, epochs=EPOCHS, lstm_units=8, learning_rate=0.02),
            deadline=time.monotonic() + 1e6,
            frequent_words=WORDS // 2,
            make_batches=lambda seed, *others: kernel.Batches(*data, seed, labels),  # no model learns from those before
            labels=labels,
            to_score=kernel.Batches(tokens, offsets, np.arange(ROWS), 200),
            ids=pd.Series(np.arange(50)),
            description={"run": ""},
        )
        pretrained = [kernel.pretrained_vectors(matrix, device) for device in devices]
        with ThreadPoolExecutor(workers) as pool:
            [*pool.map(partial(kernel.train_models, ensemble, precision), devices, pretrained)]
    names = sorted(ensemble.scores)
    np.savez(
        output,
        scores=[ensemble.scores[name][:, 0] for name in names],
        losses=[ensemble.losses[name] for name in names],
        toxic=labels["toxicity"][:, 0],
        seen=Watched.steps_seen,
        peaks=peaks,
        dtypes=[dtype for dtype in dtypes if dtype.startswith("float")],
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4])
