"""What a change of the model is worth: python benchmarks/experiment.py FOLDER [VARIANT …] [--models 3] [--epochs 5]

Trains variants of the notebook's model on the comments in FOLDER (the competition's layout, word vectors beside them)
and compares each with the default: the same split, 70 % to fit, number of models, seeds and epochs. Without names it
trains all; "A + B" does both. With --keep FOLDER what is trained stays there, and is not trained again. A row has the
final score of each model, mean and standard deviation, how far that lies above the default's, with its standard error,
and of the average of the models:

final         the competition's score, on the holdout as all that follows
overall       AUC of all comments
sources       mean of the AUCs within each source (see `sources`)
own           AUC of the competition's own comments, where the folder has some
negative AEG  mean of the nine identities
swapped, others, names
              lowest bias AUC of a term in made-up sentences that differ in an adjective and the term ("You are a brave
              lesbian."), for terms that training swaps, for terms that it was never told of, and for names
gap           counterfactual gap (Garg et al. 2019): mean change, up or down, of the scores of held-out comments when
              the terms in them are replaced by others that training swaps
lift          mean rise of the score of a harmless sentence when such a term is put in
"""

import argparse
import itertools
import tempfile
from collections import ChainMap
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

from measure import files_of, print_machine, run_notebook

# isort: split
import kernel
import numpy as np
import pandas as pd
from kernel import keras, layers, ops

# made-up sentences on which only the adjective should count; after the idea of Dixon et al. 2018
SWAPPED = (
    "man",
    "woman",
    "gay",
    "lesbian",
    "homosexual",
    "transgender",
    "christian",
    "jewish",
    "muslim",
    "buddhist",
)
SWAPPED += ("black", "white", "asian", "african", "mexican", "blind", "deaf", "paralyzed")
OTHERS = (
    "nigerian",
    "mormon",
    "wheelchair user",
    "bipolar",
    "widow",
    "peasant",
    "vietnamese",
    "kurdish",
    "swedish",
)
OTHERS += (
    "refugee",
    "pensioner",
    "intersex",
    "quaker",
    "amish",
    "dyslexic",
    "iranian",
    "republican",
    "old",
)
NAMES = (
    "Jamal",
    "Lakisha",
    "Mohammed",
    "Aisha",
    "Juan",
    "Mei",
    "Moshe",
    "Svetlana",
    "Emily",
    "Greg",
    "Kofi",
    "Priya",
)
HARMLESS = (
    "kind",
    "great",
    "gentle",
    "friendly",
    "clever",
    "tall",
    "brave",
    "lovely",
    "wise",
    "funny",
    "calm",
    "busy",
)
OFFENSIVE = ("stupid", "disgusting", "pathetic", "filthy", "worthless", "nasty")
OFFENSIVE += ("dumb", "idiotic", "shitty", "vile", "gross")
FRAMES = (
    "Anna is a {adjective} {term}",
    "being {term} is {adjective}",
    "You are a {adjective} {term}.",
)
FRAMES += ("My neighbour Omar is {term} and {adjective}", "What a {adjective} {term} Lea is!")
NAME_FRAMES = (
    "{term} is a {adjective} neighbour",
    "being {term} is {adjective}",
    "You are so {adjective}, {term}.",
)
NAME_FRAMES += ("My friend {term} is {adjective}", "What a {adjective} child {term} is!")
PLAIN = ("I am a {} person", "My {} neighbour is a great cook", "All {} people should be heard")
KINDS = {"swapped": (FRAMES, SWAPPED), "others": (FRAMES, OTHERS), "names": (NAME_FRAMES, NAMES)}
LISTED = {term for terms in kernel.LISTED_TERMS for term in terms}  # whatever a variant swaps


def make_texts(comments, most=2000):
    """Texts to score beside the holdout: DataFrame of kind and text, of the KINDS also toxic and term; of "gap" and
    "lift", comments and sentences with other terms in them, also base, the row of the text without.
    """
    rows = [
        {
            "kind": kind,
            "text": frame.format(adjective=adjective, term=term),
            "toxic": toxic,
            "term": term,
        }
        for kind, (frames, terms) in KINDS.items()
        for toxic, adjectives in ((False, HARMLESS), (True, OFFENSIVE))
        for frame, adjective, term in itertools.product(frames, adjectives, terms)
    ]
    generator = np.random.default_rng(0)
    naming = (comment.split() for comment in comments if LISTED & set(comment.lower().split()))
    changed = [
        (
            "gap",
            words,
            [[term if word.lower() in LISTED else word for word in words] for term in drawn],
        )
        for words in itertools.islice(naming, most)
        for drawn in [generator.choice(SWAPPED, 2, replace=False)]
    ]
    changed += [
        ("lift", [frame.replace("{} ", "")], [[frame.format(term)] for term in SWAPPED])
        for frame in PLAIN
    ]
    for kind, words, others in changed:
        base = len(rows)
        rows.append({"kind": "base", "text": " ".join(words)})
        rows += [{"kind": kind, "text": " ".join(other), "base": base} for other in others]
    return pd.DataFrame(rows)


