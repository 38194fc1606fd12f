"""What a change of the model is worth: python benchmarks/experiment.py FOLDER [VARIANT …] [--models 3] [--epochs 5]

Trains variants of the notebook's own model on the comments in FOLDER (the competition's layout, word vectors beside
them: .vec, .txt) and compares each with the default on the same split, for the same number of models, their seeds and
epochs. Without names it trains all variants. A variant replaces definitions of the notebook, or settings, and leaves
all else as it is; "A + B" does both. --keep FOLDER keeps the logits there; what is there is not trained again. The
holdout is among the test comments, which all models but the first learn; its labels are not used.

Columns: final score on the holdout, mean and standard deviation over the models, and its difference to the default's
with its standard error; seconds an epoch; and of the models' average:

final        the competition's score
overall      AUC of all comments
sources      mean of the AUCs within each source (see `sources`)
own          AUC of the competition's own comments, where the folder has some
swapped, others, names
             lowest bias AUC of a term in made-up sentences that differ in an adjective and the term ("You are a brave
             lesbian."), for terms that training swaps, for terms that it was never told of, and for names
gap, gap of others
             counterfactual gap (Garg et al. 2019): mean |change of score| over held-out comments when the terms in them
             are replaced by another one that training swaps, or by one that it was never told of
lift, lift of others
             mean rise of the score of a harmless sentence when a term is put in
negative AEG mean of the nine identities on the holdout
"""

import argparse
import itertools
import os
import sys
import tempfile
import time
from collections import ChainMap
from contextlib import ExitStack, redirect_stdout
from io import StringIO
from pathlib import Path
from unittest.mock import patch

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np
import pandas as pd
from measure import print_machine

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
import keras
import kernel

HOLDOUT_SHARE = 0.3  # large, since the noise of the comparison is that of the holdout

# made-up sentences on which only the adjective should count; after the idea of Dixon et al. 2018
KNOWN = {term for terms in kernel.LISTED_TERMS for term in terms}  # whatever a variant swaps
SWAPPED = ("man", "woman", "gay", "lesbian", "homosexual", "transgender", "christian", "jewish", "muslim", "buddhist")
SWAPPED += ("black", "white", "asian", "african", "mexican", "blind", "deaf", "paralyzed")
OTHERS = ("nigerian", "mormon", "wheelchair user", "bipolar", "widow", "peasant", "vietnamese", "kurdish", "swedish")
OTHERS += ("refugee", "pensioner", "intersex", "quaker", "amish", "dyslexic", "iranian", "republican", "old")
NAMES = ("Jamal", "Lakisha", "Mohammed", "Aisha", "Juan", "Mei", "Moshe", "Svetlana", "Emily", "Greg", "Kofi", "Priya")
HARMLESS = ("kind", "great", "gentle", "friendly", "clever", "tall", "brave", "lovely", "wise", "funny", "calm", "busy")
OFFENSIVE = ("stupid", "disgusting", "pathetic", "filthy", "worthless", "nasty")
OFFENSIVE += ("dumb", "idiotic", "shitty", "vile", "gross")
FRAMES = ("Anna is a {adjective} {term}", "being {term} is {adjective}", "You are a {adjective} {term}.")
FRAMES += ("My neighbour Omar is {term} and {adjective}", "What a {adjective} {term} Lea is!")
NAME_FRAMES = ("{term} is a {adjective} neighbour", "being {term} is {adjective}", "You are so {adjective}, {term}.")
NAME_FRAMES += ("My friend {term} is {adjective}", "What a {adjective} child {term} is!")
KINDS = {"swapped": (FRAMES, SWAPPED), "others": (FRAMES, OTHERS), "names": (NAME_FRAMES, NAMES)}


