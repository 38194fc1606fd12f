"""What a run's folder can do: python benchmarks/scoring.py MODELS FOLDER [--rows 1000000]

MODELS: the folder models/ of a run. FOLDER: comments in the competition's layout that were not in that run.

- A csv of made-up comments, a tenth as long and whole, through the shell: seconds, and memory at the peak.
- Comments a second on one core: the student, all networks, and a RoBERTa-base with random weights where torch and
  transformers are installed. Each reads the same comments, sorted by length.
- With and without the words that the folder keeps beside the run's own: the share of the comments' running text that
  has a vector, and the AUC on these comments.
- On the run's holdout: the average of all networks, the student, and the average with the student as one more.
"""

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import median

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import pandas as pd
from measure import in_new_process, print_machine
from sklearn.metrics import roc_auc_score

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

MOST_COMMENTS, TIMED, ROUNDS = 5_000, 256, 3


def new_comments(folder):
    """Comments and whether they are toxic, which the folder of models has not seen."""
    train = pd.read_csv(folder / "train.csv", usecols=["comment_text", "target"], keep_default_na=False)
    train = train.sample(min(MOST_COMMENTS, len(train)), random_state=0)
    return [*train["comment_text"].astype(str)], train["target"].astype(float) >= 0.5


def without_extra_words(score, models):
    """The same scorer with the words of the run alone."""
    description = json.loads((models / "models.json").read_text(encoding="utf-8"))
    run_words = len(description["words"]) - description["extra_words"]
    *arguments, token_numbers, max_tokens = score.args
    unknown = 2 + len(token_numbers)
    restricted = {
        word: number if place < run_words else unknown for place, (word, number) in enumerate(token_numbers.items())
    }
    return partial(score.func, *arguments, restricted, max_tokens)


def covered(score, comments):
    """Share of the running text that has a number of its own."""
    import kernel

    token_numbers = score.args[-2]
    unknown = 2 + len(token_numbers)
    tokens = [token for comment in comments for token in kernel.cut(comment)]
    known = sum((token_numbers.get(word) or kernel.number_of_unseen(word, token_numbers)) != unknown for word in tokens)
    return known / len(tokens)


def compare_words(models, folder):
    import kernel

    comments, toxic = new_comments(folder)
    score = kernel.load(models)
    for name, scorer in (("words of the run", without_extra_words(score, models)), ("and of the files", score)):
        auc = roc_auc_score(toxic, scorer(comments)["toxicity"])
        print(f"{name}: {covered(scorer, comments):.2%} of the running text has a vector, AUC {auc:.4f}", flush=True)


def prepare_folder(models, comments, all_networks):
    import kernel

    score = kernel.load(models, all_networks)
    score(comments[:2])
    return partial(score, comments)


def prepare_roberta(models, comments, all_networks):
    """RoBERTa-base on texts of as many tokens as it would cut them into, by a rule of thumb: four for three words."""
    import torch
    from transformers import RobertaConfig, RobertaForSequenceClassification

    torch.set_num_threads(1)
    config = RobertaConfig(vocab_size=50_265, max_position_embeddings=514, type_vocab_size=1, num_labels=7)
    network = RobertaForSequenceClassification(config).eval()
    lengths = sorted(min(510, 2 + len(comment.split()) * 4 // 3) for comment in comments)

    def score():
        with torch.inference_mode():
            for start in range(0, len(lengths), 32):
                batch = lengths[start : start + 32]
                network(torch.randint(5, 50_000, (len(batch), max(batch))))

    return score


def call(score):
    score()


def compare_speed(models, folder):
    comments = new_comments(folder)[0][:TIMED]
    ways = {
        "student": (prepare_folder, False),
        "all networks": (prepare_folder, True),
        "RoBERTa-base": (prepare_roberta, None),
    }
    if not (models / "student.npz").exists():
        del ways["student"]
    try:
        import transformers  # noqa: F401
    except ImportError:
        del ways["RoBERTa-base"]
    seconds = {name: [] for name in ways}
    for _ in range(ROUNDS):  # in turn, since machines are shared
        for name, (prepare, all_networks) in ways.items():
            seconds[name].append(in_new_process(prepare, call, models, comments, all_networks, core=0)[0])
    for name, of_rounds in seconds.items():
        print(f"{name}: {TIMED / median(of_rounds):.0f} comments a second on one core", flush=True)


def score_made_up(models, rows):
    words = ["you", "are", "a", "kind", "clever", "stupid", "neighbour", "who", "lives", "in", "the", "old", "house"]
    generator = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "comments.csv")
        with path.open("w") as file:
            file.write("id,comment_text\n")
            for number in range(rows):
                file.write(f"{number},{' '.join(generator.choices(words, k=generator.randint(1, 20)))}\n")
        start = time.perf_counter()
        with Path(folder, "scores.csv").open("w") as scores:
            command = [sys.executable, models / "toxicity.py", path]
            subprocess.run(command, stdout=scores, stderr=subprocess.DEVNULL, check=True)
        with Path(folder, "scores.csv").open() as scores:
            lines = sum(1 for _ in scores)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(
        f"{lines - 1:,} comments through the shell: {time.perf_counter() - start:.0f} s, {peak:.0f} MB at the peak",
        flush=True,
    )


def compare_averages(run):
    import kernel

    frame = pd.read_csv(run / "holdout_predictions.csv")
    if "student" not in frame:
        return print("There was no student.")
    models = sum(name.startswith("model ") for name in frame)
    scores = frame[["LSTM", "student"]].assign(both=(models * frame["LSTM"] + frame["student"]) / (models + 1))
    mentioned = (frame[kernel.IDENTITIES] == 1).to_numpy()
    for name, final_score in kernel.network_scores((frame["toxic"] == 1).to_numpy(), scores, mentioned).items():
        print(f"{name}: final score {final_score:.4f}, overall AUC {roc_auc_score(frame['toxic'], scores[name]):.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=1_000_000)
    arguments = parser.parse_args()
    print_machine("keras", "tensorflow")
    for rows in (arguments.rows // 10, arguments.rows):
        score_made_up(arguments.models, rows)
    compare_speed(arguments.models, arguments.folder)
    compare_words(arguments.models, arguments.folder)
    compare_averages(arguments.models.parent)
