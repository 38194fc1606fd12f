"""The metric at the size of the public test set, ours and scikit-learn's: python benchmarks/metric.py"""

import os
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
from measure import print_machine
from sklearn.metrics import roc_auc_score

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
import kernel  # noqa: E402

ROWS, RESAMPLES = 97_320, 200


def usual_final_score(toxic, scores, mentioned):
    """The same from scikit-learn's roc_auc_score, by the metric's definition."""
    parts = [roc_auc_score(toxic, scores)]
    for rows_of in (
        lambda identity: identity,
        lambda identity: identity != toxic,
        lambda identity: identity == toxic,
    ):
        chosen = [rows_of(identity) for identity in mentioned.T]
        aucs = np.array([roc_auc_score(toxic[rows], scores[rows]) for rows in chosen])
        parts.append(np.mean(aucs**-5.0) ** (1 / -5.0))
    return np.mean(parts)


if __name__ == "__main__":
    print_machine("scikit-learn")
    generator = np.random.default_rng(0)
    toxic = generator.random(ROWS) < 0.08
    mentioned = generator.random((ROWS, len(kernel.IDENTITIES))) < 0.03
    scores = (generator.normal(size=ROWS) + 2 * toxic).astype(np.float32)

    start = time.perf_counter()
    ours = kernel.final_score(toxic, kernel.dense_ranks(scores), mentioned)
    ours_seconds = time.perf_counter() - start
    start = time.perf_counter()
    usual = usual_final_score(toxic, scores, mentioned)
    usual_seconds = time.perf_counter() - start
    print(f"final score of {ROWS:,} rows: ours {ours_seconds:.3f} s, scikit-learn {usual_seconds:.3f} s")
    print(f"difference: {abs(ours - usual):.1e}")

    frames = pd.DataFrame({"model": scores}), pd.DataFrame(mentioned, columns=kernel.IDENTITIES)
    start = time.perf_counter()
    drawn = kernel.bootstrap(toxic, *frames, RESAMPLES, seed=0)["model", "all", "final_score"]
    print(f"bootstrap of {RESAMPLES} resamples, all figures: {time.perf_counter() - start:.1f} s")
    generator = np.random.default_rng(0)
    for resample in range(3):
        rows = generator.integers(ROWS, size=ROWS)
        difference = abs(drawn[resample] - usual_final_score(toxic[rows], scores[rows], mentioned[rows]))
        print(f"resample {resample}: differs from scikit-learn's by {difference:.1e}")
