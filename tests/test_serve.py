"""serve.py: real clients on loopback, requests as Perspective's reference has them, and what no
client should send.

Reference: github.com/conversationai/perspectiveapi, 2-api/methods.md and limits.md.
"""

import http.client
import itertools
import json
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from wsgiref.util import setup_testing_defaults
from wsgiref.validate import validator

import googleapiclient.discovery
import googleapiclient.errors
import kernel
import perspective.blocking
import psutil
import pytest

ROOT = Path(__file__).parents[1]
ANALYZE, SUGGEST = "/v1alpha1/comments:analyze", "/v1alpha1/comments:suggestscore"
# the reference's, with its spans
EXAMPLE = "What kind of idiot name is foo? Sorry, I like your name."
HEAD = f"POST {ANALYZE} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n".encode()
LABELS = {"PROFANITY": "obscene", "SEXUALLY_EXPLICIT": "sexual_explicit"}  # as README says
for name in "TOXICITY SEVERE_TOXICITY IDENTITY_ATTACK INSULT THREAT".split():
    LABELS[name] = name.lower()


class Server:
    """serve.py in a process of its own, and what it writes."""

    def __init__(self, models, place, *options):
        self.log = place / "log"
        command = [sys.executable, ROOT / "serve.py", models, "--port", "0", *options]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=place
            )
        self.address = self.process.stdout.readline().strip()
        self.port = int(self.address.rpartition(":")[2])

    def ask(self, body, path=ANALYZE, method="POST", **headers):
        """Status and content of the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        body = body if isinstance(body, bytes | None) else json.dumps(body)
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())

    def analyze(self, text, *attributes, **others):
        """Status and content of the answer to a request for these attributes of a comment."""
        return self.ask(request(text, *attributes, **others))

    def socket(self, sent=b""):
        """A connection on which these bytes were sent."""
        client = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        client.sendall(sent)
        return client

    def stop(self):
        self.process.terminate()
        return self.process.wait(60)


@pytest.fixture(scope="module")
def server(models_dir, tmp_path_factory):
    server = Server(models_dir, tmp_path_factory.mktemp("server"), "--suggestions", "suggestions")
    yield server
    assert server.stop() == 0
    assert server.log.read_text() == "", "no text, no traceback"


@pytest.fixture(scope="module")
def score(models_dir):
    return kernel.load(models_dir)


def request(text, *attributes, **others):
    requested = dict.fromkeys(attributes or ["TOXICITY"], {})
    return {"comment": {"text": text}, "requestedAttributes": requested, **others}


def toxicity_of(answer):
    """The share, and {span: share}, by the units where spans begin and end."""
    toxicity = answer[1]["attributeScores"]["TOXICITY"]
    spans = {}
    for span in toxicity["spanScores"]:
        spans[span["begin"], span["end"]] = span["score"]["value"]
    return toxicity["summaryScore"]["value"], spans


def raw(body, length=None):
    """A request to analyze as it travels."""
    return HEAD + f"Content-Length: {length or len(body)}\r\n\r\n".encode() + body


def all_of(client):
    """What comes on a connection until it is closed."""
    return b"".join(iter(lambda: client.recv(65536), b""))


def refusal_of(client):
    """Status and content of what comes on a connection."""
    head, _, body = all_of(client).partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


def is_refused(answer, code, error_type="INVALID_REQUEST", status="INVALID_ARGUMENT"):
    """Whether this is an error in Perspective's form; its message."""
    error = answer[1]["error"]
    assert (answer[0], error["code"], error["status"]) == (code, code, status)
    assert [each["errorType"] for each in error["details"]] == [error_type]
    return error["message"]


