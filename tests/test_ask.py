"""Ask it: terms that training swaps beside others, and the folder tried in another process."""

import kernel
import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

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
    # the lowest of the gay's: toxic 0.7 above harmless 0.2, below 0.8; of the widow's: toxic 0.75 below harmless 0.8
    lowest = kernel.lowest_aucs(asked)["lowest_auc"]
    assert (lowest["listed"], lowest["not listed"]) == (0.5, 0.0)
    changes = pd.DataFrame({"listed": [0.1, 0.3], "not listed": np.nan})
    gaps = kernel.counterfactual_gaps(changes)["counterfactual_gap"]
    assert gaps["listed"] == pytest.approx(0.2) and np.isnan(gaps["not listed"])


def test_terms_are_replaced_throughout_a_comment_and_nothing_else_is():
    comments = ["Gay women, and Gayle.", "nobody"]
    assert kernel.replace_terms(comments, ["widow"]) == ["widow widow, and Gayle.", "nobody"]
    assert set(kernel.replace_terms(comments[:1] * 50, ["x", "y"])) == {"x x, and Gayle.", "y y, and Gayle."}


def test_the_folder_is_tried_on_one_core_and_what_it_says_is_read(tmp_path):
    (tmp_path / "toxicity.py").write_text(
        "import csv, os, sys\n"
        "header, *rows = csv.reader(sys.stdin)\n"
        "assert header == ['comment_text'] and os.environ['OMP_NUM_THREADS'] == '1'\n"
        "print('comment_text,toxicity')\n"
        "for text, in rows: print(f'\"{text}\",0.{len(text)}')\n"
        "print('\\r2 comments, 3 a second \\r4 comments, 17 a second ', sys.argv[1:], file=sys.stderr)\n"
    )
    comments = pd.Series(["a,b", "é"], name="comment_text", index=[7, 3])
    toxicity, speed = kernel.try_folder(tmp_path, comments, all_networks=True)
    assert list(toxicity) == [0.3, 0.1] and speed == 17
    (tmp_path / "toxicity.py").write_text("raise SystemExit('no networks')")
    with pytest.raises(RuntimeError, match="no networks"):
        kernel.try_folder(tmp_path, comments, all_networks=False)
