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
COMMANDS = ("push", "status", "results", "submit", "publish")
LOGGED_IN = {"KAGGLE_USERNAME": "somebody", "KAGGLE_KEY": "key"}

# The client ignores keys that it does not know, so a misspelt one would be lost. No `id_no`: it
# would win over `id`.
KEYS = {
    "id": str,
    "title": str,
    "code_file": str,
    "language": str,
    "kernel_type": str,
    "is_private": bool,
    "enable_gpu": bool,
    "enable_internet": bool,
    "machine_shape": str,
    "competition_sources": list,
    "dataset_sources": list,
    "kernel_sources": list,
    "model_sources": list,
}

PARTS = {"overall_auc": 0.95, "subgroup_auc": 0.94, "bpsn_auc": 0.93, "bnsp_auc": 0.92}
REPORT = {
    "scores": {
        "TF-IDF": PARTS | {"final_score": 0.897695},
        "CNN": PARTS | {"final_score": None},
        "LSTM": PARTS | {"final_score": 0.969091},
    },
    "intervals": {"LSTM": {"all": {"final_score": [0.894361, 0.992392]}}},
    "leaderboards": {"private": {"LSTM": PARTS | {"rows": 3, "final_score": 0.9454}}},
    "networks": {
        f"model_{number}": {"each network": 0.95, "average of the first": 0.95}
        for number in range(1, 9)
    },
    "stopped_because": "time limit",
    "submitted": "LSTM",
    "worst_identity": "black",
    "rows": {"fitted": 9, "held_out": 3, "scored": 3},
}
SUBMISSION = "id,prediction\n7000000,0\n7000001,0.5\n7000002,1.0\n"
CARD = "# Model card\n\n**Limits.** “Words” – and < 5 figures.\n"


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
}

RUN = {"run": "a run", "words": ["a", "word"], "vectors": "vectors_a.npy"}
RUN |= {"networks": ["model_1_a.npz"]}
MODELS["models.json"] = json.dumps(RUN).encode()

FORBIDDEN = (403, {"error": {"code": 403, "message": "Permission 'kernels.get' was denied"}})
UNKNOWN = (404, {"code": 404, "message": "Not found"})
CREATED = {"id": 7, "url": "https://www.kaggle.com/models/somebody/a-model"}


def session(status, **others):
    """Answers for a kernel whose third version is in this state."""
    return {
        "GetKernel": {"metadata": {"currentVersionNumber": 3}},
        "GetKernelSessionStatus": {"status": status},
    } | others


def outputs(**files):
    """An answer that lists these files of a run, one a page, as the client follows them, each below
    its last name.
    """

    def page(request):
        number = int(request.get("pageToken") or 0)
        name = list(files)[number]
        answer = {"files": [{"fileName": name, "url": f"http://localhost/{name}"}]}
        if number + 1 < len(files):
            answer["nextPageToken"] = str(number + 1)
        return answer

    contents = {Path(name).name: content for name, content in files.items()}
    return session("COMPLETE", ListKernelSessionOutput=page) | contents


def whole_run():
    """The files of a whole run."""
    models = {f"models/{name}": content for name, content in MODELS.items()}
    return {"report.json": json.dumps(REPORT), "submission.csv": SUBMISSION} | models


