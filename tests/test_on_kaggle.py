"""on_kaggle.py, through `make`: the real client talks to a server on loopback that stands in for
Kaggle.
"""

import io
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace

import jsonschema
import nbformat
import numpy as np
import pytest
from slugify import slugify

ROOT = Path(__file__).parents[1]
TRACKED = {
    name: (ROOT / name).read_bytes()
    for name in ("Makefile", "on_kaggle.py", "kernel-metadata.json", "kernel.ipynb")
}
METADATA = json.loads(TRACKED["kernel-metadata.json"])
SLUG = slugify(METADATA["title"])
KERNEL = f"somebody/{SLUG}"
RESULTS = f"results/{KERNEL}/version_3"
COMPETITION = "jigsaw-unintended-bias-in-toxicity-classification"
LOGGED_IN = {"KAGGLE_USERNAME": "somebody", "KAGGLE_KEY": "key"}

PARTS = {"overall_auc": 0.95, "subgroup_auc": 0.94, "bpsn_auc": 0.93, "bnsp_auc": 0.92}
REPORT = {
    "scores": {
        "TF-IDF": PARTS | {"final_score": 0.897695},
        "CNN": PARTS | {"final_score": None},
        "LSTM": PARTS | {"final_score": 0.969091},
    },
    "intervals": {"LSTM": {"all": {"final_score": [0.894361, 0.992392]}}},
    "leaderboards": {"private": {"LSTM": PARTS | {"rows": 3, "final_score": 0.9454}}},
    "networks": {"model_1": {"each network": 0.95, "average of the first": 0.95}},
    "stopped_because": "time limit",
    "submitted": "LSTM",
    "worst_identity": "black",
    "rows": {"fitted": 9, "held_out": 3, "scored": 3},
}
CARD = "# Model card\n\n**Limits.** “Words” – and < 5 figures.\n"
RUN = {"run": "a run", "words": ["a", "word"]}
RUN |= {"vectors": "vectors_a.npy", "networks": ["model_1_a.npz"]}


def saved(save, *arrays, **named):
    """What one of NumPy's functions writes into a file, bytes."""
    file = io.BytesIO()
    save(file, *arrays, **named)
    return file.getvalue()


MODELS = {  # a folder of two words and one network
    "README.md": CARD.encode(),
    "toxicity.py": b"def main():\n    pass\n\n\nmain()\n",
    "vectors_a.npy": saved(np.save, np.zeros((4, 3), np.int8)),
    "model_1_a.npz": saved(np.savez, run="a run", weight=np.ones(2)),
    "models.json": json.dumps(RUN).encode(),
}
WHOLE_RUN = {
    "report.json": json.dumps(REPORT),
    "submission.csv": "id,prediction\n7000000,0\n7000001,0.5\n7000002,1.0\n",
}
WHOLE_RUN |= {f"models/{name}": content for name, content in MODELS.items()}

FORBIDDEN = (403, {"error": {"code": 403, "message": "Permission 'kernels.get' was denied"}})
UNKNOWN = (404, {"code": 404, "message": "Not found"})
CREATED = {"id": 7, "url": "https://www.kaggle.com/models/somebody/a-model"}


def session(status, **others):
    """Answers for a kernel whose third version is in this state."""
    version = {"metadata": {"currentVersionNumber": 3}}
    return {"GetKernel": version, "GetKernelSessionStatus": {"status": status}} | others


def outputs(files):
    """An answer that lists these files of a run, one a page, as the client follows them, each below
    its last name.
    """

    def page(request):
        number = int(request.get("pageToken") or 0)
        if number == len(files):
            return {}
        name = [*files][number]
        file = {"fileName": name, "url": f"http://localhost/{name}"}
        return {"files": [file], "nextPageToken": str(number + 1)}

    contents = {Path(name).name: content for name, content in files.items()}
    return session("COMPLETE", ListKernelSessionOutput=page) | contents


