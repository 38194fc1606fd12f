"""Broken and odd files: each ends the run with a word about what is wrong and where, or changes
nothing that counts.

`--hypothesis-profile many` tries ten thousand files of each kind; see conftest.py.
"""

import csv
import io
import re
from codecs import BOM_UTF8
from contextlib import suppress

import kernel
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runs import SAMPLE, VECTORS, run_sections

ROWS = {"train.csv": 400, "test.csv": 40, "sample_submission.csv": 40}
ROWS |= {"test_public_expanded.csv": 40}
TRAIN, TEST, WANTED, LABELS, WORDS = *ROWS, "words.vec"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A folder of small files without a fault, each row one line, and what the notebook reads from
    it.
    """
    folder = tmp_path_factory.mktemp("whole")
    for name, rows in ROWS.items():
        frame = pd.read_csv(SAMPLE / name, dtype=str, keep_default_na=False, nrows=rows)
        frame.replace(r"\s+", " ", regex=True).to_csv(folder / name, index=False)
    (folder / WORDS).write_bytes(b"".join(VECTORS.open("rb").readlines()[1:1001]))
    return folder, read(folder)


def read(folder, **settings):
    """Run the notebook on a folder as far as its files matter: the variables that it leaves."""
    settings |= {"input_dir": folder, "vector_files": folder / WORDS}
    names = run_sections("5 Words", **settings, output_dir=folder / "results")
    plt.close("all")
    return names


def harmed(folder, whole, name, change):
    """A copy of the whole folder, the bytes of one file changed by a function."""
    for path in whole[0].glob("*.*"):
        (folder / path.name).write_bytes(path.read_bytes())
    (folder / name).write_bytes(change((folder / name).read_bytes()))
    return folder


def edited(change):
    """A change of a csv's bytes by a function of its table; then all fields stand in quotes."""

    def change_bytes(content):
        frame = pd.read_csv(io.BytesIO(content), dtype=str, keep_default_na=False)
        return change(frame).to_csv(index=False, quoting=csv.QUOTE_ALL).encode()

    return change_bytes


def put(column, value, rows=2):
    """A change: another value in a row, or a list of rows, counted from 1."""

    def change(frame):
        frame.loc[np.array(rows) - 1, column] = value
        return frame

    return edited(change)


def added(rows):
    """A change: bytes behind the others."""
    return lambda content: content + rows


def last_number(text):
    """A change of the fifth line: another number behind its last blank."""

    def change_bytes(content):
        lines = content.split(b"\n")
        lines[4] = lines[4][: lines[4].rindex(b" ") + 1] + text
        return b"\n".join(lines)

    return change_bytes


def one_toxic_row(frame):
    in_order = frame.sort_values("target")
    return in_order[: 1 + (in_order["target"] < "0.5").sum()]


