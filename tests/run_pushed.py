"""Run a notebook as Kaggle does, in the current folder: python run_pushed.py NOTEBOOK INPUT

INPUT stands for /kaggle/input. Nothing may be reached on a network, and nothing written outside the current folder.
"""

import json
import linecache
import os
import sys
import tempfile
from pathlib import Path

HERE = Path.cwd().resolve()
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
MOVING = ("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.symlink", "os.link", "os.truncate", "shutil.rmtree")


def refuse(event, arguments):
    """An audit hook; see sys.addaudithook."""
    if event in ("socket.connect", "socket.bind", "socket.getaddrinfo", "socket.sendto", "os.system"):
        raise PermissionError(f"{event} {arguments}")
    if event == "open" and isinstance(arguments[0], str | bytes | Path) and arguments[2] & WRITING:
        refuse_outside(event, arguments[0])
    if event in MOVING:
        refuse_outside(event, arguments[0])


def refuse_outside(event, path):
    path = Path(os.path.abspath(os.fsdecode(path)))
    allowed = path.is_relative_to(HERE) or path == Path(os.devnull) or "__pycache__" in path.parts
    if not allowed:
        raise PermissionError(f"{event} {path}")


def main():
    notebook, kaggle_input = sys.argv[1:]
    cells = json.loads(Path(notebook).read_text(encoding="utf-8"))["cells"]
    names, place = {"__name__": "__main__"}, 'Path("/kaggle/input")'
    os.environ["MPLBACKEND"] = "agg"
    os.environ["MPLCONFIGDIR"] = tempfile.mkdtemp(dir=HERE)
    sys.addaudithook(refuse)
    for number, cell in enumerate(cells):
        if cell["cell_type"] == "code":
            source, name = "".join(cell["source"]).replace(place, f"Path({kaggle_input!r})"), f"pushed[{number}]"
            linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
            exec(compile(source, name, "exec"), names)


if __name__ == "__main__":
    main()
