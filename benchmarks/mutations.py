"""Do the tests notice? python benchmarks/mutations.py [NUMBER …]

Puts one mistake at a time into a copy of the notebook, each one that a person could make, runs the tests that should
notice it, and prints which one did. The exit status is the number of mistakes that none did.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent
PARTS = ("kernel.ipynb", "kernel-metadata.json", "pyproject.toml", "tests", "embeddings")
PARTS += ("Makefile", "README.md", "on_kaggle.py")  # which tests read
# the mistake | the tests that should notice it; what stands in the notebook; what somebody writes there
MUTATIONS = r"""
BPSN among the rows of BNSP | metric
- rows = mentioned != toxic
+ rows = mentioned == toxic

ties count as right | metric
- - harmless_at_rank / 2
+ - harmless_at_rank * 0

another exponent | metric
- POWER_MEAN_EXPONENT = -5
+ POWER_MEAN_EXPONENT = 5

half of the raters is not toxic | sections
- toxic = (train["target"] >= 0.5)
+ toxic = (train["target"] > 0.5)

half of the raters do not mention | comments
- train[identities] >= 0.5
+ train[identities] > 0.5

test rows as they come | comments broken_input
- test.set_index("id").loc[wanted["id"]].reset_index()
+ test

an id twice | broken_input
- refuse_rows(frame, "id", ids.duplicated()
+ refuse_rows(frame, "id", ids == "?"

copies on both sides of the split | holdout
- np.isin(groups, order
+ np.isin(np.arange(len(groups)), order

the holdout among the rows to fit | sections
- np.flatnonzero(~held_out)
+ np.arange(len(train))

batches of all rows | sections
- *(tokens, offsets, fit_rows, batch
+ *(tokens, offsets, np.arange(len(train)), batch

comments in a wrong order | sections
- comments = pd.concat([train[
+ comments = pd.concat([train[::-1][

vectors of the word before | vectors
- [UNKNOWN + 1 + place] = vectors[form]
+ [UNKNOWN + place] = vectors[form]

lower case before the word itself | vectors
- forms = [word, lower,
+ forms = [lower, word,

padding is a word | batches
- np.where(column < lengths,
+ np.where(column <= lengths,

terms are not swapped | batches
- swapped[places] = generator
+ tokens[places] = generator

terms are swapped against the setting | sections
- (vocabulary) if swap_terms else
+ (vocabulary) if True else

reversed is not put back | model
- [forward, reverse(backward, places)]
+ [forward, backward]

padding counts in the mean | model
- ops.where(is_word, sequence, 0.0), axis=1)
+ sequence, axis=1)

an unknown label is 0 | model
- ops.where(known, losses, 0.0)
+ losses

the pairs the wrong way round | model
- lost = ops.softplus(ops.transpose(logits) - logits)
+ lost = ops.softplus(logits - ops.transpose(logits))

figures of an epoch without the average of the weights | training
- keras.callbacks.SwapEMAWeights(swap_on_epoch=True),
+ keras.callbacks.Callback(),

all models have one seed | training
- seed, scored_rows = ensemble.settings.seed + number,
+ seed, scored_rows = ensemble.settings.seed,

scores in the order of the batches | model batches training
- logits[batches.order] = predicted
+ logits[np.sort(batches.order)] = predicted

logits are averaged | training scorer
- sum(map(sigmoid, logits)) / len(logits)
+ sigmoid(sum(logits) / len(logits))

the student reads the holdout | training
- ensemble.scored_batches.rows[held_out:]
+ ensemble.scored_batches.rows[:held_out]

the time limit is passed | limits
- clock["Start"] + time_limit - min(150
+ clock["Start"] + time_limit + min(150

the calibration turns the order round | scorer evaluation
- a * np.log(scores) - b * np.log1p
+ a * np.log(scores) + b * np.log1p

intervals of 90 % | evaluation metric
- INTERVAL_ENDS = [0.025, 0.975]
+ INTERVAL_ENDS = [0.05, 0.95]

thresholds from the half they are tried on | run
- find_thresholds(holdout_toxic[~measured], folder_shares["toxicity"][~measured])
+ find_thresholds(holdout_toxic, folder_shares["toxicity"])

scores in another order than their ids | run
- "submission.csv", test["id"], test_scores)
+ "submission.csv", test["id"], test_scores[::-1])

networks of other comments are taken over | training
- cells_so_far(), *data)
+ cells_so_far())

a GPU gets the time of a CPU | settings
- if devices[0].startswith("gpu") else "CPU"
+ if devices[0].startswith("cuda") else "CPU"

comments are printed by default | settings
- show_comments = input_dir == SAMPLE if
+ show_comments = True if

every epoch draws alike | training
- keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: batches.draw()),
+

an epoch of all rows | sections
- surplus=(train["target"] == 0).to_numpy(),
+

gaps in the wrong colour | evaluation
- cmap="PuOr_r"
+ cmap="PuOr"

the CNN learns the holdout | run
- LengthBuckets(tokens, offsets, fit_rows, batch_size, cnn_labels
+ LengthBuckets(tokens, offsets, np.arange(len(train)), batch_size, cnn_labels

no calibration in the folder | run
- description["calibration"] = calibration
+ description["calibration"] = {}

gaps of another model | run
- lstm_resampled = resampled["LSTM"]
+ lstm_resampled = resampled["TF-IDF"]

the best identity is called the worst | run
- lowest_of_identities.idxmin()
+ lowest_of_identities.idxmax()

better by more than chance at the wrong end | run
- ["all"][figure][0] > 0
+ ["all"][figure][1] > 0

errors of other comments | run
- list(train["id"].iloc[holdout_rows[places]])
+ list(train["id"].iloc[places])

no model learns the test comments | training
- batches.learn(rows, with_scores
+ batches.learn(rows[:0], with_scores

the extra rows make an epoch without the others | batches
- permutation(np.append(rows, extra_rows))
+ permutation(extra_rows)
"""


def mutate(folder, old, new):
    """Copy the repository's parts into the folder, the notebook with one place changed."""
    for name in PARTS:
        path = REPOSITORY / name
        copy = shutil.copytree if path.is_dir() else shutil.copy
        copy(path, folder / name)
    notebook = json.loads((folder / "kernel.ipynb").read_text(encoding="utf-8"))
    found = 0
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "code" and old in source:
            found += source.count(old)
            cell["source"] = source.replace(old, new).splitlines(keepends=True)
    if found != 1:
        raise ValueError(f"stands {found} times in the notebook: {old}")
    (folder / "kernel.ipynb").write_text(json.dumps(notebook), encoding="utf-8")


def noticed_by(folder, names):
    """The first test that fails, or None. `run` is the notebook's own run with nbval and the tests that look at it."""
    files = [f"tests/test_{name}.py" for name in names.split()]
    if "run" in names.split():
        files = ["--nbval", "--nbval-current-env", "--nbval-sanitize-with", "tests/outputs.cfg", "kernel.ipynb", *files]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *files]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    failed = re.search(r"^(?:FAILED|ERROR) ([^\s[]+)", done.stdout, re.MULTILINE)
    return failed[1] if failed else None


def main():
    mutations = re.findall(r"^(.+) \| (.+)\n- (.+)\n\+ ?(.*)$", MUTATIONS, re.MULTILINE)
    chosen = [int(number) for number in sys.argv[1:]] or range(1, len(mutations) + 1)
    unnoticed = 0
    for number in chosen:
        what, names, old, new = mutations[number - 1]
        with tempfile.TemporaryDirectory() as folder:
            mutate(Path(folder), old, new)
            test = noticed_by(folder, names)
        unnoticed += test is None
        print(f"{number:2} {what}: {test or 'NOT NOTICED'}", flush=True)
    sys.exit(unnoticed)


if __name__ == "__main__":
    main()
