"""benchmarks/scaling.py runs the notebook's cells on a part of its rows: who changes these should
hear of it here.
"""

import shutil
import subprocess
import sys

import kernel
import numpy as np
import pandas as pd
import pytest
from runs import VECTORS, copy_of_sample

BENCHMARKS = kernel.NOTEBOOK.parent / "benchmarks"


def test_networks_are_trained_once_and_printed_by_rows(tmp_path):
    folder = copy_of_sample(tmp_path / "comments", rows=600)
    shutil.copy(VECTORS, folder)
    command = [
        sys.executable,
        BENCHMARKS / "scaling.py",
        folder,
        "--keep",
        tmp_path / "kept",
        "--units",
        "4",
        "8",
    ]
    command += ["--epochs", "1", "--dropout", "0.3", "--number", "1", "--part", "0.25", "0.5", "1"]
    printed, written = [], []
    for _ in range(2):
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout.split("\n", 1)[1])
        written.append(
            {
                path.name: path.stat().st_mtime
                for path in (tmp_path / "kept" / "comments").glob("*.npz")
            }
        )
    assert printed[0] == printed[1] and written[0] == written[1] and len(written[0]) == 6
    table = [
        line.strip("| ").split(" | ") for line in printed[0].splitlines() if line.startswith("| ")
    ][2:]
    assert [row[2] for row in table] == ["4", "8"] * 3  # units
    rows = np.array([int(row[1]) for row in table[::2]])
    assert np.allclose(rows / rows[-1], [0.25, 0.5, 1], atol=0.1) and 300 < rows[-1] < 600
    assert (
        "8 units for 4, at 1,624,000 rows:" in printed[0]
        and (tmp_path / "kept" / "comments" / "scaling.png").exists()
    )


def test_curves_are_those_that_the_errors_lie_on(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    import scaling

    rows = np.tile([3_000, 6_000, 12_000, 24_000], 2)
    models = pd.DataFrame(
        {"units": 128, "rows": rows, "final": 1 - (0.04 + 0.07 * (rows / 10_000) ** -0.4)}
    )
    too_few = pd.DataFrame({"units": 256, "rows": [3_000, 6_000] * 2, "final": 0.9})
    fitted = scaling.fit_curves(pd.concat([models, too_few], ignore_index=True))
    assert [*fitted] == [128]
    (curve, *drawn) = fitted[128]
    assert curve == pytest.approx([0.04, 0.07, 0.4], rel=0.01)
    assert (
        len(drawn) == 100 and np.ptp(drawn, axis=0).max() < 0.01
    )  # models that agree have no noise


def test_a_variant_is_compared_with_the_same_models_of_the_first(monkeypatch, capsys):
    monkeypatch.syspath_prepend(BENCHMARKS)
    import scaling

    monkeypatch.setattr(scaling, "holdout_figures", lambda scores: {"final": 0.5})
    models = pd.DataFrame(
        {
            "variant": [*"bbaa"],
            "number": [1, 0, 0, 1],
            "final": [0.83, 0.92, 0.9, 0.8],
            "scores": np.arange(4.0),
        }
    ).assign(rows=9, units=4, epochs=1, dropout=0.3, overall=0.5, sources=0.5, seconds=1)
    scaling.print_table(models, "a")
    lines = capsys.readouterr().out.splitlines()
    assert (
        "above a" in lines[0] and "+0.0000 ± 0.0000" in lines[2] and "+0.0250 ± 0.0050" in lines[3]
    )
