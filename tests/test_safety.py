"""What the code may do: execute nothing that it does not hold itself, and reach no network and no other folder."""

import ast

import kernel
import pytest

ROOT = kernel.NOTEBOOK.parent
ALLOWED = {  # modules that may be imported
    *("IPython", "argparse", "array", "collections", "concurrent", "contextlib", "csv", "dataclasses", "functools"),
    *(
        "gc",
        "gensim",
        "html",
        "importlib.metadata",
        "itertools",
        "joblib",
        "json",
        "keras",
        "kernel",
        "linecache",
        "matplotlib",
    ),
    *(
        "numpy",
        "os",
        "pandas",
        "pathlib",
        "random",
        "re",
        "scipy",
        "sklearn",
        "sys",
        "tempfile",
        "tensorflow",
        "threading",
    ),
    *("time", "typing", "unicodedata", "warnings", "weakref"),
}
FORBIDDEN = {"eval", "exec", "compile", "__import__", "breakpoint", "input"}
FORBIDDEN_OF_MODULES = {  # of os, numpy, pandas, joblib, keras, importlib
    *("system", "popen", "execv", "execve", "spawnv", "fork", "read_pickle", "to_pickle", "dump", "urlopen"),
    *("urlretrieve", "get_file", "load_model", "import_module"),
}


def sources():
    cells = [cell for cell in kernel.CELLS if cell["cell_type"] == "code"]
    yield "kernel.ipynb", "\n".join("".join(cell["source"]) for cell in cells)
    for path in sorted((ROOT / "embeddings").glob("*.py")):
        yield f"embeddings/{path.name}", path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def scorer():
    return kernel.scorer_source(kernel.csv_rows, kernel.cut, kernel.recurrent, kernel.load, kernel.main)


def faults(source):
    """Lines that do what is not allowed, list of str."""
    for node in ast.walk(ast.parse(source)):
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        modules += [node.module] if isinstance(node, ast.ImportFrom) else []
        names = {node.id} if isinstance(node, ast.Name) else set()
        attributes = {node.attr} if isinstance(node, ast.Attribute) else set()
        keywords = {node.arg} if isinstance(node, ast.keyword) else set()
        fault = {module for module in modules if not {module, module.split(".")[0]} & ALLOWED}
        fault |= names & FORBIDDEN | attributes & FORBIDDEN_OF_MODULES | keywords & {"shell", "allow_pickle"}
        if fault:
            yield ast.unparse(node)


@pytest.mark.parametrize("source", dict(sources()).values(), ids=dict(sources()))
def test_nothing_is_executed_unpickled_or_fetched(source):
    assert list(faults(source)) == []


def test_the_scorer_executes_unpickles_and_fetches_nothing(scorer):
    assert list(faults(scorer)) == []


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "from urllib.request import urlopen",
        "eval('1')",
        "os.system('ls')",
        "np.load(path, allow_pickle=True)",
        "import subprocess",
        "from importlib import import_module",
        "joblib.dump(model, path)",
        "pd.read_pickle(path)",
    ],
)
def test_what_is_forbidden_is_seen(line):
    assert list(faults(line))
