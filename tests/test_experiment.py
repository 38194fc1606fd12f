"""benchmarks/experiment.py replaces definitions of the notebook: who changes these should hear of it here."""

import shutil
import subprocess
import sys

import kernel
import pytest
from runs import VECTORS, copy_of_sample

EXPERIMENT = kernel.NOTEBOOK.parent / "benchmarks" / "experiment.py"
TOGETHER = [  # each name is a variant that replaces something else
    "swap: in half + network: attention + vectors: projected + loss: pairs over batches + batch: 128 + "
    "trained: words of 20 + pairs: named in unlabelled + target: smoothed + target: less identity attack",
    "swap: pairing + harmless identities weigh 2 + vectors: first file alone + trained: no words",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = copy_of_sample(tmp_path_factory.mktemp("experiment") / "comments", rows=400)
    shutil.copy(VECTORS, folder)
    return folder


def experiment(folder, *arguments):
    return subprocess.run([sys.executable, EXPERIMENT, folder, *arguments], capture_output=True, text=True)


def test_variants_are_compared_with_the_default(folder):
    """With two models each, of which the second learns the test comments."""
    done = experiment(folder, *TOGETHER, "--models", "2", "--epochs", "1")
    assert done.returncode == 0, done.stderr
    rows = [line.strip("| ").split(" | ") for line in done.stdout.splitlines() if line.startswith("| ")]
    assert [row[0] for row in rows] == ["variant", "default", *TOGETHER]
    final = rows[0].index("final")
    assert all(0 < float(row[final]) < 1 for row in rows[1:])
    assert len({tuple(row[final:]) for row in rows[1:]}) == 3  # one figure alone may be the same by chance


@pytest.mark.parametrize(
    "name, said",
    [("swap: nobody", "no such variant: swap: nobody"), ("epochs: 3 + epochs: 8", "two of these change the same")],
)
def test_variants_that_cannot_be_trained_are_refused(folder, name, said):
    done = experiment(folder, name)
    assert done.returncode == 2 and said in done.stderr
