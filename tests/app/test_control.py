"""A running session asked through its socket and over HTTP."""

from __future__ import annotations

import json
import os
import socket
import stat
import urllib.error
import urllib.request
from pathlib import Path

import pytest

pytestmark = [pytest.mark.gst, pytest.mark.timeout(120)]
pytest.importorskip("gi")

from sessions import running, wait_for

from gstinfer.app.control import ControlSocket, address, ask
from gstinfer.app.metrics import MetricsServer
from gstinfer.app.rest import RestServer, openapi
from gstinfer.app.session import Job, Session
from gstinfer.errors import ConfigError, HostError

LIVE = "width=64&height=48&live=1&fps=30"


@pytest.fixture
def session(model):
    session = Session(Job([f"test:red?{LIVE}"], f"{model}:box"))
    with running(session):
        wait_for(lambda: session.branches[0].state == "playing")
        yield session


@pytest.fixture
def path(session, tmp_path):
    control = ControlSocket(session, f"{tmp_path}/control")
    yield control.path
    control.close()


def test_all_commands(session, path, model):
    assert [(s["name"], s["state"]) for s in ask(path, "list")] == [("red", "playing")]
    added = ask(path, "add", source=f"test:blue?{LIVE}", name="door")
    assert added["name"] == "door" and added["state"] in ("connecting", "playing")
    wait_for(lambda: ask(path, "stats", name="door")["frames"] > 5)
    assert ask(path, "swap", model=f"{model}:other") == {"model": f"{model}:other"}
    assert ask(path, "remove", name="door")["name"] == "door"
    wait_for(lambda: session.find("door").state == "ended")
    report = ask(path, "stats")
    assert report["model"] == f"{model}:other" and {s["name"] for s in report["streams"]} == {"red", "door"}
    stats = report["streams"][0]["elements"]["pyinfer"]
    assert {"wait-seconds", "model-seconds", "write-seconds", "batch-fill", "late-skipped"} <= set(stats)


@pytest.mark.parametrize(
    ("command", "arguments", "words"),
    [
        ("fly", {}, "no command 'fly'"),
        ("add", {}, "add needs source"),
        ("add", {"source": ""}, "is no text"),
        ("add", {"source": "gopher://x"}, "no kind of input"),
        ("add", {"source": "gone.mp4"}, "no such file"),
        ("add", {"source": "test:red", "color": "red"}, "no argument of add 'color'"),
        ("remove", {"name": "nope"}, "no stream 'nope'"),
        ("swap", {"model": "gone.onnx"}, "gone.onnx"),
        ("stats", {"name": "nope"}, "no stream 'nope'"),
    ],
)
def test_what_cannot_be_done_is_said_and_streams_go_on(session, path, command, arguments, words):
    with pytest.raises(HostError, match=words):
        ask(path, command, **arguments)
    before = session.branches[0].counts.frames
    wait_for(lambda: session.branches[0].counts.frames > before + 5)


@pytest.mark.parametrize("line", [b"hello\n", b"[1]\n", b"{}\n", b"\xff\n", b'{"command": 3}\n', b"x" * 70000 + b"\n"])
def test_lines_that_are_no_request(path, line):
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(10)
        client.connect(path)
        client.sendall(line)
        answer = json.loads(client.makefile("rb").readline())
    assert answer["ok"] is False and answer["error"]
    assert ask(path, "list")


def test_only_the_owner_may_use_the_socket_and_only_one_run_has_it(session, path, tmp_path):
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    with pytest.raises(ConfigError, match="another run listens"):
        ControlSocket(session, path)
    assert ask(path, "list")
    # A socket that a killed run left behind is replaced; another file is not.
    left = f"{tmp_path}/left"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(left)
    control = ControlSocket(session, left)
    assert ask(left, "list")
    control.close()
    assert not Path(left).exists()
    (tmp_path / "file").write_text("keep me")
    for place, words in (("file", "no socket"), ("gone/x", "must be there"), ("x" * 120, "cannot be made")):
        with pytest.raises(ConfigError, match=words):
            ControlSocket(session, f"{tmp_path}/{place}")
    assert (tmp_path / "file").read_text() == "keep me"


def test_nobody_listens(tmp_path):
    with pytest.raises(HostError, match="no running session answers"):
        ask(f"{tmp_path}/gone", "list")


@pytest.fixture
def rest(session):
    server = RestServer(session, "0")
    yield server
    server.close()