class Kaggle(BaseHTTPRequestHandler):
    """Keeps the requests, each with its name, and gives the server's answers: to a request or from
    a function of it.
    """

    def do_POST(self):
        self.answer(json.loads(self.body()))

    def do_PUT(self):
        self.answer(self.body())

    def do_GET(self):
        self.answer(None)

    def body(self):
        return self.rfile.read(int(self.headers["Content-Length"]))

    def answer(self, request):
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
        self.send_header("Last-Modified", "Tue, 01 Jan 2019 00:00:00 GMT")
        self.end_headers()
        self.wfile.write(content)

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
    for name in ("home", "temporary"):
        (folder / name).mkdir(exist_ok=True)
    with HTTPServer(("127.0.0.1", 0), Kaggle) as server:
        server.answers, server.received = answers or {}, []
        threading.Thread(target=server.serve_forever, args=[0.05], daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        done = subprocess.run(
            # -o: never install from inside a test
            ["make", "-o", ".venv/installed", command, f'VENV_PYTHON="{sys.executable}"'],
            cwd=folder,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(folder / "home"),
                "TMPDIR": str(folder / "temporary"),
                "KAGGLE_API_ENVIRONMENT": "LOCALHOST",
                "http_proxy": address,
                "https_proxy": address,
                **environment,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
        server.shutdown()
    assert "Traceback" not in done.stdout
    assert {name: (folder / name).read_bytes() for name in TRACKED} == TRACKED
    may_be_there = {*TRACKED, *"home temporary models results secret.npz".split()}
    assert {path.name for path in folder.iterdir()} <= may_be_there
    assert list((folder / "temporary").iterdir()) == []
    return SimpleNamespace(
        status=done.returncode,
        output=done.stdout,
        asked=[name for name, _ in server.received],
        request=dict(server.received),
    )


# --- all of them ---


def test_metadata_has_every_key_that_it_needs_and_no_other():
    assert {key: type(value) for key, value in METADATA.items()} == KEYS


def test_title_gives_the_slug():
    assert 5 <= len(METADATA["title"]) <= 50
    assert METADATA["id"] == "INSERT_USERNAME_HERE/" + SLUG


@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_is_asked_without_a_login(tmp_path, command):
    made = make(command, tmp_path, environment={})
    assert made.status != 0
    assert made.asked == []
    assert "Not logged in to Kaggle" in made.output and "auth login" in made.output


def test_a_login_needs_a_name(tmp_path):
    made = make("push", tmp_path, environment={"KAGGLE_USERNAME": "", "KAGGLE_KEY": "key"})
    assert made.status != 0
    assert made.asked == []
    assert "Not logged in to Kaggle" in made.output


def test_a_login_that_has_run_out_is_none(tmp_path):
    unauthenticated = (401, {"code": 401, "message": "Unauthenticated"})
    made = make("status", tmp_path, {"GetKernel": unauthenticated})
    assert made.status != 0
    assert "Not logged in to Kaggle" in made.output


def test_no_way_to_kaggle_is_told(tmp_path):
    made = make("status", tmp_path, environment=LOGGED_IN | {"http_proxy": "http://127.0.0.1:1"})
    assert made.status != 0
    assert "Kaggle cannot be reached" in made.output


def test_a_token_tells_whose_kernel_it_is(tmp_path):
    answers = session("RUNNING", IntrospectToken={"active": True, "username": "token-holder"})
    made = make("status", tmp_path, answers, environment={"KAGGLE_API_TOKEN": "token"})
    assert made.status == 0, made.output
    assert f"token-holder/{SLUG}" in made.output


@pytest.mark.parametrize("command", ["status", "results", "submit"])
def test_a_kernel_that_was_never_pushed_is_no_riddle(tmp_path, command):
    made = make(command, tmp_path, {"GetKernel": UNKNOWN if command == "status" else FORBIDDEN})
    assert made.status != 0
    assert made.asked == ["GetKernel"]
    assert KERNEL in made.output and "`make push` first" in made.output


@pytest.mark.parametrize("command", ["results", "submit"])
@pytest.mark.parametrize(
    ("state", "failure"), [("RUNNING", {}), ("ERROR", {"failureMessage": "Out of memory"})]
)
def test_a_version_that_is_not_complete_is_neither_fetched_nor_submitted(
    tmp_path, command, state, failure
):
    answer = {"status": state} | failure
    made = make(command, tmp_path, session(state, GetKernelSessionStatus=answer))
    assert made.status != 0
    assert made.asked == ["GetKernel", "GetKernelSessionStatus"]
    assert f"Version 3 of {KERNEL} has not completed: {state.lower()}." in made.output
    assert "".join(failure.values()) in made.output
    assert not (tmp_path / "results").exists()


# --- push ---

PUSHED = {
    "ref": "/somebody/a-kernel",
    "url": "http://localhost/somebody/a-kernel",
    "versionNumber": 4,
}


@pytest.fixture(scope="module")
def push(tmp_path_factory):
    return make("push", tmp_path_factory.mktemp("push"), {"SaveKernel": PUSHED})


def test_push_tells_the_version(push):
    assert push.status == 0, push.output
    assert "Version 4 successfully pushed to http://localhost/somebody/a-kernel" in push.output


def test_owner_is_the_one_logged_in(push):
    assert push.request["SaveKernel"]["slug"] == KERNEL
    assert push.request["SaveKernel"]["newTitle"] == METADATA["title"]
    assert "id" not in push.request["SaveKernel"]


def test_kernel_keeps_the_competition_rules(push):
    request = push.request["SaveKernel"]
    assert request["enableInternet"] is False
    assert request["competitionDataSources"] == [COMPETITION]
    # The client leaves empty lists out.
    assert "kernelDataSources" not in request
    assert "modelDataSources" not in request


def test_vectors_are_attached(push):
    expected = ["takuok/glove840b300dtxt", "yekenot/fasttext-crawl-300d-2m"]
    assert push.request["SaveKernel"]["datasetDataSources"] == expected


def test_kernel_is_a_private_python_notebook_on_t4_gpus(push):
    request = push.request["SaveKernel"]
    assert request["isPrivate"] is True
    assert (request["language"], request["kernelType"]) == ("python", "notebook")
    assert request["enableGpu"] is True
    # Any name is accepted, even that of the retired P100, and so is none: then Kaggle picks one.
    assert request["machineShape"] == "NvidiaTeslaT4"


def test_notebook_arrives_whole_and_without_outputs(push):
    text = push.request["SaveKernel"]["text"]
    assert len(text.encode()) < 1_000_000, "Kaggle refuses 1 MB and more"
    stored = nbformat.reads(TRACKED[METADATA["code_file"]].decode(), as_version=4)
    arrived = nbformat.reads(text, as_version=4)
    nbformat.validate(arrived)
    # Kaggle cannot run a notebook that names no kernel.
    assert arrived.metadata.kernelspec.name == "python3"
    for cell, original in zip(arrived.cells, stored.cells, strict=True):
        assert (cell.cell_type, cell.source) == (original.cell_type, original.source)
        assert not cell.get("outputs")


def test_refused_push_is_a_failure(tmp_path):
    made = make("push", tmp_path, {"SaveKernel": {"error": "Notebook not found"}})
    assert made.status != 0
    assert "Kaggle refuses: Notebook not found" in made.output


def test_push_without_the_data_is_a_failure(tmp_path):
    answer = PUSHED | {"invalidCompetitionSources": [COMPETITION]}
    made = make("push", tmp_path, {"SaveKernel": answer})
    assert made.status != 0
    assert f"runs without {COMPETITION}" in made.output and "rules" in made.output


# --- status ---


@pytest.mark.parametrize(("state", "said"), [("QUEUED", "queued"), ("COMPLETE", "complete")])
def test_status_of_a_run_that_goes_well(tmp_path, state, said):
    made = make("status", tmp_path, session(state))
    assert made.status == 0, made.output
    for name in ("GetKernel", "GetKernelSessionStatus"):
        assert made.request[name] == {"userName": "somebody", "kernelSlug": SLUG}
    assert made.output == f"Version 3 of {KERNEL}: {said}\n"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            {"status": "ERROR", "failureMessage": "Your notebook tried to use too much memory."},
            "too much memory",
        ),
        ({"status": "CANCEL_ACKNOWLEDGED"}, "cancel acknowledged"),
    ],
)
def test_status_of_a_run_that_failed(tmp_path, answer, said):
    made = make("status", tmp_path, session("ERROR", GetKernelSessionStatus=answer))
    assert made.status != 0
    assert said in made.output
    assert f"kaggle kernels logs {KERNEL}" in made.output


