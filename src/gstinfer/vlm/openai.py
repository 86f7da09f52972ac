"""Servers that speak OpenAI's chat completions: vLLM, llama.cpp, TGI and others. HTTP from the standard library alone."""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from typing import Any
from urllib.parse import urlsplit

from gstinfer.errors import ConfigError, ModelLoadError, UnknownNameError
from gstinfer.results import Text
from gstinfer.vlm.backend import Backend, BackendOptions
from gstinfer.vlm.call import Call, Trouble
from gstinfer.vlm.conversation import conversation

__all__ = ["OpenAIServer"]

CONNECT = 5.0
"""Seconds to connect, and to answer when the server is looked at."""

LONGEST = 1 << 20
"""Most bytes of an answer; more is a fault of the server."""

BUSY = {408, 409, 425, 429, 500, 502, 503, 504, 529}
"""HTTP status that another try may help."""


class OpenAIServer(Backend):
    """One model of one server.

    Args:
        target: ``URL#MODEL``, the URL up to where ``/chat/completions`` follows; without a model the server's only one.
        options: What a user may set.

    Raises:
        ConfigError: The URL is none, or the environment variable of the key is not set.
    """

    def __init__(self, target: str, options: BackendOptions) -> None:
        address, _, self.name = target.partition("#")
        parts = urlsplit(address)
        self.url, self.options = address.rstrip("/"), options
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"openai:{target!r} is no address", hint="write openai:http://HOST:8000/v1#MODEL")
        if parts.username or parts.password:
            raise ConfigError("the address of a model must not hold a password", hint="use key-env=VARIABLE")
        if options.arguments:
            raise ConfigError("model-args do not apply to a server")
        try:
            self._place = (parts.hostname, parts.port)
        except ValueError as error:
            raise ConfigError(f"openai:{self.url}: {error}") from None
        self._path, self._secure = parts.path.rstrip("/"), parts.scheme == "https"
        self._headers = {"Accept": "text/event-stream, application/json", "User-Agent": "gstinfer"}
        if options.key_env:
            key = os.environ.get(options.key_env, "").strip()
            if not key:
                raise ConfigError(
                    f"key-env={options.key_env}: that environment variable is not set",
                    hint=f"export {options.key_env}=...",
                )
            self._headers["Authorization"] = f"Bearer {key}"

    def open(self) -> None:
        """Asks the server for its models.

        Raises:
            ModelLoadError: Nothing answers there, it wants a key, or it is no such server.
            UnknownNameError: It has no model of that name.
            ConfigError: None is named, and it has not just one.
        """
        try:
            with closing(self._connection(CONNECT)) as connection:
                connection.request("GET", f"{self._path}/models", headers=self._headers)
                response = connection.getresponse()
                status, body = response.status, response.read(LONGEST)
        except (OSError, http.client.HTTPException) as error:
            raise ModelLoadError(
                f"no server answers at {self.url}: {_words(error)}", hint="start it, or correct model=openai:URL#MODEL"
            ) from error
        if status in (401, 403):
            hint = (
                f"the key in {self.options.key_env} is not the right one"
                if self.options.key_env
                else "put the key into an environment variable and set key-env=VARIABLE"
            )
            raise ModelLoadError(f"the server at {self.url} wants a key (HTTP {status})", hint=hint)
        try:
            names = [str(model["id"]) for model in json.loads(body)["data"]] if status == 200 else None
        except (ValueError, KeyError, TypeError):
            names = None
        if names is None:
            raise ModelLoadError(
                f"{self.url}/models is no list of models (HTTP {status})", hint="most servers' addresses end in /v1"
            )
        if not self.name and len(names) == 1:
            self.name = names[0]
        if not self.name:
            raise ConfigError(
                f"the server at {self.url} has {len(names) or 'no'} models, and none is named"
                + (f"; available: {', '.join(sorted(names))}" if names else ""),
                hint="write openai:URL#MODEL",
            )
        if self.name not in names:
            raise UnknownNameError(f"model at {self.url}", self.name, names, hint="write openai:URL#MODEL")

    def ask(self, calls: Sequence[Call]) -> Sequence[Text | Trouble]:
        return [self._one(call) for call in calls]

    def _one(self, call: Call) -> Text | Trouble:
        try:
            return self._answer(call)
        except Trouble as trouble:
            return trouble
        except TimeoutError as error:
            return Trouble("deadline", f"{self.url} did not answer in time: {_words(error)}")
        except (OSError, http.client.HTTPException) as error:
            return Trouble("connection", f"{self.url}: {_words(error)}", again=True)

    def _answer(self, call: Call) -> Text:
        body = json.dumps(self._request(call)).encode()
        with closing(self._connection(max(0.01, min(CONNECT, call.remaining)))) as connection:
            connection.connect()
            line = connection.sock
            # A socket shut down wakes the thread that reads from it, a closed one does not.
            call.on_over(lambda: _shut(line))
            line.settimeout(max(0.01, call.remaining))
            headers = {**self._headers, "Content-Type": "application/json"}
            connection.request("POST", f"{self._path}/chat/completions", body, headers)
            response = connection.getresponse()
            if response.status != 200:
                raise _refusal(response, self.url)
            streamed = "text/event-stream" in response.headers.get("Content-Type", "")
            return _streamed(_events(response, call)) if streamed else _whole(b"".join(_chunks(response, call)))

    def _request(self, call: Call) -> dict[str, Any]:
        options, segment = self.options, call.segment
        request: dict[str, Any] = {
            "model": self.name,
            "messages": conversation(segment, options.send, options.jpeg_quality),
            "max_tokens": options.max_tokens,
            "temperature": options.temperature,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if segment.schema is not None:
            request["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "answer", "schema": dict(segment.schema), "strict": True},
            }
        return request

    def _connection(self, timeout: float) -> http.client.HTTPConnection:
        host, port = self._place
        if self._secure:
            return http.client.HTTPSConnection(host, port, timeout=timeout, context=ssl.create_default_context())
        return http.client.HTTPConnection(host, port, timeout=timeout)


def _shut(line: socket.socket) -> None:
    with suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)