def templates():
    """The made-up sentences: DataFrame of text, toxic, term, kind."""
    rows = [
        (frame.format(adjective=adjective, term=term), adjective in OFFENSIVE, term, kind)
        for kind, (frames, terms) in KINDS.items()
        for frame, adjective, term in itertools.product(frames, HARMLESS + OFFENSIVE, terms)
    ]
    return pd.DataFrame(rows, columns=["text", "toxic", "term", "kind"])


def harmless_sentences():
    """Sentences without a term, and with one: DataFrame of text, frame, kind ("without", "swapped", "others")."""
    frames = ["I am a {} person", "My {} neighbour is a great cook", "All {} people should be heard"]
    terms = [("without", "")] + [(kind, term) for kind in ("swapped", "others") for term in KINDS[kind][1]]
    rows = [(" ".join(frame.format(term).split()), frame, kind) for frame in frames for kind, term in terms]
    return pd.DataFrame(rows, columns=["text", "frame", "kind"])


def replaced_terms(comments, count=2000, replacements=2):
    """Comments that name an identity, and the same with its terms replaced: DataFrame of text, comment, kind."""
    generator, rows = np.random.default_rng(0), []
    singles = {"swapped": SWAPPED, "others": [term for term in OTHERS if " " not in term]}
    naming = [comment for comment in comments if KNOWN & set(comment.lower().split())]
    for place, comment in enumerate(naming[:count]):
        words = comment.split()
        rows.append((comment, place, "itself"))
        for kind, terms in singles.items():
            for term in generator.choice(terms, replacements, replace=False):
                text = " ".join(term if word.lower() in KNOWN else word for word in words)
                rows.append((text, place, kind))
    return pd.DataFrame(rows, columns=["text", "comment", "kind"])


def sources(train):
    """Where each row of shared/real and shared/rare is from, by how its source labels and writes: str (rows,).

    civil: rated by ten, or with shares that no other source has. posts (HateXplain): no capitals, no symbols but
    <these>. tweets: Twitter's markup, or shares of obscene and identity_attack that add up to the target. wikipedia:
    the rest, toxic or not without a kind. Some harmless rows of civil and tweets count as wikipedia.
    """
    text, target, subtypes = train["comment_text"], train["target"], train[kernel.SUBTYPES]
    kinds = subtypes.sum(axis=1)
    posts = text.str.fullmatch(r"[a-z0-9<>.' $&*-]*") & target.round(2).isin([0, 0.67, 1])
    marks = text.str.contains(r"(?:^|\W)@\w|\bRT\b|&#\d+;|https?://t\.co|&amp;|#[A-Za-z]")
    thirds = ((subtypes["obscene"] + subtypes["identity_attack"] - target).abs() < 0.01) & (target > 0)
    tweets = thirds | (marks & target.round(2).isin([0, 0.17, 0.33, 0.67, 0.83, 1]))
    wikipedia = target.isin([0, 1]) & (kinds == 0)
    of_competition = train[kernel.RATERS] == 10
    return np.select(
        [of_competition, posts, tweets, wikipedia], ["civil", "posts", "tweets", "wikipedia"], default="civil"
    )


# the notebook's, which variants replace
swap_in_all, pool_words, toxicity_loss = kernel.swap_identity_terms, kernel.max_and_mean, kernel.toxicity_loss
two_directions = kernel.bidirectional
ops, layers, Buckets = kernel.ops, kernel.layers, kernel.LengthBuckets

OF_ONE_KIND = [  # the notebook's terms by what they say of a person; nouns of one person and adjectives, of several
    "gay lesbian homosexual bisexual transgender trans queer lgbt heterosexual straight",
    "gays lesbians homosexuals bisexuals transgenders queers heterosexuals",
    "man woman male female boy girl",
    "men women males females boys girls",
    "christian catholic protestant jewish jew muslim islamic hindu buddhist sikh atheist",
    "christians catholics jews muslims hindus buddhists atheists",
    "black african white european asian chinese japanese indian hispanic latino latina mexican arab american canadian "
    "immigrant",
    "blacks africans whites europeans asians hispanics latinos mexicans arabs americans canadians immigrants",
    "blind deaf paralyzed disabled autistic elderly depressed schizophrenic",
]