# --- results ---


def test_report_has_what_is_read_out():
    schema = json.loads((ROOT / "tests" / "report.schema.json").read_text(encoding="utf-8"))
    assert set(REPORT) <= set(schema["required"])
    jsonschema.validate(REPORT, schema | {"required": []})


def test_results_are_fetched_read_out_and_checked(tmp_path):
    made = make("results", tmp_path, outputs(**whole_run()))
    assert made.status == 0, made.output
    models = (tmp_path / RESULTS / "models").iterdir()
    assert {path.name: path.read_bytes() for path in models} == MODELS
    for line in (
        "Final score on the holdout: 0.9691, 95 % interval 0.8944 … 0.9924",
        "Other models: TF-IDF 0.8977, CNN unknown",
        "Final score on the private leaderboard: 0.9454",
        "Models averaged: 8. Training ended with: time limit",
        "Worst identity: black",
        "submission.csv is valid: 3 predictions; models/ is whole",
        f"To publish the models: KERNEL_OUTPUT_DIR={RESULTS} make publish",
    ):
        assert line in made.output.splitlines()


def test_results_are_fetched_once_and_what_is_there_stays(tmp_path):
    """Files of one's own, too; and no report of an earlier version is read out."""
    make("results", tmp_path, outputs(**whole_run()))
    (tmp_path / RESULTS / "scores.csv").write_text("mine")
    again = make("results", tmp_path, session("COMPLETE"))
    assert again.status == 0, again.output
    assert again.asked == ["GetKernel", "GetKernelSessionStatus"]
    assert "Final score on the holdout: 0.9691" in again.output
    assert (tmp_path / RESULTS / "scores.csv").read_text() == "mine"