def sources(train):
    """Where each row is from, by how its source labels and writes, str (rows,): the competition rated by ten, or with
    shares that no other has; HateXplain has no capitals; Wikipedia is toxic or not without a kind. Not always right.
    """
    text, target, subtypes = train["comment_text"], train["target"], train[kernel.SUBTYPES]
    posts = text.str.fullmatch(r"[a-z0-9<>.' $&*-]*") & target.round(2).isin([0, 0.67, 1])
    marks = text.str.contains(r"(?:^|\W)@\w|\bRT\b|&#\d+;|https?://t\.co|&amp;|#[A-Za-z]")
    thirds = ((subtypes["obscene"] + subtypes["identity_attack"] - target).abs() < 0.01) & (
        target > 0
    )
    tweets = thirds | (marks & target.round(2).isin([0, 0.17, 0.33, 0.67, 0.83, 1]))
    wikipedia = target.isin([0, 1]) & (subtypes.sum(axis=1) == 0)
    found = [train[kernel.RATERS] == 10, posts, tweets, wikipedia]
    return np.select(found, ["civil", "posts", "tweets", "wikipedia"], default="civil")


def trained_dropout(share, dropout=layers.Dropout):
    """keras.layers for build_model, with another dropout of the trained vectors, the only ones that have one."""
    return SimpleNamespace(**vars(layers) | {"Dropout": lambda _: dropout(share)})


class Scaled(kernel.DenseEmbedding):
    """Trained vectors that stand `scale` times as far from zero as their table, so Adam moves them as much faster."""

    def call(self, tokens):
        return self.scale * super().call(tokens)


def build_cnn(pretrained, *_):
    """The organisers' benchmark, a convolutional network, with the notebook's heads: as from build_model."""
    tokens = keras.Input((None,), dtype="int32")
    hidden = pretrained(ops.pad(tokens, ((0, 0), (0, 250)))[:, :250])
    for width, pooling in (
        (2, layers.MaxPooling1D(5)),
        (3, layers.MaxPooling1D(5)),
        (4, layers.GlobalMaxPooling1D()),
    ):
        hidden = pooling(layers.Conv1D(128, width, activation="relu", padding="same")(hidden))
    hidden = layers.Dense(128, activation="relu")(layers.Dropout(0.3)(hidden))
    heads = {
        name: layers.Dense(size, dtype="float32", name=name)(hidden)
        for name, size in kernel.HEADS.items()
    }
    return keras.Model(tokens, heads)


# name: settings, by their names, and definitions of the notebook that are replaced
VARIANTS = {
    "default": {},
    "swap: never": {"swap_terms": "no"},
    "comments to score: not learned": {"Batches": type("Batches", (kernel.Batches,), {"EXTRA": 0})},
    "trained: no words": {"FREQUENT": 10**9},
    "trained: words of 10": {"FREQUENT": 10},
    **{f"trained: {width} wide": {"TRAINED_WIDTH": width} for width in (8, 32, 64)},
    "trained: dropout 0.2": {"layers": trained_dropout(0.2)},
    "trained: gradient as slices": {"DenseEmbedding": layers.Embedding},
    "trained: rate x 3": {"DenseEmbedding": type("Faster", (Scaled,), {"scale": 3.0})},
    "loss: no pairs": {"PAIRS_WEIGHT": 0.0},
    "network: the organisers'": {"build_model": build_cnn},
    **{f"batch: {size}": {"batch_size": size} for size in (128, 512)},
}


def batches_of(texts):
    """Batches of texts, a Series, to predict."""
    places, offsets, words = kernel.tokenize(texts, kernel.settings.max_tokens)
    tokens = np.array([kernel.number_of(word, kernel.numbers) for word in words], np.int32)[places]
    return kernel.Batches(tokens, offsets, np.arange(len(texts)))


def changes_of(name):
    """The settings and the definitions that a variant, "A" or "A + B", replaces: two dicts."""
    changes = dict(ChainMap(*map(VARIANTS.__getitem__, name.split(" + "))))
    settings = {
        key: changes.pop(key) for key in [*changes] if key in kernel.Settings.__annotations__
    }
    return settings, changes


