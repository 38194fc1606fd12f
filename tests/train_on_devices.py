"""Train a small model on some logical CPUs and save what came out: train_on_devices.py DEVICES PRECISION OUTPUT.npz

A process of its own, since TensorFlow fixes its devices when it starts. No dropout: its masks differ by device.
"""

import sys
import time

import numpy as np
import tensorflow
from keras import callbacks, mixed_precision, ops

ROWS, WORDS, WIDTH, BATCH_SIZE, EPOCHS = 512, 30, 6, 32, 3


class Losses(callbacks.Callback):
    """The losses of each epoch, of all heads."""

    def __init__(self):
        super().__init__()
        self.of_epochs = []

    def on_epoch_end(self, epoch, logs=None):
        self.of_epochs.append([logs[name] for name in sorted(logs) if name.endswith("loss")])


def make_batches(kernel):
    """Comments that are toxic where token 2 occurs, mention identities where others do, with weights that differ."""
    generator = np.random.default_rng(0)
    lengths = generator.integers(2, 12, ROWS)
    offsets = np.append(0, np.cumsum(lengths))
    tokens = generator.integers(2, WORDS, offsets[-1]).astype(np.int32)
    comments = np.split(tokens, offsets[1:-1])
    occurs = np.array([np.isin(np.arange(2, 3 + len(kernel.IDENTITIES)), comment) for comment in comments], np.float32)
    labels = {"toxicity": occurs, "subtypes": np.repeat(occurs[:, :1], len(kernel.SUBTYPES), axis=1)}
    labels["subtypes"][::2, 1:] = np.nan
    # so small that no gradient is clipped: Keras clips those of each device before it sums them
    weights = generator.uniform(0.2, 0.6, ROWS).astype(np.float32)
    return kernel.LengthBuckets(tokens, offsets, np.arange(ROWS), BATCH_SIZE, labels, weights, seed=1)


def main(devices, precision, output):
    cpus = tensorflow.config.list_physical_devices("CPU")
    tensorflow.config.set_logical_device_configuration(
        cpus[0], [tensorflow.config.LogicalDeviceConfiguration()] * devices
    )
    import kernel

    kernel.keras.utils.set_random_seed(1)
    mixed_precision.set_dtype_policy(precision)
    batches, losses = make_batches(kernel), Losses()
    matrix = np.random.default_rng(1).normal(size=(WORDS, WIDTH)).astype(np.float32)
    split = kernel.splitting_scope([f"CPU:{number}" for number in range(devices)])
    with split():
        model = kernel.build_model(kernel.PretrainedVectors(matrix), WORDS // 2, lstm_units=8, spatial_dropout=0.0)
        model.get_layer("word_vectors").dropout.rate = 0.0
        training = kernel.Training(EPOCHS * len(batches), time.monotonic() + 1e6, 0.003, lambda model: {})
        training.on_epoch_end = lambda epoch, logs=None: losses.on_epoch_end(epoch, logs)
        kernel.train_model(model, batches, training)
        logits = kernel.predict(model, batches.tokens, batches.offsets, np.arange(ROWS), BATCH_SIZE)
    weights = {weight.path: ops.convert_to_numpy(weight) for weight in model.trainable_weights}
    np.savez(output, losses=losses.of_epochs, logits=logits, toxic=batches.labels["toxicity"][:, 0], **weights)


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