def test_the_example_of_the_reference(server, score):
    def share(text):
        return {"value": pytest.approx(score(text)["toxicity"]), "type": "PROBABILITY"}

    asked = request(EXAMPLE, languages=["en"], spanAnnotations=True)
    spans = [
        {"begin": 0, "end": 31, "score": share(EXAMPLE[:31])},
        {"begin": 32, "end": 56, "score": share(EXAMPLE[32:])},
    ]
    toxicity = {"summaryScore": share(EXAMPLE), "spanScores": spans}
    expected = {"attributeScores": {"TOXICITY": toxicity}, "languages": ["en"]}
    assert server.ask(asked) == (200, expected)


def test_every_attribute_is_the_label_of_its_name(server, score):
    names = LABELS | {f"{name}_EXPERIMENTAL": label for name, label in LABELS.items()}
    del names["SEXUALLY_EXPLICIT_EXPERIMENTAL"]
    _, answer = server.analyze("the idiot cat!", *names)
    expected, shares = score("the idiot cat!"), {}
    for name, each in answer["attributeScores"].items():
        shares[name] = each["summaryScore"]["value"]
    assert shares == pytest.approx({name: expected[label] for name, label in names.items()})
    assert len({*shares.values()}) == 7
    assert {*server.ask(None, "/healthz", "GET")[1]["attributes"]} == {*names}


def test_without_spans_the_whole_comment_is_the_span(server):
    share, spans = toxicity_of(server.analyze("the cat. idiot!"))
    assert spans == {(0, 15): share}


@pytest.mark.parametrize(
    "text, spans",
    [
        ("😂😂 the cat! An idiot", [(0, 13), (14, 22)]),  # as JavaScript counts, in UTF-16
        ("the\ncat 1.5 \n\n", [(0, 3), (4, 11)]),
        (" “Idiot!” the house ", [(1, 9), (10, 19)]),
        ("a\ud800 b. c", [(0, 5), (6, 7)]),
    ],
)
def test_spans_are_sentences_in_units_of_utf16(server, text, spans):
    assert [*toxicity_of(server.analyze(text, spanAnnotations=True))[1]] == spans


def test_tags_of_html_are_not_scored_and_keep_their_place(server, score):
    text = '<p class="idiot">the cat.</p><!-- idiot --> <b>the house</b>'
    asked = request(text, spanAnnotations=True)
    plain, _ = toxicity_of(server.ask(asked))
    asked["comment"]["type"] = "HTML"
    share, spans = toxicity_of(server.ask(asked))
    assert share == pytest.approx(score("the cat. the house")["toxicity"])
    first, *_, last = [text[begin:end] for begin, end in spans]
    assert first.startswith("the cat.") and last.startswith("the house")
    assert plain == pytest.approx(score(text)["toxicity"]) != share


def test_what_lies_below_its_threshold_is_left_out(server, score):
    share = score("the cat")["toxicity"]
    asked = request("the cat", "TOXICITY", "INSULT")
    toxicity = {"scoreType": "PROBABILITY", "scoreThreshold": share + 1e-6}
    asked["requestedAttributes"]["TOXICITY"] = toxicity
    assert [*server.ask(asked)[1]["attributeScores"]] == ["INSULT"]
    toxicity["scoreThreshold"] = share - 1e-6
    assert [*server.ask(asked)[1]["attributeScores"]] == ["TOXICITY", "INSULT"]
    asked["requestedAttributes"] = {"TOXICITY": {"scoreThreshold": 1}}
    assert server.ask(asked) == (200, {"languages": ["en"]})


def test_fields_that_do_not_matter_are_accepted_and_the_token_comes_back(server):
    others = {"context": {"entries": [{"text": "x"}]}, "doNotStore": True}
    others |= {"sessionId": "1", "communityId": "c", "clientToken": "a token"}
    status, answer = server.analyze("the cat", languages=["en-GB"], **others)
    assert (status, answer["clientToken"], answer["languages"]) == (200, "a token", ["en-GB"])
    _, as_r_asks = server.analyze("the cat", languages="en", spanAnnotations=None)
    assert as_r_asks["languages"] == ["en"]
    assert server.analyze("a", requestedAttributes={"THREAT": None})[0] == 200