def _words(error: BaseException) -> str:
    return str(getattr(error, "strerror", None) or error) or type(error).__name__


def _refusal(response: http.client.HTTPResponse, url: str) -> Trouble:
    """An HTTP status that is no success, with what the server says about it."""
    text = response.read(4096).decode(errors="replace")
    try:
        said = json.loads(text)
        said = said.get("error", said)
        text = said.get("message", text) if isinstance(said, dict) else str(said)
    except (ValueError, AttributeError):
        pass
    after = response.headers.get("Retry-After", "")
    return Trouble(
        f"http-{response.status}",
        f"{url}: HTTP {response.status} {' '.join(str(text).split())[:300]}".rstrip(),
        again=response.status in BUSY,
        after=float(after) if after.replace(".", "", 1).isdigit() else None,
    )


def _chunks(response: http.client.HTTPResponse, call: Call) -> Iterator[bytes]:
    """The body as it comes, up to the deadline."""
    size = 0
    while chunk := response.read1(65536):
        size += len(chunk)
        if size > LONGEST:
            raise Trouble("endless", f"an answer of more than {LONGEST} bytes")
        if call.over.is_set() or call.remaining <= 0:
            raise Trouble("deadline", f"the answer did not end within {time.monotonic() - call.began:.1f} s")
        yield chunk


def _events(response: http.client.HTTPResponse, call: Call) -> Iterator[str]:
    """The data of server-sent events, one line each as such servers write them."""
    rest = b""
    for chunk in _chunks(response, call):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                yield line[5:].strip().decode(errors="replace")
    if rest.startswith(b"data:"):
        yield rest[5:].strip().decode(errors="replace")


def _streamed(events: Iterator[str]) -> Text:
    words, reason, tokens = [], "", None
    for data in events:
        if data == "[DONE]":
            reason = reason or "stop"
            break
        part = _read(data)
        usage = part.get("usage") or {}
        tokens = usage.get("completion_tokens", tokens)
        for choice in (part.get("choices") or [])[:1]:
            words.append(_text(choice.get("delta")))
            reason = choice.get("finish_reason") or reason
    if not reason:
        raise Trouble("connection", "the answer was cut off", again=True)
    return Text("".join(words), tokens=tokens, finish_reason=reason)


def _whole(body: bytes) -> Text:
    part = _read(body.decode(errors="replace"))
    choices = part.get("choices")
    if not choices:
        raise Trouble("malformed", "an answer without choices", again=True)
    tokens = (part.get("usage") or {}).get("completion_tokens")
    return Text(_text(choices[0].get("message")), tokens=tokens, finish_reason=choices[0].get("finish_reason") or "stop")


def _read(data: str) -> dict[str, Any]:
    try:
        part = json.loads(data)
    except ValueError as error:
        raise Trouble("malformed", f"an answer that is not JSON: {error}", again=True) from error
    if not isinstance(part, dict):
        raise Trouble("malformed", f"an answer that is no JSON object: {data[:80]}", again=True)
    if part.get("error"):
        said = part["error"]
        raise Trouble("server", str(said.get("message", said) if isinstance(said, dict) else said)[:300], again=True)
    return part


def _text(message: Any) -> str:
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""