MORE_TERMS = [  # of more kinds; none of them in the templates
    "german french british irish italian spanish greek russian polish ukrainian turkish syrian iraqi afghan israeli "
    "palestinian egyptian kenyan ethiopian somali jamaican haitian cuban brazilian korean filipino thai australian "
    "caucasian aboriginal evangelical orthodox lutheran methodist baptist anglican jain agnostic pagan genderqueer "
    "epileptic diabetic anorexic amputee nurse farmer lawyer plumber student waiter teenager adult "
    "homeless unemployed wealthy rural mother father husband wife daughter son vegan single divorced veteran",
    "germans italians greeks russians ukrainians turks syrians iraqis afghans israelis palestinians egyptians koreans "
    "filipinos australians evangelicals lutherans methodists baptists anglicans nurses farmers lawyers students "
    "teenagers adults mothers fathers husbands wives daughters sons vegans veterans",
]


def swap_in_half(tokens, identity_terms, generator):
    """Identity terms are swapped in half of the comments, each time in others."""
    swapped = swap_in_all(tokens, identity_terms, generator)
    return np.where(generator.random(len(tokens))[:, None] < 0.5, swapped, tokens)


def swap_or_hide(tokens, identity_terms, generator):
    """Each identity term is swapped, or in a third of the cases replaced by UNKNOWN, one token for all."""
    swapped = swap_in_all(tokens, identity_terms, generator)
    named = np.any([is_term[tokens] for is_term, _ in identity_terms], axis=0)
    return np.where(named & (generator.random(tokens.shape) < 1 / 3), kernel.UNKNOWN, swapped)


class AllRows(Buckets):
    SURPLUS = 10**9


class AsManySurplus(Buckets):
    SURPLUS = 1


def of_train(values):
    """The labels or weights of the training comments, to be changed in place; behind them stand the test comments'."""
    return values[: len(kernel.train)]


def named_in_unlabelled():
    """In the loss of pairs a comment without identity labels mentions an identity if one of its terms is there."""
    labels, unlabelled = of_train(kernel.labels["toxicity"]), kernel.train[kernel.IDENTITIES].isna().to_numpy()
    by_terms, _ = kernel.find_mentions(kernel.train.assign(**dict.fromkeys(kernel.IDENTITIES, np.nan)))
    labels[:, 1:] = np.where(unlabelled, by_terms[kernel.IDENTITIES], labels[:, 1:])


def smoothed_target():
    raters = np.nan_to_num(kernel.train[kernel.RATERS].to_numpy(), nan=1)
    labels = of_train(kernel.labels["toxicity"])
    labels[:, 0] = (raters * labels[:, 0] + 0.1) / (raters + 1.1)


def harmless_identities_weigh(factor):
    def prepared():
        raised = kernel.mentioned.to_numpy().any(axis=1) & ~kernel.toxic
        weights = of_train(kernel.weights)
        weights[raised] *= factor
        weights /= weights.mean()

    return prepared


def with_attention(sequence, tokens):
    """Four heads of attention beside maximum and mean."""
    pooled = pool_words(sequence, tokens)
    scores = layers.Dense(4)(layers.Dense(64, activation="tanh")(sequence))  # (batch, tokens, 4)
    is_word = ops.expand_dims(tokens != kernel.PADDING, -1)
    shares = ops.softmax(ops.where(is_word, scores, -1e4), axis=1)
    attended = ops.reshape(ops.einsum("btw,bth->bhw", sequence, shares), (-1, 4 * sequence.shape[-1]))
    return layers.concatenate([pooled, layers.Dense(128, activation="relu")(attended)])


def with_projection(recurrent, units, sequence, places):
    """Two vector files projected and added, in place of side by side: what a dense layer on both makes."""
    if recurrent is layers.LSTM:
        sequence = layers.Dense(128)(sequence)
    return two_directions(recurrent, units, sequence, places)


