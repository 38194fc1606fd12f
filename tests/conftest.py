"""nbval's run of the notebook leaves its results where the tests that look at results find them (see test_run.py)."""

import os
import shutil
import tempfile


def pytest_configure():
    os.environ["KERNEL_OUTPUT_DIR"] = tempfile.mkdtemp(prefix="kernel-")


def pytest_unconfigure():
    shutil.rmtree(os.environ["KERNEL_OUTPUT_DIR"], ignore_errors=True)
