"""Pack text word vectors so that they open in seconds: python embeddings/pack.py glove.840B.300d.txt … --output FOLDER

For each file, FOLDER gets
    NAME.vectors.npy    float16 (words, width), to be memory-mapped by NumPy; written last
    NAME.vectors.txt    the words, a line each, in the same order
The notebook takes FOLDER wherever it takes text vectors. Words with spaces in them are left out: no token of a comment
is like that. Needs memory for twice what it writes.
"""

import argparse
import os
import sys
from pathlib import Path

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
import kernel  # noqa: E402  the notebook's definitions


def name_of(path):
    """What the packed files of a text file are called, str, without their suffixes."""
    name = path.name
    for suffix in (".gz", ".zip", ".txt", ".vec"):
        name = name.removesuffix(suffix)
    return name


def pack(path, folder):
    """Pack one text file; returns the path of its .vectors.npy.

    Raises ValueError that names the file, and the line or word, where a vector is broken or too large for float16, or
    where there is none.
    """
    vectors = {}
    for word, vector in kernel.text_vectors(path):
        with np.errstate(over="ignore"):
            half = vectors.setdefault(word, vector.astype(np.float16))
        if not np.isfinite(half).all():
            raise ValueError(f"{path}, word {word.decode(errors='replace')!r}: a number too large for half precision")
    if not vectors:
        raise ValueError(f"{path}: holds no vectors")
    (folder / f"{name_of(path)}.vectors.txt").write_bytes(b"\n".join(vectors))
    packed = folder / f"{name_of(path)}.vectors.npy"
    with kernel.whole_file(packed) as temporary, temporary.open("wb") as file:
        np.save(file, np.array([*vectors.values()]))
    return packed


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="text vectors: .txt .vec, also .gz .zip")
    parser.add_argument("--output", required=True, type=Path, metavar="FOLDER", help="where to write")
    arguments = parser.parse_args()
    if len({*map(name_of, arguments.files)}) < len(arguments.files):
        parser.error("two of the files would be packed under one name: give them other names, or other folders")
    arguments.output.mkdir(parents=True, exist_ok=True)
    for path in arguments.files:
        packed = pack(path, arguments.output)
        words, width = np.load(packed, mmap_mode="r").shape
        print(f"{path}: {words:,} words, {width} numbers each, packed as {packed}")
