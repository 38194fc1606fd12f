"""How fast the notebook's network trains on a GPU, and how much the GPU waits: python benchmarks/gpu.py

Needs no data and no TensorFlow: PyTorch, Keras, NumPy, pandas, scikit-learn and matplotlib do (KERAS_BACKEND=torch).
Takes under 20 minutes. Lengths of comments are drawn like the competition's, 1.62 million to fit, words at random.
For each precision it prints

- rows a second and milliseconds a training step, and how many epochs and models that makes on one GPU in two hours,
- the milliseconds of the same batches made beforehand, without callbacks: the rest of a step is the host's own, the
  making of batches included. nvidia-smi says what share of the time the GPU computed,
- memory in use after each of five models, and how much faster they are trained on all GPUs side by side.

Then it runs the notebook on the sample and prints its final score beside the one stored in the notebook, from a CPU.
Keras runs a GRU on PyTorch word by word, without cuDNN: there the figures are lower bounds. On a machine without a GPU,
with fewer --rows, --words and --steps, it shows no more than that it works – and with --workers, which sets as many
logical CPUs, what these gain.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path
from types import ModuleType

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import keras
import numpy as np
from measure import memory, print_machine

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
try:
    import IPython.display  # noqa: F401
except ModuleNotFoundError:  # it shows nothing here
    display = ModuleType("IPython.display")
    display.Markdown, display.clear_output = str, lambda: None
    sys.modules |= {"IPython": ModuleType("IPython"), "IPython.display": display}
import kernel

WIDTH, EPOCHS = 600, kernel.Settings().epochs
MODELS = 5  # trained one after the other, and side by side
TRAINING_SECONDS = 6_000  # of two hours; the rest is for reading, the evaluation, and Kaggle
WARM_UP_STEPS = 20


class TimedTraining(kernel.Training):
    """Notes when the steps that count begin."""

    def on_train_batch_begin(self, batch, logs=None):
        if self.steps == WARM_UP_STEPS:
            self.timed_from = time.perf_counter()
        super().on_train_batch_begin(batch, logs)


class EpochSeconds(keras.callbacks.Callback):
    """Seconds of the last epoch."""

    def on_epoch_begin(self, epoch, logs=None):
        self.begun = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        self.seconds = time.perf_counter() - self.begun


class ReadyBatches(keras.utils.PyDataset):
    """Batches that are made beforehand."""

    def __init__(self, batches):
        super().__init__()
        self.batches = batches

    def __len__(self):
        return len(self.batches)

    def __getitem__(self, index):
        return self.batches[index]


def make_data(rows, words):
    """Tokens and offsets of comments, and labels and weights, as LengthBuckets takes them."""
    generator = np.random.default_rng(0)
    lengths = np.exp(generator.normal(3.7, 0.95, rows)).astype(int).clip(1, kernel.Settings().max_tokens)
    tokens = generator.integers(2, words, lengths.sum(), np.int32)
    mentioned = generator.random((rows, len(kernel.IDENTITIES))) < 0.02
    labels = {
        "toxicity": np.column_stack([generator.random(rows) ** 8, mentioned]).astype(np.float32),
        "subtypes": generator.random((rows, len(kernel.SUBTYPES)), np.float32),
    }
    return tokens, np.append(0, np.cumsum(lengths)), labels, np.ones(rows, np.float32)


def ask_driver(field):
    """A figure of the first GPU from nvidia-smi, float; NaN where there is none."""
    if not shutil.which("nvidia-smi"):
        return np.nan
    command = ["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader,nounits", "--id=0"]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


class Busy(threading.Thread):
    """Asks twice a second how busy the GPU is; `with Busy() as busy: …`, then busy.share()."""

    def __enter__(self):
        self.shares, self.ended = [], threading.Event()
        self.start()
        return self

    def run(self):
        while not self.ended.wait(0.5):
            self.shares.append(ask_driver("utilization.gpu") / 100)

    def __exit__(self, *_):
        self.ended.set()
        self.join()

    def share(self):
        return np.mean(self.shares)


def memory_in_use():
    """Megabytes: of the GPU, or of this process where there is none."""
    used = ask_driver("memory.used")
    return memory("VmRSS") if np.isnan(used) else used


def print_speed(pretrained, data, steps, units, batch_size):
    tokens, offsets, labels, weights = data
    rows = np.random.default_rng(2).permutation(len(weights))
    batches = kernel.LengthBuckets(tokens, offsets, rows, batch_size, labels, weights, seed=1)
    steps_of_epoch = len(batches)
    model = kernel.build_model(pretrained, kernel.ops.shape(pretrained.embeddings)[0] // 8, units)
    training = TimedTraining("speed", WARM_UP_STEPS + steps, 4e-3, float("inf"))
    with Busy() as busy, redirect_stdout(StringIO()):
        kernel.train_model(model, batches, training)
        seconds = (time.perf_counter() - training.timed_from) / steps

    ready, clock = ReadyBatches([batches[index] for index in range(min(steps, steps_of_epoch))]), EpochSeconds()
    callbacks = kernel.UnreadLogs([clock], add_history=True, model=model, epochs=2)
    model.fit(kernel.as_dataset(ready), epochs=2, callbacks=callbacks, shuffle=False, verbose=0)
    without = clock.seconds / len(ready)

    epochs = TRAINING_SECONDS / (seconds * steps_of_epoch)
    busy_share = "–" if np.isnan(busy.share()) else f"{busy.share():.0%}"
    print(f"{batch_size / seconds:,.0f} rows/s, {seconds * 1e3:.1f} ms a step; the GPU computes: {busy_share}")
    print(f"batches made beforehand, no callbacks: {without * 1e3:.1f} ms; the host adds {seconds / without - 1:.1%}")
    print(f"in two hours {epochs:.1f} epochs, {epochs / EPOCHS:.1f} models of {EPOCHS}")


def train_models(devices, pretrained, data, steps, units, batch_size):
    """Seconds to train MODELS on the devices, side by side, and megabytes in use after each."""
    tokens, offsets, labels, weights = data
    rows, few = np.arange(steps * batch_size) % len(weights), np.arange(batch_size)
    ensemble = kernel.Ensemble(
        kernel.Settings(epochs=1, lstm_units=units),
        deadline=time.monotonic() + 1e6,
        most_models=MODELS,
        workers=len(devices),
        frequent_words=1_000,
        make_batches=partial(kernel.LengthBuckets, tokens, offsets, rows, batch_size, labels, weights),
        holdout_batches=kernel.LengthBuckets(tokens, offsets, few),
        scored_batches=kernel.LengthBuckets(tokens, offsets, few),
        figures_of=lambda logits: {},
    )
    functions = [partial(kernel.train_next, ensemble, layer) for layer in pretrained]
    begun = time.perf_counter()
    with redirect_stdout(StringIO()):
        used = [memory_in_use() for _ in kernel.side_by_side(devices, functions, ensemble.interrupted)]
    return time.perf_counter() - begun, used


def print_score():
    """Final score of the notebook on the sample, here and as stored."""
    os.chdir(kernel.NOTEBOOK.parent)
    names = {}
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(StringIO()):
        os.environ["KERNEL_OUTPUT_DIR"] = folder
        for number, cell in enumerate(kernel.CELLS):
            if cell["cell_type"] == "code":
                kernel.run_cell(number, names)
    stored = re.search(r"Final score on the holdout: (0\.\d{4})", kernel.NOTEBOOK.read_text(encoding="utf-8"))[1]
    print(f"sample: final score {names['report']['final_score']:.4f}; stored in the notebook, from a CPU: {stored}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_624_000, help="to fit (default: 1624000, as in the competition)")
    parser.add_argument("--words", type=int, default=400_000, help="of the vocabulary (default: 400000)")
    parser.add_argument("--steps", type=int, default=300, help="that are timed (default: 300)")
    parser.add_argument("--units", type=int, default=kernel.Settings().lstm_units, help="of the LSTM (default: 128)")
    parser.add_argument("--batch-size", type=int, default=512, help="comments a step (default: 512)")
    parser.add_argument("--workers", type=int, help="default: one a GPU, on a CPU one")
    arguments = parser.parse_args()
    devices = kernel.find_devices(arguments.workers, use_gpu=None)
    kernel.prepare_backend(2019, devices)
    print_machine("keras", keras.config.backend())
    print("GPU:", "; ".join(kernel.gpus_of_driver()) or "none")
    data, sizes = make_data(arguments.rows, arguments.words), (arguments.steps, arguments.units, arguments.batch_size)
    matrix = np.random.default_rng(0).normal(0, 0.4, (arguments.words, WIDTH)).astype(np.float32)
    for precision in ("float32", "mixed_float16"):
        keras.mixed_precision.set_dtype_policy(precision)
        print(f"\n{precision}")
        pretrained = []
        for device in devices:
            with keras.device(device):
                pretrained.append(kernel.pretrained_vectors(matrix))
        print_speed(pretrained[0], data, *sizes)
        alone, used = train_models(devices[:1], pretrained[:1], data, *sizes)
        print(f"{MODELS} models in {alone:.0f} s; in use after each:", ", ".join(f"{size:,.0f} MB" for size in used))
        if len(devices) > 1:
            together, _ = train_models(devices, pretrained, data, *sizes)
            print(f"on {len(devices)} devices in {together:.0f} s: {alone / together:.2f} times as fast", flush=True)
    keras.mixed_precision.set_dtype_policy("float32")
    print_score()