def test_results_of_another_kernel_or_account_stay(tmp_path):
    other = tmp_path / "results" / f"somebody-else/{SLUG}" / "version_3"
    other.mkdir(parents=True)
    (other / "report.json").write_text("theirs")
    make("results", tmp_path, outputs(**whole_run()))
    assert (other / "report.json").read_text() == "theirs"


def test_a_run_that_left_no_report_is_told_and_what_it_left_is_fetched_anew(tmp_path):
    made = make("results", tmp_path, outputs(**{"models/models.json": "{}"}))
    assert made.status != 0 and not (tmp_path / RESULTS).exists()
    assert f"The run left no report.json. What it left is in {RESULTS}.part" in made.output
    assert (tmp_path / f"{RESULTS}.part" / "models" / "models.json").read_text() == "{}"
    made = make("results", tmp_path, outputs(**whole_run()))
    assert made.status == 0 and (tmp_path / RESULTS / "report.json").exists()


@pytest.mark.parametrize("name", ["../stolen.txt", "a/../../../../stolen.txt", "/{}/stolen.txt"])
def test_a_file_that_would_lie_elsewhere_is_not_written(tmp_path, name):
    """The client joins the names that the server gives to the folder, whatever they say."""
    name = name.format(str(tmp_path).strip("/"))
    page = {"files": [{"fileName": name, "url": "http://localhost/stolen"}]}
    made = make("results", tmp_path, session("COMPLETE", ListKernelSessionOutput=page, stolen="x"))
    assert made.status != 0 and f"leads out of the folder: {name}" in made.output
    assert not [*tmp_path.rglob("stolen.txt")] and "stolen" not in made.asked


def test_a_file_that_is_an_error_page_ends_it(tmp_path):
    files = whole_run() | {"submission.csv": (404, "<h1>gone</h1>")}
    made = make("results", tmp_path, outputs(**files))
    assert made.status != 0 and "404" in made.output
    assert not (tmp_path / f"{RESULTS}.part").exists()


def test_a_run_without_a_submission_is_a_failure(tmp_path):
    made = make("results", tmp_path, outputs(**{"report.json": json.dumps(REPORT)}))
    assert made.status != 0
    assert "The run left no submission.csv" in made.output


@pytest.mark.parametrize(
    ("submission", "said"),
    [
        ("", "columns"),
        ("id,toxicity\n1,0.1\n2,0.2\n3,0.3\n", "columns"),
        ("id,prediction\n1,0.1\n2,0.2\n", "2 rows of 2 ids, scored were 3"),
        ("id,prediction\n1,0.1\n2,0.2\n2,0.3\n", "3 rows of 2 ids, scored were 3"),
        ("id,prediction\n1,0.1\n2,0.2\n3,1.01\n", "outside 0 … 1"),
        ("id,prediction\n1,0.1\n2,0.2\n3,nan\n", "outside 0 … 1"),
        ("id,prediction\n1,0.1\n2,0.2\n3,\n", "could not convert"),
        ("id,prediction\n" + "1" * 200_000, "field larger than field limit"),
    ],
)
def test_invalid_submissions_are_told(tmp_path, submission, said):
    made = make("results", tmp_path, outputs(**whole_run() | {"submission.csv": submission}))
    assert made.status != 0
    assert "not valid" in made.output and said in made.output
    assert "Final score on the holdout: 0.9691" in made.output


