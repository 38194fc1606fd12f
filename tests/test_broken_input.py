"""Broken and odd files: each ends the run with a word about what is wrong and where, or changes nothing that counts.

`--hypothesis-profile many` tries ten thousand files of each kind; see conftest.py.
"""

import codecs
import csv
import gzip
import io
import re
import zipfile

import kernel
import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from runs import SAMPLE, VECTORS, run_sections

ROWS = {"train.csv": 400, "test.csv": 40, "sample_submission.csv": 40}
LAST_SECTION = "9 Batches"  # after it there are only numbers


def table(name):
    """The first rows of a file of the sample, DataFrame of str; each row is one line."""
    frame = pd.read_csv(SAMPLE / name, dtype=str, keep_default_na=False).iloc[: ROWS[name]]
    return frame.replace({"comment_text": r"\s+"}, " ", regex=True) if "comment_text" in frame else frame


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A folder of small files without a fault, and what the notebook reads from it."""
    folder = tmp_path_factory.mktemp("whole")
    for name in ROWS:
        table(name).to_csv(folder / name, index=False)
    (folder / "words.vec").write_bytes(b"".join(VECTORS.open("rb").readlines()[1:1001]))
    return folder, read(folder)


def read(folder, vectors="words.vec"):
    """Run the notebook on a folder as far as its files matter: the variables that it leaves."""
    settings = {"input_dir": folder, "vector_files": folder / vectors, "output_dir": folder / "results"}
    return run_sections(LAST_SECTION, **settings)


def edited(name, change):
    """A damage: the file with its table changed, a function of a DataFrame of str that gives another, or None."""

    def damage(folder):
        frame = table(name)
        changed = change(frame)
        (frame if changed is None else changed).to_csv(folder / name, index=False)

    return damage


def put(column, value, row=2, name="train.csv"):
    """A damage: another value in a row, or in a list of rows, counted from 1; or with row None in all."""

    def change(frame):
        frame.loc[frame.index if row is None else np.array(row) - 1, column] = value

    return edited(name, change)


def rewritten(name, change):
    """A damage: the file with its bytes changed by a function."""
    return lambda folder: (folder / name).write_bytes(change((folder / name).read_bytes()))


def lines(change):
    """A change of bytes by a function of the list of lines, each with its end."""
    return lambda content: b"".join(change(content.splitlines(keepends=True)))


def quoted_rows(content):
    """The csv with all fields in quotes."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(csv.reader(io.StringIO(content.decode())))
    return text.getvalue().encode()


def tabbed(content):
    return content.replace(b" ", b"\t")


def short_line(parts):
    return [*parts[:4], parts[4].rpartition(b" ")[0] + b"\n", *parts[5:]]


def of_line_5(text):
    """A change of lines: the last number of the fifth is another one."""
    return lines(lambda parts: [*parts[:4], parts[4].rpartition(b" ")[0] + b" " + text + b"\n", *parts[5:]])


def zip_of(*names):
    def damage(folder):
        with zipfile.ZipFile(folder / "words.zip", "w") as archive:
            for name in names:
                archive.write(folder / "words.vec", name)

    return damage


def encrypted_zip(folder):
    zip_of(WORDS)(folder)
    content = bytearray((folder / "words.zip").read_bytes())
    content[6] |= 1  # the flag, in front of the file and in the list of files
    content[content.rindex(b"PK\x01\x02") + 8] |= 1
    (folder / "words.zip").write_bytes(content)


def packed(change=lambda vectors: vectors, line_end=b"\n"):
    """A damage: beside words.vec the same vectors, changed by a function of an array, packed in words.vectors.npy."""

    def damage(folder):
        lines = [line.split() for line in (folder / WORDS).read_bytes().splitlines()]
        np.save(folder / "words.vectors.npy", change(np.array([line[1:] for line in lines], np.float32)))
        (folder / "words.vectors.txt").write_bytes(line_end.join(line[0] for line in lines))

    return damage


def with_first(number):
    def change(vectors):
        vectors[0, 0] = number
        return vectors

    return change


