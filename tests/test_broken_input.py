"""Broken and odd files: each ends the run with a word about what is wrong and where, or changes
nothing that counts.

`--hypothesis-profile many` tries ten thousand files of each kind; see conftest.py.
"""

import codecs
import csv
import io
import re

import kernel
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runs import SAMPLE, VECTORS, run_sections

ROWS = {
    "train.csv": 400,
    "test.csv": 40,
    "sample_submission.csv": 40,
    "test_public_expanded.csv": 40,
}
TRAIN, TEST, WANTED, LABELS, WORDS = *ROWS, "words.vec"


def table(name):
    """The first rows of a file of the sample, DataFrame of str; each row is one line."""
    frame = pd.read_csv(SAMPLE / name, dtype=str, keep_default_na=False).iloc[: ROWS[name]]
    return (
        frame.replace({"comment_text": r"\s+"}, " ", regex=True)
        if "comment_text" in frame
        else frame
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A folder of small files without a fault, and what the notebook reads from it."""
    folder = tmp_path_factory.mktemp("whole")
    for name in ROWS:
        table(name).to_csv(folder / name, index=False)
    (folder / WORDS).write_bytes(b"".join(VECTORS.open("rb").readlines()[1:1001]))
    return folder, read(folder)


def read(folder, **settings):
    """Run the notebook on a folder as far as its files matter: the variables that it leaves."""
    settings |= {
        "input_dir": folder,
        "vector_files": folder / WORDS,
        "output_dir": folder / "results",
    }
    names = run_sections("5 Words", **settings)
    plt.close("all")
    return names


def edited(name, change):
    """A damage: the file with its table changed.

    change: a function of a DataFrame of str that gives another, or None.
    """

    def damage(folder):
        frame = table(name)
        changed = change(frame)
        (frame if changed is None else changed).to_csv(folder / name, index=False)

    return damage


def put(column, value, row=2, name="train.csv"):
    """A damage: another value in a row, or a list of rows, counted from 1; with row None in all."""

    def change(frame):
        frame.loc[frame.index if row is None else np.array(row) - 1, column] = value

    return edited(name, change)


def rewritten(name, change):
    """A damage: the file with its bytes changed by a function."""
    return lambda folder: (folder / name).write_bytes(change((folder / name).read_bytes()))


def added(name, content):
    """A damage: the file with bytes behind its own."""
    return rewritten(name, lambda whole: whole + content)


def lines(change):
    """A change of bytes by a function of the list of lines, each with its end."""
    return lambda content: b"".join(change(content.splitlines(keepends=True)))


def quoted_rows(content):
    """The csv with all fields in quotes."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(
        csv.reader(io.StringIO(content.decode()))
    )
    return text.getvalue().encode()


def short_line(parts):
    return [*parts[:4], parts[4].rpartition(b" ")[0] + b"\n", *parts[5:]]


def of_line_5(text):
    """A change of lines: the last number of the fifth is another one."""
    return lines(
        lambda parts: [*parts[:4], parts[4].rpartition(b" ")[0] + b" " + text + b"\n", *parts[5:]]
    )


def two_rows(frame):
    return pd.concat(
        [
            frame[frame["target"].astype(float) >= 0.5][:1],
            frame[frame["target"].astype(float) < 0.5][:1],
        ]
    )


def one_toxic_row(frame):
    toxic = frame["target"].astype(float) >= 0.5
    return pd.concat([frame[~toxic], frame[toxic][:1]])