@pytest.mark.parametrize(
    ("report", "said"), [("<Error>expired</Error>", "not valid"), ("{}", "has no 'scores'")]
)
def test_what_is_no_report_is_told(tmp_path, report, said):
    made = make("results", tmp_path, outputs(**whole_run() | {"report.json": report}))
    assert made.status != 0
    assert said in made.output


ERROR_PAGE = "<!doctype html><title>503</title>"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *((name, ERROR_PAGE) for name in MODELS),
        ("toxicity.py", MODELS["toxicity.py"][:-8]),
        ("model_1_a.npz", MODELS["model_1_a.npz"][:-30]),
        ("model_1_a.npz", saved(np.savez, run="another run", weight=np.ones(2))),
        ("vectors_a.npy", saved(np.save, np.zeros((5, 3), np.int8))),
    ],
)
def test_a_file_of_the_models_that_did_not_arrive_as_it_was_is_told(tmp_path, name, content):
    made = make("results", tmp_path, outputs(**whole_run() | {f"models/{name}": content}))
    assert made.status != 0
    assert f"{RESULTS}.part/models/{name} is not what the run wrote" in made.output


def test_results_are_where_the_notebook_would_write_too(tmp_path):
    """A ~ is the home folder for all of them."""
    answers, environment = outputs(**whole_run()), LOGGED_IN | {"KERNEL_OUTPUT_DIR": "~/run"}
    made = make("results", tmp_path, answers, environment)
    assert made.status == 0, made.output
    assert (tmp_path / "home" / "run" / RESULTS / "report.json").exists()


@pytest.mark.parametrize("query", ["Signature=secret", "a=(b)secret", "a='b'secret", 'a="secret'])
def test_no_signed_link_is_told(tmp_path, query):
    """Of a file whose server is away."""
    file = {"fileName": "report.json", "url": f"https://127.0.0.1:1/report.json?{query}"}
    answers = session("COMPLETE", ListKernelSessionOutput={"files": [file]})
    made = make("results", tmp_path, answers)
    assert made.status != 0 and "Kaggle cannot be reached" in made.output
    assert "report.json" in made.output and "secret" not in made.output


@pytest.mark.parametrize("key", ["networks", "vectors"])
def test_a_file_outside_the_folder_is_not_published(tmp_path, key):
    (tmp_path / "secret.npz").write_bytes(MODELS["model_1_a.npz"])
    elsewhere = "../../../../../secret.npz"
    run = RUN | {key: [elsewhere] if key == "networks" else elsewhere}
    made = publish(tmp_path, model_answers(), **{"models.json": json.dumps(run).encode()})
    assert made.status != 0 and "which lies elsewhere" in made.output
    assert "StartBlobUpload" not in made.asked


# --- submit ---


def test_last_version_is_submitted(tmp_path):
    answer = {"message": "Successfully submitted", "ref": 4711}
    made = make("submit", tmp_path, session("COMPLETE", CreateCodeSubmission=answer))
    assert made.status == 0, made.output
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


@pytest.mark.parametrize(
    "answer",
    [
        (400, {"error": {"code": 400, "message": "Your team has used its daily allowance"}}),
        (400, {"code": 400, "message": "Your team has used its daily allowance"}),
        {"message": "Your team has used its daily allowance"},
    ],
)
def test_refused_submission_is_a_failure_with_a_reason(tmp_path, answer):
    made = make("submit", tmp_path, session("COMPLETE", CreateCodeSubmission=answer))
    assert made.status != 0
    assert "Kaggle refuses: Your team has used its daily allowance" in made.output


# --- publish ---


def model_answers(**others):
    """Answers of a Kaggle that has the model and its variation already, and takes files."""

    def start(request):
        name = request["name"]
        return {"token": f"token of {name}", "createUrl": f"http://localhost/{name}"}

    answers = {
        "GetModel": {"id": 7, "isPrivate": False},
        "GetModelInstance": {"id": 8, "framework": "OTHER"},
        "StartBlobUpload": start,
        "CreateModel": CREATED,
        "CreateModelInstance": CREATED,
        "CreateModelInstanceVersion": CREATED,
        "UpdateModel": CREATED,
    }
    return answers | dict.fromkeys(MODELS, "") | others