def gzip_cut_off(folder):
    content = gzip.compress((folder / "words.vec").read_bytes())
    (folder / "words.vec.gz").write_bytes(content[: len(content) // 2])


def two_rows(frame):
    return pd.concat([frame[frame["target"].astype(float) >= 0.5][:1], frame[frame["target"].astype(float) < 0.5][:1]])


def one_toxic_row(frame):
    toxic = frame["target"].astype(float) >= 0.5
    return pd.concat([frame[~toxic], frame[toxic][:1]])


TRAIN, TEST, WANTED = "train.csv", "test.csv", "sample_submission.csv"
WORDS, PACKED = "words.vec", "words.vectors.npy"
REFUSED = {  # damage, and what is said, after the path of the file
    "train ends in mid row": (
        rewritten(TRAIN, lambda b: b[: b.rindex(b",0.0,")]),
        r"row 400 has \d+ fields, the header",
    ),
    "train ends in a quote": (rewritten(TRAIN, lambda b: quoted_rows(b)[:-3]), "unexpected end of data"),
    "test ends in a quote": (rewritten(TEST, lambda b: quoted_rows(b)[:-3]), "line 41: unexpected end of data"),
    "a row without its last fields": (
        rewritten(TRAIN, lines(lambda p: [*p[:7], p[7].rpartition(b",")[0] + b"\n", *p[8:]])),
        r"row \d+ has 44 fields, the header 45",
    ),
    "an id alone": (rewritten(TEST, lambda b: b + b"7\n"), "row 41 has 1 fields, the header 2"),
    "a row with more fields": (rewritten(TEST, lambda b: b + b"7,one, two\n"), "row 41 has 3 fields, the header 2"),
    "a lone quote": (rewritten(TEST, lambda b: b + b'7,"one\n8,two\n'), "line 43: unexpected end of data"),
    "text behind a quote": (rewritten(TEST, lambda b: b + b'7,"one" two\n'), "line 42: ',' expected after '\"'"),
    "NUL in a comment": (put("comment_text", "one \0 two", 3), "row 3 holds a NUL byte"),
    "NUL in a test comment": (put("comment_text", "\0", 40, TEST), "row 40 holds a NUL byte"),
    "UTF-16": (rewritten(TRAIN, lambda b: b.decode().encode("utf-16")), "line 1: 'utf-8' codec can't decode"),
    "Latin-1": (rewritten(TEST, lambda b: b + b"7,caf\xe9\n"), "line 42: 'utf-8' codec can't decode byte 0xe9"),
    "a lone surrogate": (rewritten(TEST, lambda b: b + b"7,\xed\xa0\x80\n"), "line 42: 'utf-8' codec can't decode"),
    "lines that end as on old Macs": (rewritten(TEST, lambda b: b.replace(b"\n", b"\r")), "new-line character"),
    "semicolons": (rewritten(TRAIN, lambda b: b.replace(b",", b";")), "has no column id, comment_text, target"),
    "a doubled column": (
        rewritten(TRAIN, lambda b: b.replace(b",funny,", b",target,", 1)),
        "no column target, or more",
    ),
    "no subtypes": (edited(TRAIN, lambda f: f.drop(columns=kernel.SUBTYPES)), "no column severe_toxicity, obscene, id"),
    "no identities": (edited(TRAIN, lambda f: f.drop(columns=kernel.IDENTITIES)), "no column male, female, homosexual"),
    "no rows": (edited(TRAIN, lambda f: f[:0]), "holds no rows"),
    "no rows to score": (edited(TEST, lambda f: f[:0]), "holds no rows"),
    "no rows wanted": (edited(WANTED, lambda f: f[:0]), "holds no rows"),
    "nothing": (rewritten(TRAIN, lambda b: b""), "has no column id, comment_text, target"),
    "an empty id": (put("id", ""), r"column id, row 2 .*: '' is no id"),
    "an id of spaces": (put("id", "  ", 5), r"column id, row 5 .*: '  ' is no id"),
    "a doubled id": (put("id", "7", [3, 9]), r"column id, row 9 \(id 7\): '7' stands in an earlier row, too"),
    "ids equal but for spaces": (
        edited(TRAIN, lambda f: f.assign(id=["7", " 7", *f["id"][2:]])),
        r"column id, row 2 \(id  7\): ' 7' stands in an earlier row, too",
    ),
    "an empty target": (put("target", ""), r"column target, row 2 .*: nan is empty"),
    "a target of a space": (put("target", " "), r"column target, row 2 .*: ' ' is not a number"),
    "a target in words": (put("target", "toxic"), r"column target, row 2 .*: 'toxic' is not a number"),
    "a target called NA": (put("target", "NA"), r"column target, row 2 .*: 'NA' is not a number"),
    "a target called nan": (put("target", "nan"), r"column target, row 2 .*: 'nan' is not a number"),
    "a decimal comma": (put("target", "0,5"), r"column target, row 2 .*: '0,5' is not a number"),
    "a target above 1": (put("target", "1.01"), r"column target, row 2 .*: 1.01 lies outside 0 … 1"),
    "a negative target": (put("target", "-0.1"), r"column target, row 2 .*: -0.1 lies outside 0 … 1"),
    "an infinite target": (put("target", "inf"), r"column target, row 2 .*: inf lies outside 0 … 1"),
    "a subtype above 1": (put("threat", "2"), r"column threat, row 2 .*: 2.0 lies outside 0 … 1"),
    "an identity above 1": (put("male", "100"), r"column male, row 2 .*: 100.0 lies outside 0 … 1"),
    "an identity in words": (put("black", "yes"), r"column black, row 2 .*: 'yes' is not a number"),
    "another identity above 1": (put("hindu", "1.5"), r"column hindu, row 2 .*: 1.5 lies outside 0 … 1"),
    "raters without end": (put(kernel.RATERS, "inf"), rf"column {kernel.RATERS}, row 2 .*: inf is no number of raters"),
    "1e38 raters": (put(kernel.RATERS, "1e38"), rf"column {kernel.RATERS}, row 2 .* is no number of raters"),
    "raters below 0": (put(kernel.RATERS, "-4"), rf"column {kernel.RATERS}, row 2 .*: -4.0 is no number of raters"),
    "raters in words": (put(kernel.RATERS, "four"), rf"column {kernel.RATERS}, row 2 .*: 'four' is not a number"),
    "targets all 0.5": (put("target", "0.5", None), "column target: there must be toxic rows"),
    "targets all 0": (put("target", "0", None), "column target: there must be toxic rows"),
    "comments without words": (
        edited(TRAIN, lambda f: f.assign(comment_text=[chr(0x4E00 + row) for row in range(len(f))])),
        "empty vocabulary",
    ),
    "a test file without comments": (edited(TEST, lambda f: f[["id"]]), "has no column comment_text"),
    "another id wanted": (put("id", "x", 3, WANTED), r"column id, row \d+ .*is missing in .*sample_submission.csv"),
    "an id that is not wanted": (
        rewritten(TEST, lambda b: b + b"x,one\n"),
        r"column id, row 41 \(id x\): 'x' is missing",
    ),
    "a doubled test id": (put("id", "x", [3, 4], TEST), r"column id, row 4 \(id x\): 'x' stands in an earlier row"),
    "ids with zeros in front": (put("id", "007", 1, TEST), r"column id, row 1 \(id 007\): '007' is missing"),
    "other columns wanted": (edited(WANTED, lambda f: f.set_axis(["comment", "score"], axis=1)), "has no column id"),
    "a vector with nan": (rewritten(WORDS, of_line_5(b"nan")), "line 5, word .*: a number that is not finite"),
    "a vector with inf": (rewritten(WORDS, of_line_5(b"inf")), "line 5, word .*: a number that is not finite"),
    "a vector beyond float32": (rewritten(WORDS, of_line_5(b"1e99")), "line 5, word .*: a number that is not finite"),
    "a word in a vector": (rewritten(WORDS, of_line_5(b"x")), "line 5, word .*: could not convert"),
    "a vector too short": (rewritten(WORDS, lines(short_line)), r"line 5, word .*: \d+ numbers, not"),
    "vectors that end in mid line": (
        rewritten(WORDS, lambda b: b[: b.rindex(b" ")]),
        "line 1000, word .* numbers, not",
    ),
    "vectors that end in the line of a word that nobody uses": (
        rewritten(WORDS, lambda b: b + b"qqzz 0.1 0.1"),
        "line 1001, word 'qqzz': 2 numbers, not",
    ),
    "a header of another width": (rewritten(WORDS, lambda b: b"1000 7\n" + b), "line 2, word .* numbers, not 7"),
    "a header alone": (rewritten(WORDS, lambda b: b"1000 7\n"), "not one word of the comments has a vector"),
    "words alone": (rewritten(WORDS, lines(lambda p: [x.split()[0] + b"\n" for x in p])), "line 1 is neither a header"),
    "no vectors": (rewritten(WORDS, lambda b: b""), "line 1 is neither a header"),
    "vectors of other words": (
        rewritten(WORDS, lines(lambda p: [b"qq%d " % n + x.partition(b" ")[2] for n, x in enumerate(p)])),
        "not one word of the comments has a vector here",
    ),
}
VECTORS_REFUSED = {  # another file of vectors
    "an archive of two files": (zip_of("a", "b"), "words.zip", "holds 2 files"),
    "an empty archive": (zip_of(), "words.zip", "holds 0 files"),
    "an archive that is none": (lambda f: (f / "words.zip").write_bytes(b"PK not"), "words.zip", "not a zip file"),
    "an archive with a password": (encrypted_zip, "words.zip", "is encrypted"),
    "a .gz that ends early": (gzip_cut_off, "words.vec.gz", "end-of-stream marker"),
    "packed: nan": (packed(with_first(np.nan)), PACKED, "the vector of '.+' holds a number that is not finite"),
    "packed: infinite": (packed(with_first(np.inf)), PACKED, "the vector of '.+' holds a number that is not finite"),
    "packed: one dimension": (packed(lambda v: v[:, 0]), PACKED, r"holds float32 \(1000,\), no table of numbers"),
    "packed: three dimensions": (packed(lambda v: v[None]), PACKED, "no table of numbers"),
    "packed: no width": (packed(lambda v: v[:, :0]), PACKED, r"holds float32 \(1000, 0\), no table of numbers"),
    "packed: complex": (packed(lambda v: v.astype(complex)), PACKED, "holds complex128 .*, no table of numbers"),
    "packed: text": (packed(lambda v: v.astype("S8")), PACKED, "no table of numbers"),
    "packed: fewer": (packed(lambda v: v[:999]), PACKED, "holds 999 vectors, but the list beside it 1,000 words"),
}


def harmed(folder, whole, damage):
    """A copy of the whole folder, damaged."""
    for path in whole[0].iterdir():
        if path.is_file():
            (folder / path.name).write_bytes(path.read_bytes())
    damage(folder)
    return folder


@pytest.mark.parametrize("case", [*REFUSED, *VECTORS_REFUSED])
def test_what_is_wrong_is_said_with_file_and_place(tmp_path, whole, case):
    damage, *vectors, said = (REFUSED | VECTORS_REFUSED)[case]
    with pytest.raises(ValueError) as refusal:
        read(harmed(tmp_path, whole, damage), *vectors)
    message = str(refusal.value)
    assert message.startswith(str(tmp_path)) and re.search(said, message), message


def test_a_file_of_vectors_that_holds_fewer_than_it_says_is_told_of(tmp_path, whole):
    damage = rewritten(WORDS, lambda b: b"1200 %d\n" % b[: b.index(b"\n")].count(b" ") + b)
    with pytest.warns(UserWarning, match=r"words\.vec holds 1,000 words, its first line says 1,200"):
        read(harmed(tmp_path, whole, damage))


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
def test_packed_vectors_are_those_of_the_text(tmp_path, whole, line_end):
    names = read(harmed(tmp_path, whole, packed(line_end=line_end)), PACKED)
    assert np.array_equal(names["embedding_matrix"], whole[1]["embedding_matrix"])


@pytest.mark.parametrize(
    "damage", [edited(TRAIN, two_rows), edited(TRAIN, one_toxic_row), put("comment_text", "the same", None)]
)
def test_comments_too_few_to_learn_from_some_and_score_on_others(tmp_path, whole, damage):
    with pytest.raises(ValueError, match="no toxic or no harmless comments to .* Raise KERNEL_HOLDOUT_SHARE, or give"):
        read(harmed(tmp_path, whole, damage))


def in_another_order(folder):
    table(WANTED)[::-1].to_csv(folder / WANTED, index=False)


SAME = {  # as if nothing had been done
    "a byte order mark": rewritten(TRAIN, lambda b: b"\xef\xbb\xbf" + b),
    "line ends of Windows": rewritten(TRAIN, lambda b: b.replace(b"\n", b"\r\n")),
    "mixed line ends": rewritten(TRAIN, lambda b: b.replace(b"\n", b"\r\n", 100)),
    "every field in quotes": rewritten(TRAIN, quoted_rows),
    "empty lines": rewritten(TRAIN, lambda b: b.replace(b"\n", b"\n\n", 3) + b"\n\n"),
    "no last line end": rewritten(TRAIN, lambda b: b[:-1]),
    "columns in another order": edited(TRAIN, lambda f: f[sorted(f)]),
    "columns that nobody knows": edited(TRAIN, lambda f: f.assign(other="1,5 \n")),
    "shares in full": edited(TRAIN, lambda f: f.assign(target=f["target"].map(lambda t: t and f"{float(t):.30e}"))),
    "more columns wanted": edited(WANTED, lambda f: f.assign(other=1)),
    "vectors after a byte order mark": rewritten(WORDS, lambda b: b"\xef\xbb\xbf" + b),
    "vectors after a header": rewritten(WORDS, lambda b: b"1000 %d\n" % b[: b.index(b"\n")].count(b" ") + b),
    "both": rewritten(WORDS, lambda b: b"\xef\xbb\xbf1000 %d\n" % b[: b.index(b"\n")].count(b" ") + b),
    "vectors between tabs": rewritten(WORDS, tabbed),
    "vectors with line ends of Windows": rewritten(WORDS, lambda b: b.replace(b"\n", b"\r\n")),
    "vectors with spaces at the ends": rewritten(WORDS, lambda b: b.replace(b"\n", b" \n")),
    "doubled words": rewritten(WORDS, lambda b: b + b.replace(b" 0", b" 1")),
    "a word a hundred thousand times": rewritten(WORDS, lambda b: b + b[: b.index(b"\n") + 1] * 100_000),
}


@pytest.mark.parametrize("case", SAME)
def test_what_does_not_matter_changes_nothing(tmp_path, whole, case):
    names = read(harmed(tmp_path, whole, SAME[case]))
    for name in ("train", "test"):
        pd.testing.assert_frame_equal(names[name][whole[1][name].columns], whole[1][name])
    assert names["vocabulary"] == whole[1]["vocabulary"]
    assert np.array_equal(names["embedding_matrix"], whole[1]["embedding_matrix"])


ODD = {  # read as it stands: the column that holds it, in which file, and the values
    "emoji": ("comment_text", TRAIN, ["😀😀 👍🏽"]),
    "zero-width characters": ("comment_text", TRAIN, ["\u200b\u200d\ufeff"]),
    "right to left": ("comment_text", TRAIN, ["\u202eשלום עולם", "مرحبا"]),
    "ten megabytes": ("comment_text", TRAIN, ["word " * 2_000_000]),
    "a quote": ("comment_text", TEST, ['one " two', '"', '""', "'"]),
    "line ends": ("comment_text", TEST, ["one\ntwo\r\nthree\rfour"]),
    "words that pandas takes for nothing": ("comment_text", TEST, ["NA", "null", "nan", "", " "]),
    "controls": ("comment_text", TEST, ["\x01\x1a\x7f", "\x85 \u2028"]),
    "ids": ("id", TRAIN, ["1e5", "007", "7", "100000", "0x7", "é", "-", "True", "1_0"]),
}


@pytest.mark.parametrize("case", ODD)
def test_what_is_odd_is_kept_as_it_is(tmp_path, whole, case):
    column, name, values = ODD[case]

    def write(folder):
        frame = table(name)
        frame.loc[: len(values) - 1, column] = values
        frame.to_csv(folder / name, index=False, quoting=csv.QUOTE_ALL)

    names = read(harmed(tmp_path, whole, write))
    assert list(names[name.removesuffix(".csv")][column][: len(values)]) == values
    assert names["offsets"][-1] == len(names["tokens"]) and np.all(np.diff(names["offsets"]) > 0)


def test_rows_follow_the_sample_submission(tmp_path, whole):
    names = read(harmed(tmp_path, whole, in_another_order))
    pd.testing.assert_frame_equal(names["test"], whole[1]["test"][::-1].reset_index(drop=True))


# any text, and much of what means something in a csv
TEXTS = st.lists(
    st.sampled_from([*',"\n\r;\t \x00', '""', "a", "é", "😀"]) | st.characters(codec="utf-8"), max_size=9
).map("".join)
DAMAGES = st.lists(
    st.tuples(
        st.integers(0, 10**6),  # where, in millionths of the file
        st.integers(0, 3),  # how many bytes go
        st.sampled_from([b"", b",", b'"', b"\n", b"\r", b"\0", b"\xff", b"\xef\xbb\xbf", b" ", b"1e5", b"nan"]),
    ),
    max_size=3,
)


def damaged(content, damages, cut):
    """The bytes with some taken out and others put in, and their end cut off."""
    for place, gone, put_in in damages:
        start = place * len(content) // 10**6
        content = content[:start] + put_in + content[start + gone :]
    assume(not re.search(rb"[eE][+-]?\d{5}", content))  # pandas takes 1e5000000000 for 0; nobody writes that
    return content[: len(content) - cut]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("random") / "file"


ROWS_OF_CSV = st.lists(st.tuples(TEXTS, TEXTS, st.floats(0, 1, width=32)), min_size=1)


@given(ROWS_OF_CSV, st.sampled_from(["\n", "\r\n"]), DAMAGES, st.integers(0, 9))
def test_random_csv_files_are_read_as_pythons_own_reader_does_or_refused(place, rows, line_end, damages, cut):
    text, names = io.StringIO(), ["id", "comment_text", "target"]
    csv.writer(text, lineterminator=line_end, quoting=csv.QUOTE_ALL).writerows([names, *rows])
    place.write_bytes(damaged(text.getvalue().encode(), damages, cut if damages else 0))
    try:
        frame = kernel.read_columns(place, names[:2], names[2:])
    except ValueError as error:
        assert str(error).startswith(f"{place}: ") and (damages or "NUL" in str(error))
        return
    with place.open(encoding="utf-8-sig", newline="") as file:
        header, *expected = filter(None, csv.reader(file))
    ids, texts, targets = ([row[header.index(name)] for row in expected] for name in names)
    assert list(frame["id"]) == ids and list(frame["comment_text"]) == texts
    assert np.array_equal(frame["target"], np.array([x or "nan" for x in targets], np.float32), equal_nan=True)


WORDS_OF_VECTORS = st.text(st.characters(codec="utf-8", exclude_categories=["Z", "C"]), min_size=1, max_size=5)
NUMBERS = st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=3, max_size=3)
VECTORS_OF_WORDS = st.dictionaries(WORDS_OF_VECTORS, NUMBERS, min_size=1)


@given(VECTORS_OF_WORDS, st.sampled_from([b" ", b"\t"]), st.booleans(), DAMAGES, st.integers(0, 9))
def test_random_vector_files_are_read_as_they_stand_or_refused(place, vectors, separator, has_header, damages, cut):
    lines = [word.encode() + b"".join(separator + repr(x).encode() for x in vector) for word, vector in vectors.items()]
    if has_header:
        lines.insert(0, b"%d 3" % len(vectors))
    content = damaged(b"\n".join(lines) + b"\n", damages, cut if damages else 0)
    place.write_bytes(content)
    try:
        read = list(kernel.text_vectors(place))
    except ValueError as error:
        assert damages and str(error).startswith(f"{place}: ")
        return
    if not damages:
        assert [word.decode() for word, _ in read] == [*vectors]
        assert np.array_equal([vector for _, vector in read], np.array([*vectors.values()], np.float32))
    lines_left = [line.replace(b"\t", b" ") for line in content.removeprefix(codecs.BOM_UTF8).split(b"\n")]
    for word, vector in read:  # each stands in the file
        texts = [text for first, _, text in (line.partition(b" ") for line in lines_left) if first == word]
        numbers = [text.split() for text in texts if len(text.split()) == len(vector)]
        assert any(np.array_equal(np.array(of_line, np.float32), vector) for of_line in numbers)