RATERS = kernel.RATERS
REFUSED = {  # damage, and what is said, after the path of the file
    "train ends in mid row": (
        rewritten(TRAIN, lambda b: b[: b.rindex(b",0.0,")]),
        r", line 401: \d+ fields, the header has 45",
    ),
    "test ends in a quote": (
        rewritten(TEST, lambda b: quoted_rows(b)[:-3]),
        ", line 41: unexpected end of data",
    ),
    "a row without its last fields": (
        rewritten(TRAIN, lines(lambda p: [*p[:7], p[7].rpartition(b",")[0] + b"\n", *p[8:]])),
        ", line 8: 44 fields, the header has 45",
    ),
    "an id alone": (added(TEST, b"7\n"), ", line 42: 1 fields, the header has 2"),
    "a row with more fields": (
        added(TEST, b"7,one, two\n"),
        ", line 42: 3 fields, the header has 2",
    ),
    "a lone quote": (added(TEST, b'7,"one\n8,two\n'), ", line 43: unexpected end of data"),
    "text behind a quote": (added(TEST, b'7,"one" two\n'), ", line 42: ',' expected after '\"'"),
    "a NUL": (
        put("comment_text", "\0", 40, TEST),
        r", row 40 \(id .*column comment_text: .*a NUL byte",
    ),
    "UTF-16": (rewritten(TRAIN, lambda b: b.decode().encode("utf-16")), ", line 1: 'utf-8' codec"),
    "Latin-1": (added(TEST, b"7,caf\xe9\n"), ", line 42: 'utf-8' .* byte 0xe9"),
    "a lone surrogate": (added(TEST, b"7,\xed\xa0\x80\n"), ", line 42: 'utf-8' codec"),
    "line ends of old Macs": (
        rewritten(TEST, lambda b: b.replace(b"\n", b"\r")),
        ", line 1: new-line character",
    ),
    "semicolons": (
        rewritten(TRAIN, lambda b: b.replace(b",", b";")),
        " has no column id, comment_text, target",
    ),
    "a doubled column": (
        rewritten(TRAIN, lambda b: b.replace(b",funny,", b",target,", 1)),
        " has no column target, or more",
    ),
    "no subtypes": (
        edited(TRAIN, lambda f: f.drop(columns=kernel.SUBTYPES)),
        " has no column severe_toxicity, obsc",
    ),
    "no identities": (
        edited(TRAIN, lambda f: f.drop(columns=kernel.IDENTITIES)),
        " has no column male, female, homos",
    ),
    "no rows": (edited(TRAIN, lambda f: f[:0]), " holds no rows"),
    "no rows to score": (edited(TEST, lambda f: f[:0]), " holds no rows"),
    "no rows wanted": (edited(WANTED, lambda f: f[:0]), " holds no rows"),
    "nothing": (rewritten(TRAIN, lambda b: b""), " has no column id, comment_text, target"),
    "an empty id": (put("id", ""), r", row 2 .*, column id: '' is no id"),
    "an id of spaces": (put("id", "  ", 5), r", row 5 .*, column id: '  ' is no id"),
    "a doubled id": (
        put("id", "7", [3, 9]),
        r", row 9 \(id 7\), column id: '7' stands in an earlier row, too",
    ),
    "ids equal but for spaces": (
        edited(TRAIN, lambda f: f.assign(id=["7", " 7", *f["id"][2:]])),
        r", row 2 \(id  7\), column id: ' 7' stands in an earlier row, too",
    ),
    "an empty target": (put("target", ""), r", row 2 .*, column target: 'nan' is empty"),
    "a target called nan": (put("target", "nan"), r", row 2 .*, column target: 'nan' is empty"),
    "a target of a space": (put("target", " "), ", line 3, column target: .*' '"),
    "a target in words": (put("target", "toxic"), ", line 3, column target: .*'toxic'"),
    "a target called NA": (put("target", "NA"), ", line 3, column target: .*'NA'"),
    "a decimal comma": (put("target", "0,5"), ", line 3, column target: .*'0,5'"),
    "a target above 1": (
        put("target", "1.01"),
        r", row 2 .*, column target: '1.01' lies outside 0 … 1\.",
    ),
    "a negative target": (
        put("target", "-0.1"),
        r", row 2 .*, column target: '-0.1' lies outside 0 … 1\.",
    ),
    "an infinite target": (
        put("target", "inf"),
        r", row 2 .*, column target: 'inf' lies outside 0 … 1\.",
    ),
    "targets above 1": (
        put("target", "1.01", [7, 9]),
        r", row 7 .*'1.01' lies outside 0 … 1. Such rows: 2",
    ),
    "a subtype above 1": (
        put("threat", "2"),
        r", row 2 .*, column threat: '2.0' lies outside 0 … 1\.",
    ),
    "an identity above 1": (
        put("male", "100"),
        r", row 2 .*, column male: '100.0' lies outside 0 … 1\.",
    ),
    "an identity in words": (put("black", "yes"), ", line 3, column black: .*'yes'"),
    "another identity above 1": (
        put("hindu", "1.5"),
        r", row 2 .*, column hindu: '1.5' lies outside 0 … 1\.",
    ),
    "raters without end": (
        put(RATERS, "inf"),
        rf", row 2 .*, column {RATERS}: 'inf' lies outside 0 … 1,000,000",
    ),
    "1e38 raters": (
        put(RATERS, "1e38"),
        rf", row 2 .*, column {RATERS}: '1e\+38' lies outside 0 … 1,000,000",
    ),
    "raters below 0": (
        put(RATERS, "-4"),
        rf", row 2 .*, column {RATERS}: '-4.0' lies outside 0 … 1,000,000",
    ),
    "raters in words": (put(RATERS, "four"), f", line 3, column {RATERS}: .*'four'"),
    "targets all 0.5": (put("target", "0.5", None), ", column target: there must be toxic rows"),
    "targets all 0": (put("target", "0", None), ", column target: there must be toxic rows"),
    "two rows": (
        edited(TRAIN, two_rows),
        ", column target: there must be .* Raise KERNEL_HOLDOUT_SHARE, or give more",
    ),
    "one toxic row": (
        edited(TRAIN, one_toxic_row),
        ", column target: there must be .* Raise KERNEL_HOLDOUT_SHARE",
    ),
    "one text": (
        put("comment_text", "the same", None),
        ", column target: there must be .* Raise KERNEL_HOLDOUT_SHARE",
    ),
    "comments without words": (
        edited(TRAIN, lambda f: f.assign(comment_text=["!" * row for row in range(len(f))])),
        ", column target: there must be .* Raise KERNEL_HOLDOUT_SHARE",
    ),
    "a test file without comments": (
        edited(TEST, lambda f: f[["id"]]),
        " has no column comment_text",
    ),
    "another id wanted": (
        put("id", "x", 3, WANTED),
        r", row \d+ .*, column id: .* is missing in .*sample_s",
    ),
    "an id that is not wanted": (
        added(TEST, b"x,one\n"),
        r", row 41 \(id x\), column id: 'x' is missing",
    ),
    "a doubled test id": (
        put("id", "x", [3, 4], TEST),
        r", row 4 \(id x\), column id: 'x' stands in an earlier row",
    ),
    "ids with zeros in front": (
        put("id", "007", 1, TEST),
        r", row 1 \(id 007\), column id: '007' is missing",
    ),
    "other columns wanted": (
        edited(WANTED, lambda f: f.set_axis(["comment", "score"], axis=1)),
        " has no column id",
    ),
    "test labels without a target": (
        put("toxicity", "", 4, LABELS),
        ", row 4 .*, column toxicity: .*empty",
    ),
    "a vector with nan": (
        rewritten(WORDS, of_line_5(b"nan")),
        ", line 5, word .*: 32 numbers, not 32 finite",
    ),
    "a vector with inf": (
        rewritten(WORDS, of_line_5(b"inf")),
        ", line 5, word .*: 32 numbers, not 32 finite",
    ),
    "a vector beyond half precision": (
        rewritten(WORDS, of_line_5(b"7e4")),
        ", line 5, word .*: .* not 32 finite",
    ),
    "a vector beyond float32": (
        rewritten(WORDS, of_line_5(b"1e99")),
        ", line 5, word .*: 32 numbers, not 32 finite",
    ),
    "a word in a vector": (
        rewritten(WORDS, of_line_5(b"x")),
        ", line 5, word .*: could not convert",
    ),
    "a vector too short": (
        rewritten(WORDS, lines(short_line)),
        ", line 5, word .*: 31 numbers, not 32",
    ),
    "vectors that end in mid line": (
        rewritten(WORDS, lambda b: b[: b.rindex(b" ")]),
        ", line 1000, word .*: 31 numbers, not 32",
    ),
    "vectors that end in the line of an unused word": (
        added(WORDS, b"qqzz 0.1 0.1"),
        ", line 1001, word .*qqzz.*: 2 numbers, not 32",
    ),
    "a header of another width": (
        rewritten(WORDS, lambda b: b"1000 7\n" + b),
        ", line 2, word .*: 32 numbers, not 7",
    ),
    "a header alone": (
        rewritten(WORDS, lambda b: b"1000 7\n"),
        ": not one word of the comments has a vector",
    ),
    "a header that is broken": (rewritten(WORDS, lambda b: b"1000 32x\n" + b), ", line [12]"),
    "words alone": (
        rewritten(WORDS, lines(lambda p: [x.split()[0] + b"\n" for x in p])),
        ": not one word of the comm",
    ),
    "no vectors": (rewritten(WORDS, lambda b: b""), ": not one word of the comments has a vector"),
    "vectors of other words": (
        rewritten(
            WORDS, lines(lambda p: [b"qq%d " % n + x.partition(b" ")[2] for n, x in enumerate(p)])
        ),
        ": not one word of the comments has a vector here",
    ),
}


