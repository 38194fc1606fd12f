"""How the best network moves with the number of comments: python benchmarks/scaling.py FOLDER [--keep kept]

Trains the notebook's networks on parts of the rows to fit in FOLDER (the competition's layout, word vectors beside the
comments), with other units, epochs and dropout, or changed like a variant of experiment.py, to score a 30 % holdout.
Number 1, 3, … train vectors of words, and none is taught by another. What is trained stays in --keep, and is not
trained again: empty it when the notebook has changed. Of all that is there it prints

- a table: the figures of each model (see experiment.py) with standard errors, how far its final score lies above that
  of the same model of the first --variant, the final score of the average of these models, and the seconds that
  training them took;
- of three parts and more, how far the curve error = a + b * rows ** -c (Hestness et al. 2017) of a number of units lies
  below that of the next smaller one at 1.6 million rows, and between what 95 of 100 lie with the models' noise drawn
  anew. The curves, in scaling.png, are of the first --variant with the last of --epochs and the usual dropout.
"""

import itertools
import random
import tempfile
import time
from functools import partial
from pathlib import Path
from threading import Event
from unittest.mock import patch

from measure import files_of, parse_arguments, print_machine, run_notebook

# isort: split
import kernel
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from experiment import changes_of, holdout_figures
from scipy.optimize import curve_fit

GRID = {"units": [64, 128, 256], "epochs": [2, 4], "dropout": [0.2, 0.3, 0.4], "number": [0, 1]}
PARTS, SETTING = [0.125, 0.25, 0.5, 1.0], ["variant", "rows", "units", "epochs", "dropout"]
SPLIT, COMPETITION = "held_out = split_holdout(", 1_624_000  # rows to fit


def prepare(settings, part):
    """Run the notebook down to the first model with a part of the rows to fit, 0 … 1; the holdout stays the same."""
    run_notebook(SPLIT, settings)
    kept = kernel.held_out | (np.random.default_rng(0).random(len(kernel.held_out)) < part)
    held_out, kernel.toxic = kernel.held_out[kept], kernel.toxic[kept]
    kernel.train, kernel.mentioned = (
        of[kept].reset_index(drop=True) for of in (kernel.train, kernel.mentioned)
    )
    with patch.object(kernel, "split_holdout", lambda *_: held_out):
        run_notebook("Ensemble(", settings, first=SPLIT)


def train(units, epochs, dropout, number):
    """Train the notebook's network of that number: scores of the holdout, rows to fit, and seconds, as a dict."""
    seed, begun = kernel.settings.seed + number, time.perf_counter()
    random.seed(seed)
    with patch.object(kernel, "SPATIAL_DROPOUT", dropout):
        model = kernel.build_model(
            kernel.pretrained[0], kernel.frequent_words * (number % 2), units
        )
    batches = kernel.make_batches(seed, kernel.labels)
    planned = epochs * len(batches), kernel.settings.learning_rate
    kernel.train_model(model, batches, kernel.Schedule(*planned, 0, np.inf, Event()))
    seconds = time.perf_counter() - begun
    scores = kernel.predict(
        model, kernel.Batches(kernel.tokens, kernel.offsets, kernel.holdout_rows)
    )[:, 0]
    return {"scores": scores, "rows": len(kernel.fit_rows), "seconds": seconds}


def print_table(models, first):
    same, rows = ["rows", *GRID], []
    finals = models[models["variant"] == first].set_index(same)["final"]
    models["above"] = models["final"] - finals.reindex(models.set_index(same).index).to_numpy()
    for setting, of in models.groupby(SETTING):
        cells = [
            f"{of[name].mean():.4f} ± {of[name].sem():.4f}"
            for name in ("final", "overall", "sources")
        ]
        cells.append(f"{of['above'].mean():+.4f} ± {of['above'].sem():.4f}")
        average = f"{holdout_figures(of['scores'].mean())['final']:.4f}"
        rows.append([*map(str, setting), *cells, average, f"{of['seconds'].sum():.0f}"])
    header = [*SETTING, "final", "overall", "sources", f"above {first}", "average", "seconds"]
    print(*(f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *rows)), sep="\n")