def less_identity_attack():
    """The score's target is toxicity less a little of identity attack, where the raters' share of that is known."""
    shares, labels = np.nan_to_num(kernel.train["identity_attack"].to_numpy()), of_train(kernel.labels["toxicity"])
    labels[:, 0] = np.clip(labels[:, 0] - 0.05 * shares, 0, 1)


def first_vectors_alone():
    """The dimensions of all vector files but the first are zero."""
    width = len(next(kernel.vectors_of(kernel.vector_files[0]))[1])
    kernel.embedding_matrix[:, width:] = 0


BATCHES_KEPT = 4


def pairs_over_batches():
    """The notebook's loss of pairs, over the rows of a batch and of the last ones before it, whose logits are kept."""
    kept = []  # labels, logits

    def loss(labels, logits):
        rows = BATCHES_KEPT * kernel.batch_size
        kept[:] = kept or [keras.Variable(np.zeros((rows, of.shape[1])), trainable=False) for of in (labels, logits)]
        all_labels, all_logits = ops.concatenate([labels, kept[0]]), ops.concatenate([logits, kept[1]])
        kept[0].assign(all_labels[:rows])
        kept[1].assign(ops.stop_gradient(all_logits[:rows]))
        return toxicity_loss(all_labels, all_logits)[: ops.shape(logits)[0]]

    return loss


class TestCommentsUnread(Buckets):
    EXTRA = 0


class AsManyTestComments(Buckets):
    EXTRA = 1


def frequent_from(occurrences):
    def prepared():
        kernel.frequent_words = int(np.count_nonzero(kernel.word_counts >= occurrences))

    return prepared


class Paired(Buckets):
    """Counterfactual logit pairing: a comment with identity terms stands twice in a batch, with other terms.

    The first column of the label "toxicity" is followed by the number of the comment in the batch.
    """

    def __getitem__(self, index):
        if not self.generator:
            return super().__getitem__(index)
        with patch.object(kernel, "swap_identity_terms", lambda tokens, *_: tokens):
            padded, labels, weights = super().__getitem__(index)
        generator = np.random.default_rng([self.swap_seed, index])
        named = np.flatnonzero(np.any([is_term[padded] for is_term, _ in self.identity_terms], axis=(0, 2)))
        twins = swap_in_all(padded[named], self.identity_terms, generator)
        number = np.concatenate([np.arange(len(padded)), named]).astype(np.float32)
        rows = number.astype(int)
        labels = {name: values[rows] for name, values in labels.items()}
        labels["toxicity"] = np.column_stack([labels["toxicity"], number])
        weights = np.concatenate([weights, np.zeros(len(named), np.float32)])
        return np.concatenate([padded, twins]), labels, weights


def paired_loss(weight):
    def loss(labels, logits):
        number = labels[:, -1:]
        same = ops.cast(number == ops.transpose(number), logits.dtype)
        twins = ops.sum(same) - ops.cast(ops.shape(logits)[0], logits.dtype)
        apart = ops.sum(same * ops.abs(logits - ops.transpose(logits))) / (1 + twins)
        return toxicity_loss(labels[:, :-1], logits) + weight * apart

    return loss