def harmed(folder, whole, damage):
    """A copy of the whole folder, damaged."""
    for path in whole[0].iterdir():
        if path.is_file():
            (folder / path.name).write_bytes(path.read_bytes())
    damage(folder)
    return folder


@pytest.mark.filterwarnings("ignore:.*holds 0 words, its first line says")
@pytest.mark.parametrize("case", REFUSED)
def test_what_is_wrong_is_said_with_file_and_place(tmp_path, whole, case):
    damage, said = REFUSED[case]
    with pytest.raises(ValueError) as refusal:
        read(harmed(tmp_path, whole, damage), extra_words=0)
    assert re.match(f"{tmp_path}/[a-z_.]+{said}", str(refusal.value)), refusal.value


def test_a_file_of_vectors_that_holds_fewer_than_it_says_is_told_of(tmp_path, whole):
    damage = rewritten(WORDS, lambda b: b"1200 %d\n" % b[: b.index(b"\n")].count(b" ") + b)
    with pytest.warns(
        UserWarning, match=r"words\.vec holds 1,000 words, its first line says 1,200"
    ):
        read(harmed(tmp_path, whole, damage))


SAME = {  # as if nothing had been done
    "a byte order mark": rewritten(TRAIN, lambda b: b"\xef\xbb\xbf" + b),
    "line ends of Windows": rewritten(TRAIN, lambda b: b.replace(b"\n", b"\r\n")),
    "mixed line ends": rewritten(TRAIN, lambda b: b.replace(b"\n", b"\r\n", 100)),
    "every field in quotes": rewritten(TRAIN, quoted_rows),
    "empty lines": rewritten(TRAIN, lambda b: b.replace(b"\n", b"\n\n", 3) + b"\n\n"),
    "no last line end": rewritten(TRAIN, lambda b: b[:-1]),
    "columns in another order": edited(TRAIN, lambda f: f[sorted(f)]),
    "columns that nobody knows": edited(TRAIN, lambda f: f.assign(other="1,5 \n")),
    "shares in full": edited(
        TRAIN, lambda f: f.assign(target=f["target"].map(lambda t: t and f"{float(t):.30e}"))
    ),
    "more columns wanted": edited(WANTED, lambda f: f.assign(other=1)),
    "vectors after a byte order mark": rewritten(WORDS, lambda b: b"\xef\xbb\xbf" + b),
    "vectors after a header": rewritten(
        WORDS, lambda b: b"1000 %d\n" % b[: b.index(b"\n")].count(b" ") + b
    ),
    "both": rewritten(
        WORDS, lambda b: b"\xef\xbb\xbf1000 %d\n" % b[: b.index(b"\n")].count(b" ") + b
    ),
    "vectors between tabs": rewritten(WORDS, lambda b: b.replace(b" ", b"\t")),
    "vectors with line ends of Windows": rewritten(WORDS, lambda b: b.replace(b"\n", b"\r\n")),
    "vectors with spaces at the ends": rewritten(WORDS, lambda b: b.replace(b"\n", b" \n")),
    "doubled words": rewritten(WORDS, lambda b: b + b.replace(b" 0", b" 1")),
    "a word a hundred thousand times": rewritten(
        WORDS, lambda b: b + b[: b.index(b"\n") + 1] * 100_000
    ),
}


