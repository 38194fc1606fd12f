"""Train small networks on logical CPUs, and save what came of them:
train_on_devices.py WORKERS PRECISION NETWORKS OUTPUT.npz

A process of its own, since TensorFlow fixes its devices when it starts. The sizes are odd.
"""

import resource
import sys
import tempfile
import threading
import time
from pathlib import Path

import kernel
import numpy as np
import pandas as pd

ROWS, HOLDOUT, WORDS, WIDTH, BATCH_SIZE, EPOCHS = 507, 101, 30, 6, 32, 4


def make_data():
    """Comments that are toxic where token 1 occurs, and mention identities where others do."""
    generator = np.random.default_rng(0)
    offsets = np.append(0, np.cumsum(generator.integers(1, 12, ROWS)))
    tokens = generator.integers(1, WORDS, offsets[-1]).astype(np.int32)
    columns = np.arange(1, 2 + len(kernel.IDENTITIES))
    comments = np.split(tokens, offsets[1:-1])
    toxicity = np.array([np.isin(columns, comment) for comment in comments], np.float32)
    subtypes = np.repeat(toxicity[:, :1], len(kernel.SUBTYPES), axis=1)
    subtypes[::2, 1:] = np.nan
    weights = np.random.default_rng(2).uniform(0.5, 1.5, ROWS).astype(np.float32)
    others = {"identity_terms": [], "surplus": np.zeros(ROWS, bool), "batch_size": BATCH_SIZE}
    labels = {"toxicity": toxicity, "subtypes": subtypes, "weights": weights}
    rows = np.arange(HOLDOUT, ROWS)
    return kernel.TrainingData(tokens=tokens, offsets=offsets, rows=rows, **labels, **others)


def main(workers, precision, networks, output):
    devices, peaks, seen = kernel.find_devices(workers), [], []
    kernel.SPATIAL_DROPOUT, kernel.with_scores = 0.0, lambda data, *others: data  # none is taught
    data, make_train_step, save = make_data(), kernel.make_train_step, kernel.write_atomically

    def watched(model, adam):
        """Notes for each step of each network its device, and when the step began."""
        train_step, weight = make_train_step(model, adam), model.trainable_weights[0].value

        def train_one(*batch):
            seen.append((id(model), int(weight.device.rsplit(":", 1)[1]), time.monotonic()))
            return train_step(*batch)

        return train_one

    def save_and_note(path, content):
        save(path, content)
        peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)

    kernel.make_train_step, kernel.write_atomically = watched, save_and_note
    matrix = np.random.default_rng(1).normal(size=(WORDS, WIDTH)).astype(np.float16)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "models").mkdir()
        settings = {"epochs": EPOCHS, "lstm_units": 8, "learning_rate": 0.02, "output_dir": folder}
        ensemble = kernel.Ensemble(
            settings=kernel.Settings(**settings),
            run="0123456789",
            data=data,
            frequent_words=WORDS // 2,
            holdout_rows=np.arange(HOLDOUT),
            test_rows=data.rows,
            ids=pd.Series(data.rows),
            toxic=data.toxicity[:HOLDOUT, 0] >= 0.5,
            mentioned=pd.DataFrame(False, range(HOLDOUT), kernel.IDENTITIES),
            decisive="overall_auc",
            baseline_scores=np.zeros(ROWS),
            submitted="TF-IDF",
        )
        shared = ensemble, iter(range(networks)), time.monotonic() + 1e6, precision
        jobs = []
        for device in devices:
            own = device, kernel.pretrained_vectors(matrix, device)
            jobs.append(threading.Thread(target=kernel.train_networks, args=(*shared, *own)))
            jobs[-1].start()
        for job in jobs:
            job.join()
        saved = kernel.saved_networks(Path(folder) / "models", "0123456789", networks)
    names = sorted(ensemble.networks)
    np.savez(
        output,
        scores=[ensemble.scores()[name][:, 0] for name in names],
        losses=[ensemble.networks[name]["losses"] for name in names],
        toxic=data.toxicity[:, 0],
        seen=seen,
        peaks=peaks[::2],  # each network's, and not the submission's
        dtypes=[
            str(array.dtype) for of in saved.values() for key, array in of.items() if "/" in key
        ],
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4])
