"""Keras on PyTorch, where that is installed: the notebook runs as it is, and learns as much as on TensorFlow."""

import importlib.util
import json
import re

import kernel
import pytest
from runs import run_notebook

pytestmark = pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="PyTorch is not installed")


def test_the_sample_on_torch_scores_as_on_tensorflow(tmp_path, monkeypatch):
    """The outputs stored in the notebook are those of TensorFlow."""
    stored = re.search(r"Final score on the holdout: (0\.\d{4})", json.dumps(kernel.CELLS))[1]
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    report = run_notebook(tmp_path, workers=2)
    assert "torch" in report["versions"]
    assert report["final_score"] == pytest.approx(float(stored), abs=0.01)
