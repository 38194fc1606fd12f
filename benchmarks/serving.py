"""The server under load: python benchmarks/serving.py MODELS COMMENTS.csv [--longest 100]

MODELS: the folder models/ of a run; beside it a network of RoBERTa-base's size behind the same
server. COMMENTS.csv: with a column comment_text. 1, 8 and 32 clients ask for --seconds, each as
soon as it has its answer, with comments of at most so many characters, and with all: comments a
second; milliseconds within which 99 of 100 answers came; milliseconds of processor time for each,
which say most where a machine is shared.
"""

import csv
import http.client
import json
import random
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
from measure import parse_arguments, print_machine

ROBERTA = """import sys; sys.path += ["benchmarks"]
import scoring, serve
serve.runpy.run_path = lambda path: {"load": lambda *others: scoring.make_roberta()}
serve.main()"""
WAYS = {"models": ["serve.py"], "RoBERTa-base": ["-c", ROBERTA]}


def start(models, way):
    """A server of its own, and its port."""
    command = [sys.executable, *way, models.resolve(), "--port", "0"]
    repository = Path(__file__).parents[1]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=repository)
    return psutil.Process(process.pid), int(process.stdout.readline().rpartition(":")[2])


def ask(port, comments, seed, seconds):
    connection = http.client.HTTPConnection("127.0.0.1", port)
    choose, taken = random.Random(seed), []
    while sum(taken) < seconds:
        comment = {"text": choose.choice(comments)}
        request = {"comment": comment, "requestedAttributes": {"TOXICITY": {}}}
        begun = time.perf_counter()
        connection.request("POST", "/v1alpha1/comments:analyze", json.dumps(request))
        assert b"attributeScores" in connection.getresponse().read()
        taken.append(time.perf_counter() - begun)
    return taken


def main():
    arguments = vars(parse_arguments(__doc__, "models", "comments", seconds=2.0, longest=100))
    models, path, seconds, longest = arguments.values()
    print_machine("waitress")
    with path.open(encoding="utf-8-sig", newline="") as file:
        comments = [row["comment_text"] for row in csv.DictReader(file)]
    comments = [comment for comment in comments if comment.strip()]
    comments = {"short": [each for each in comments if len(each) <= longest], "all": comments}
    for name, way in WAYS.items():
        server, port = start(models, way)
        for kind, texts in comments.items():
            for clients in (1, 8, 32):
                before, begun = sum(server.cpu_times()[:2]), time.perf_counter()
                with ThreadPoolExecutor(clients) as pool:
                    jobs = [pool.submit(ask, port, texts, seed, seconds) for seed in range(clients)]
                    taken = sorted(second for job in jobs for second in job.result())
                late = taken[int(0.99 * len(taken))]
                busy = (sum(server.cpu_times()[:2]) - before) / len(taken)
                a_second = len(taken) / (time.perf_counter() - begun)
                print(f"| {name} | {kind} | {clients} | {a_second:.0f} ", end="")
                print(f"| {1000 * late:.0f} | {1000 * busy:.1f} |", flush=True)
        server.terminate()


if __name__ == "__main__":
    main()
