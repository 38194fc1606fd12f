"""How a run's models and others rank: python benchmarks/compare.py RUN [--others MODEL.csv …]

RUN is the folder that a run left. Others are csv files of id,prediction that hold its held-out
comments (holdout_predictions.csv lists them), on which all are compared, with TF-IDF. With
--labels, a csv of labelled test comments such as test_private_expanded.csv, they hold these,
and submission.csv is compared with them: what the leaderboard says. A row has the parts of the
score, the score, its 95 % interval, and that of how far the model lies above the first one.
"""

from pathlib import Path

from measure import parse_arguments

# isort: split
import kernel
import pandas as pd

NONE = Path()


def predictions_of(path, ids):
    """The predictions of a csv for these ids. Raises ValueError where it lacks one."""
    predictions = kernel.read_columns(path, ["id"], ["prediction"])
    predictions = predictions.set_index("id")["prediction"].reindex(ids)
    lacking = predictions.isna()
    if lacking.any():
        some = f"{lacking.sum():,} of {len(ids):,} comments, such as {ids[lacking.argmax()]}"
        raise ValueError(f"{path} lacks {some}")
    return predictions.to_numpy()


def read_labelled(folder, labels):
    """toxic, bool (rows,), and mentions, bool (rows, identities), by id, and the models' scores."""
    if labels != NONE:
        columns = ["toxicity", *kernel.IDENTITIES]
        rows = kernel.read_columns(labels, ["id"], columns).set_index("id")
        submission = folder / "submission.csv"
        own = {submission.name: predictions_of(submission, rows.index)}
        mentioned = rows[kernel.IDENTITIES] >= 0.5
        return rows["toxicity"] >= 0.5, mentioned, own
    models = ["LSTM", "TF-IDF"]
    path, columns = folder / "holdout_predictions.csv", ["toxic", *models, *kernel.IDENTITIES]
    rows = kernel.read_columns(path, ["id"], columns).set_index("id")
    mentioned = rows[kernel.IDENTITIES] == 1
    return rows["toxic"] == 1, mentioned, rows[models].to_dict("list")


def compare(toxic, scores, mentioned):
    """The parts of each model's score with intervals: DataFrame (models, 9)."""
    comments = toxic.to_numpy(), scores, mentioned
    figures = kernel.all_figures(*comments).xs("all", level="identity")
    drawn = kernel.bootstrap(*comments, seed=0).xs("all", level="identity")
    drawn = drawn["final_score"].unstack()[[*scores]]
    above = drawn.sub(drawn.iloc[:, 0], axis=0)
    table = figures[kernel.SCORE_PARTS].copy()
    low, high = kernel.INTERVAL
    table["from"] = drawn.quantile(low)
    table["to"] = drawn.quantile(high)
    table["above first from"] = above.quantile(low)
    table["above to"] = above.quantile(high)
    return table


def main():
    arguments = parse_arguments(__doc__, "run", others=[NONE], labels=NONE)
    toxic, mentioned, scores = read_labelled(arguments.run, arguments.labels)
    for path in set(arguments.others) - {NONE}:
        scores[str(path)] = predictions_of(path, toxic.index)
    scores = pd.DataFrame(scores, toxic.index)
    print(f"{len(toxic):,} comments, {toxic.mean():.1%} toxic")
    print(compare(toxic, scores, mentioned).to_string(float_format="{:.4f}".format))


if __name__ == "__main__":
    main()