@pytest.mark.parametrize("case", SAME)
def test_what_does_not_matter_changes_nothing(tmp_path, whole, case):
    names = read(harmed(tmp_path, whole, SAME[case]))
    for name in ("train", "test"):
        pd.testing.assert_frame_equal(names[name][whole[1][name].columns], whole[1][name])
    assert names["numbers"] == whole[1]["numbers"]
    for name in ("tokens", "scales", "embedding_matrix"):
        assert np.array_equal(names[name], whole[1][name])


ODD = [  # read as they stand
    *(
        "😀😀 👍🏽",
        "\u200b\u200d\ufeff",
        "\u202eשלום עולם",
        "مرحبا",
        "\x01\x1a\x7f",
        "\x85 \u2028",
        "NA",
        "nan",
        "",
        " ",
    ),
    *('one " two', '"', '""', "'", "one\ntwo\r\nthree\rfour", "word " * 2_000_000),
]


@pytest.mark.parametrize("name", [TRAIN, TEST])
def test_odd_comments_are_kept_as_they_are(tmp_path, whole, name):
    def write(folder):
        frame = table(name)
        frame.loc[: len(ODD) - 1, "comment_text"] = ODD
        frame.to_csv(folder / name, index=False, quoting=csv.QUOTE_ALL)

    names = read(harmed(tmp_path, whole, write))
    assert list(names[name.removesuffix(".csv")]["comment_text"][: len(ODD)]) == ODD
    assert names["offsets"][-1] == len(names["tokens"]) and np.all(np.diff(names["offsets"]) > 0)


