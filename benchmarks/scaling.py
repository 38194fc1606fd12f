"""How the best network moves with the number of comments: python benchmarks/scaling.py FOLDER

Trains the notebook's networks on parts of the rows to fit in FOLDER (the competition's layout, word
vectors beside the comments), with other units, epochs and dropout, or changed like a variant of
experiment.py, to score a 30 % holdout. The teacher teaches all, no network another. What is trained
stays in --keep, below the folder's name, and is not trained again: empty it when the notebook or
the folder has changed. Of all that is there it prints

- a table: the figures of each model (see experiment.py) with standard errors, how far its final
  score lies above that of the same model of the first --variant, the final score of the average of
  these models, and the seconds that training them took;
- of three parts and more, how far the curve error = a + b * rows ** -c (Hestness et al. 2017) of a
  number of units lies below that of the next smaller one at 1.6 million rows, and between what 95
  of 100 lie with the models' noise drawn anew. The curves, in scaling.png, are of the first
  --variant with the last of --epochs and the usual dropout.
"""

import itertools
import random
import sys
import tempfile
import time
from contextlib import redirect_stdout
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
from scipy.special import expit

GRID = {"units": [64, 128, 256], "epochs": [2, 4], "dropout": [0.2, 0.3, 0.4], "number": [0, 1]}
PARTS = [0.125, 0.25, 0.5, 1.0]
SETTING = ["variant", "rows", "units", "epochs", "dropout"]
SPLIT = "held_out = split_holdout("
COMPETITION = 1_624_000  # rows to fit
SHOWN = ["final", "overall", "sources"]  # with standard errors


def prepare(settings, part):
    """Run the notebook down to the first model with a part of the rows to fit, 0 … 1; the holdout
    stays the same.
    """
    run_notebook(SPLIT, settings)
    drawn = np.random.default_rng(0).random(len(kernel.held_out))
    kept = kernel.held_out | (drawn < part)
    held_out, kernel.toxic = kernel.held_out[kept], kernel.toxic[kept]
    kernel.train = kernel.train[kept].reset_index(drop=True)
    kernel.mentioned = kernel.mentioned[kept].reset_index(drop=True)
    with patch.object(kernel, "split_holdout", lambda *_: held_out):
        run_notebook("ensemble = Ensemble(", settings, first=SPLIT)
    with redirect_stdout(sys.stderr):
        kernel.label_openings(kernel.ensemble, kernel.opening_rows, np.inf, kernel.pretrained[0])


def train(units, epochs, dropout, number):
    """Train a network, with the seed of that number: scores of the holdout, rows to fit, and
    seconds, as a dict.
    """
    seed, begun = kernel.settings.seed, time.perf_counter()
    random.seed(f"{seed} {number}")
    with patch.object(kernel, "SPATIAL_DROPOUT", dropout):
        model = kernel.build_model(kernel.pretrained[0], units)
    generator = np.random.default_rng([seed, number])
    data = kernel.ensemble.data
    steps = epochs * len(data.draw_batches(generator))
    schedule = kernel.Schedule(steps, deadline=np.inf, steps_to_score=0)
    rate = kernel.settings.learning_rate
    with redirect_stdout(sys.stderr):
        kernel.train_model(model, data, generator, schedule, rate, Event(), "model")
    seconds = time.perf_counter() - begun
    logits = kernel.predict(model, data, kernel.holdout_rows)
    scores = expit(logits[:, 0], dtype=float)
    return {"scores": scores, "rows": len(kernel.fit_rows), "seconds": seconds}


def print_table(models, first):
    same, rows = ["rows", *GRID], []
    finals = models[models["variant"] == first]
    finals = finals.set_index(same)["final"]
    in_order = models.set_index(same).index
    models["above"] = models["final"] - finals.reindex(in_order).to_numpy()
    for setting, of in models.groupby(SETTING):
        cells = [str(value) for value in setting]
        cells += [f"{of[name].mean():.4f} ± {of[name].sem():.4f}" for name in SHOWN]
        cells.append(f"{of['above'].mean():+.4f} ± {of['above'].sem():.4f}")
        average = holdout_figures(np.mean([*of["scores"]], axis=0))
        cells.append(f"{average['final']:.4f}")
        cells.append(f"{of['seconds'].sum():.0f}")
        rows.append(cells)
    header = [*SETTING, *SHOWN, f"above {first}", "average", "seconds"]
    for row in (header, ["---"] * len(header), *rows):
        print(f"| {' | '.join(row)} |")