def call(rest, method, path, body=None, token=None):
    """(status, answer) of a call."""
    headers = {"Authorization": f"Bearer {rest.token if token is None else token}"} if token != "" else {}
    data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(rest.url + path, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_the_api(session, rest, model):
    assert [s["name"] for s in call(rest, "GET", "/v1/streams")[1]] == ["red"]
    status, added = call(rest, "POST", "/v1/streams", {"source": f"test:blue?{LIVE}", "name": "a/b c"})
    assert (status, added["name"]) == (201, "a/b c")
    wait_for(lambda: call(rest, "GET", "/v1/streams/a%2Fb%20c")[1]["frames"] > 3)
    assert call(rest, "PUT", "/v1/model", {"model": f"{model}:other"}) == (200, {"model": f"{model}:other"})
    assert call(rest, "DELETE", "/v1/streams/a%2Fb%20c")[0] == 200
    wait_for(lambda: session.find("a/b c").state == "ended")
    assert call(rest, "GET", "/v1/stats")[1]["model"] == f"{model}:other"


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/v1/streams/nope", None, 404),
        ("DELETE", "/v1/streams/nope", None, 404),
        ("POST", "/v1/streams", {"source": "gopher://x"}, 400),
        ("POST", "/v1/streams", {"source": "gone.mp4"}, 422),
        ("POST", "/v1/streams", {}, 400),
        ("POST", "/v1/streams", {"source": 3}, 400),
        ("POST", "/v1/streams", b"no json", 400),
        ("POST", "/v1/streams", b"[]", 400),
        ("POST", "/v1/streams", b"x" * 70000, 413),
        ("POST", "/v1/streams", None, 400),
        ("PUT", "/v1/streams", {}, 405),
        ("GET", "/elsewhere", None, 404),
        ("PUT", "/v1/model", {"model": "nope"}, 400),
    ],
)
def test_the_api_refuses(session, rest, method, path, body, status):
    found, answer = call(rest, method, path, body)
    assert found == status and answer["error"]
    assert session.branches[0].running


@pytest.mark.parametrize("token", ["", "wrong", "ü"])
def test_without_the_token_nothing_is_done(session, rest, token):
    for method, path in (("GET", "/v1/stats"), ("POST", "/v1/streams"), ("DELETE", "/v1/streams/red"), ("GET", "/x")):
        headers = {"Authorization": f"Bearer {token}".encode("latin-1").decode("latin-1")} if token else {}
        request = urllib.request.Request(rest.url + path, b"{}" if method == "POST" else None, headers, method=method)
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(request, timeout=30)
        assert caught.value.code == 401 and "token" in json.load(caught.value)["error"]
    assert session.branches[0].running


def test_the_document_needs_no_token_and_names_every_path(rest):
    status, document = call(rest, "GET", "/openapi.json", token="")
    assert status == 200 and document == openapi() and document["openapi"] == "3.1.0"
    assert document["components"]["securitySchemes"] and document["security"] == [{"token": []}]
    for path, operations in document["paths"].items():
        for method in set(operations) - {"parameters"}:
            found, _ = call(rest, method.upper(), path.replace("{name}", "red"), {} if method in ("post", "put") else None)
            assert found not in (404, 405), (method, path)


def test_others_reach_the_api_only_with_a_token_of_the_users_own(session):
    with pytest.raises(ConfigError, match="needs a token of your own"):
        RestServer(session, "0.0.0.0:0")
    RestServer(session, "0.0.0.0:0", "a long secret").close()
    server = RestServer(session, "127.0.0.1:0")
    with pytest.raises(ConfigError, match="cannot be used"):
        RestServer(session, server.url.removeprefix("http://"))
    server.close()
    for text in ("x", "host:", "1:99999"):
        with pytest.raises(ConfigError, match="no address to listen on"):
            RestServer(session, text)


def test_addresses():
    assert address("9100", "h") == address(":9100", "h") == ("h", 9100)
    assert address("[::1]:80", "h") == ("::1", 80)


def test_prometheus(session):
    pytest.importorskip("prometheus_client")
    from prometheus_client.parser import text_string_to_metric_families

    server = MetricsServer(session, "127.0.0.1:0")
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=30) as response:
            text = response.read().decode()
        with pytest.raises(ConfigError, match="cannot be used"):
            MetricsServer(session, f"127.0.0.1:{server.port}")
    finally:
        server.close()
    families = {family.name: family.samples for family in text_string_to_metric_families(text)}
    assert families["gstinfer_stream_frames"][0].labels == {"stream": "red"}
    assert families["gstinfer_stream_frames"][0].value > 0
    assert {s.labels["state"] for s in families["gstinfer_stream_state"] if s.value} == {"playing"}
    assert families["gstinfer_stream_lag_seconds"][0].value < 5
    assert {s.labels["device"] for s in families["gstinfer_model_seconds"]} == {"cpu"}
    assert {"wait", "model"} <= {s.labels["step"] for s in families["gstinfer_model_seconds"]}
    assert "pyinfer write" in {s.labels["step"] for s in families["gstinfer_step_seconds"]}
    assert families["gstinfer_model_info"][0].labels["spec"].endswith(":box")