def run_variant(name, settings):
    """The texts; scores of each model, float (models, texts and holdout)."""
    (replaced, changes), predict, scores = changes_of(name), kernel.predict, []

    def predict_more(model, batches):
        scored = predict(model, batches)
        of_texts = predict(model, batches_of(texts["text"]))
        scores.append(np.append(of_texts[:, 0], scored[: len(kernel.holdout_rows), 0]))
        return scored

    changes |= {"predict": predict_more, "plot_bias": lambda *_: None, "BASELINE_ROWS": 1_000}
    changes["NOT_LEARNED"] = kernel.NOT_LEARNED | {
        "models"
    }  # those that stand there serve a longer row of models, too
    with patch.multiple(kernel, **changes):
        run_notebook("Ensemble(", settings | replaced)
        texts = make_texts(kernel.train["comment_text"].iloc[kernel.holdout_rows])
        ensemble = replace(kernel.ensemble, deadline=np.inf)
        with redirect_stdout(StringIO()):
            kernel.train_models(
                ensemble, keras.config.dtype_policy(), kernel.devices[0], kernel.pretrained[0]
            )
    return texts, np.array(scores)


def holdout_figures(scores):
    """The figures of scores of the holdout alone, as a dict."""
    toxic, holdout = kernel.holdout_toxic, kernel.train.iloc[kernel.holdout_rows]
    of_holdout, source = (
        kernel.model_figures(toxic, scores, kernel.holdout_mentioned),
        sources(holdout),
    )
    parts = [
        *(source == name for name in np.unique(source)),
        (holdout[kernel.RATERS] == 10).to_numpy(),
    ]
    *within, own = (
        kernel.overall_auc(toxic[rows], kernel.dense_ranks(scores[rows])) for rows in parts
    )
    result = {
        "final": of_holdout["all", "final_score"],
        "overall": of_holdout["all", "overall_auc"],
    }
    result |= {"sources": np.nanmean(within), "own": own}
    return result | {
        "negative AEG": np.nanmean([of_holdout[name, "negative_aeg"] for name in kernel.IDENTITIES])
    }


def figures(texts, scores):
    """The figures of the scores of texts, then of the holdout, as a dict."""
    texts, result = texts.assign(score=scores[: len(texts)]), holdout_figures(scores[len(texts) :])
    for kind in KINDS:
        bias = kernel.term_figures(texts[texts["kind"] == kind].astype({"toxic": bool}))
        result[kind] = bias[kernel.BIAS_AUCS].min().min()
    moved = texts["score"] - texts["score"].reindex(texts["base"]).to_numpy()
    result |= {
        "gap": moved[texts["kind"] == "gap"].abs().mean(),
        "lift": moved[texts["kind"] == "lift"].mean(),
    }
    return result


def print_row(name, texts, scores, default):
    """Print a row of the table; the final scores of the models. default: those of the default, None for its own row."""
    finals = pd.Series([figures(texts, of_model)["final"] for of_model in scores])
    above = finals - (finals if default is None else default)
    cells = {"variant": name, "each model": f"{finals.mean():.4f} ± {finals.std():.4f}"}
    cells |= {"to default": f"{above.mean():+.4f} ± {above.sem():.4f}"}
    cells |= {key: f"{value:.4f}" for key, value in figures(texts, scores.mean(axis=0)).items()}
    if default is None:
        print("|", " | ".join(cells), "|\n" + "|---" * len(cells) + "|")
    print("|", " | ".join(cells.values()), "|", flush=True)
    return finals


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("variants", nargs="*", default=[*VARIANTS], metavar="VARIANT")
    parser.add_argument("--models", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--keep", type=Path)
    arguments = parser.parse_args(arguments)
    for parts in (name.split(" + ") for name in arguments.variants):
        if unknown := set(parts) - set(VARIANTS):
            parser.error(f"no such variant: {', '.join(unknown)}. There are: {', '.join(VARIANTS)}")
        if len(ChainMap(*map(VARIANTS.get, parts))) < sum(len(VARIANTS[part]) for part in parts):
            parser.error(f"{' + '.join(parts)}: two of these change the same")
    print_machine("keras", "tensorflow")
    settings = {"holdout_share": 0.3, "models": arguments.models, "epochs": arguments.epochs}
    settings, default = settings | files_of(arguments.folder), None
    with tempfile.TemporaryDirectory() as folder:
        for name in dict.fromkeys(["default", *arguments.variants]):
            settings["output_dir"] = (arguments.keep or Path(folder)) / name
            finals = print_row(name, *run_variant(name, settings), default)
            default = finals if default is None else default


if __name__ == "__main__":
    main()
