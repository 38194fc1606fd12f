"""How fast the notebook's network trains on GPUs: python benchmarks/gpu.py

Needs no data: 1.62 million comments to fit, with lengths like the competition's, are made of random
words. In full and in half precision it prints rows a second, milliseconds a step and seconds an
epoch on one GPU, and how long as many networks as there are GPUs, twice, take on one of them, and
side by side on all; beside it the median step and the longest one, in which another network may
have begun. On a CPU, with fewer --rows, --words and --steps, it shows that it works, and with
--workers, which sets as many logical CPUs, what these gain.
"""

import tempfile
import threading
import time
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from unittest.mock import patch

from measure import parse_arguments, print_machine

# isort: split
import kernel
import numpy as np
import pandas as pd
from kernel import keras, tf

WIDTH = 600  # of the pretrained vectors
MAX_TOKENS = kernel.Settings.model_fields["max_tokens"].default
TO_SCORE = 64  # comments


def make_data(rows, words, size):
    """Made-up comments, TrainingData."""
    generator = np.random.default_rng(0)
    lengths = np.exp(generator.normal(3.7, 0.95, rows)).astype(int).clip(1, MAX_TOKENS)
    offsets = np.append(0, np.cumsum(lengths))
    shares = generator.random((rows, len(kernel.LABELS))) ** 8
    mentioned = generator.random((rows, len(kernel.IDENTITIES))) < 0.02
    labels = np.column_stack([shares, mentioned, np.ones(rows)])
    return kernel.TrainingData(
        tokens=(words ** generator.random(offsets[-1])).astype(np.int32),  # Zipf's law
        offsets=offsets,
        identity_terms=[],
        labels=labels.astype(np.float32),
        rows=np.arange(rows),
        unlabelled_rows=[],
        batch_size=size,
    )


def make_vectors(words, device):
    matrix = np.random.default_rng(0).random((words + 1, WIDTH), np.float32)
    return kernel.pretrained_vectors(matrix - 0.5, device)


class Watched(kernel.Schedule):
    """Notes the seconds at which the steps of each network begin."""

    of_networks = {}

    def next_step(self):
        self.of_networks.setdefault(id(self), []).append(time.perf_counter())
        return super().next_step()


def seconds_of_step(pretrained, data, steps, units, warm_up=20):
    """Mean of so many training steps behind the first ones, in which the graph is built."""
    model = kernel.build_model(pretrained, units)
    schedule = Watched(warm_up + steps, np.inf, 0)
    generator = np.random.default_rng(0)
    with redirect_stdout(StringIO()):
        kernel.train_model(model, data, generator, schedule, 4e-3, threading.Event(), "")
    return (time.perf_counter() - Watched.of_networks[id(schedule)][warm_up]) / steps


def make_ensemble(folder, data, units):
    rows = np.arange(TO_SCORE)
    settings = {"output_dir": folder, "epochs": 1, "lstm_units": units}
    return kernel.Ensemble(
        settings=kernel.Settings(**settings),
        run="",
        data=data,
        rows_to_score=np.append(rows, rows),
        ids=pd.Series(rows),
        toxic=rows % 2 == 0,
        mentioned=pd.DataFrame(False, rows, kernel.IDENTITIES),
        decisive="overall_auc",
        baseline_scores=np.zeros(2 * TO_SCORE),
        submitted="TF-IDF",
    )


def seconds_of_networks(devices, pretrained, networks, data, units):
    """Seconds that so many networks take, an epoch each, side by side on the devices; and each of
    their steps.
    """
    Watched.of_networks.clear()
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(StringIO()):
        Path(folder, "models").mkdir()
        ensemble = make_ensemble(folder, data, units)
        shared = ensemble, iter(range(networks)), np.inf, keras.config.dtype_policy().name
        begun, threads = time.perf_counter(), []
        with patch.object(kernel, "Schedule", Watched):
            for own in zip(devices, pretrained, strict=True):
                arguments = (*shared, *own)
                threads.append(threading.Thread(target=kernel.train_networks, args=arguments))
                threads[-1].start()
            for thread in threads:
                thread.join()
    # the first step builds the graph
    steps = np.concatenate([np.diff(times)[2:] for times in Watched.of_networks.values()])
    return time.perf_counter() - begun, steps


def measure_precision(precision, arguments, devices, pretrained, data):
    keras.config.set_dtype_policy(precision)
    with keras.device(devices[0]):
        seconds = seconds_of_step(pretrained[0], data, arguments.steps, arguments.units)
    epoch = seconds * len(data.draw_batches(np.random.default_rng(0)))
    print(f"{precision}: {data.batch_size / seconds:,.0f} rows a second, ", end="")
    print(f"{seconds * 1e3:.1f} ms a step, {epoch:,.0f} s an epoch", flush=True)
    few, networks = data.rows[: arguments.steps * arguments.size], 2 * len(devices)
    few = kernel.replace(data, rows=few)
    for some in (1, len(devices)) if len(devices) > 1 else ():
        own = devices[:some], pretrained[:some]
        took, steps = seconds_of_networks(*own, networks, few, arguments.units)
        print(f"  {networks} networks on {some} of the devices: {took:.0f} s, ", end="")
        median, longest = np.median(steps) * 1e3, steps.max() * 1e3
        print(f"a step {median:.0f} ms, the longest {longest:.0f} ms", flush=True)


def main():
    defaults = {"rows": 1_624_000, "words": 500_000, "steps": 300, "units": 128, "size": 512}
    arguments = parse_arguments(__doc__, **defaults, workers=0)
    if arguments.workers:
        (cpu,) = tf.config.list_physical_devices("CPU")
        logical = [tf.config.LogicalDeviceConfiguration()] * arguments.workers
        tf.config.set_logical_device_configuration(cpu, logical)
    devices = kernel.find_devices()
    devices = [f"cpu:{number}" for number in range(arguments.workers)] or devices
    print_machine("keras", "tensorflow")
    gpus = tf.config.list_physical_devices("GPU")
    details = map(tf.config.experimental.get_device_details, gpus)
    print("GPU:", "; ".join(of.get("device_name", "unknown") for of in details) or "none")
    data = make_data(arguments.rows, arguments.words, arguments.size)
    pretrained = [make_vectors(arguments.words, device) for device in devices]
    for precision in ("float32", "mixed_float16"):
        measure_precision(precision, arguments, devices, pretrained, data)


if __name__ == "__main__":
    main()
