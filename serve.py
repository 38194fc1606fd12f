"""Answers as Perspective did, with the models of a run: python serve.py MODELS [--port 8080]; or
`make serve`.
"""

import argparse
import json
import os
import re
import runpy
import signal
import socket
import threading
from wsgiref.util import application_uri

from waitress import create_server, task, utilities

LABELS = {
    "TOXICITY": "toxicity",
    "SEVERE_TOXICITY": "severe_toxicity",
    "IDENTITY_ATTACK": "identity_attack",
}
LABELS |= {"INSULT": "insult", "PROFANITY": "obscene", "THREAT": "threat"}
LABELS |= {f"{name}_EXPERIMENTAL": label for name, label in LABELS.items()} | {
    "SEXUALLY_EXPLICIT": "sexual_explicit"
}
POST = {"httpMethod": "POST", "request": {}, "response": {}}
METHODS = {
    name: POST | {"id": name, "path": f"v1alpha1/comments:{name}"}
    for name in ("analyze", "suggestscore")
}
SERVICE = {
    "name": "commentanalyzer",
    "servicePath": "",
    "resources": {"comments": {"methods": METHODS}},
}
MOST_BYTES, MOST_TEXT_BYTES = 2**20, 20_480  # of a body, and of the comment in it
SENTENCE = re.compile(r"\S(?:.*?[.!?…][\"'”’)]*(?=\s|\Z)|.*\S|)")


class Refused(Exception):
    def __init__(self, message, code=400, kind="INVALID_REQUEST"):
        status = {404: "NOT_FOUND", 405: "UNIMPLEMENTED", 500: "INTERNAL"}.get(
            code, "INVALID_ARGUMENT"
        )
        details = {
            "@type": "type.googleapis.com/google.commentanalyzer.v1alpha1.Error",
            "errorType": kind,
        }
        content = {
            "error": {"code": code, "message": message, "status": status, "details": [details]}
        }
        self.answer = (
            f"{code} {status}",
            [("Content-Type", "application/json")],
            json.dumps(content).encode(),
        )


def check(is_right, *refusal):
    if not is_right:
        raise Refused(*refusal)


def read(environ):
    """A request, its text, in which HTML's tags are blanks, its languages, and {attribute: lowest
    share to tell}.
    """
    check(
        (length := int(environ.get("CONTENT_LENGTH") or 0)) <= MOST_BYTES,
        "The body is longer than a megabyte",
        413,
    )
    try:
        request = json.loads(
            environ["wsgi.input"].read(length).decode("utf-8-sig"), parse_int=float
        )
        json.dumps(request, allow_nan=False)  # nor what is too large for a float
        comment, requested = request.get("comment") or {}, request.get("requestedAttributes") or {}
        text, kind = comment.get("text") or "", comment.get("type")
        size, languages = len(text.encode(errors="surrogatepass")), request.get("languages") or []
        languages = [languages] if isinstance(languages, str) else [each + "" for each in languages]
        lowest = {
            name: float((wish or {}).get("scoreThreshold") or 0) for name, wish in requested.items()
        }
    except (ValueError, RecursionError, AttributeError, TypeError) as error:
        raise Refused(
            f"The body must be JSON in UTF-8, of the form in Perspective's reference: {error}"
        ) from None
    check(size <= MOST_TEXT_BYTES, f"Comment text too long: {size} bytes.", 400, "COMMENT_TOO_LONG")
    text = (
        re.sub(r"(?is)<!--.*?(-->|$)|</?[a-z][^<>]*>", lambda t: " " * len(t[0]), text)
        if kind == "HTML"
        else text
    )
    check(text.strip(), "Comment must be non-empty.", 400, "COMMENT_EMPTY")
    return request, text, languages, lowest


