"""Whole runs of the notebook, as `make run` does them."""

import json
import os
import subprocess
import sys

import kernel


def start_notebook(output_dir, **settings):
    """The process of a run of kernel.ipynb in its own folder with the given settings."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KERNEL_")}
    environment |= {f"KERNEL_{name.upper()}": str(value) for name, value in settings.items()}
    environment["KERNEL_OUTPUT_DIR"] = str(output_dir)
    command = [sys.executable, "-m", "papermill", "--no-progress-bar", kernel.NOTEBOOK.name, output_dir / "run.ipynb"]
    return subprocess.Popen(command, cwd=kernel.NOTEBOOK.parent, env=environment, start_new_session=True)


def run_notebook(output_dir, **settings):
    """Run kernel.ipynb and return its report."""
    assert start_notebook(output_dir, **settings).wait() == 0
    return json.loads((output_dir / "report.json").read_text())
