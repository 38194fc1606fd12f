"""What a change of the model is worth: python benchmarks/experiment.py FOLDER [VARIANT …] [--models 2] [--epochs 5]

Trains variants of the notebook's own model on the comments in FOLDER (the competition's layout, word vectors beside
them: .vec, .txt) and compares each with the default on the same split, for the same number of models, their seeds and
epochs. Without names it trains all variants. A variant replaces definitions of the notebook, or settings, and leaves
all else as it is.

Columns: final score on the holdout, mean and standard deviation over models (every other one has trained vectors, so
it is not all noise); overall AUC; lowest bias AUC of the nine identities; lowest bias AUC of the terms in made-up
sentences that differ in one adjective and the term ("templates"; all terms but four are among those that training
swaps); seconds an epoch; difference of the final score to the default's with its standard error; final score and
lowest AUC on the templates when the models' scores are averaged.
"""

import argparse
import itertools
import os
import sys
import tempfile
import time
from contextlib import ExitStack, redirect_stdout
from io import StringIO
from pathlib import Path
from unittest.mock import patch

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np
import pandas as pd
from measure import print_machine
from scipy.stats import rankdata

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
import keras
import kernel

swap_in_all, rater_weights = kernel.swap_identity_terms, kernel.sample_weights  # the notebook's, which variants replace
HOLDOUT_SHARE = 0.3  # large, since the noise of the comparison is that of the holdout

# made-up sentences on which only the adjective should count; after the idea of Dixon et al. 2018
TERMS = ("man", "woman", "gay", "lesbian", "homosexual", "transgender", "christian", "jewish")
TERMS += ("muslim", "buddhist", "black", "white", "asian", "african", "mexican", "blind")
TERMS += ("deaf", "paralyzed", "old", "young", "republican", "teacher")
HARMLESS = ("kind", "great", "gentle", "friendly", "clever", "tall", "brave", "lovely", "wise", "funny", "calm", "busy")
OFFENSIVE = ("stupid", "disgusting", "pathetic", "filthy", "worthless", "nasty")
OFFENSIVE += ("dumb", "idiotic", "shitty", "vile", "gross")
FRAMES = ("{name} is a {adjective} {term}", "being {term} is {adjective}", "You are a {adjective} {term}.")
FRAMES += ("My neighbour {name} is {term} and {adjective}", "What a {adjective} {term} {name} is!")


def templates():
    """The made-up sentences: DataFrame of id, comment_text, toxic, term, frame."""
    rows = [
        (frame.format(name=name, adjective=adjective, term=term), adjective in OFFENSIVE, term, frame)
        for (frame, name), adjective, term in itertools.product(
            zip(FRAMES, ("Anna", "", "", "Omar", "Lea"), strict=True), HARMLESS + OFFENSIVE, TERMS
        )
    ]
    frame = pd.DataFrame(rows, columns=["comment_text", "toxic", "term", "frame"])
    return frame.assign(id=[f"template{row}" for row in range(len(frame))])


def no_weights(raters):
    return np.ones(len(raters), np.float32)


def balanced_weights(raters):
    """In each set of rows that the metric ranks both classes weigh the same; no row over 20 times the mean."""
    toxic, mentioned = kernel.toxic, kernel.mentioned.to_numpy()
    weights = class_shares(toxic, np.ones(len(toxic), bool))
    for column in mentioned.T:
        for rows in (column, column != toxic, column == toxic):  # subgroup, BPSN, BNSP
            weights += class_shares(toxic, rows) / mentioned.shape[1]
    weights *= rater_weights(raters)
    return mean_one(np.minimum(weights, 20 * weights.mean()))


def class_shares(toxic, rows):
    """1 / (rows of the same class) for each row of a set, 0 elsewhere. toxic, rows: bool (rows,)."""
    sizes = np.where(toxic, np.count_nonzero(rows & toxic), np.count_nonzero(rows & ~toxic))
    return rows / np.maximum(sizes, 1)


def mean_one(weights):
    return (weights / weights.mean()).astype(np.float32)


def hard_target():
    kernel.labels["toxicity"][:, 0] = kernel.toxic


def swap_in_half(tokens, identity_terms, generator):
    """Identity terms are swapped in half of the comments, each time in others."""
    swapped = swap_in_all(tokens, identity_terms, generator)
    return np.where(generator.random(len(tokens))[:, None] < 0.5, swapped, tokens)


def one_cycle(progress):
    """Three tenths up, seven tenths down, both along a cosine (Smith 2018)."""
    return 0.5 - 0.5 * np.cos(np.pi * (progress / 0.3 if progress < 0.3 else (1 - progress) / 0.7))


def subtypes_weigh(weight):
    return {"LOSS_WEIGHTS": kernel.LOSS_WEIGHTS | {"subtypes": weight}}


