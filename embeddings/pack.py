"""Pack text word vectors so that they open in seconds: python embeddings/pack.py glove.840B.300d.txt … --output FOLDER

For each file, FOLDER gets
    NAME.vectors.f16    float16 (words, width), row after row, to be memory-mapped
    NAME.words.txt      the words, a line each, in the same order
    NAME.pack.json      their number, the width, size of the text, size and checksum (crc32) of the two; written last
The notebook takes FOLDER wherever it takes text vectors. Lines are packed as they come, in little memory; a run that
was interrupted goes on where it stopped. Words with spaces in them are left out: no token of a comment is like that.
"""

import argparse
import itertools
import json
import os
import sys
from pathlib import Path

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
import kernel  # noqa: E402  the notebook's definitions

LINES_AT_ONCE = 10_000


def pack(path, folder):
    """Pack one text file; returns the path of its NAME.pack.json.

    Raises ValueError that names file and line where a line is broken or a number does not fit into float16.
    """
    name = path.name
    for suffix in (".gz", ".zip", ".txt", ".vec"):
        name = name.removesuffix(suffix)
    words_path, vectors_path, progress_path, pack_path = (
        folder / f"{name}.{ending}" for ending in ("words.txt", "vectors.f16", "progress.json", "pack.json")
    )
    width, source_bytes = kernel.text_width(path), path.stat().st_size
    if pack_path.exists():
        if kernel.open_pack(pack_path)[0]["source_bytes"] == source_bytes:
            return pack_path
        pack_path.unlink()  # of another file that had this name
    progress = {"source_bytes": source_bytes, "lines": 0, "rows": 0, "words_bytes": 0}
    if progress_path.exists():
        saved = json.loads(progress_path.read_text())
        progress = saved if saved["source_bytes"] == source_bytes else progress
    with kernel.open_text(path) as file, words_path.open("ab") as words, vectors_path.open("ab") as vectors:
        words.truncate(progress["words_bytes"])  # what an interrupted run wrote after its last progress goes
        vectors.truncate(progress["rows"] * width * 2)
        lines = itertools.islice(enumerate(file, 1), progress["lines"], None)
        while chunk := list(itertools.islice(lines, LINES_AT_ONCE)):
            packed = list(pack_lines(path, chunk, width))
            words.writelines(f"{word}\n".encode() for word, _ in packed)
            vectors.writelines(vector.tobytes() for _, vector in packed)
            words.flush()
            vectors.flush()
            progress["lines"] += len(chunk)
            progress["rows"] += len(packed)
            progress["words_bytes"] = words.tell()
            kernel.write_whole(progress_path, json.dumps(progress))
    files = {part.name: kernel.size_and_checksum(part) for part in (words_path, vectors_path)}
    about = {"words": progress["rows"], "width": width, "source_bytes": source_bytes, "files": files}
    kernel.write_whole(pack_path, json.dumps(about, indent=2) + "\n")
    progress_path.unlink()
    return pack_path


def pack_lines(path, chunk, width):
    """Yield (word, float16 vector) of each (line number, line); a header and words with spaces are left out."""
    for line_number, line in chunk:
        if line_number == 1 and kernel.is_header(line.split()):
            continue
        word, _, text = line.partition(b" ")
        word = word.decode(errors="replace").strip()
        vector = kernel.parse_vector(path, line_number, word, text.strip(), width)
        if vector is None:
            continue
        with np.errstate(over="ignore"):
            half = vector.astype(np.float16)
        if not np.isfinite(half).all():
            raise ValueError(f"{path}, line {line_number}, word {word!r}: a number too large for half precision")
        yield word, half


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="text vectors: .txt .vec, also .gz .zip")
    parser.add_argument("--output", required=True, type=Path, metavar="FOLDER", help="where to write")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    for path in arguments.files:
        pack_path = pack(path, arguments.output)
        about = json.loads(pack_path.read_text())
        print(f"{path}: {about['words']:,} words, {about['width']} numbers each, packed as {pack_path}")
