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
# the mistake | the tests that should notice it; what stands in the notebook => what somebody writes there
MUTATIONS = r"""
BPSN among the rows of BNSP | metric
    "bpsn_auc": auc(toxic_without, harmless_with) => "bpsn_auc": auc(toxic_with, harmless_without)
ties count as right | metric
    np.cumsum(lower) - lower / 2 => np.cumsum(lower)
half of the raters is not toxic | sections
    toxic = (train["target"] >= 0.5) => toxic = (train["target"] > 0.5)
half of the raters do not mention | comments
    if name in train]] >= 0.5 => if name in train]] > 0.5
test rows as they come | comments broken_input
    return test.set_index("id").loc[wanted["id"]].reset_index() => return test
an id twice | broken_input
    ids.duplicated() => ids == "?"
copies on both sides of the split | holdout
    np.isin(groups, order => np.isin(np.arange(len(groups)), order
the holdout among the rows to fit | sections
    np.flatnonzero(~held_out) => np.arange(len(train))
comments in a wrong order | sections
    itertools.chain(train["comment_text"], => itertools.chain(train["comment_text"][::-1],
the tail of a long comment is lost | tokens
    tokens[: max_tokens - tail] + tokens[-tail:] => tokens[:max_tokens]
vectors of the word before | vectors
    columns[-1][number] = => columns[-1][number - 1] =
padding is a word | batches
    mode="clip") * (column < lengths) => mode="clip") * (column <= lengths)
the same replacements in each batch | batches
    default_rng([self.swap_seed, number]) => default_rng(self.swap_seed)
terms are not swapped | batches
    swapped[places] = generator => tokens[places] = generator
reversed is not put back | model
    [forward, reverse(backward, places)] => [forward, backward]
padding counts in the mean | model
    ops.sum(ops.where(is_word, sequence, 0.0), axis=1) => ops.sum(sequence, axis=1)
an unknown label is 0 | model
    ops.mean(ops.where(known, losses, 0.0) => ops.mean(losses
pairs that weigh a tenth | model
    PAIRS_WEIGHT = 0.3 => PAIRS_WEIGHT = 0.03
the pairs the wrong way round | model
    ops.softplus(ops.transpose(logits) - logits) => ops.softplus(logits - ops.transpose(logits))
the state's bias of a GRU is forgotten | scorer
    h @ recurrent_kernel + bias[1:].sum(axis=0) => h @ recurrent_kernel
of a long text only the first piece is scored | scorer
    [*range(0, last, -(-size // 2)), last]] => [0]]
one network answers for all | scorer
    for network in weights) / len(weights) => for network in weights[:1])
the calibration turns the order round | scorer evaluation
    sigmoid(b - a * np.log( => sigmoid(b + a * np.log(
the last weights in place of their average | training
    {"use_ema": True, => {"use_ema": False,
an average that forgets ten times as fast | training
    min(100, max(2, len(batches) / 4)) => min(10, max(2, len(batches) / 40))
no weight decay | training
    weight_decay=1e-3 => weight_decay=0.0
a gradient that comes as slices | training
    ops.take(self.embeddings * 1, tokens => ops.take(self.embeddings, tokens
trained words in every model | training
    ensemble.frequent_words * (number % 2) => ensemble.frequent_words
scores in another order than their ids | training
    ensemble.ids, test_scores) => ensemble.ids, test_scores[::-1])
all models have one seed | training
    random.seed(settings.seed + number) => random.seed(settings.seed)
scores in the order of the batches | training
    scores[batches.order] = sigmoid( => scores[np.sort(batches.order)] = sigmoid(
every epoch draws alike | training
    on_epoch_end=lambda *_: batches.draw() => on_epoch_end=lambda *_: None
no model learns the test comments | training
    make_batches(settings.seed + number, labels, extra) => make_batches(settings.seed + number, labels)
the clock does not end a training | training limits
    max(self.steps / self.planned_steps, elapsed / left if left > 0 else 1) => self.steps / self.planned_steps
another model is begun too late | training
    ensemble.deadline - ANOTHER => ensemble.deadline + ANOTHER
networks of other comments are taken over | training run
    cells_of(code), data]) => cells_of(code)])
the time limit is passed | limits
    deadline = end - min(120, => deadline = end + min(120,
a GPU gets the time of a CPU | settings
    KAGGLE_SECONDS[devices[0][:3]] => KAGGLE_SECONDS["cpu"]
comments are printed by default | sections
    show_comments = is_sample or => show_comments = True or
intervals of 90 % | metric evaluation
    [0.025, 0.975] => [0.05, 0.95]
another model's predictions in the order of its file | evaluation
    frame.set_index("id")["prediction"].reindex(ids) => frame["prediction"].iloc[: len(ids)].set_axis(ids)
terms are not replaced | ask
    listed.sub(term, comment) => comment
thresholds from the half they are tried on | run
    (holdout_toxic[~measured], folder_shares["toxicity"][~measured]) => (holdout_toxic, folder_shares["toxicity"])
no calibration in the folder | run
    description["calibration"] = [fit_calibration => description["fitted"] = [fit_calibration
gaps of another model | run
    .join(figures[model].unstack() => .join(figures["TF-IDF"].unstack()
held-out scores under other ids | run
    train["id"].to_numpy()[holdout_rows], "toxic" => train["id"].to_numpy()[: len(holdout_rows)], "toxic"
"""


def mutate(folder, old, new):
    """Copy the repository's parts into the folder, the notebook with one place changed."""
    for name in PARTS:
        copy = shutil.copytree if (REPOSITORY / name).is_dir() else shutil.copy
        copy(REPOSITORY / name, folder / name)
    notebook = json.loads((folder / "kernel.ipynb").read_text(encoding="utf-8"))
    found = [cell for cell in notebook["cells"] for _ in range("".join(cell["source"]).count(old))]
    if len(found) != 1:
        raise ValueError(f"stands {len(found)} times in the notebook: {old}")
    found[0]["source"] = "".join(found[0]["source"]).replace(old, new)
    (folder / "kernel.ipynb").write_text(json.dumps(notebook), encoding="utf-8")


def noticed_by(folder, names):
    """The first test that fails, or None. `run` is the notebook's own run with nbval and the tests that look at it."""
    files = [f"tests/test_{name}.py" for name in names.split()]
    if "run" in names.split():
        files += [
            "--nbval",
            "--nbval-current-env",
            "--nbval-sanitize-with",
            "tests/outputs.cfg",
            "kernel.ipynb",
        ]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *files]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    failed = re.search(r"^(?:FAILED|ERROR) ([^\s[]+)", done.stdout, re.MULTILINE)
    return failed[1] if failed else None


def main():
    mutations = re.findall(r"^(\S.*) \| (.+)\n {4}(.+) => (.+)$", MUTATIONS, re.MULTILINE)
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
