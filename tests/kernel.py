"""The notebook's own definitions as a module: `import kernel; kernel.auc(…)` is the code that Kaggle runs.

Importing it executes the cells tagged `define` of kernel.ipynb, in order, and nothing else.
"""

import json
import linecache
from pathlib import Path

NOTEBOOK = Path(__file__).parent.parent / "kernel.ipynb"
CELLS = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]

for number, cell in enumerate(CELLS):
    if "define" in cell["metadata"].get("tags", []):
        source, name = "".join(cell["source"]), f"{NOTEBOOK.name}[{number}]"
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)  # for tracebacks
        exec(compile(source, name, "exec"))