class Application:
    """The WSGI application. models: folder of a run; suggestions: file for what
    comments:suggestscore is told.
    """

    def __init__(self, models, languages="en", networks=None, suggestions=None):
        os.environ.setdefault(
            "OPENBLAS_NUM_THREADS", "1"
        )  # more are slower with matrices as small as these
        self.score = runpy.run_path(f"{models}/toxicity.py")["load"](models, networks or None)
        self.labels = {name: label for name, label in LABELS.items() if label in self.score([])}
        self.languages, self.suggestions = languages.split(","), suggestions
        self.lock = threading.Lock()
        self.routes = {
            "/" + method["path"]: ("POST", getattr(self, name)) for name, method in METHODS.items()
        }
        self.routes["/$discovery/rest"] = (
            "GET",
            lambda environ: SERVICE | {"rootUrl": application_uri(environ)},
        )
        self.routes["/healthz"] = (
            "GET",
            lambda environ: {"status": "ok", "attributes": [*self.labels]},
        )

    def __call__(self, environ, start_response):
        method, respond = self.routes.get(environ["PATH_INFO"], ("", None))
        try:
            check(
                environ["REQUEST_METHOD"] == method,
                f"There are {', '.join(self.routes)}",
                405 if method else 404,
            )
            answer = (
                "200 OK",
                [("Content-Type", "application/json")],
                json.dumps(respond(environ)).encode(),
            )
        except Refused as refused:
            answer = refused.answer
        except Exception as error:  # whose words may be those of a comment
            print(
                f"{environ['PATH_INFO']} failed: {type(error).__name__}",
                file=environ["wsgi.errors"],
                flush=True,
            )
            answer = Refused("The server failed", 500).answer
        start_response(answer[0], [*answer[1], ("Allow", method)])
        return [answer[2]]

    def suggestscore(self, environ):
        request, *_ = read(environ)
        if self.suggestions and not request.get("doNotStore"):
            with open(
                self.suggestions, "ab", buffering=0
            ) as file:  # a line at once, whoever else writes
                file.write(json.dumps(request).encode() + b"\n")
        return {name: request[name] for name in request.keys() & {"clientToken"}}

    def analyze(self, environ):
        request, text, languages, lowest = read(environ)
        foreign = ", ".join(
            each[:20] for each in languages if each.lower().split("-")[0] not in self.languages
        )
        check(
            lowest,
            f"Missing requested_attributes, such as {[*self.labels]}",
            400,
            "NO_REQUESTED_ATTRIBUTES",
        )
        if request.get("dropUnsupportedAttributes"):
            lowest = {
                name: share for name, share in lowest.items() if name in self.labels and not foreign
            }
        for name in lowest:
            check(
                name in self.labels,
                f"Unknown requested attribute: {name[:80]}; known: {', '.join(self.labels)}",
            )
            message = f"Attribute {name} does not support request languages: {foreign[:80]}"
            check(not foreign, message, 400, "LANGUAGE_NOT_SUPPORTED_BY_ATTRIBUTE")
        places = [
            (0, len(text)),
            *(each.span() for each in SENTENCE.finditer(text) if request.get("spanAnnotations")),
        ]
        with (
            self.lock
        ):  # one request after the other: measured, texts of several in a batch take no less time
            shares, scores = self.score([text[begin:end] for begin, end in places]), {}
        ends = [
            [len(text[:end].encode("utf-16-le", "surrogatepass")) // 2 for end in place]
            for place in places
        ]
        for name in (name for name in lowest if shares[self.labels[name]][0] >= lowest[name]):
            values = [
                {"value": share, "type": "PROBABILITY"} for share in shares[self.labels[name]]
            ]
            spans = [
                {"begin": a, "end": z, "score": value}
                for (a, z), value in zip(ends, values, strict=True)
            ]
            scores[name] = {"spanScores": spans[1:] or spans, "summaryScore": values[0]}
        answer = {name: request[name] for name in request.keys() & {"clientToken"}}
        return (
            answer
            | {"languages": languages or self.languages[:1]}
            | ({"attributeScores": scores} if scores else {})
        )


def linger(refusal):
    """Reads on for a while what waitress refuses: a client that could not send the rest would not
    see the answer.
    """
    refusal.channel.socket.shutdown(socket.SHUT_WR)
    refusal.channel.socket.settimeout(1)
    any(not refusal.channel.socket.recv(2**16) for _ in range(1000))


def main():
    """Answers until Ctrl-C or SIGTERM, and then what was begun."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", help="folder that a run left")
    options = {
        "host": "127.0.0.1",
        "port": 8080,
        "languages": "en",
        "networks": 0,
        "suggestions": "",
    }
    for name, default in options.items():
        parser.add_argument(
            f"--{name}", type=type(default), default=default, help=f"default: {default or 'none'}"
        )
    models, host, port, *others = vars(parser.parse_args()).values()
    signal.pthread_sigmask(
        signal.SIG_BLOCK, stop := {signal.SIGINT, signal.SIGTERM}
    )  # until sigwait asks for them
    task.ErrorTask.finish, utilities.Error.to_response = (
        linger,
        lambda error, _: Refused(error.body, error.code).answer,
    )
    limits = {"threads": 100, "max_request_body_size": MOST_BYTES + 1, "log_socket_errors": False}
    limits |= {
        "trusted_proxy": "*",
        "trusted_proxy_headers": {"x-forwarded-proto"},
        "connection_limit": 900,
    }
    server = create_server(
        Application(models, *others), host=host, port=port, ipv6=":" in host, **limits
    )
    threading.Thread(target=server.run, daemon=True).start()
    print(f"http://{server.effective_host}:{server.effective_port}", flush=True)
    signal.sigwait(stop)
    server.accepting, task.Task.close_on_finish = False, True
    server.socket.shutdown(socket.SHUT_RDWR)
    while any(
        each.requests or each.request or each.total_outbufs_len
        for each in [*server.active_channels.values()]
    ):
        threading.Event().wait(0.05)


if __name__ == "__main__":
    main()