# values in row 2 of train.csv, and what is said behind the path of the file
WRONG_VALUES = r"""
id || , row 2 .*, column id: '' is no id
id |  | , row 2 .*, column id: '  ' is no id
target || , row 2 .*, column target: 'nan' is empty
target |nan| , row 2 .*, column target: 'nan' is empty
target | | , line 3, column target: .*' '
target |toxic| , line 3, column target: .*'toxic'
target |NA| , line 3, column target: .*'NA'
target |0,5| , line 3, column target: .*'0,5'
target |1.01| , row 2 .*, column target: '1.01' lies outside 0 … 1\.
target |-0.1| , row 2 .*, column target: '-0.1' lies outside 0 … 1\.
target |inf| , row 2 .*, column target: 'inf' lies outside 0 … 1\.
threat |2| , row 2 .*, column threat: '2.0' lies outside 0 … 1\.
male |100| , row 2 .*, column male: '100.0' lies outside 0 … 1\.
black |yes| , line 3, column black: .*'yes'
hindu |1.5| , row 2 .*, column hindu: '1.5' lies outside 0 … 1\.
toxicity_annotator_count |inf| , row 2 .*: 'inf' lies outside 0 … 1,000,000
toxicity_annotator_count |1000001| , row 2 .*: '1000001.0' lies outside 0 … 1,000,000
toxicity_annotator_count |-4| , row 2 .*: '-4.0' lies outside 0 … 1,000,000
toxicity_annotator_count |four| , line 3, column toxicity_annotator_count: .*'four'
""".strip().splitlines()
ONE_CLASS = ", column target: there must be toxic rows .* Raise KERNEL_HOLDOUT_SHARE, or give more"
NOT_FINITE = ", line 5, word .*: 32 numbers, not 32 finite"
NOT_ONE_WORD = ": not one word of the comments has a vector here"
REFUSED = {  # file: {damage: (change, what is said behind its path)}
    TRAIN: {
        "the end in mid row": (
            lambda b: b[: b.rindex(b",0.0,")],
            r", line 401: \d+ fields, the header has 45",
        ),
        "UTF-16": (lambda b: b.decode().encode("utf-16"), ", line 1: 'utf-8' codec"),
        "a doubled column": (
            lambda b: b.replace(b",funny,", b",target,", 1),
            " has no column target, or more",
        ),
        "no subtypes": (
            edited(lambda f: f.drop(columns=kernel.SUBTYPES)),
            " has no column severe_toxicity, obsc",
        ),
        "neither identities nor raters": (
            edited(lambda f: f.drop(columns=[*kernel.IDENTITIES, kernel.RATERS])),
            " has no column male, female, homos.*, toxicity_annotator_count",
        ),
        "no rows": (edited(lambda f: f[:0]), " holds no rows"),
        "nothing": (lambda b: b"", " has no column id, comment_text, target"),
        "a doubled id": (
            put("id", "7", [3, 9]),
            r", row 9 \(id 7\), column id: '7' stands in an earlier row, too",
        ),
        "ids equal but for spaces": (
            put("id", ["7", " 7"], [1, 2]),
            r", row 2 \(id  7\), column id: ' 7' stands in an earlier row, too",
        ),
        "targets above 1": (
            put("target", "1.01", [7, 9]),
            r", row 7 .*'1.01' lies outside 0 … 1. Such rows: 2",
        ),
        "targets all 0.5": (edited(lambda f: f.assign(target="0.5")), ONE_CLASS),
        "two rows": (edited(lambda f: f.sort_values("target").iloc[[0, -1]]), ONE_CLASS),
        "one toxic row": (edited(one_toxic_row), ONE_CLASS),
        "one text": (edited(lambda f: f.assign(comment_text="the same")), ONE_CLASS),
        "comments without words": (
            edited(lambda f: f.assign(comment_text=["!" * row for row in range(len(f))])),
            ONE_CLASS,
        ),
    },
    TEST: {
        "a row with more fields": (added(b"7,one, two\n"), ", line 42: 3 fields, the header has 2"),
        "a lone quote": (added(b'7,"one\n8,two\n'), ", line 43: unexpected end of data"),
        "text behind a quote": (added(b'7,"one" two\n'), ", line 42: ',' expected after '\"'"),
        "a NUL": (put("comment_text", "\0", 40), r", row 40 \(id .*comment_text: .*a NUL byte"),
        "Latin-1": (added(b"7,caf\xe9\n"), ", line 42: 'utf-8' .* byte 0xe9"),
        "line ends of old Macs": (
            lambda b: b.replace(b"\n", b"\r"),
            ", line 1: new-line character",
        ),
        "no comments": (edited(lambda f: f[["id"]]), " has no column comment_text"),
        "an id with zeros in front": (
            put("id", "007", 1),
            r", row 1 \(id 007\), column id: '007' is missing",
        ),
    },
    WANTED: {
        "another id": (
            added(b"x,0.0\n"),
            r", row 41 \(id x\), column id: 'x' is missing in .*/test",
        ),
        "other columns": (lambda b: b.replace(b"id", b"comment"), " has no column id"),
    },
    LABELS: {
        "no target": (put("toxicity", ""), r", row 2 \(id .*, column toxicity: 'nan' is empty"),
        "a target above 1": (put("toxicity", "2"), ", row 2 .*, column toxicity: '2.0' lies outs"),
    },
    WORDS: {
        "not a number": (last_number(b"nan"), NOT_FINITE),
        "a number beyond half precision": (last_number(b"7e4"), NOT_FINITE),
        "a word among the numbers": (last_number(b"x"), ", line 5, word .*: could not convert"),
        "a vector too short": (last_number(b""), ", line 5, word .*: 31 numbers, not 32"),
        "the end in mid line": (
            lambda b: b[: b.rindex(b" ")],
            ", line 1000, word .*: 31 numbers, not 32",
        ),
        "the end in the line of an unused word": (
            added(b"qqzz 0.1 0.1"),
            ", line 1001, word .*qqzz.*: 2 numbers, not 32",
        ),
        "a header of another width": (
            lambda b: b"1000 7\n" + b,
            ", line 2, word .*: 32 numbers, not 7",
        ),
        "a broken header": (lambda b: b"1000 32x\n" + b, ", line [12]"),
        "nothing": (lambda b: b"", NOT_ONE_WORD),
        "other words": (lambda b: re.sub(rb"(?m)^\S+", b"qqzz", b), NOT_ONE_WORD),
    },
}
for line in WRONG_VALUES:
    column, value, said = line.split("|")
    REFUSED[TRAIN][line] = put(column.strip(), value), said.strip()


