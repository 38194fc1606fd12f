"""Train small models on logical CPUs, save what came of them: train_on_devices.py WORKERS PRECISION MODELS OUTPUT.npz

A process of its own, since TensorFlow fixes its devices when it starts. The sizes are odd: rows, batches, models.
"""

import resource
import sys
import time
from functools import partial

import kernel
import numpy as np
from keras import mixed_precision, ops

ROWS, HOLDOUT, WORDS, WIDTH, BATCH_SIZE, EPOCHS = 507, 101, 30, 6, 32, 4


class Watched(kernel.Training):
    """Notes for each step when it began and ended, and on which device its loss was computed."""

    steps_seen = []

    def on_train_batch_begin(self, batch, logs=None):
        self.step_begun = time.monotonic()
        super().on_train_batch_begin(batch, logs)

    def on_train_batch_end(self, batch, logs=None):
        super().on_train_batch_end(batch, logs)
        number = int(self.name.removeprefix("Model ")) - 1
        device = int(logs["loss"].device.rsplit(":", 1)[1])
        variable = int(self.model.trainable_weights[0].value.device.rsplit(":", 1)[1])
        self.steps_seen.append((number, device, variable, self.step_begun, time.monotonic()))


def make_data():
    """Comments that are toxic where token 2 occurs and mention identities where others do, as Ensemble takes them."""
    generator = np.random.default_rng(0)
    lengths = generator.integers(1, 12, ROWS)
    offsets = np.append(0, np.cumsum(lengths))
    tokens = generator.integers(2, WORDS, offsets[-1]).astype(np.int32)
    comments = np.split(tokens, offsets[1:-1])
    occurs = np.array([np.isin(np.arange(2, 3 + len(kernel.IDENTITIES)), comment) for comment in comments], np.float32)
    labels = {"toxicity": occurs, "subtypes": np.repeat(occurs[:, :1], len(kernel.SUBTYPES), axis=1)}
    labels["subtypes"][::2, 1:] = np.nan
    return tokens, offsets, labels, generator.uniform(0.5, 1.5, ROWS).astype(np.float32)


def main(workers, precision, models, output):
    devices = kernel.find_devices(workers, use_gpu=False)
    kernel.prepare_backend(1, devices)
    mixed_precision.set_dtype_policy(precision)
    kernel.Training, kernel.SPATIAL_DROPOUT = Watched, 0.0
    tokens, offsets, labels, weights = make_data()
    matrix = np.random.default_rng(1).normal(size=(WORDS, WIDTH)).astype(np.float32)
    pretrained = []
    for device in devices:
        with kernel.keras.device(device):
            pretrained.append(kernel.pretrained_vectors(matrix))
    ensemble = kernel.Ensemble(
        kernel.Settings(epochs=EPOCHS, lstm_units=8, learning_rate=0.02),
        deadline=time.monotonic() + 1e6,
        most_models=models,
        workers=workers,
        frequent_words=WORDS // 2,
        make_batches=partial(
            kernel.LengthBuckets, tokens, offsets, np.arange(HOLDOUT, ROWS), BATCH_SIZE, labels, weights
        ),
        holdout_batches=kernel.LengthBuckets(tokens, offsets, np.arange(HOLDOUT)),
        scored_batches=kernel.LengthBuckets(tokens, offsets, np.arange(ROWS), batch_size=200),
        figures_of=lambda logits: {"mean": logits[:HOLDOUT].mean()},
    )
    functions = [partial(kernel.train_next, ensemble, layer) for layer in pretrained]
    trained, peaks = [], []
    for model in kernel.side_by_side(devices, functions, ensemble.interrupted):
        trained.append(model)
        peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    trained.sort(key=lambda model: model.number)
    np.savez(
        output,
        logits=[model.logits[:, 0] for model in trained],
        losses=[[epoch["loss"] for epoch in model.history] for model in trained],
        epochs=[model.epochs for model in trained],
        peaks=peaks,
        toxic=labels["toxicity"][:, 0],
        seen=Watched.steps_seen,
        dtypes=[str(weight.dtype) for model in trained for weight in model.weights],
        compute_dtype=kernel.build_model(pretrained[0], 0, 8).compute_dtype,
        scored_in=str(ops.convert_to_numpy(trained[0].logits).dtype),
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4])
