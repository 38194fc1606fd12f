"""Two devices and half precision: the training is that of one device in single precision."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

SCRIPT = Path(__file__).parent / "train_on_devices.py"
RUNS = {"one": ("1", "float32"), "two": ("2", "float32"), "half": ("1", "mixed_float16")}  # devices, precision


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """{run: what train_on_devices.py saved}, from processes of their own, side by side."""
    folder = tmp_path_factory.mktemp("devices")
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"}
    processes = {
        name: subprocess.Popen(
            [sys.executable, SCRIPT, *arguments, folder / f"{name}.npz"],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name, arguments in RUNS.items()
    }
    for process in processes.values():
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
    return {name: dict(np.load(folder / f"{name}.npz")) for name in RUNS}


def test_training_lowers_the_loss_of_each_head(trained):
    losses = trained["one"]["losses"]  # (epochs, all, subtypes, toxicity)
    assert losses.shape[1] == 3 and (losses[-1] < losses[0]).all()


def test_two_devices_have_the_losses_of_one(trained):
    assert np.allclose(trained["two"]["losses"], trained["one"]["losses"], rtol=0, atol=1e-5)


def test_two_devices_end_with_the_averaged_weights_of_one(trained):
    """The weights in the end are their moving average, and each row had its sample weight."""
    one, two = trained["one"], trained["two"]
    assert one.keys() == two.keys() and len(one) > 20
    for name in one:
        assert np.allclose(two[name], one[name], rtol=0, atol=1e-5), name


def test_half_precision_keeps_weights_and_scores_in_float32(trained):
    assert {values.dtype for name, values in trained["half"].items() if name not in ("losses", "toxic")} == {
        np.dtype("f4")
    }


def test_half_precision_learns_as_much(trained):
    assert np.allclose(trained["half"]["losses"], trained["one"]["losses"], rtol=0, atol=0.01)
    aucs = [roc_auc_score(trained[name]["toxic"], trained[name]["logits"]) for name in ("one", "half")]
    assert aucs[1] == pytest.approx(aucs[0], abs=0.01)
    assert abs(trained["half"]["logits"] - trained["one"]["logits"]).max() > 1e-6  # it was half precision