@pytest.mark.filterwarnings("ignore:.*holds 0 words, its first line says")
@pytest.mark.parametrize("name, case", [(name, case) for name in REFUSED for case in REFUSED[name]])
def test_what_is_wrong_is_said_with_file_and_place(tmp_path, whole, name, case):
    change, said = REFUSED[name][case]
    with pytest.raises(ValueError) as refusal:
        read(harmed(tmp_path, whole, name, change), extra_words=0)
    assert re.match(f"{tmp_path}/{name}{said}", str(refusal.value)), refusal.value


def test_a_file_of_vectors_that_holds_fewer_than_it_says_is_told_of(tmp_path, whole):
    with pytest.warns(UserWarning, match="words.vec holds 1,000 words, its first line says 1,200"):
        read(harmed(tmp_path, whole, WORDS, lambda b: b"1200 32\n" + b))


SAME = {  # as if nothing had been done
    TRAIN: {
        "a byte order mark": lambda b: BOM_UTF8 + b,
        "line ends of Windows": lambda b: b.replace(b"\n", b"\r\n"),
        "empty lines": lambda b: b.replace(b"\n", b"\n\n", 3) + b"\n\n",
        "no last line end": lambda b: b[:-1],
        "columns in another order": edited(lambda f: f[sorted(f)]),
        "fewer columns that are not used": edited(lambda f: f.drop(columns=["rating", "funny"])),
        "columns that nobody knows": edited(lambda f: f.assign(other="1,5 \n")),
    },
    WANTED: {"more columns": edited(lambda f: f.assign(other=1))},
    WORDS: {
        "a byte order mark": lambda b: BOM_UTF8 + b,
        "both": lambda b: BOM_UTF8 + b"1000 32\n" + b,
        "tabs between": lambda b: b.replace(b" ", b"\t"),
        "a word a hundred thousand times": lambda b: b + b[: b.index(b"\n") + 1] * 100_000,
    },
}


@pytest.mark.parametrize("name, case", [(name, case) for name in SAME for case in SAME[name]])
def test_what_does_not_matter_changes_nothing(tmp_path, whole, name, case):
    names = read(harmed(tmp_path, whole, name, SAME[name][case]))
    expected = whole[1]
    for frame in ("train", "test"):
        pd.testing.assert_frame_equal(names[frame][expected[frame].columns], expected[frame])
    assert names["numbers"] == expected["numbers"]
    for array in ("tokens", "scales", "embedding_matrix"):
        assert np.array_equal(names[array], expected[array])


ODD = "😀😀 👍🏽|\u200b\u200d\ufeff|\u202eשלום עולם|مرحبا|\x01\x1a\x7f|\x85 \u2028|NA|nan|| |'"
ODD = [*ODD.split("|"), *'one " two|"|""|one\ntwo\r\nthree\rfour'.split("|"), "word " * 2_000_000]


@pytest.mark.parametrize("name", ["train", "test"])
def test_odd_comments_are_kept_as_they_are(tmp_path, whole, name):
    change = put("comment_text", ODD, range(1, 1 + len(ODD)))
    names = read(harmed(tmp_path, whole, f"{name}.csv", change))
    assert [*names[name]["comment_text"][: len(ODD)]] == ODD
    assert names["offsets"][-1] == len(names["tokens"])
    assert (np.diff(names["offsets"]) > 0).all()