def publish(folder, answers, **changed):
    """Runs `make publish` on a folder with models."""
    models = folder / RESULTS / "models"
    models.mkdir(parents=True)
    for name, content in (MODELS | {"notes.txt": b"not of the run"} | changed).items():
        (models / name).write_bytes(content)
    return make("publish", folder, answers, LOGGED_IN | {"KERNEL_OUTPUT_DIR": RESULTS})


def assert_files_arrived(made, listed):
    assert {name: made.request[name] for name in MODELS} == MODELS
    tokens = {file["token"] for file in listed}
    assert tokens == {f"token of {name}" for name in MODELS}  # and no others


def test_models_become_a_new_private_model(tmp_path):
    made = publish(tmp_path, model_answers(GetModel=FORBIDDEN, GetModelInstance=UNKNOWN))
    assert made.status == 0, made.output
    assert made.request["CreateModel"] == {
        "ownerSlug": "somebody",
        "slug": SLUG,
        "title": METADATA["title"],
        "isPrivate": True,
        "description": CARD.replace("<", "&lt;"),
    }
    instance = made.request["CreateModelInstance"]
    assert (instance["ownerSlug"], instance["modelSlug"]) == ("somebody", SLUG)
    assert instance["body"]["framework"] == "MODEL_FRAMEWORK_OTHER"
    assert instance["body"]["instanceSlug"] == "lstm"
    assert instance["body"]["licenseName"] == "CC BY-SA 3.0"
    assert_files_arrived(made, instance["body"]["files"])
    assert not {"UpdateModel", "CreateModelInstanceVersion"} & set(made.asked)
    assert CREATED["url"] in made.output


def test_models_become_a_version_of_the_model_that_is_there(tmp_path):
    made = publish(tmp_path, model_answers())
    assert made.status == 0, made.output
    version = made.request["CreateModelInstanceVersion"]
    assert (version["ownerSlug"], version["modelSlug"]) == ("somebody", SLUG)
    assert version["instanceSlug"] == "lstm"
    assert_files_arrived(made, version["body"]["files"])
    update = made.request["UpdateModel"]
    assert update["description"] == CARD.replace("<", "&lt;")
    # Title and privacy may have been changed on Kaggle.
    assert update["updateMask"] == "description"
    assert not {"CreateModel", "CreateModelInstance"} & set(made.asked)


def test_a_model_without_the_variation_gets_it(tmp_path):
    made = publish(tmp_path, model_answers(GetModelInstance=UNKNOWN))
    assert made.status == 0, made.output
    assert {"CreateModelInstance", "UpdateModel"} <= set(made.asked)
    assert not {"CreateModel", "CreateModelInstanceVersion"} & set(made.asked)


def test_nothing_is_published_where_a_file_does_not_arrive(tmp_path):
    made = publish(tmp_path, model_answers(**{"model_1_a.npz": (400, "no")}))
    assert made.status != 0
    assert "model_1_a.npz did not arrive" in made.output
    assert not {"CreateModelInstanceVersion", "UpdateModel"} & set(made.asked)


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("CreateModel", {"error": "The slug is in use"}),
        ("CreateModelInstance", {"error": "The slug is in use"}),
        ("CreateModelInstance", (409, {"error": {"code": 409, "message": "The slug is in use"}})),
    ],
)
def test_refused_model_is_a_failure(tmp_path, name, answer):
    answers = model_answers(GetModel=UNKNOWN, GetModelInstance=UNKNOWN)
    made = publish(tmp_path, answers | {name: answer})
    assert made.status != 0
    assert made.asked[-1] == name
    assert "Kaggle refuses: The slug is in use" in made.output


@pytest.mark.parametrize("there", [False, True], ids=["no folder", "no card"])
def test_models_must_be_there(tmp_path, there):
    if there:
        (tmp_path / "models").mkdir()
    made = make("publish", tmp_path)
    assert made.status != 0
    assert made.asked == []
    assert "`make run`" in made.output and "`make results`" in made.output