# any text, and much of what means something in a csv
TEXTS = st.lists(
    st.sampled_from([*',"\n\r;\t \x00', '""', "a", "é", "😀"]) | st.characters(codec="utf-8"),
    max_size=9,
).map("".join)
DAMAGES = st.lists(
    st.tuples(
        st.integers(0, 10**6),  # where, in millionths of the file
        st.integers(0, 3),  # how many bytes go
        st.sampled_from(
            [b"", b",", b'"', b"\n", b"\r", b"\0", b"\xff", b"\xef\xbb\xbf", b" ", b"1e5", b"nan"]
        ),
    ),
    max_size=3,
)


def damaged(content, damages, cut):
    """The bytes with some taken out and others put in, and their end cut off."""
    for place, gone, put_in in damages:
        start = place * len(content) // 10**6
        content = content[:start] + put_in + content[start + gone :]
    return content[: len(content) - cut]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("random") / "file"


ROWS_OF_CSV = st.lists(st.tuples(TEXTS, TEXTS, st.floats(0, 1)), min_size=1)


@given(ROWS_OF_CSV, st.sampled_from(["\n", "\r\n"]), DAMAGES, st.integers(0, 9))
def test_random_csv_files_are_read_as_pythons_own_reader_does_or_refused(
    place, rows, line_end, damages, cut
):
    text, names = io.StringIO(), ["title", "comment_text", "target"]
    csv.writer(text, lineterminator=line_end, quoting=csv.QUOTE_ALL).writerows([names, *rows])
    place.write_bytes(damaged(text.getvalue().encode(), damages, cut if damages else 0))
    try:
        frame = kernel.read_columns(place, names[:2], names[2:])
    except ValueError as error:
        assert re.match(rf"{place}(, (line|row) \d+| has no column| holds no rows)", str(error))
        assert damages or "NUL" in str(error)
        return
    with place.open(encoding="utf-8-sig", newline="") as file:
        header, *expected = filter(None, csv.reader(file))
    titles, texts, targets = ([row[header.index(name)] for row in expected] for name in names)
    assert list(frame["title"]) == titles and list(frame["comment_text"]) == texts
    assert np.array_equal(
        frame["target"], [float(target or "nan") for target in targets], equal_nan=True
    )


WORDS_OF_VECTORS = st.text(
    st.characters(codec="utf-8", exclude_categories=["Z", "C"]), min_size=1, max_size=5
)
NUMBERS = st.lists(st.floats(-6e4, 6e4, width=16), min_size=3, max_size=3)
VECTORS_OF_WORDS = st.dictionaries(WORDS_OF_VECTORS, NUMBERS, min_size=1)


@pytest.mark.filterwarnings("ignore:.* words, its first line says")
@given(VECTORS_OF_WORDS, st.sampled_from([b" ", b"\t"]), st.booleans(), DAMAGES, st.integers(0, 9))
def test_random_vector_files_are_read_as_they_stand_or_refused(
    place, vectors, separator, has_header, damages, cut
):
    lines = [
        word.encode() + b"".join(separator + repr(x).encode() for x in vector)
        for word, vector in vectors.items()
    ]
    if has_header:
        lines.insert(0, b"%d 3" % len(vectors))
    content = damaged(b"\n".join(lines) + b"\n", damages, cut if damages else 0)
    place.write_bytes(content)
    try:
        read = kernel.read_vectors(place, {word.encode() for word in vectors}, 10**6)
    except ValueError as error:
        assert damages and re.match(f"{place}(, line |: not one word)", str(error))
        return
    if not damages:
        assert {word: vector.tolist() for word, vector in read.items()} == vectors and list(
            read
        ) == list(vectors)
    fields = [line.split() for line in content.removeprefix(codecs.BOM_UTF8).split(b"\n")]
    for word, vector in read.items():  # each stands in the file
        numbers = [
            of[1:]
            for of in fields
            if of and of[0].decode(errors="replace") == word and len(of) == 1 + len(vector)
        ]
        assert any(
            np.array_equal(np.array(of_line, np.float32).astype(np.float16), vector)
            for of_line in numbers
        )
