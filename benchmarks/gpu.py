"""How fast the notebook's network trains on GPUs: python benchmarks/gpu.py

Needs no data: 1.62 million comments to fit, with lengths like the competition's, are made of random words. In full and
in half precision it prints rows a second, milliseconds a step and seconds an epoch on one GPU, and how long as many
models as there are GPUs, twice, take on one of them, and side by side on all; beside it the median step and the longest
one, in which another model may have begun. On a CPU, with fewer --rows, --words and --steps, it shows that it works,
and with --workers, which sets as many logical CPUs, what these gain.
"""

import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path
from threading import Event
from unittest.mock import patch

from measure import parse_arguments, print_machine

# isort: split
import kernel
import numpy as np
import pandas as pd
from kernel import keras, tf


def make_comments(rows, words, size):
    """What Batches takes to train on made-up comments, by name."""
    generator = np.random.default_rng(0)
    lengths = (
        np.exp(generator.normal(3.7, 0.95, rows)).astype(int).clip(1, kernel.Settings.max_tokens)
    )
    offsets = np.append(0, np.cumsum(lengths))
    tokens = (words ** generator.random(offsets[-1])).astype(np.int32)  # Zipf's law
    mentioned = generator.random((rows, len(kernel.IDENTITIES))) < 0.02
    toxicity = np.column_stack([generator.random(rows) ** 8, mentioned]).astype(np.float32)
    labels = {
        "toxicity": toxicity,
        "subtypes": generator.random((rows, len(kernel.SUBTYPES)), np.float32),
    }
    of_rows = {
        "weights": np.ones(rows, np.float32),
        "surplus": np.zeros(rows, bool),
        "labels": labels,
    }
    return {
        "tokens": tokens,
        "offsets": offsets,
        "rows": np.arange(rows),
        "size": size,
        "seed": 1,
    } | of_rows


def make_vectors(words, device, width=600):
    return kernel.pretrained_vectors(
        np.random.default_rng(0).random((words + 1, width), np.float32) - 0.5, device
    )


class Watched(kernel.Schedule):
    """Notes the seconds at which the steps of each model begin."""

    begun = []

    def on_train_begin(self, logs=None):
        self.begun.append([])
        self.times = self.begun[-1]

    def on_train_batch_begin(self, batch, logs=None):
        self.times.append(time.perf_counter())
        super().on_train_batch_begin(batch, logs)


def seconds_of_step(pretrained, batches, steps, units, warm_up=20):
    """Mean of so many training steps behind the first ones, in which the graph is built."""
    model = kernel.build_model(pretrained, pretrained.input_dim // 8, units)
    schedule = Watched(warm_up + steps, 4e-3, 0, np.inf, Event())
    kernel.train_model(model, batches, schedule)
    return (time.perf_counter() - schedule.times[warm_up]) / steps


def seconds_of_models(devices, pretrained, models, comments, units):
    """Seconds that so many models take, an epoch each, side by side on the devices; and each of their steps."""

    def make_batches(seed, labels, extra):
        return kernel.Batches(**comments | {"seed": seed, "labels": labels, "extra": extra})

    ids = pd.Series(comments["rows"][:64])
    to_score = kernel.Batches(comments["tokens"], comments["offsets"], ids.to_numpy())
    with (
        tempfile.TemporaryDirectory() as folder,
        ThreadPoolExecutor(len(devices)) as pool,
        redirect_stdout(StringIO()),
    ):
        Path(folder, "models").mkdir()
        settings = kernel.Settings(
            output_dir=Path(folder), models=models, epochs=1, lstm_units=units
        )
        to_train = settings, np.inf, 1_000, make_batches, comments["labels"]
        ensemble = kernel.Ensemble(*to_train, to_score, ids, {"run": ""})
        train_on, begun = (
            partial(kernel.train_models, ensemble, keras.config.dtype_policy()),
            time.perf_counter(),
        )
        with patch.object(kernel, "Schedule", Watched), patch.object(Watched, "begun", []):
            list(pool.map(train_on, devices, pretrained))
            steps = np.concatenate(
                [np.diff(times)[2:] for times in Watched.begun]
            )  # the first builds the graph
        return time.perf_counter() - begun, steps


def main():
    arguments = parse_arguments(
        __doc__, rows=1_624_000, words=500_000, steps=300, units=128, size=512, workers=0
    )
    devices = kernel.find_devices(arguments.workers)
    print_machine("keras", "tensorflow")
    details = map(tf.config.experimental.get_device_details, tf.config.list_physical_devices("GPU"))
    print("GPU:", "; ".join(of.get("device_name", "unknown") for of in details) or "none")
    comments = make_comments(arguments.rows, arguments.words, arguments.size)
    few = comments | {"rows": comments["rows"][: arguments.steps * arguments.size]}
    pretrained, count = [make_vectors(arguments.words, device) for device in devices], len(devices)
    for precision in ("float32", "mixed_float16"):
        keras.config.set_dtype_policy(precision)
        batches = kernel.Batches(**comments)
        with keras.device(devices[0]):
            seconds = seconds_of_step(pretrained[0], batches, arguments.steps, arguments.units)
        print(
            f"{precision}: {batches.size / seconds:,.0f} rows a second, {seconds * 1e3:.1f} ms a step, ",
            end="",
        )
        print(f"{seconds * len(batches):,.0f} s an epoch", flush=True)
        for some in (1, count) if count > 1 else ():
            took, of_steps = seconds_of_models(
                devices[:some], pretrained[:some], 2 * count, few, arguments.units
            )
            print(
                f"  {2 * count} models on {some} device{'s' * (some > 1)}: {took:.0f} s, ", end=""
            )
            print(
                f"a step {np.median(of_steps) * 1e3:.0f} ms, the longest {of_steps.max() * 1e3:.0f} ms",
                flush=True,
            )


if __name__ == "__main__":
    main()
