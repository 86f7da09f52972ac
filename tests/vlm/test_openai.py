"""The client of OpenAI-compatible servers, against a stand-in on loopback."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

import numpy as np
import pytest
from standin import COLORS, StandIn, question

from gstinfer.errors import ConfigError, GstInferError, ModelLoadError, UnknownNameError
from gstinfer.results import Text
from gstinfer.vlm import BackendOptions, Call, Segment, Trouble, as_backend


def segment(*colors: str, **fields: Any) -> Segment:
    images = tuple(np.full((36, 64, 3), COLORS[color], np.uint8) for color in colors)
    return Segment("cam", 0, len(images), images, tuple(range(len(images))), "Which colours?", **fields)


def ask(standin: StandIn, *colors: str, timeout: float = 5.0, fields: dict[str, Any] | None = None, **options: Any) -> Any:
    backend = as_backend(standin.spec, BackendOptions(**options))
    backend.open()
    (outcome,) = backend.ask([Call(segment(*colors, **(fields or {})), timeout, lambda call: None)])
    return outcome


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("send", ["images", "video"])
def test_pictures_go_out_in_order_and_the_answer_comes_back(streams: bool, send: str) -> None:
    with StandIn(streams=streams) as standin:
        answer = ask(standin, "red", "blue", "red", "green", send=send)
    assert answer == Text("red blue red green", tokens=4, finish_reason="stop")


def test_what_is_asked() -> None:
    schema = {"type": "object"}
    with StandIn() as standin:
        ask(standin, "red", fields={"system_prompt": "Be brief.", "schema": schema}, max_tokens=7, temperature=0.5)
        (request,) = standin.requests
    assert question(request) == "Which colours?"
    assert request["messages"][0] == {"role": "system", "content": "Be brief."}
    assert (request["max_tokens"], request["temperature"]) == (7, 0.5)
    assert request["response_format"]["json_schema"]["schema"] == schema


@pytest.mark.parametrize(
    ("fault", "reason", "again", "streams"),
    [
        ("429", "http-429", True, True),
        ("500", "http-500", True, False),
        ("400", "http-400", False, True),
        ("cut", "connection", True, True),
        ("malformed", "malformed", True, True),
        ("malformed", "malformed", True, False),
    ],
)
def test_faults_say_whether_another_try_may_help(fault: str, reason: str, again: bool, streams: bool) -> None:
    with StandIn(lambda number: fault, streams=streams) as standin:
        trouble = ask(standin, "red")
    assert isinstance(trouble, Trouble) and (trouble.reason, trouble.again) == (reason, again)


@pytest.mark.parametrize("fault", ["endless", "hang"])
def test_an_answer_ends_at_its_deadline(fault: str) -> None:
    with StandIn(lambda number: fault) as standin:
        began = time.monotonic()
        trouble = ask(standin, "red", timeout=0.4)
        assert time.monotonic() - began < 5
    assert isinstance(trouble, Trouble) and trouble.reason == "deadline" and not trouble.again


def test_a_question_called_off_lets_go_of_its_connection_at_once() -> None:
    with StandIn(lambda number: "hang") as standin:
        backend = as_backend(standin.spec, BackendOptions())
        backend.open()
        call = Call(segment("red"), 30, lambda call: None)
        threading.Timer(0.2, lambda: call.finish("dropped", "flushed")).start()
        began = time.monotonic()
        (outcome,) = backend.ask([call])
        assert time.monotonic() - began < 5 and isinstance(outcome, Trouble)


def refused(spec: str, **options: Any) -> GstInferError:
    with pytest.raises(GstInferError) as caught:
        as_backend(spec, BackendOptions(**options)).open()
    assert "\n" not in str(caught.value)
    return caught.value


def test_what_is_wrong_is_told_at_start(monkeypatch: pytest.MonkeyPatch) -> None:
    with StandIn(models=("a", "b")) as standin:
        error = refused(f"openai:{standin.url}#c")
        assert isinstance(error, UnknownNameError) and "available: a, b" in str(error)
        error = refused(f"openai:{standin.url}")
        assert "has 2 models, and none is named; available: a, b" in str(error)
        error = refused(f"openai:{standin.url.removesuffix('/v1')}#a")
        assert isinstance(error, ModelLoadError) and "end in /v1" in str(error)
        with_password = standin.url.replace("://", "://user:secret@")
        assert "password" in str(refused(f"openai:{with_password}#a"))
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        error = refused(f"openai:http://127.0.0.1:{nobody.getsockname()[1]}/v1#a")
        assert isinstance(error, ModelLoadError) and "no server answers" in str(error) and "refused" in str(error)
    assert "is no address" in str(refused("openai:127.0.0.1:8000#a"))
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    assert "NO_SUCH_KEY" in str(refused("openai:http://127.0.0.1:1/v1#a", key_env="NO_SUCH_KEY"))


def test_a_key_comes_from_the_environment_and_stays_out_of_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLM_KEY", "open-sesame")
    with StandIn(key="open-sesame") as standin:
        assert "key-env" in str(refused(standin.spec))
        assert ask(standin, "cyan", key_env="VLM_KEY").text == "cyan"
        monkeypatch.setenv("VLM_KEY", "wrong-word")
        error = refused(standin.spec, key_env="VLM_KEY")
        assert "VLM_KEY" in str(error) and "wrong-word" not in str(error)


def test_a_server_with_one_model_needs_no_name() -> None:
    with StandIn() as standin:
        backend = as_backend(f"openai:{standin.url}", BackendOptions())
        backend.open()
        assert backend.name == "color-vlm"


def test_settings_that_do_not_apply_are_refused() -> None:
    with pytest.raises(ConfigError, match="model-args"):
        as_backend("openai:http://127.0.0.1:1/v1#a", BackendOptions({"x": 1}))
    with pytest.raises(ConfigError, match="no model is set"):
        as_backend(" ", BackendOptions())
    with pytest.raises(UnknownNameError, match="openai"):
        as_backend("opnai", BackendOptions())
