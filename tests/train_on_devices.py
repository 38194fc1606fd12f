"""Train the small networks of test_training.py on logical CPUs, and save what came of them:
train_on_devices.py WORKERS PRECISION NETWORKS OUTPUT.npz

A process of its own, since TensorFlow fixes its devices when it starts.
"""

import resource
import sys
import tempfile
import threading
import time
from pathlib import Path

import kernel
import numpy as np
import tensorflow as tf
from test_training import SCORED_ROWS, TOXIC, WORDS, make_ensemble


def train(ensemble, workers, precision, networks):
    """Train so many networks, and wait for them."""
    (cpu,), config = tf.config.list_physical_devices("CPU"), tf.config
    logical = [config.LogicalDeviceConfiguration()] * workers
    config.set_logical_device_configuration(cpu, logical)
    kernel.find_devices()
    vectors = np.eye(WORDS, dtype=np.float16)
    shared = ensemble, iter(range(networks)), time.monotonic() + 1e6, precision
    jobs = []
    for device in (f"cpu:{number}" for number in range(workers)):
        own = device, kernel.pretrained_vectors(vectors, device)
        jobs.append(threading.Thread(target=kernel.train_networks, args=(*shared, *own)))
        jobs[-1].start()
    for job in jobs:
        job.join()


def main(workers, precision, networks, output):
    peaks, seen, dtypes = [], [], []
    kernel.SPATIAL_DROPOUT, kernel.with_scores = 0.0, lambda data, *others: data  # none is taught
    make_train_step = kernel.make_train_step
    predict = kernel.predict

    def watched(model, adam):
        """Notes for each step of each network its device, and when the step began."""
        train_step, weight = make_train_step(model, adam), model.trainable_weights[0].value
        device = int(weight.device.rsplit(":", 1)[1])

        def train_one(*batch):
            seen.append((id(model), device, time.monotonic()))
            return train_step(*batch)

        return train_one

    def predict_and_note(*of_network):
        peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
        return predict(*of_network)

    kernel.make_train_step = watched
    kernel.predict = predict_and_note
    with tempfile.TemporaryDirectory() as folder:
        ensemble = make_ensemble(Path(folder), lstm_units=8)
        train(ensemble, workers, precision, networks)
    scores = kernel.network_scores(dict(sorted(ensemble.networks.items())))
    for network in ensemble.networks.values():
        dtypes += [str(array.dtype) for name, array in network.items() if "/" in name]
    np.savez(
        output,
        scores=scores[:, :, 0],
        toxic=TOXIC[SCORED_ROWS],
        seen=seen,
        peaks=peaks,
        dtypes=dtypes,
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4])
