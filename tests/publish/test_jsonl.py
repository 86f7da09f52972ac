"""JSON lines: whole lines, clear errors, standard output kept for messages."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest

from gstinfer.errors import ConfigError, PublishError
from gstinfer.publish.jsonl import JsonLines, encode


def test_urls_name_one_target(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    absolute = JsonLines(f"file:{tmp_path}/a b.jsonl").target
    assert JsonLines("file:a b.jsonl").target == absolute
    assert JsonLines("file:./a b.jsonl").target == absolute
    assert JsonLines(f"file://{tmp_path}/a%20b.jsonl").target == absolute
    assert JsonLines("stdout:").target == JsonLines("stdout://").target == "stdout:"


@pytest.mark.parametrize("url", ["file:", "file://", "stdout:x", "kafka:x"])
def test_urls_that_are_no_target(url):
    with pytest.raises(ConfigError, match="url="):
        JsonLines(url)


def test_each_line_is_one_write(tmp_path, monkeypatch):
    writes = []
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: writes.append(bytes(data)) or real(fd, data))
    lines = JsonLines(f"file:{tmp_path}/a.jsonl")
    lines.open()
    lines.publish({"n": 1})
    lines.publish({"n": "ü"})
    lines.close()
    assert writes == [b'{"n":1}\n', '{"n":"ü"}\n'.encode()]
    assert (tmp_path / "a.jsonl").read_bytes() == b"".join(writes)


def test_partial_writes_are_completed(tmp_path, monkeypatch):
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, bytes(data)[:3]))
    lines = JsonLines(f"file:{tmp_path}/a.jsonl")
    lines.open()
    lines.publish({"n": 12345})
    lines.close()
    assert json.loads((tmp_path / "a.jsonl").read_text()) == {"n": 12345}


def test_begins_anew_or_appends(tmp_path):
    path = tmp_path / "a.jsonl"
    for append, expected in ((False, 1), (True, 2), (False, 1)):
        lines = JsonLines(f"file:{path}", append=append)
        lines.open()
        lines.publish({})
        lines.close()
        assert len(path.read_text().splitlines()) == expected


def test_missing_folder_is_named_and_not_made(tmp_path):
    with pytest.raises(PublishError, match="No such file") as caught:
        JsonLines(f"file:{tmp_path}/gone/a.jsonl").open()
    assert str(tmp_path / "gone") in caught.value.hint
    assert not (tmp_path / "gone").exists()


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(PublishError, match="directory") as caught:
        JsonLines(f"file:{tmp_path}").open()
    assert "folder" in caught.value.hint


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_full_disk():
    lines = JsonLines("file:/dev/full")
    lines.open()
    with pytest.raises(PublishError, match="No space left") as caught:
        lines.publish({"n": 1})
    assert "space" in caught.value.hint
    lines.close()


@contextmanager
def many_files():
    """File descriptors above 1023 may be made inside."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 1200:
        pytest.skip("this user may open fewer than 1200 files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1200), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_closed_pipe_and_a_slow_nonblocking_one(tmp_path):
    fifo = tmp_path / "pipe"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    lines = JsonLines(f"file:{fifo}")
    lines.open()
    with many_files():
        low, lines._fd = lines._fd, fcntl.fcntl(lines._fd, fcntl.F_DUPFD, 1100)
    os.close(low)
    os.set_blocking(lines._fd, False)
    text = "x" * 300_000
    got = []

    def read() -> None:
        os.set_blocking(reader, True)
        while sum(map(len, got)) < len(encode({"t": text})):
            got.append(os.read(reader, 65536))

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    lines.publish({"t": text})
    thread.join(10)
    assert json.loads(b"".join(got)) == {"t": text}
    os.close(reader)
    with pytest.raises(PublishError, match="Broken pipe"):
        lines.publish({})
    lines.close()


def test_after_close_nothing_is_written(tmp_path):
    lines = JsonLines(f"file:{tmp_path}/a")
    lines.open()
    lines.close()
    lines.close()
    with pytest.raises(PublishError, match="not open"):
        lines.publish({})


@pytest.mark.parametrize("value", [float("nan"), object()])
def test_what_is_no_json_is_refused(value):
    with pytest.raises(PublishError, match="JSON"):
        encode({"x": value})


def test_stdout_is_kept_for_messages():
    code = """
import os
from gstinfer.publish.jsonl import JsonLines, stdout_alone
print("before")
with stdout_alone():
    lines = JsonLines("stdout:"); lines.open()
    print("python chatter"); os.system("echo child chatter"); os.write(1, b"raw chatter\\n")
    lines.publish({"n": 1})
print("after")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == ["before", '{"n":1}', "after"]
    assert all(word in done.stderr for word in ("python chatter", "child chatter", "raw chatter"))