# name: settings (KERNEL_…), definitions of the notebook, epochs, how many models at most teach the others the test
# comments, and what to do once the labels are there
VARIANTS = {
    "default": {},
    "epochs: 3": {"epochs": 3},
    "epochs: 8": {"epochs": 8},
    "epoch: all rows": {"LengthBuckets": AllRows},
    "epoch: as many harmless ones": {"LengthBuckets": AsManySurplus},
    "trained: no words": {"prepared": frequent_from(10**9)},
    "trained: words of 20": {"prepared": frequent_from(20)},
    "swap: never": {"KERNEL_SWAP_TERMS": "no"},
    "swap: in half": {"swap_identity_terms": swap_in_half},
    "swap: or hide": {"swap_identity_terms": swap_or_hide},
    "swap: of one kind": {"LISTED_TERMS": [terms.split() for terms in OF_ONE_KIND]},
    "swap: more terms": {
        "LISTED_TERMS": [[*old, *new.split()] for old, new in zip(kernel.LISTED_TERMS, MORE_TERMS, strict=True)]
    },
    "swap: pairing": {"LengthBuckets": Paired, "LOSSES": kernel.LOSSES | {"toxicity": paired_loss(1.0)}},
    "harmless identities weigh 2": {"prepared": harmless_identities_weigh(2)},
    "pairs: named in unlabelled": {"prepared": named_in_unlabelled},
    "target: smoothed": {"prepared": smoothed_target},
    "target: less identity attack": {"prepared": less_identity_attack},
    "test comments: not learned": {"LengthBuckets": TestCommentsUnread},
    "test comments: as many": {"LengthBuckets": AsManyTestComments},
    "test comments: of two models": {"teachers": 2},
    "vectors: first file alone": {"prepared": first_vectors_alone},
    "vectors: projected": {"bidirectional": with_projection},
    "network: attention": {"max_and_mean": with_attention},
    "dropout: 0.2": {"SPATIAL_DROPOUT": 0.2},
    "dropout: 0.45": {"SPATIAL_DROPOUT": 0.45},
    "rate: 2e-3": {"KERNEL_LEARNING_RATE": 2e-3},
    "batch: 128": {"KERNEL_BATCH_SIZE": 128},
    "units: 256": {"KERNEL_LSTM_UNITS": 256},
    "loss: no pairs": {"PAIRS_WEIGHT": 0.0},
    "loss: pairs weigh 0.1": {"PAIRS_WEIGHT": 0.1},
    "loss: pairs weigh 1": {"PAIRS_WEIGHT": 1.0},
    "loss: pairs over batches": {  # a pair of two of the rows kept has no gradient, so the others weigh more
        "PAIRS_WEIGHT": kernel.PAIRS_WEIGHT * (1 + BATCHES_KEPT),
        "LOSSES": kernel.LOSSES | {"toxicity": pairs_over_batches()},
    },
}


def vector_files(source):
    return ":".join(str(path) for pattern in ("*.txt", "*.vec") for path in sorted(source.glob(pattern)))


def run_sections(environment):
    """Run the notebook's cells from the first to the end of section Batches, in the module `kernel`."""
    for name in [name for name in os.environ if name.startswith("KERNEL_")]:
        del os.environ[name]
    os.environ |= environment
    kernel.clock = {}
    for number, cell in enumerate(kernel.CELLS):
        if "run" in cell["metadata"].get("tags", []) and "Batches" not in kernel.clock:
            with redirect_stdout(StringIO()):
                kernel.run_cell(number, vars(kernel))


def scored_batches():
    """The holdout, behind it the texts of templates, harmless_sentences and replaced_terms, then the test comments."""
    texts = pd.concat([templates(), harmless_sentences(), replaced_terms(holdout()["comment_text"])])["text"]
    numbers, offsets, words = kernel.tokenize(texts, kernel.settings.max_tokens)
    token_numbers = {word: number for number, word in enumerate(kernel.vocabulary, kernel.UNKNOWN + 1)}
    token_number = np.array([token_numbers.get(word, kernel.UNKNOWN) for word in words], np.int32)
    tokens = np.concatenate([kernel.tokens, token_number[numbers]])
    offsets = np.concatenate([kernel.offsets, kernel.offsets[-1] + offsets[1:]])
    rows = np.r_[kernel.holdout_rows, len(kernel.offsets) - 1 : len(offsets) - 1, kernel.test_rows]
    return kernel.LengthBuckets(tokens, offsets, rows)


def holdout():
    return kernel.train.iloc[kernel.holdout_rows].reset_index(drop=True)