def curve(rows, a, b, c):
    return a + b * (rows / 10_000) ** -c


def fit_curves(models, draws=100):
    """{units: list of the a, b and c of 1 - final score, first as it is, then with the models' noise drawn anew}."""
    generator, points = np.random.default_rng(0), models.groupby(["units", "rows"])["final"]
    noise, mean = np.nan_to_num(np.sqrt(points.var().mean())), points.transform("mean")
    errors = [
        1 - models["final"],
        *(1 - mean + noise * generator.normal(size=len(models)) for _ in range(draws)),
    ]
    fit = partial(curve_fit, curve, p0=(0.05, 0.05, 0.5), bounds=(0, 1))
    enough = (
        models.groupby("units")["rows"].transform("nunique") > 2
    )  # a curve has three parameters
    sizes = models[enough].groupby("units")
    return {units: [fit(of["rows"], error[of.index])[0] for error in errors] for units, of in sizes}


def compare_curves(models, path):
    """Draw the curves of all units, and print how each differs from the one before."""
    rows, curves = np.geomspace(models["rows"].min(), COMPETITION), fit_curves(models)
    for color, (units, of) in zip(("C0", "C1", "C2", "C3"), models.groupby("units"), strict=False):
        plt.plot(of["rows"], 1 - of["final"], ".", color=color, label=f"{units} units")
        if units in curves:
            plt.plot(rows, curve(rows, *curves[units][0]), color=color)
    plt.gca().set(xscale="log", xlabel="rows to fit", ylabel="1 - final score")
    plt.legend()
    plt.savefig(path)
    for smaller, larger in itertools.pairwise(curves):
        errors = [
            np.array([curve(COMPETITION, *one) for one in curves[units]])
            for units in (smaller, larger)
        ]
        gain, (low, high) = (
            errors[0] - errors[1],
            np.quantile((errors[0] - errors[1])[1:], kernel.INTERVAL),
        )
        print(
            f"{larger} units for {smaller}, at {COMPETITION:,} rows: {gain[0]:+.4f}, {low:+.4f} … {high:+.4f}"
        )


def main():
    arguments = parse_arguments(
        __doc__, "folder", keep=Path("kept"), part=PARTS, variant=["default"], **GRID
    )
    print_machine("keras", "tensorflow")
    (keep := arguments.keep / arguments.folder.resolve().name).mkdir(parents=True, exist_ok=True)
    for part, variant in itertools.product(arguments.part, arguments.variant):
        settings, definitions = changes_of(variant)
        definitions |= {"BASELINE_ROWS": 1_000, "plot_bias": lambda *_: None}
        with tempfile.TemporaryDirectory() as output_dir, patch.multiple(kernel, **definitions):
            prepare(
                files_of(arguments.folder)
                | {"holdout_share": 0.3, "output_dir": output_dir}
                | settings,
                part,
            )
            for values in itertools.product(*(vars(arguments)[name] for name in GRID)):
                setting, path = (
                    dict(zip(GRID, values, strict=True)),
                    keep / f"{part} {variant} {values}.npz",
                )
                if not path.exists():
                    kernel.write_atomically(
                        path, partial(np.savez, variant=variant, **setting, **train(**setting))
                    )
    models = [
        {name: array[()] for name, array in np.load(path).items()} for path in keep.glob("*.npz")
    ]
    models = pd.DataFrame([model | holdout_figures(model["scores"]) for model in models])
    print_table(models, arguments.variant[0])
    usual = models["dropout"].eq(kernel.SPATIAL_DROPOUT) & models["epochs"].eq(arguments.epochs[-1])
    usual = models[usual & models["variant"].eq(arguments.variant[0])]
    if len(usual):
        compare_curves(usual, keep / "scaling.png")


if __name__ == "__main__":
    main()
