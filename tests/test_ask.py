"""Ask it: saved models score new text as they did before, and terms that training swaps beside others."""

import kernel
import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from sklearn.metrics import roc_auc_score

VOCABULARY = ["the", "cat", "idiot", "!", "do", "n't"]
SETTINGS = kernel.Settings(lstm_units=4, max_tokens=6)
TRAINED_WORDS = (0, 3, 0)  # of each model


@pytest.fixture(scope="module")
def trained():
    """Pretrained vectors and three models on them, one of which trains vectors of three words."""
    kernel.keras.utils.set_random_seed(0)
    generator = np.random.default_rng(0)
    pretrained = kernel.pretrained_vectors(generator.normal(size=(len(VOCABULARY) + 2, 5)).astype(np.float32))
    models = [kernel.build_model(pretrained, trained_words, 4) for trained_words in TRAINED_WORDS]
    for model in models:
        for weight in model.trainable_weights:
            weight.assign(weight + generator.normal(size=weight.shape, scale=0.1))
    return pretrained, models


@pytest.fixture(scope="module")
def folder(trained, tmp_path_factory):
    pretrained, models = trained
    folder = tmp_path_factory.mktemp("models")
    saved = [
        kernel.TrainedModel(number, words, [weight.numpy() for weight in model.trainable_weights], None, 0, [])
        for number, (words, model) in enumerate(zip(TRAINED_WORDS, models, strict=True))
    ]
    kernel.save_vectors(folder, pretrained)
    kernel.save_models(folder, saved, VOCABULARY, SETTINGS)
    return folder


def test_loaded_models_score_as_the_saved_ones(trained, folder):
    _, models = trained
    comments = {
        "the cat don't": [2, 3, 6, 7],
        "idiot!": [4, 5],
        "the unheard cat": [2, 1, 3],
        "": [1],
        "the the the the the the cat": [2, 2, 2, 3],  # repeats are shortened
        "the cat idiot ! the idiot ! cat": [2, 3, 4, 5, 2, 3],  # six tokens: five of the head, one of the tail
    }
    scores = kernel.load_models(folder)([*comments])
    for tokens, score in zip(comments.values(), scores, strict=True):
        logits = [model(np.array([tokens], np.int32))["toxicity"].numpy().item() for model in models]
        assert score == pytest.approx(expit(logits).mean(), abs=1e-6)


def test_what_is_no_list_of_comments(folder):
    score = kernel.load_models(folder)
    assert score([]).shape == (0,)
    assert score([""]).shape == (1,)
    with pytest.raises(TypeError, match="list of comments"):
        score("a single text")


def test_words_that_were_never_seen_are_all_unknown(folder):
    score = kernel.load_models(folder)
    assert score(["the zebra"]) == pytest.approx(score(["the giraffe"]), abs=1e-7)
    assert abs(score(["the zebra"]) - score(["the cat"])) > 1e-4


def test_a_score_does_not_depend_on_the_other_comments(folder):
    score = kernel.load_models(folder)
    comments = [" ".join(["the cat !"] * (1 + number % 5)) for number in range(40)]
    assert score(comments) == pytest.approx([score([comment])[0] for comment in comments], abs=1e-6)


def test_nothing_that_is_saved_is_pickled(folder):
    names = [f"model_{number}.npz" for number in (1, 2, 3)]
    assert sorted(path.name for path in folder.iterdir()) == ["embedding_matrix.npy", *names, "models.json"]
    assert np.load(folder / "embedding_matrix.npy", allow_pickle=False).dtype == np.float32
    for name in names:
        with np.load(folder / name, allow_pickle=False) as weights:
            assert {weights[name].dtype for name in weights} == {np.dtype(np.float32)}


def test_models_of_an_earlier_run_are_not_mixed_with_those_of_this_one(trained, tmp_path):
    pretrained, models = trained
    weights = [weight.numpy() for weight in models[0].trainable_weights]
    for number in (4, 0):
        kernel.save_vectors(tmp_path, pretrained)
        assert [path.name for path in tmp_path.iterdir()] == ["embedding_matrix.npy"]
        saved = [kernel.TrainedModel(number, 0, weights, None, 0, [])]
        kernel.save_models(tmp_path, saved, VOCABULARY, SETTINGS)
    assert sorted(path.name for path in tmp_path.glob("*.npz")) == ["model_1.npz"]
    assert kernel.load_models(tmp_path)(["the cat"]).shape == (1,)


TERMS = pd.DataFrame(
    [
        ("kind gay", False, "gay"),
        ("kind widow", False, "widow"),
        ("vile gay", True, "gay"),
        ("vile widow", True, "widow"),
        ("kind person", False, "person"),
        ("vile person", True, "person"),
    ],
    columns=["text", "toxic", "term"],
).assign(score=[0.1, 0.6, 0.7, 0.65, 0.2, 0.9], kind=["listed", "not listed"] * 2 + ["neutral"] * 2)


def test_figures_of_terms_are_those_of_scikit_learn():
    table = kernel.figures_of_terms(TERMS)
    assert table["kind"].to_dict() == {"person": "neutral", "widow": "not listed", "gay": "listed"}
    for term, row in table.iterrows():
        toxic, named, scores = TERMS["toxic"], TERMS["term"] == term, TERMS["score"]
        assert row["harmless"] == scores[named & ~toxic].item() and row["toxic"] == scores[named & toxic].item()
        for figure, rows in {"subgroup_auc": named, "bpsn_auc": named != toxic, "bnsp_auc": named == toxic}.items():
            assert row[figure] == pytest.approx(roc_auc_score(toxic[rows], scores[rows])), (term, figure)


def test_each_kind_shows_its_lowest_term_and_its_mean_change():
    asked = TERMS.assign(score=[0.1, 0.8, 0.7, 0.75, 0.2, 0.9])  # the harmless widow stands above two toxic ones
    changes = {"listed": np.array([0.1, 0.3]), "not listed": np.array([])}
    figures, resampled = kernel.compare_kinds(kernel.figures_of_terms(asked), asked, changes)
    assert figures["term"].to_dict() == {"listed": "gay", "not listed": "widow"}
    # the lowest of the gay's: toxic 0.7 above harmless 0.2, below 0.8; of the widow's: toxic 0.75 below harmless 0.8
    assert figures["lowest_auc"].to_dict() == {"listed": 0.5, "not listed": 0.0}
    assert figures["counterfactual_gap"]["listed"] == pytest.approx(0.2)
    ends = resampled["listed", "counterfactual_gap"].quantile([0.0, 1.0])
    assert list(ends) == pytest.approx([0.1, 0.3])  # of two comments, drawn again: both the one or both the other
    assert np.isnan(figures["counterfactual_gap"]["not listed"])  # no comment names anyone


def test_terms_are_replaced_throughout_a_comment_and_nothing_else_is():
    comments = ["Gay women, and Gayle.", "nobody"]
    assert kernel.replace_terms(comments, ["widow"]) == ["widow widow, and Gayle.", "nobody"]
    assert set(kernel.replace_terms(comments[:1] * 50, ["x", "y"])) == {"x x, and Gayle.", "y y, and Gayle."}