def test_errors_are_those_of_perspective(server):
    assert "non-empty" in is_refused(server.analyze(" \n"), 400, "COMMENT_EMPTY")
    is_refused(server.ask({"requestedAttributes": {"TOXICITY": {}}}), 400, "COMMENT_EMPTY")
    is_refused(server.ask({"comment": {"text": "<b></b>", "type": "HTML"}}), 400, "COMMENT_EMPTY")
    is_refused(server.ask({"comment": {"text": "a"}}), 400, "NO_REQUESTED_ATTRIBUTES")
    message = is_refused(server.analyze("a", "FLIRTATION"), 400)
    assert message.startswith("Unknown requested attribute: FLIRTATION")
    assert "SEXUALLY_EXPLICIT" in message
    refused = server.analyze("a", "INSULT", languages=["und"])
    message = is_refused(refused, 400, "LANGUAGE_NOT_SUPPORTED_BY_ATTRIBUTE")
    assert message == "Attribute INSULT does not support request languages: und"


@pytest.mark.parametrize("letter", ["a", "é", "😂"])
def test_a_comment_has_at_most_20480_bytes(server, letter):
    text = letter * (20_480 // len(letter.encode()))
    assert server.analyze(text)[0] == 200
    is_refused(server.analyze(text + "a"), 400, "COMMENT_TOO_LONG")


OTHER_FORMS = """
{
[]
5
null
{"comment": "a"}
{"comment": {"text": ["a"]}}
{"comment": {"text": 5}}
{"comment": {"text": "a"}, "requestedAttributes": ["TOXICITY"]}
{"comment": {"text": "a"}, "requestedAttributes": {"TOXICITY": {"scoreThreshold": NaN}}}
{"comment": {"text": "a"}, "requestedAttributes": {"TOXICITY": {"scoreThreshold": 1e999}}}
{"comment": {"text": "a"}, "requestedAttributes": {"TOXICITY": {"scoreThreshold": "high"}}}
{"comment": {"text": "a"}, "requestedAttributes": {"TOXICITY": "x"}}
{"comment": {"text": "a"}, "requestedAttributes": {"TOXICITY": {}}, "languages": [5]}
"""  # the first is empty
OTHER_FORMS = [
    *OTHER_FORMS.encode().splitlines(),
    b"[" * 100_000,
    b'{"a":' * 100_000,
    '{"comment": {"text": "café"}}'.encode("latin-1"),
    json.dumps(request("a")).encode("utf-16"),
    json.dumps(request("a", n=0)).replace("0", "9" * 5000).encode(),
]


@pytest.mark.parametrize("body", OTHER_FORMS, ids=range(len(OTHER_FORMS)))
@pytest.mark.parametrize("path", [ANALYZE, SUGGEST])
def test_a_body_of_another_form_is_refused(server, body, path):
    is_refused(server.ask(body, path), 400)


def test_a_hundred_thousand_attributes_are_answered_in_few_bytes(server):
    names = [f"A{number}" for number in range(100_000)]
    message = is_refused(server.analyze("a", *names[:70_000]), 400)
    assert len(message) < 500
    is_refused(server.analyze("a", *names), 413)  # more than a megabyte


def test_a_body_of_more_than_a_megabyte_is_refused_unread(server):
    is_refused(refusal_of(server.socket(raw(b"", length=2**20 + 1))), 413)
    for size in (2**20 + 1, 5 * 2**20):  # and is seen by a client that sends it all before it looks
        is_refused(server.ask(b" " * size), 413)
    largest = json.dumps(request("a")).encode()
    assert server.ask(largest + b" " * (2**20 - len(largest)))[0] == 200


def test_http_without_a_length_and_what_is_no_http(server):
    for sent in (HEAD + b"\r\n", HEAD + b"Content-Length: -1\r\n\r\n", b"idiot\r\n\r\n"):
        is_refused(refusal_of(server.socket(sent)), 400)
    content = json.dumps(request("the cat")).encode()
    chunk = b"%x\r\n%s\r\n0\r\n\r\n" % (len(content), content)
    chunked = b"Transfer-Encoding: chunked\r\n\r\n"
    assert b"attributeScores" in all_of(server.socket(HEAD + chunked + chunk))


def test_other_places_and_methods(server):
    elsewhere = server.ask(None, "/v1alpha1/comments", "GET")
    assert ANALYZE in is_refused(elsewhere, 404, status="NOT_FOUND")
    for body, *place in ((None, ANALYZE, "GET"), ({}, "/healthz", "POST"), ({}, SUGGEST, "PUT")):
        is_refused(server.ask(body, *place), 405, status="UNIMPLEMENTED")


def test_suggestions_are_kept_only_where_a_file_is_named(server, models_dir, tmp_path):
    suggested = {  # like the reference's example
        "comment": {"text": "Get busy living, or get busy dying."},
        "attributeScores": {"TOXICITY": {"summaryScore": {"value": 0}}},
        "clientToken": "comment-53922",
    }
    expected = 200, {"clientToken": "comment-53922"}
    assert server.ask(suggested, SUGGEST) == expected
    assert server.ask(suggested | {"doNotStore": True}, SUGGEST) == expected
    is_refused(server.ask({"clientToken": "x"}, SUGGEST), 400, "COMMENT_EMPTY")
    (line,) = (server.log.parent / "suggestions").read_text().splitlines()
    assert json.loads(line) == suggested
    other = Server(models_dir, tmp_path)
    files = {*tmp_path.iterdir(), *models_dir.iterdir()}
    assert other.ask(suggested, SUGGEST) == expected
    assert other.stop() == 0
    assert {*tmp_path.iterdir(), *models_dir.iterdir()} == files


def test_googles_client_by_its_address_alone(server, score):
    client = googleapiclient.discovery.build(
        "commentanalyzer",
        "v1alpha1",
        developerKey="a key",
        discoveryServiceUrl=f"{server.address}/$discovery/rest?version=v1alpha1",
        static_discovery=False,
    )
    answer = client.comments().analyze(body=request(EXAMPLE, "TOXICITY", "THREAT")).execute()
    for name in ("TOXICITY", "THREAT"):
        share = answer["attributeScores"][name]["summaryScore"]["value"]
        assert share == pytest.approx(score(EXAMPLE)[name.lower()])
    suggestion = client.comments().suggestscore(body=request("a", clientToken="t"))
    assert suggestion.execute() == {"clientToken": "t"}
    with pytest.raises(googleapiclient.errors.HttpError, match="400.*COMMENT_EMPTY") as error:
        client.comments().analyze(body=request("")).execute()
    assert error.value.reason == "Comment must be non-empty."


def test_pypis_perspectiveapi_by_its_address_alone(server, score, monkeypatch):
    def post(client, url, **others):
        url = url.replace("https://commentanalyzer.googleapis.com", server.address)
        return client.request("POST", url, **others)

    monkeypatch.setattr(perspective.blocking.Client, "post", post)
    client = perspective.blocking.Perspective("a key")
    attributes = perspective.blocking.Attribute
    scores = client.score(EXAMPLE, [attributes.INSULT, attributes.SEXUALLY_EXPLICIT])
    expected = score(EXAMPLE)
    assert scores.insult == pytest.approx(expected["insult"])
    assert scores.sexually_explicit == pytest.approx(expected["sexual_explicit"])
    assert scores.toxicity is None


def test_the_address_that_a_proxy_tells(server):
    headers = {"Host": "comments.example", "X-Forwarded-Proto": "https"}
    _, document = server.ask(None, "/$discovery/rest?version=v1alpha1", "GET", **headers)
    assert document["rootUrl"] == "https://comments.example/"


def test_side_by_side_each_gets_its_own_answer_and_memory_stays(server, score):
    texts = [" ".join(words) for words in itertools.permutations(["the", "cat!", "idiot", "house"])]
    texts += [f"{text} " * 20 for text in texts[:4]]
    expected = dict(zip(texts, score(texts)["toxicity"], strict=True))

    def shares_are_right(times):
        for text in texts * times:
            share, _ = toxicity_of(server.analyze(text))
            assert share == pytest.approx(expected[text], abs=1e-6)
        return psutil.Process(server.process.pid).memory_info().rss

    with ThreadPoolExecutor(8) as clients:
        before = max(clients.map(shares_are_right, [2] * 8))
        assert max(clients.map(shares_are_right, [5] * 8)) < before + 30 * 2**20


def test_attributes_that_are_not_supported_are_dropped_where_the_request_says_so(server):
    asked = request("the cat", "TOXICITY", "FLIRTATION", dropUnsupportedAttributes=True)
    assert [*server.ask(asked)[1]["attributeScores"]] == ["TOXICITY"]
    assert server.ask(asked | {"languages": ["fr"]}) == (200, {"languages": ["fr"]})


def test_who_hangs_up_or_is_slow_keeps_nobody_waiting(server):
    body = json.dumps(request("the cat")).encode()
    for _ in range(20):
        server.socket(raw(body)).close()  # before the answer
        server.socket(raw(body)[:-5]).close()  # in the midst of the question
    slow = [server.socket(raw(body)[:-5]) for _ in range(150)]
    assert server.analyze("the cat")[0] == 200
    for client in slow:
        client.sendall(raw(body)[-5:])
        assert all_of(client).startswith(b"HTTP/1.1 200")


def test_what_was_begun_is_answered_after_sigterm(models_dir, tmp_path):
    server = Server(models_dir, tmp_path)
    body = json.dumps(request("the cat")).encode()
    long = json.dumps(request("the cat idiot " * 1_400, spanAnnotations=True)).encode()
    kept = raw(body).replace(b"Connection: close\r\n", b"")
    first, last = server.socket(kept[:-5]), server.socket(kept[:-5])
    begun = [server.socket(raw(long)) for _ in range(8)]
    assert server.analyze("a")[0] == 200  # so that all of these have been read
    server.process.send_signal(signal.SIGTERM)
    with ThreadPoolExecutor(8) as clients:
        answers = clients.map(all_of, begun)
        for _ in range(600):  # it lets nobody in any more, and waits
            try:
                server.socket().close()
                time.sleep(0.1)
            except OSError:
                break
        else:
            pytest.fail("still lets clients in")
        for half in (first, last):
            half.sendall(body[-5:])
            assert b'"attributeScores"' in all_of(half)  # and the connection is closed
        assert all(b"summaryScore" in answer for answer in answers)
    assert server.process.wait(60) == 0


def test_a_fault_of_the_server_tells_no_text(models_dir, tmp_path):
    server = Server(models_dir, tmp_path, "--suggestions", str(tmp_path / "no folder" / "file"))
    answer = server.ask(request("a secret word"), SUGGEST)
    assert is_refused(answer, 500, status="INTERNAL") == "The server failed"
    server.analyze("a secret word")
    server.ask(b"a secret word")
    assert server.stop() == 0
    log = server.log.read_text()
    assert "FileNotFoundError" in log and "secret" not in log and "Traceback" not in log


def test_the_application_is_wsgi(models_dir, monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    from serve import Application

    environ = {"PATH_INFO": "/healthz", "SCRIPT_NAME": "", "QUERY_STRING": ""}
    setup_testing_defaults(environ)
    told = []
    application = validator(Application(models_dir))
    answer = application(environ, lambda status, headers, *_: told.append(status))
    assert json.loads(b"".join(answer))["status"] == "ok"
    assert told == ["200 OK"]
    answer.close()
