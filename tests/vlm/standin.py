"""A server that speaks OpenAI's chat completions and answers by the colour of the pictures it is sent."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import cv2
import numpy as np

COLORS = {
    "red": (220, 30, 30),
    "green": (30, 200, 30),
    "blue": (30, 30, 220),
    "yellow": (220, 220, 30),
    "cyan": (30, 220, 220),
    "magenta": (220, 30, 220),
    "white": (235, 235, 235),
    "black": (20, 20, 20),
}
"""RGB, far enough apart to survive JPEG and video formats."""


def color_of(picture: np.ndarray) -> str:
    """The name of the colour that an RGB picture shows most."""
    mean = picture.reshape(-1, 3).mean(0)
    return min(COLORS, key=lambda name: float(np.abs(mean - COLORS[name]).sum()))


class StandIn:
    """The server; a context manager.

    Args:
        fault: Called with the number of the request (from 0): None, or one of ``"429"``, ``"500"``, ``"400"``, ``"cut"``,
            ``"malformed"``, ``"endless"``, ``"hang"``.
        delay: Seconds before an answer.
        key: What it wants as a key, or empty.
        answer: Text for (colours, request); the colours in order by default.
        streams: Whether it streams; else it sends the answer whole.

    Attributes:
        requests: What was asked, in order of arrival.
        most: Most requests at one time.
    """

    def __init__(
        self,
        fault: Callable[[int], str | None] = lambda number: None,
        *,
        delay: float = 0.0,
        key: str = "",
        answer: Callable[[list[str], dict[str, Any]], str] = lambda colors, request: " ".join(colors),
        streams: bool = True,
        models: tuple[str, ...] = ("color-vlm",),
    ) -> None:
        self.fault, self.delay, self.key, self.answer, self.streams, self.models = fault, delay, key, answer, streams, models
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.most = self._now = 0
        self.lock = threading.Lock()
        self.closing = threading.Event()
        owner = self

        class Handler(_Handler):
            standin = owner

        class Server(ThreadingHTTPServer):
            request_queue_size = 256

            def handle_error(self, request: Any, client_address: Any) -> None:
                """Clients that leave are part of the tests."""

        self.server = Server(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"
        self.spec = f"openai:{self.url}#{models[0] if models else ''}"

    def __enter__(self) -> StandIn:
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *error: Any) -> None:
        self.closing.set()
        self.server.shutdown()
        self.server.server_close()


class _Handler(BaseHTTPRequestHandler):
    standin: StandIn
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments: Any) -> None:
        """Silent."""

    def say(self, status: int, body: Any, **headers: str) -> None:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(raw)

    def refused(self) -> bool:
        wanted = self.standin.key
        if wanted and self.headers.get("Authorization") != f"Bearer {wanted}":
            self.say(401, {"error": {"message": "no key"}})
            return True
        return False

    def do_GET(self) -> None:
        if self.path != "/v1/models":
            self.say(404, {"detail": "Not Found"})
        elif not self.refused():
            self.say(200, {"object": "list", "data": [{"id": name} for name in self.standin.models]})

    def do_POST(self) -> None:
        standin = self.standin
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.refused():
            return
        if self.path != "/v1/chat/completions" or request["model"] not in standin.models:
            self.say(404, {"error": {"message": "no such model"}})
            return
        with standin.lock:
            number = len(standin.requests)
            standin.requests.append(request)
            standin._now += 1
            standin.most = max(standin.most, standin._now)
        try:
            self.reply(number, request)
        finally:
            with standin.lock:
                standin._now -= 1

    def reply(self, number: int, request: dict[str, Any]) -> None:
        standin = self.standin
        fault = standin.fault(number)
        standin.closing.wait(standin.delay)
        if fault in ("429", "500", "400"):
            self.say(int(fault), {"error": {"message": f"as asked: {fault}"}})
        elif fault == "hang":
            standin.closing.wait(60)
        elif fault == "malformed" and not standin.streams:
            self.say(200, b'{"choices": [')
        elif not standin.streams:
            text = standin.answer(pictures(request), request)
            message = {"message": {"content": text}, "finish_reason": "stop"}
            self.say(200, {"choices": [message], "usage": {"completion_tokens": len(text.split())}})
        else:
            self.stream(fault, standin.answer(pictures(request), request))

    def stream(self, fault: str | None, text: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if fault == "malformed":
            self.chunk(b"data: {not json}\n\n")
        elif fault == "endless":
            while not self.standin.closing.is_set():
                self.event({"choices": [{"delta": {"content": "and "}}]})
                time.sleep(0.005)
        for place, word in enumerate(text.split(" ")):
            self.event({"choices": [{"delta": {"content": f" {word}" if place else word}}]})
            if fault == "cut":
                self.close_connection = True
                return
        self.event({"choices": [{"delta": {}, "finish_reason": "stop"}]})
        self.event({"choices": [], "usage": {"completion_tokens": len(text.split())}})
        self.chunk(b"data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")

    def event(self, data: Any) -> None:
        self.chunk(b"data: " + json.dumps(data).encode() + b"\n\n")

    def chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()


def pictures(request: dict[str, Any]) -> list[str]:
    """The colours of a request's pictures, in order."""
    urls = []
    for part in request["messages"][-1]["content"]:
        if part["type"] == "image_url":
            urls.append(part["image_url"]["url"].removeprefix("data:image/jpeg;base64,"))
        elif part["type"] == "video_url":
            urls += part["video_url"]["url"].removeprefix("data:video/jpeg;base64,").split(",")
    decoded = [cv2.imdecode(np.frombuffer(base64.b64decode(url), np.uint8), cv2.IMREAD_COLOR) for url in urls]
    return [color_of(picture[..., ::-1]) for picture in decoded]


def question(request: dict[str, Any]) -> str:
    """The words of a request."""
    return str(request["messages"][-1]["content"][-1]["text"])
