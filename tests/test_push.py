"""`make push`: the real client pushes this notebook, to a server on loopback that stands in for Kaggle."""

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
from slugify import slugify

ROOT = Path(__file__).parents[1]
TRACKED = {name: (ROOT / name).read_bytes() for name in ("kernel-metadata.json", "kernel.ipynb")}
METADATA = json.loads(TRACKED["kernel-metadata.json"])
LOGGED_IN = {"KAGGLE_USERNAME": "somebody", "KAGGLE_KEY": "key"}
PUSHED = {"ref": "/somebody/a-kernel", "url": "http://localhost/somebody/a-kernel", "versionNumber": 1}

# The client ignores keys that it does not know, so a misspelt one would be lost. No `id_no`: it would win over `id`.
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


class Kaggle(BaseHTTPRequestHandler):
    """Keeps each request by its name, and gives the server's one answer to all."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.received[self.path.rsplit("/", 1)[-1]] = json.loads(body)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(self.server.answer).encode())

    def log_message(self, *arguments):
        pass


def make_push(folder, credentials, answer=PUSHED):
    """Runs `make push` and gives its status, its output, what it sent, and the temporary files that it left.

    The environment is built from nothing, so nobody's own login is seen. In it the client speaks plain HTTP to
    `localhost`, and the proxies take that, and anything else, to the server here.
    """
    temporary = folder / "temporary"
    temporary.mkdir()
    with HTTPServer(("127.0.0.1", 0), Kaggle) as server:
        server.answer, server.received = answer, {}
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        done = subprocess.run(
            # -o: never install from inside a test
            ["make", "-o", ".venv/installed", "push", f'KAGGLE="{sys.executable}" -m kaggle'],
            cwd=ROOT,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(folder),
                "TMPDIR": str(temporary),
                "KAGGLE_API_ENVIRONMENT": "LOCALHOST",
                "http_proxy": address,
                "https_proxy": address,
                **credentials,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
        server.shutdown()
    return SimpleNamespace(
        status=done.returncode,
        output=done.stdout,
        request=server.received.get("SaveKernel"),
        left_over=list(temporary.iterdir()),
    )


@pytest.fixture(scope="module")
def push(tmp_path_factory):
    return make_push(tmp_path_factory.mktemp("push"), LOGGED_IN)


def test_metadata_has_every_key_that_it_needs_and_no_other():
    assert {key: type(value) for key, value in METADATA.items()} == KEYS


def test_title_gives_the_slug():
    assert 5 <= len(METADATA["title"]) <= 50
    assert METADATA["id"] == "INSERT_USERNAME_HERE/" + slugify(METADATA["title"])


def test_push_succeeds_and_cleans_up(push):
    assert push.status == 0, push.output
    assert "successfully pushed" in push.output
    assert push.left_over == []


def test_owner_is_the_one_logged_in(push):
    assert push.request["slug"] == "somebody/" + slugify(METADATA["title"])
    assert push.request["newTitle"] == METADATA["title"]
    assert "id" not in push.request


def test_kernel_keeps_the_competition_rules(push):
    assert push.request["enableInternet"] is False
    assert push.request["competitionDataSources"] == ["jigsaw-unintended-bias-in-toxicity-classification"]
    # The client leaves empty lists out.
    assert "kernelDataSources" not in push.request
    assert "modelDataSources" not in push.request


def test_vectors_are_attached(push):
    assert push.request["datasetDataSources"] == ["takuok/glove840b300dtxt", "yekenot/fasttext-crawl-300d-2m"]


def test_kernel_is_a_private_python_notebook_on_t4_gpus(push):
    assert push.request["isPrivate"] is True
    assert (push.request["language"], push.request["kernelType"]) == ("python", "notebook")
    assert push.request["enableGpu"] is True
    # Any name is accepted, even that of the retired P100, and so is none: then Kaggle picks one.
    assert push.request["machineShape"] == "NvidiaTeslaT4"


def test_notebook_arrives_whole_and_without_outputs(push):
    text = push.request["text"]
    assert len(text.encode()) < 1_000_000, "Kaggle refuses 1 MB and more"
    stored = nbformat.reads(TRACKED[METADATA["code_file"]].decode(), as_version=4)
    arrived = nbformat.reads(text, as_version=4)
    nbformat.validate(arrived)
    assert arrived.metadata.kernelspec.name == "python3", "Kaggle cannot run a notebook that names no kernel"
    assert [(cell.cell_type, cell.source) for cell in arrived.cells] == [
        (cell.cell_type, cell.source) for cell in stored.cells
    ]
    assert not any(cell.get("outputs") for cell in arrived.cells)


@pytest.mark.parametrize("credentials", [{}, {"KAGGLE_USERNAME": "", "KAGGLE_KEY": "key"}], ids=["none", "no name"])
def test_nothing_is_pushed_without_a_login(tmp_path, credentials):
    push = make_push(tmp_path, credentials)
    assert push.status != 0
    assert push.request is None
    assert "Not logged in to Kaggle" in push.output and "auth login" in push.output
    assert "Traceback" not in push.output


def test_refusal_by_kaggle_is_a_failure(tmp_path):
    push = make_push(tmp_path, LOGGED_IN, answer={"error": "Notebook not found"})
    assert push.status != 0
    assert "Notebook not found" in push.output
    assert push.left_over == []


def test_tracked_files_stay_as_they_are(push, tmp_path):
    make_push(tmp_path, credentials={})
    assert {name: (ROOT / name).read_bytes() for name in TRACKED} == TRACKED