# any text, and much of what means something in a csv
TEXTS = st.sampled_from([*',"\n\r;\t \x00', '""', "a", "é", "😀"]) | st.characters(codec="utf-8")
TEXTS = st.lists(TEXTS, max_size=9).map("".join)
PUT_IN = [b"", b",", b'"', b"\n", b"\r", b"\0", b"\xff", BOM_UTF8, b" ", b"1e5", b"nan"]
DAMAGES = st.tuples(
    st.integers(0, 10**6),  # where, in millionths of the file
    st.integers(0, 3),  # how many bytes go
    st.sampled_from(PUT_IN),
)
DAMAGES, CUT = st.lists(DAMAGES, max_size=3), st.integers(0, 9)


def damaged(content, damages, cut):
    """The bytes with some taken out and others put in, and their end cut off."""
    for place, gone, put_in in damages:
        start = place * len(content) // 10**6
        content = content[:start] + put_in + content[start + gone :]
    return content[: len(content) - cut] if damages else content


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("random") / "file"


ROWS_OF_CSV = st.lists(st.tuples(TEXTS, TEXTS, st.floats(0, 1)), min_size=1)


@given(ROWS_OF_CSV, st.sampled_from(["\n", "\r\n"]), DAMAGES, CUT)
def test_random_csv_files_are_read_as_pythons_own_reader_does_or_refused(
    place, rows, line_end, damages, cut
):
    text, names = io.StringIO(), ["title", "comment_text", "target"]
    csv.writer(text, lineterminator=line_end, quoting=csv.QUOTE_ALL).writerows([names, *rows])
    place.write_bytes(damaged(text.getvalue().encode(), damages, cut))
    try:
        frame = kernel.read_columns(place, names[:2], names[2:])
    except ValueError as error:
        assert re.match(rf"{place}(, (line|row) \d+| has no column| holds no rows)", str(error))
        assert damages or "NUL" in str(error)
        return
    with place.open(encoding="utf-8-sig", newline="") as file:
        header, *expected = filter(None, csv.reader(file))
    titles, texts, targets = ([row[header.index(name)] for row in expected] for name in names)
    assert [*frame["title"]] == titles and [*frame["comment_text"]] == texts
    targets = [float(target or "nan") for target in targets]
    assert np.array_equal(frame["target"], targets, equal_nan=True)


LETTERS = st.characters(codec="utf-8", exclude_categories=["Z", "C"])
NUMBERS = st.lists(st.floats(-6e4, 6e4, width=16), min_size=3, max_size=3)
VECTORS_OF_WORDS = st.dictionaries(st.text(LETTERS, min_size=1, max_size=5), NUMBERS, min_size=1)


@pytest.mark.filterwarnings("ignore:.* words, its first line says")
@given(VECTORS_OF_WORDS, st.sampled_from(" \t"), st.booleans(), DAMAGES, CUT)
def test_random_vector_files_are_read_as_they_stand_or_refused(
    place, vectors, separator, has_header, damages, cut
):
    lines = [separator.join([word, *map(repr, vector)]) for word, vector in vectors.items()]
    if has_header:
        lines.insert(0, f"{len(vectors)} 3")
    content = damaged("\n".join([*lines, ""]).encode(), damages, cut)
    place.write_bytes(content)
    try:
        read = kernel.read_vectors(place, {word.encode() for word in vectors}, 10**6)
    except ValueError as error:
        assert damages and re.match(f"{place}(, line |: not one word)", str(error))
        return
    read = [(word, vector.tolist()) for word, vector in read.items()]
    assert damages or read == [*vectors.items()]
    stands = []
    for line in content.removeprefix(BOM_UTF8).split(b"\n"):
        with suppress(ValueError):  # of what is no line of a vector
            word, *numbers = line.split()
            numbers = np.array(numbers, np.float32).astype(np.float16)
            stands.append((word.decode(errors="replace"), numbers.tolist()))
    assert all(each in stands for each in read)