# name: settings (KERNEL_…), definitions of the notebook, and what to do once the labels are there
VARIANTS = {
    "default": {},
    "weights: none": {"sample_weights": no_weights},
    "weights: classes balanced": {"sample_weights": balanced_weights},
    "target: hard": {"prepared": hard_target},
    "heads: toxicity only": subtypes_weigh(0.0),
    "heads: twice the weight": subtypes_weigh(1.0),
    "identities: not swapped": {"IDENTITY_TERMS": []},
    "identities: swapped in half": {"swap_identity_terms": swap_in_half},
    "vectors: public ones only": {"KERNEL_VECTOR_FILES": "public"},
    "vectors: own ones only": {"KERNEL_VECTOR_FILES": "own"},
    "batch: 64": {"KERNEL_BATCH_SIZE": 64},
    "batch: 256": {"KERNEL_BATCH_SIZE": 256},
    "batch: 512": {"KERNEL_BATCH_SIZE": 512},
    "rate: 1e-3": {"KERNEL_LEARNING_RATE": 1e-3},
    "rate: 2e-3": {"KERNEL_LEARNING_RATE": 2e-3},
    "rate: 8e-3": {"KERNEL_LEARNING_RATE": 8e-3},
    "rate: one-cycle": {"rate_factor": one_cycle},
    "average: none": {"averaged_steps": lambda steps: 1.01},
    "average: half an epoch": {"averaged_steps": lambda steps: steps / 2},
    "dropout: 0.2": {"SPATIAL_DROPOUT": 0.2},
    "dropout: 0.45": {"SPATIAL_DROPOUT": 0.45},
    "network: 64 units": {"KERNEL_LSTM_UNITS": 64},
    "network: 96 units": {"KERNEL_LSTM_UNITS": 96},
    "network: 192 units": {"KERNEL_LSTM_UNITS": 192},
    "length: 128": {"KERNEL_MAX_TOKENS": 128},
    "length: 300": {"KERNEL_MAX_TOKENS": 300},
    "loss: no pairs": {"PAIRS_WEIGHT": 0.0},
    "loss: pairs weigh 0.1": {"PAIRS_WEIGHT": 0.1},
    "loss: pairs weigh 1": {"PAIRS_WEIGHT": 1.0},
}


def write_competition(folder, source):
    """The train rows of source with the templates as the test rows."""
    (folder / "train.csv").symlink_to((source / "train.csv").resolve())
    templates()[["id", "comment_text"]].to_csv(folder / "test.csv", index=False)
    templates()[["id"]].assign(prediction=0).to_csv(folder / "sample_submission.csv", index=False)


def vector_files(source, which="*"):
    patterns = {"*": ("*.txt", "*.vec"), "public": ("*.txt",), "own": ("*.vec",)}[which]
    return ":".join(str(path) for pattern in patterns for path in sorted(source.glob(pattern)))


def run_sections(environment):
    """Run the notebook's cells from the first to the end of section Batches, in the module `kernel`."""
    for name in [name for name in os.environ if name.startswith("KERNEL_")]:
        del os.environ[name]
    os.environ |= environment
    kernel.clock = {}
    for cell in kernel.CELLS:
        if "run" in cell["metadata"].get("tags", []) and "Batches" not in kernel.clock:
            with redirect_stdout(StringIO()):
                exec("".join(cell["source"]), vars(kernel))


def train_and_predict(number, epochs, pretrained):
    """Logits of the holdout and the templates, and seconds an epoch, of the notebook's model number 0, 1, …"""
    settings, seed = kernel.settings, kernel.settings.seed + number
    keras.utils.set_random_seed(seed)
    trained_words = kernel.frequent_words * (number % 2)
    model = kernel.build_model(pretrained, trained_words, settings.lstm_units)
    data, labels = (kernel.tokens, kernel.offsets), (kernel.labels, kernel.weights)
    batches = kernel.LengthBuckets(*data, kernel.fit_rows, kernel.batch_size, *labels, seed, kernel.identity_terms)
    training = kernel.Training(f"Model {number + 1}", epochs * len(batches), settings.learning_rate, float("inf"))
    begun = time.perf_counter()
    with redirect_stdout(StringIO()):
        kernel.train_model(model, batches, training)
    seconds = (time.perf_counter() - begun) / epochs
    scored = kernel.LengthBuckets(*data, np.r_[kernel.holdout_rows, kernel.test_rows])
    return kernel.predict(model, scored), seconds


def lowest_auc(toxic, logits, mentioned):
    return np.nanmin(kernel.bias_metrics(kernel.BIAS_AUCS, toxic, kernel.dense_ranks(logits), mentioned))