class Kaggle(BaseHTTPRequestHandler):
    """Keeps the requests, each with its name, and gives the server's answers: to a request or from
    a function of it.
    """

    def do_GET(self):
        request = self.rfile.read(int(self.headers["Content-Length"] or 0))
        if self.command == "POST":
            request = json.loads(request)
        name = self.path.rsplit("/", 1)[-1]
        self.server.received.append((name, request))
        answer = self.server.answers.get(name, (501, {}))
        answer = answer(request) if callable(answer) else answer
        status, content = answer if isinstance(answer, tuple) else (200, answer)
        kind = "text/plain"
        if isinstance(content, dict):
            kind, content = "application/json", json.dumps(content)
        if isinstance(content, str):
            content = content.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_POST = do_PUT = do_GET

    def log_message(self, *arguments):
        pass


def make(command, folder, answers=None, environment=LOGGED_IN):
    """Runs `make` with the command in a folder with the tracked files: gives its status, output and
    requests.

    The environment is built from nothing, so nobody's own login is seen. In it the client speaks
    plain HTTP to `localhost`, and the proxies take that, and anything else, to the server here.
    """
    for name, content in TRACKED.items():
        (folder / name).write_bytes(content)
    home, temporary = folder / "home", folder / "temporary"
    for each in (home, temporary):
        each.mkdir(exist_ok=True)
    with HTTPServer(("127.0.0.1", 0), Kaggle) as server:
        server.answers, server.received = answers or {}, []
        threading.Thread(target=server.serve_forever, args=[0.05], daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        variables = {"PATH": os.environ["PATH"], "HOME": str(home), "TMPDIR": str(temporary)}
        variables |= {"KAGGLE_API_ENVIRONMENT": "LOCALHOST"}
        variables |= {"http_proxy": address, "https_proxy": address}
        done = subprocess.run(
            # -o: never install from inside a test
            ["make", "-o", ".venv/installed", command, f'VENV_PYTHON="{sys.executable}"'],
            cwd=folder,
            env=variables | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
        )
        server.shutdown()
    assert "Traceback" not in done.stdout
    assert {name: (folder / name).read_bytes() for name in TRACKED} == TRACKED
    may_be_there = {*TRACKED, *"home temporary models results secret.npz".split()}
    assert {path.name for path in folder.iterdir()} <= may_be_there
    assert not [*temporary.iterdir()]
    return SimpleNamespace(
        status=done.returncode,
        output=done.stdout,
        asked=[name for name, _ in server.received],
        request=dict(server.received),
    )


def assert_failed(made, *said):
    assert made.status != 0
    for text in said:
        assert text in made.output


# --- all of them ---


def test_title_gives_the_slug():
    assert 5 <= len(METADATA["title"]) <= 50
    assert METADATA["id"] == "INSERT_USERNAME_HERE/" + SLUG


@pytest.mark.parametrize("command", ["push", "status", "results", "submit", "publish"])
@pytest.mark.parametrize("login", [{}, {"KAGGLE_USERNAME": "", "KAGGLE_KEY": "key"}])
def test_nothing_is_asked_without_a_login_and_a_name(tmp_path, command, login):
    made = make(command, tmp_path, environment=login)
    assert_failed(made, "Not logged in to Kaggle", "auth login")
    assert not made.asked


def test_a_login_that_has_run_out_is_none(tmp_path):
    unauthenticated = (401, {"code": 401, "message": "Unauthenticated"})
    made = make("status", tmp_path, {"GetKernel": unauthenticated})
    assert_failed(made, "Not logged in to Kaggle")


def test_no_way_to_kaggle_is_told(tmp_path):
    made = make("status", tmp_path, environment=LOGGED_IN | {"http_proxy": "http://127.0.0.1:1"})
    assert_failed(made, "Kaggle cannot be reached")


def test_a_token_tells_whose_kernel_it_is(tmp_path):
    answers = session("RUNNING", IntrospectToken={"active": True, "username": "token-holder"})
    made = make("status", tmp_path, answers, {"KAGGLE_API_TOKEN": "token"})
    assert made.status == 0
    assert f"token-holder/{SLUG}" in made.output


@pytest.mark.parametrize("command", ["status", "results", "submit"])
def test_a_kernel_that_was_never_pushed_is_no_riddle(tmp_path, command):
    made = make(command, tmp_path, {"GetKernel": UNKNOWN if command == "status" else FORBIDDEN})
    assert_failed(made, KERNEL, "`make push` first")
    assert made.asked == ["GetKernel"]


@pytest.mark.parametrize("command", ["results", "submit"])
@pytest.mark.parametrize("state, failure", [("RUNNING", ""), ("ERROR", "Out of memory")])
def test_a_version_that_is_not_complete_is_neither_fetched_nor_submitted(
    tmp_path, command, state, failure
):
    answer = {"status": state, "failureMessage": failure}
    made = make(command, tmp_path, session(state, GetKernelSessionStatus=answer))
    said = f"Version 3 of {KERNEL} has not completed: {state.lower()}. {failure}".rstrip()
    assert_failed(made, said)
    assert made.asked == ["GetKernel", "GetKernelSessionStatus"]
    assert not (tmp_path / "results").exists()


# --- push ---

PUSHED = {"url": "http://localhost/somebody/a-kernel", "versionNumber": 4}
PUSHED |= {"ref": "/somebody/a-kernel"}


@pytest.fixture(scope="module")
def pushed(tmp_path_factory):
    """What Kaggle gets."""
    made = make("push", tmp_path_factory.mktemp("push"), {"SaveKernel": PUSHED})
    assert made.status == 0
    assert "Version 4 successfully pushed to http://localhost/somebody/a-kernel" in made.output
    return made.request["SaveKernel"]


def test_what_is_pushed_is_private_and_keeps_the_competition_rules(pushed):
    """The client ignores keys of the metadata that it does not know. It goes under the name of the
    one logged in, with the vectors attached, on T4 GPUs: any name of a
    machine is accepted, even that of the retired P100, and so is none: then Kaggle picks one.
    """
    assert pushed | {"text": ""} == {
        "slug": KERNEL,
        "newTitle": METADATA["title"],
        "text": "",
        "language": "python",
        "kernelType": "notebook",
        "isPrivate": True,
        "enableGpu": True,
        "enableTpu": False,
        "enableInternet": False,
        "machineShape": "NvidiaTeslaT4",
        "competitionDataSources": [COMPETITION],
        "datasetDataSources": ["takuok/glove840b300dtxt", "yekenot/fasttext-crawl-300d-2m"],
    }


def test_notebook_arrives_whole_and_without_outputs(pushed):
    assert len(pushed["text"].encode()) < 1_000_000, "Kaggle refuses 1 MB and more"
    stored = nbformat.reads(TRACKED[METADATA["code_file"]].decode(), as_version=4)
    arrived = nbformat.reads(pushed["text"], as_version=4)
    nbformat.validate(arrived)
    # Kaggle cannot run a notebook that names no kernel.
    assert arrived.metadata.kernelspec.name == "python3"
    for cell, original in zip(arrived.cells, stored.cells, strict=True):
        assert (cell.cell_type, cell.source) == (original.cell_type, original.source)
        assert not cell.get("outputs")


def test_refused_push_is_a_failure(tmp_path):
    made = make("push", tmp_path, {"SaveKernel": {"error": "Notebook not found"}})
    assert_failed(made, "Kaggle refuses: Notebook not found")


def test_push_without_the_data_is_a_failure(tmp_path):
    answer = PUSHED | {"invalidCompetitionSources": [COMPETITION]}
    made = make("push", tmp_path, {"SaveKernel": answer})
    assert_failed(made, f"runs without {COMPETITION}", "rules")


# --- status ---


@pytest.mark.parametrize("state", ["queued", "complete"])
def test_status_of_a_run_that_goes_well(tmp_path, state):
    made = make("status", tmp_path, session(state.upper()))
    assert (made.status, made.output) == (0, f"Version 3 of {KERNEL}: {state}\n")
    for name in ("GetKernel", "GetKernelSessionStatus"):
        assert made.request[name] == {"userName": "somebody", "kernelSlug": SLUG}


@pytest.mark.parametrize(
    "state, failure", [("ERROR", "No memory left.\n"), ("CANCEL_REQUESTED", "")]
)
def test_status_of_a_run_that_failed(tmp_path, state, failure):
    answer = {"status": state, "failureMessage": failure.strip()}
    made = make("status", tmp_path, session(state, GetKernelSessionStatus=answer))
    said = f"Version 3 of {KERNEL}: {state.lower().replace('_', ' ')}\n{failure}"
    assert_failed(made, f"{said}Its log: .venv/bin/kaggle kernels logs {KERNEL}\n")


# --- results ---


def test_report_has_what_is_read_out():
    schema = json.loads((ROOT / "tests" / "report.schema.json").read_text(encoding="utf-8"))
    assert {*REPORT} <= {*schema["required"]}
    jsonschema.validate(REPORT, schema | {"required": []})


def results(folder, **changed):
    """Runs `make results` where Kaggle has a whole run, but for these files."""
    return make("results", folder, outputs(WHOLE_RUN | changed))


SAID = f"""Final score on the holdout: 0.9691, 95 % interval 0.8944 … 0.9924
Other models: TF-IDF 0.8977, CNN unknown
submission.csv holds the scores of LSTM
Final score on the private leaderboard: 0.9454
Models averaged: 1. Training ended with: time limit
Worst identity: black
submission.csv is valid: 3 predictions; models/ is whole
To publish the models: KERNEL_OUTPUT_DIR={RESULTS} make publish
"""


def test_results_are_read_out_and_checked_and_fetched_once(tmp_path):
    """No file of one's own is lost, and no report of an earlier version is read out."""
    made = results(tmp_path)
    assert (made.status, made.output) == (0, SAID)
    models = (tmp_path / RESULTS / "models").iterdir()
    assert {path.name: path.read_bytes() for path in models} == MODELS
    (tmp_path / RESULTS / "scores.csv").write_text("mine")
    again = make("results", tmp_path, session("COMPLETE"))
    assert (again.status, again.output) == (0, SAID)
    assert again.asked == ["GetKernel", "GetKernelSessionStatus"]
    assert (tmp_path / RESULTS / "scores.csv").read_text() == "mine"


@pytest.mark.parametrize("name", ["report.json", "submission.csv"])
def test_a_run_that_left_no_results_is_told_and_what_it_left_is_fetched_anew(tmp_path, name):
    files = {other: content for other, content in WHOLE_RUN.items() if other != name}
    made = make("results", tmp_path, outputs(files))
    assert_failed(made, f"The run left no {name}. What it left is in {RESULTS}.part")
    assert not (tmp_path / RESULTS).exists()
    assert (tmp_path / f"{RESULTS}.part" / "models" / "models.json").exists()
    assert results(tmp_path).status == 0
    assert (tmp_path / RESULTS / name).exists()


@pytest.mark.parametrize("name", ["../stolen.txt", "a/../../../../stolen.txt", "/{}/stolen.txt"])
def test_a_file_that_would_lie_elsewhere_is_not_written(tmp_path, name):
    """The client joins the names that the server gives to the folder, whatever they say."""
    name = name.format(str(tmp_path).strip("/"))
    made = make("results", tmp_path, outputs({name: "x"}))
    assert_failed(made, f"leads out of the folder: {name}")
    assert not [*tmp_path.rglob("stolen.txt")] and "stolen.txt" not in made.asked


def test_a_file_that_is_an_error_page_ends_it(tmp_path):
    gone = {"submission.csv": (404, "<h1>gone</h1>")}
    assert_failed(results(tmp_path, **gone), "404")
    assert not (tmp_path / f"{RESULTS}.part").exists()


NOT_VALID = [  # submissions, and what is said
    ("", "columns"),
    ("id,toxicity\n1,0.1\n2,0.2\n3,0.3\n", "columns"),
    ("id,prediction\n1,0.1\n2,0.2\n", "2 rows of 2 ids, scored were 3"),
    ("id,prediction\n1,0.1\n2,0.2\n2,0.3\n", "3 rows of 2 ids, scored were 3"),
    ("id,prediction\n1,0.1\n2,0.2\n3,1.01\n", "outside 0 … 1"),
    ("id,prediction\n1,0.1\n2,0.2\n3,nan\n", "outside 0 … 1"),
    ("id,prediction\n1,0.1\n2,0.2\n3,\n", "could not convert"),
    ("id,prediction\n" + "1" * 200_000, "field larger than field limit"),
]


@pytest.mark.parametrize("submission, said", NOT_VALID)
def test_invalid_submissions_are_told(tmp_path, submission, said):
    made = results(tmp_path, **{"submission.csv": submission})
    assert_failed(made, "not valid", said, "Final score on the holdout: 0.9691")


@pytest.mark.parametrize(
    "report, said", [("<Error>expired</Error>", "not valid"), ("{}", "has no 'scores'")]
)
def test_what_is_no_report_is_told(tmp_path, report, said):
    assert_failed(results(tmp_path, **{"report.json": report}), said)


@pytest.mark.parametrize(
    "name, content",
    [
        *((name, "<!doctype html><title>503</title>") for name in MODELS),
        ("toxicity.py", MODELS["toxicity.py"][:-8]),
        ("model_1_a.npz", MODELS["model_1_a.npz"][:-30]),
        ("model_1_a.npz", saved(np.savez, run="another run", weight=np.ones(2))),
        ("vectors_a.npy", saved(np.save, np.zeros((5, 3), np.int8))),
    ],
)
def test_a_file_of_the_models_that_did_not_arrive_as_it_was_is_told(tmp_path, name, content):
    made = results(tmp_path, **{f"models/{name}": content})
    assert_failed(made, f"{RESULTS}.part/models/{name} is not what the run wrote")


def test_results_are_where_the_notebook_would_write_too(tmp_path):
    """A ~ is the home folder for all of them."""
    environment = LOGGED_IN | {"KERNEL_OUTPUT_DIR": "~/run"}
    assert make("results", tmp_path, outputs(WHOLE_RUN), environment).status == 0
    assert (tmp_path / "home" / "run" / RESULTS / "report.json").exists()


@pytest.mark.parametrize("query", ["Signature=secret", "a=(b)secret", "a='b'secret", 'a="secret'])
def test_no_signed_link_is_told(tmp_path, query):
    """Of a file whose server is away."""
    file = {"fileName": "report.json", "url": f"https://127.0.0.1:1/report.json?{query}"}
    answers = session("COMPLETE", ListKernelSessionOutput={"files": [file]})
    made = make("results", tmp_path, answers)
    assert_failed(made, "Kaggle cannot be reached", "report.json")
    assert "secret" not in made.output


# --- submit ---


def test_last_version_is_submitted(tmp_path):
    answer = {"message": "Successfully submitted", "ref": 4711}
    made = make("submit", tmp_path, session("COMPLETE", CreateCodeSubmission=answer))
    assert made.status == 0
    assert made.request["CreateCodeSubmission"] == {
        "competitionName": COMPETITION,
        "kernelOwner": "somebody",
        "kernelSlug": SLUG,
        "kernelVersion": 3,
        "fileName": "submission.csv",
        "submissionDescription": "Version 3",
    }
    assert "Version 3 is submission 4711. Kaggle says: Successfully submitted" in made.output
    assert f"https://www.kaggle.com/competitions/{COMPETITION}/submissions" in made.output


USED_UP = {"message": "Your team has used its daily allowance"}


@pytest.mark.parametrize(
    "answer", [(400, {"error": USED_UP | {"code": 400}}), (400, USED_UP | {"code": 400}), USED_UP]
)
def test_refused_submission_is_a_failure_with_a_reason(tmp_path, answer):
    made = make("submit", tmp_path, session("COMPLETE", CreateCodeSubmission=answer))
    assert_failed(made, "Kaggle refuses: Your team has used its daily allowance")


# --- publish ---


def start_upload(request):
    name = request["name"]
    return {"token": f"token of {name}", "createUrl": f"http://localhost/{name}"}


# of a Kaggle that has the model and its variation already, and takes files
ANSWERS = {
    "GetModel": {"id": 7, "isPrivate": False},
    "GetModelInstance": {"id": 8, "framework": "OTHER"},
    "StartBlobUpload": start_upload,
}
MAKE = ("CreateModel", "CreateModelInstance", "CreateModelInstanceVersion", "UpdateModel")
ANSWERS |= dict.fromkeys(MODELS, "") | dict.fromkeys(MAKE, CREATED)


def publish(folder, answers=ANSWERS, models=MODELS):
    """Runs `make publish` on a folder with models."""
    (folder / RESULTS / "models").mkdir(parents=True)
    for name, content in models.items():
        (folder / RESULTS / "models" / name).write_bytes(content)
    (folder / RESULTS / "models" / "notes.txt").write_text("not of the run")
    return make("publish", folder, answers, LOGGED_IN | {"KERNEL_OUTPUT_DIR": RESULTS})


def assert_published(made, listed, *asked):
    """Whether it asked for these things to be made, and whether the files arrived, and no others.

    listed: the files that the model is said to have.
    """
    assert made.status == 0
    assert [name for name in made.asked if name in MAKE] == [*asked]
    assert CREATED["url"] in made.output
    assert {name: made.request[name] for name in MODELS} == MODELS
    assert {file["token"] for file in listed} == {f"token of {name}" for name in MODELS}


def test_models_become_a_new_private_model(tmp_path):
    made = publish(tmp_path, ANSWERS | {"GetModel": FORBIDDEN, "GetModelInstance": UNKNOWN})
    assert made.request["CreateModel"] == {
        "ownerSlug": "somebody",
        "slug": SLUG,
        "title": METADATA["title"],
        "isPrivate": True,
        "description": CARD.replace("<", "&lt;"),
    }
    instance = made.request["CreateModelInstance"]
    assert (instance["ownerSlug"], instance["modelSlug"]) == ("somebody", SLUG)
    body = instance["body"]
    said = {"framework": "MODEL_FRAMEWORK_OTHER", "instanceSlug": "lstm"}
    assert body | said | {"licenseName": "CC BY-SA 3.0"} == body
    assert_published(made, body["files"], "CreateModel", "CreateModelInstance")


def test_models_become_a_version_of_the_model_that_is_there(tmp_path):
    made = publish(tmp_path)
    version = made.request["CreateModelInstanceVersion"]
    place = {"ownerSlug": "somebody", "modelSlug": SLUG, "instanceSlug": "lstm"}
    assert version | place == version
    assert_published(made, version["body"]["files"], "CreateModelInstanceVersion", "UpdateModel")
    update = made.request["UpdateModel"]
    assert update["description"] == CARD.replace("<", "&lt;")
    # Title and privacy may have been changed on Kaggle.
    assert update["updateMask"] == "description"


@pytest.mark.parametrize("key", ["networks", "vectors"])
def test_a_file_outside_the_folder_is_not_published(tmp_path, key):
    (tmp_path / "secret.npz").write_bytes(MODELS["model_1_a.npz"])
    elsewhere = "../../../../../secret.npz"
    run = RUN | {key: [elsewhere] if key == "networks" else elsewhere}
    made = publish(tmp_path, models=MODELS | {"models.json": json.dumps(run).encode()})
    assert_failed(made, "which lies elsewhere")
    assert "StartBlobUpload" not in made.asked


def test_nothing_is_published_where_a_file_does_not_arrive(tmp_path):
    made = publish(tmp_path, ANSWERS | {"model_1_a.npz": (400, "no")})
    assert_failed(made, "model_1_a.npz did not arrive")
    assert not {*MAKE} & {*made.asked}


@pytest.mark.parametrize(
    "name, answer",
    [
        ("CreateModel", {"error": "The slug is in use"}),
        ("CreateModelInstance", (409, {"error": {"code": 409, "message": "The slug is in use"}})),
    ],
)
def test_refused_model_is_a_failure(tmp_path, name, answer):
    missing = {"GetModel": UNKNOWN, "GetModelInstance": UNKNOWN}
    made = publish(tmp_path, ANSWERS | missing | {name: answer})
    assert_failed(made, "Kaggle refuses: The slug is in use")
    assert made.asked[-1] == name


@pytest.mark.parametrize("there", [False, True], ids=["no folder", "no card"])
def test_models_must_be_there(tmp_path, there):
    if there:
        (tmp_path / "models").mkdir()
    made = make("publish", tmp_path)
    assert_failed(made, "`make run`", "`make results`")
    assert not made.asked
