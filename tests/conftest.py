"""nbval's run of the notebook leaves its results where the tests that look at results find them (see test_run.py).

`--hypothesis-profile many` tries ten thousand examples of each property.
"""

import os
import shutil
import tempfile

from hypothesis import settings

settings.register_profile("few", max_examples=200, deadline=None)
settings.register_profile("many", max_examples=10_000, deadline=None)
settings.load_profile("few")


def pytest_configure():
    os.environ["KERNEL_OUTPUT_DIR"] = tempfile.mkdtemp(prefix="kernel-")


def pytest_unconfigure():
    shutil.rmtree(os.environ["KERNEL_OUTPUT_DIR"], ignore_errors=True)
