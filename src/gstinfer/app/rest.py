"""The same commands over HTTP, for programs: off by default, on the loopback unless asked otherwise, never without the token.

The standard library's server is enough for a few calls a minute, and adds no dependency.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
import secrets
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from gstinfer import __version__
from gstinfer.app.control import LONGEST, address, execute
from gstinfer.errors import ConfigError, GstInferError, UnknownNameError

if TYPE_CHECKING:
    from gstinfer.app.running import Running

__all__ = ["RestServer", "openapi"]


def _text(*names: str, needed: tuple[str, ...]) -> dict[str, Any]:
    schema = {"type": "object", "properties": {n: {"type": "string"} for n in names}, "required": list(needed)}
    return {"required": True, "content": {"application/json": {"schema": schema}}}


def _answers(what: str, reference: str = "", good: str = "200", *others: str) -> dict[str, Any]:
    schema = {"$ref": f"#/components/schemas/{reference}"} if reference else {"type": "object"}
    said = {"400": "The request does not fit.", "404": "No such stream.", "422": "It cannot be opened or loaded."}
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    found: dict[str, Any] = {good: {"description": what, "content": {"application/json": {"schema": schema}}}}
    found["401"] = {"description": "The token is missing or wrong.", "content": error}
    return {**found, **{code: {"description": said[code], "content": error} for code in others}}


def openapi() -> dict[str, Any]:
    """The OpenAPI 3.1 document of this interface."""
    name = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
    number = {"type": ["number", "null"]}
    stream = {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "source": {"type": "string"},
            "device": {"type": "string", "description": "Where it runs; empty before it has begun."},
            "state": {"enum": ["ready", "connecting", "playing", "stalled", "failed", "ended"]},
            "frames": {"type": "integer"},
            "fps": {"type": "number"},
            "lag": {**number, "description": "Seconds between the source and the results; null where it is not live."},
            "dropped": {"type": "integer"},
            "error": {"type": ["string", "null"]},
        },
    }
    streams = {"type": "array", "items": {"$ref": "#/components/schemas/Stream"}}
    listed = _answers("All streams, those that ended too.")
    listed["200"]["content"]["application/json"]["schema"] = streams
    return {
        "openapi": "3.1.0",
        "info": {"title": "gstinfer", "version": __version__, "description": "Control of a running session."},
        "security": [{"token": []}],
        "paths": {
            "/v1/streams": {
                "get": {"operationId": "list", "summary": "List streams", "responses": listed},
                "post": {
                    "operationId": "add",
                    "summary": "Add a source",
                    "requestBody": _text("source", "name", needed=("source",)),
                    "responses": _answers("The new stream.", "Stream", "201", "400", "422"),
                },
            },
            "/v1/streams/{name}": {
                "parameters": [name],
                "get": {
                    "operationId": "streamStats",
                    "summary": "Counters of one stream",
                    "responses": _answers("The stream.", "Stream", "200", "404"),
                },
                "delete": {
                    "operationId": "remove",
                    "summary": "End a stream, its files finished",
                    "responses": _answers("The stream as it is now.", "Stream", "200", "400", "404"),
                },
            },
            "/v1/stats": {"get": {"operationId": "stats", "summary": "Counters", "responses": _answers("Everything.")}},
            "/v1/model": {
                "put": {
                    "operationId": "swap",
                    "summary": "Exchange the model of all streams",
                    "requestBody": _text("model", needed=("model",)),
                    "responses": _answers("The model that runs now.", "", "200", "400", "422"),
                }
            },
        },
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {
                "Stream": stream,
                "Error": {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]},
            },
        },
    }


class _Refused(Exception):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = 30
    protocol_version = "HTTP/1.1"
    server_version = "gstinfer"
    sys_version = ""

    def do_GET(self) -> None:
        self._serve("GET")

    def do_POST(self) -> None:
        self._serve("POST")

    def do_PUT(self) -> None:
        self._serve("PUT")

    def do_DELETE(self) -> None:
        self._serve("DELETE")

    def _serve(self, method: str) -> None:
        answer: Any
        try:
            status, answer = self._route(method)
        except _Refused as refused:
            status, answer = refused.status, {"error": str(refused)}
        except UnknownNameError as error:
            status, answer = 404 if error.kind == "stream" else 400, {"error": str(error)}
        except ConfigError as error:
            status, answer = 400, {"error": str(error)}
        except GstInferError as error:
            status, answer = 422, {"error": str(error)}
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if status == 401:
            self.send_header("WWW-Authenticate", "Bearer")
        if status >= 400:
            # What the client still sends is not read.
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        self.wfile.write(body)

    def _route(self, method: str) -> tuple[int, Any]:
        path = urlsplit(self.path).path.rstrip("/")
        if (method, path) == ("GET", "/openapi.json"):
            return 200, openapi()
        given = self.headers.get("Authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {self.server.token}".encode()):
            raise _Refused(401, "the token is missing or wrong; send the header Authorization: Bearer TOKEN")
        session = self.server.session
        stream = unquote(path.removeprefix("/v1/streams/")) if path.startswith("/v1/streams/") else ""
        if stream and method in ("GET", "DELETE"):
            return 200, execute(session, "stats" if method == "GET" else "remove", {"name": stream})
        routes = {
            ("GET", "/v1/streams"): ("list", 200),
            ("POST", "/v1/streams"): ("add", 201),
            ("GET", "/v1/stats"): ("stats", 200),
            ("PUT", "/v1/model"): ("swap", 200),
        }
        if (method, path) in routes:
            command, status = routes[method, path]
            return status, execute(session, command, self._body() if method in ("POST", "PUT") else {})
        if stream or path in {known for _, known in routes}:
            raise _Refused(405, f"{method} is not known there; see /openapi.json")
        raise _Refused(404, f"nothing is at {path or '/'}; see /openapi.json")

    def _body(self) -> dict[str, Any]:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > LONGEST:
            raise _Refused(413 if length.isdecimal() else 411, f"a body of at most {LONGEST} bytes, with its length, is needed")
        try:
            body = json.loads(self.rfile.read(int(length)))
        except (UnicodeDecodeError, ValueError) as error:
            raise _Refused(400, f"the body is no JSON: {error}") from error
        if not isinstance(body, dict):
            raise _Refused(400, 'the body must be an object such as {"source": "rtsp://..."}')
        return body

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing is logged: standard error belongs to the session."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    session: Running
    token: str


class RestServer:
    """Serves until closed.

    Args:
        session: What is controlled.
        where: ``PORT`` or ``HOST:PORT``; without a host only this machine reaches it.
        token: What clients must send; empty for one that is made up.

    Attributes:
        token: What clients must send.
        url: Where it listens.

    Raises:
        ConfigError: The address cannot be used, or others may reach it and the token is not the user's own.
    """

    def __init__(self, session: Running, where: str, token: str = "") -> None:
        host, port = address(where, "127.0.0.1")
        if not _loopback(host) and not token:
            raise ConfigError(
                f"--rest {where} can be reached from other machines, so it needs a token of your own",
                hint="set GSTINFER_TOKEN to a long random text, and put a TLS proxy in front",
            )
        self.token = token or secrets.token_urlsafe(24)
        try:
            self._server = _Server((host, port), _Handler)
        except OSError as error:
            raise ConfigError(f"--rest {where} cannot be used: {error.strerror or error}", hint="take another port") from error
        self._server.session, self._server.token = session, self.token
        self.url = f"http://{host}:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="gstinfer:rest", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops listening."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