def learn_test_comments(batches, scores):
    """What the notebook does, with the holdout among the test comments. scores: of scored_batches, (rows, labels)."""
    rows = np.append(kernel.holdout_rows, kernel.test_rows)
    scores = np.concatenate([scores[: len(kernel.holdout_rows)], scores[-len(kernel.test_rows) :]])
    batches.weights = batches.weights.copy()
    batches.weights[rows] = 1
    labels = kernel.with_scores(batches.labels, rows, scores)
    labels["toxicity"][rows, 1:] = np.nan
    batches.learn(rows, labels)


def train_and_predict(number, epochs, pretrained, earlier):
    """Logits of scored_batches, and seconds an epoch, of the notebook's model number 0, 1, … earlier: logits of those
    before it whose scores of the test comments it learns.
    """
    settings, seed = kernel.settings, kernel.settings.seed + number
    keras.utils.set_random_seed(seed)
    trained_words = kernel.frequent_words * (number % 2)
    model = kernel.build_model(pretrained, trained_words, settings.lstm_units)
    batches = kernel.make_batches(seed=seed)
    if earlier:
        learn_test_comments(batches, kernel.average_scores(earlier))
    training = kernel.Training(f"Model {number + 1}", epochs * len(batches), settings.learning_rate, float("inf"))
    begun = time.perf_counter()
    with redirect_stdout(StringIO()):
        kernel.train_model(model, batches, training)
    seconds = (time.perf_counter() - begun) / epochs
    return kernel.predict(model, scored_batches()), seconds


def mean_auc_within(source, toxic, ranks):
    aucs = [kernel.auc(toxic[source == name], ranks[source == name]) for name in np.unique(source)]
    return np.nanmean(aucs)


def figures(scores):
    """The figures of the scores of scored_batches, of one model or of several models' average, as a dict."""
    kept = holdout()
    toxic, source = kernel.toxic[kernel.holdout_rows], sources(kept)
    mentioned = kernel.mentioned.to_numpy()[kernel.holdout_rows]
    made_up, harmless, replaced = templates(), harmless_sentences(), replaced_terms(kept["comment_text"])
    ends = np.cumsum([len(kept), len(made_up), len(harmless), len(replaced)])
    of_holdout, of_templates, of_harmless, of_replaced, _ = np.split(scores, ends)
    ranks, own = kernel.dense_ranks(of_holdout), (kept[kernel.RATERS] == 10).to_numpy()
    result = {
        "final": kernel.final_score(toxic, ranks, mentioned),
        "overall": kernel.auc(toxic, ranks),
        "sources": mean_auc_within(source, toxic, ranks),
        "own": kernel.auc(toxic[own], ranks[own]),
    }
    for kind in KINDS:
        part = made_up[made_up["kind"] == kind]
        terms = pd.get_dummies(part["term"]).to_numpy()
        of_part = kernel.dense_ranks(of_templates[part.index])
        result[kind] = kernel.bias_metrics(kernel.BIAS_AUCS, part["toxic"].to_numpy(), of_part, terms).min()
    replaced["score"] = of_replaced
    itself = replaced[replaced["kind"] == "itself"].set_index("comment")["score"]
    harmless["score"] = of_harmless
    without = harmless[harmless["kind"] == "without"].set_index("frame")["score"]
    for kind, name in (("swapped", ""), ("others", " of others")):
        rows = replaced[replaced["kind"] == kind]
        result["gap" + name] = (rows["score"] - rows["comment"].map(itself)).abs().mean()
        rows = harmless[harmless["kind"] == kind]
        result["lift" + name] = (rows["score"] - rows["frame"].map(without)).mean()
    result["negative AEG"] = np.nanmean(kernel.bias_metrics(kernel.EQUALITY_GAPS, toxic, ranks, mentioned)[:, 1])
    return result