def curve(rows, a, b, c):
    return a + b * (rows / 10_000) ** -c


def fit_curves(models, draws=100):
    """{units: list of the a, b and c of 1 - final score, first as it is, then with the models'
    noise drawn anew}.
    """
    generator = np.random.default_rng(0)
    points = models.groupby(["units", "rows"])["final"]
    noise = np.nan_to_num(np.sqrt(points.var().mean()))
    errors = [1 - models["final"]]
    for _ in range(draws):
        moved = noise * generator.normal(size=len(models))
        errors.append(1 - points.transform("mean") + moved)
    fit = partial(curve_fit, curve, p0=(0.05, 0.05, 0.5), bounds=(0, 1))
    curves = {}
    for units, of in models.groupby("units"):
        if of["rows"].nunique() > 2:  # a curve has three parameters
            curves[units] = [fit(of["rows"], error[of.index])[0] for error in errors]
    return curves


def plot_curves(models, curves, path):
    rows = np.geomspace(models["rows"].min(), COMPETITION)
    for number, (units, of) in enumerate(models.groupby("units")):
        color, label = f"C{number}", f"{units} units"
        plt.plot(of["rows"], 1 - of["final"], ".", color=color, label=label)
        if units in curves:
            errors = curve(rows, *curves[units][0])
            plt.plot(rows, errors, color=color)
    plt.gca().set(xscale="log", xlabel="rows to fit", ylabel="1 - final score")
    plt.legend()
    plt.savefig(path)


def compare_curves(curves):
    """Print how each number of units differs from the one before."""
    errors = {}
    for units, fitted in curves.items():
        at_end = [curve(COMPETITION, *parameters) for parameters in fitted]
        errors[units] = np.array(at_end)
    for smaller, larger in itertools.pairwise(errors):
        gain, *drawn = errors[smaller] - errors[larger]
        low, high = np.quantile(drawn, kernel.INTERVAL)
        print(f"{larger} units for {smaller}, at {COMPETITION:,} rows: {gain:+.4f}, ", end="")
        print(f"{low:+.4f} … {high:+.4f}")


def train_all(arguments, settings, keep):
    """Train and keep what is not there yet."""
    grid = [vars(arguments)[name] for name in GRID]
    for part, variant in itertools.product(arguments.part, arguments.variant):
        missing = {}
        for values in itertools.product(*grid):
            path = keep / f"{part} {variant} {values}.npz"
            if not path.exists():
                missing[path] = dict(zip(GRID, values, strict=True))
        if not missing:
            continue
        of_variant, definitions = changes_of(variant)
        definitions["plot_bias"] = lambda *_, **__: None
        with tempfile.TemporaryDirectory() as folder, patch.multiple(kernel, **definitions):
            prepare(settings | {"output_dir": folder} | of_variant, part)
            for path, setting in missing.items():
                trained = train(**setting) | setting | {"variant": variant}
                kernel.write_atomically(path, partial(np.savez, **trained))


def main():
    lists = GRID | {"part": PARTS, "variant": ["default"]}
    arguments = parse_arguments(__doc__, "folder", keep=Path("kept"), **lists)
    print_machine("keras", "tensorflow")
    keep = arguments.keep / arguments.folder.resolve().name
    keep.mkdir(parents=True, exist_ok=True)
    settings = files_of(arguments.folder) | {"holdout_share": 0.3}
    train_all(arguments, settings, keep)
    with tempfile.TemporaryDirectory() as folder:
        run_notebook(SPLIT, settings | {"output_dir": folder})  # the holdout is the same for all
    models = []
    for path in keep.glob("*.npz"):
        arrays = np.load(path)
        model = {name: arrays[name][()] for name in arrays}
        models.append(model | holdout_figures(model["scores"]))
    models = pd.DataFrame(models)
    first = arguments.variant[0]
    print_table(models, first)
    usual = models[models["variant"] == first]
    usual = usual[usual["dropout"] == kernel.SPATIAL_DROPOUT]
    usual = usual[usual["epochs"] == arguments.epochs[-1]]
    if len(usual):
        curves = fit_curves(usual)
        plot_curves(usual, curves, keep / "scaling.png")
        compare_curves(curves)


if __name__ == "__main__":
    main()