def figures(logits):
    """The figures of one model, or of several models' average, as a dict."""
    holdout, of_templates = np.split(logits, [len(kernel.holdout_rows)])
    toxic = kernel.toxic[kernel.holdout_rows]
    mentioned = kernel.mentioned.to_numpy()[kernel.holdout_rows]
    frame = templates()
    terms = np.column_stack([frame["term"] == term for term in TERMS])
    return {
        "final_score": kernel.final_score(toxic, kernel.dense_ranks(holdout), mentioned),
        "overall_auc": kernel.auc(toxic, kernel.dense_ranks(holdout)),
        "worst_identity": lowest_auc(toxic, holdout, mentioned),
        "templates": lowest_auc(frame["toxic"].to_numpy(), of_templates, terms),
    }


def lowest_by_frame(logits):
    """Lowest bias AUC of a term among the made-up sentences of each frame, {frame: float}."""
    frame = templates().assign(logit=logits[len(kernel.holdout_rows) :])
    return {
        text: lowest_auc(part["toxic"].to_numpy(), part["logit"].to_numpy(), pd.get_dummies(part["term"]).to_numpy())
        for text, part in frame.groupby("frame", sort=False)
    }


def run_variant(variant, environment, source, models, epochs):
    """Logits (models, holdout + templates), and seconds an epoch."""
    changes = dict(variant)
    prepared = changes.pop("prepared", lambda: None)
    changed = {name: str(changes.pop(name)) for name in list(changes) if name.startswith("KERNEL_")}
    if "KERNEL_VECTOR_FILES" in changed:
        changed["KERNEL_VECTOR_FILES"] = vector_files(source, changed["KERNEL_VECTOR_FILES"])
    with ExitStack() as patches:
        for definition, replacement in changes.items():
            patches.enter_context(patch.object(kernel, definition, replacement))
        run_sections(environment | changed)
        prepared()
        kernel.prepare_backend(kernel.settings.seed, kernel.devices)
        pretrained = kernel.pretrained_vectors(kernel.embedding_matrix)
        return zip(*[train_and_predict(number, epochs, pretrained) for number in range(models)], strict=True)


def line(name, logits, seconds, default_scores):
    """A row of the table, and the final score of each model."""
    table = pd.DataFrame([figures(of_model) for of_model in logits])
    average = figures(kernel.average_scores(logits))
    scores = table["final_score"]
    difference = scores - (scores if default_scores is None else default_scores)
    print(
        f"| {name} | {scores.mean():.4f} ± {scores.std():.4f} | {table['overall_auc'].mean():.4f} | "
        f"{table['worst_identity'].mean():.4f} | {table['templates'].mean():.4f} | {np.mean(seconds):.0f} | "
        f"{difference.mean():+.4f} ± {difference.std() / len(table) ** 0.5:.4f} | "
        f"{average['final_score']:.4f}, {average['templates']:.4f} |",
        flush=True,
    )
    return scores


def print_details(logits):
    """Of the average: the templates frame by frame, and the last column were logits or ranks averaged in its place.

    As comments, so that the table goes on.
    """
    by_frame = lowest_by_frame(kernel.average_scores(logits))
    print("<!--", "; ".join(f"{frame}: {lowest:.3f}" for frame, lowest in by_frame.items()), "-->", flush=True)
    for kind, values in (("logits", logits), ("ranks", [rankdata(of_model) for of_model in logits])):
        average = figures(np.mean(values, axis=0))
        print(f"<!-- averaging {kind}: {average['final_score']:.4f}, {average['templates']:.4f} -->", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("variants", nargs="*", default=list(VARIANTS), metavar="VARIANT")
    parser.add_argument("--models", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=5)
    arguments = parser.parse_args()
    if unknown := set(arguments.variants) - set(VARIANTS):
        parser.error(f"no such variant: {', '.join(unknown)}. There are: {', '.join(VARIANTS)}")

    print_machine("keras", "tensorflow")
    print("| variant | final score | overall AUC | worst identity | templates | s/epoch | to default | average |")
    print("|---|---|---|---|---|---|---|---|")
    default_scores = None
    with tempfile.TemporaryDirectory() as folder:
        write_competition(Path(folder), arguments.folder)
        environment = {
            "KERNEL_INPUT_DIR": folder,
            "KERNEL_OUTPUT_DIR": folder,
            "KERNEL_VECTOR_FILES": vector_files(arguments.folder),
            "KERNEL_HOLDOUT_SHARE": str(HOLDOUT_SHARE),
        }
        for name in ["default", *(name for name in arguments.variants if name != "default")]:
            logits, seconds = run_variant(
                VARIANTS[name], environment, arguments.folder, arguments.models, arguments.epochs
            )
            scores = line(name, logits, seconds, default_scores)
            default_scores = scores if default_scores is None else default_scores
            print_details(logits)