def run_variant(name, environment, models, epochs, keep):
    """Logits of each model, float (models, scored rows), and seconds an epoch; those that stand in the folder `keep`
    are not trained again. name: "A" or "A + B".
    """
    parts = [VARIANTS[part] for part in name.split(" + ")]
    changes = dict(ChainMap(*parts))
    changes.pop("prepared", None)
    epochs, teachers = changes.pop("epochs", epochs), changes.pop("teachers", None)
    changed = {name: str(changes.pop(name)) for name in list(changes) if name.startswith("KERNEL_")}
    paths = [keep / f"{name}, model {number}, {epochs} epochs.npz" for number in range(1, models + 1)]
    trained = [[*np.load(path).values()] for path in paths if path.exists()]  # logits (scored rows, labels), seconds
    if len(trained) == models and "Batches" in vars(kernel).get("clock", {}):
        return [logits[:, 0] for logits, _ in trained], [seconds for _, seconds in trained]
    with ExitStack() as patches:
        for definition, replacement in changes.items():
            patches.enter_context(patch.object(kernel, definition, replacement))
        run_sections(environment | changed)
        for part in parts:
            part.get("prepared", lambda: None)()
        kernel.prepare_backend(kernel.settings.seed, kernel.devices)
        pretrained = kernel.pretrained_vectors(kernel.embedding_matrix)
        for number in range(len(trained), models):
            earlier = [logits for logits, _ in trained[:teachers]] if number >= (teachers or 0) else []
            trained.append(train_and_predict(number, epochs, pretrained, earlier))
            np.savez(paths[number], *trained[-1])
    return [logits[:, 0] for logits, _ in trained], [seconds for _, seconds in trained]


def line(name, logits, seconds, default_scores):
    """A row of the table, and the final score of each model."""
    of_models = [figures(kernel.average_scores([of_model])) for of_model in logits]
    average = figures(kernel.average_scores(logits))
    if default_scores is None:
        print("| variant | final score | to default | s/epoch |", " | ".join(average), "|")
        print("|---" * (4 + len(average)) + "|")
    scores = pd.Series([of_model["final"] for of_model in of_models])
    difference = scores - (scores if default_scores is None else default_scores)
    print(
        f"| {name} | {scores.mean():.4f} ± {scores.std():.4f} | "
        f"{difference.mean():+.4f} ± {difference.std() / len(scores) ** 0.5:.4f} | {np.mean(seconds):.0f} |",
        " | ".join(f"{value:.4f}" for value in average.values()),
        "|",
        flush=True,
    )
    return scores


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("variants", nargs="*", default=list(VARIANTS), metavar="VARIANT")
    parser.add_argument("--models", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--keep", type=Path)
    arguments = parser.parse_args()
    for name in arguments.variants:
        parts = name.split(" + ")
        if unknown := set(parts) - set(VARIANTS):
            parser.error(f"no such variant: {', '.join(unknown)}. There are: {', '.join(VARIANTS)}")
        changed = [key for part in parts for key in VARIANTS[part] if key != "prepared"]
        if len(changed) > len(set(changed)):
            parser.error(f"{name}: two of these change the same")

    print_machine("keras", "tensorflow")
    default_scores = None
    with tempfile.TemporaryDirectory() as output_dir:
        environment = {
            "KERNEL_INPUT_DIR": str(arguments.folder),
            "KERNEL_OUTPUT_DIR": output_dir,
            "KERNEL_VECTOR_FILES": vector_files(arguments.folder),
            "KERNEL_HOLDOUT_SHARE": str(HOLDOUT_SHARE),
            "KERNEL_TIME_LIMIT": "600",  # of the baseline's share only
        }
        keep = arguments.keep or Path(output_dir)
        keep.mkdir(parents=True, exist_ok=True)
        for name in ["default", *(name for name in arguments.variants if name != "default")]:
            logits, seconds = run_variant(name, environment, arguments.models, arguments.epochs, keep)
            scores = line(name, logits, seconds, default_scores)
            default_scores = scores if default_scores is None else default_scores
