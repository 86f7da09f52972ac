"""The thread between stream and target: order, sharing, a slow target, a failing one."""

from __future__ import annotations

import json
import threading
import time
from typing import ClassVar

import pytest

from gstinfer import registry
from gstinfer.errors import ConfigError, PublishError, UnknownNameError
from gstinfer.frames import Flushed
from gstinfer.publish import worker
from gstinfer.publish.worker import open_lease


class Target:
    """A publisher that waits at a gate and can fail."""

    made: ClassVar[list[Target]] = []

    def __init__(self, url: str) -> None:
        self.target, self.gate, self.got, self.closed = url, threading.Event(), [], False
        self.fail_at: int | None = None
        self.gate.set()
        Target.made.append(self)

    def open(self) -> None:
        pass

    def publish(self, message) -> None:
        assert self.gate.wait(10)
        if len(self.got) == self.fail_at:
            raise OSError("the wire is cut")
        self.got.append(message["n"])

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def target(monkeypatch):
    """Makes ``test:`` urls known; gives the list of the publishers made."""
    Target.made = []
    real = registry.find
    monkeypatch.setattr(registry, "find", lambda kind, name: Target if name == "test" else real(kind, name))
    yield Target.made
    assert not worker._writers, "a test left a writer open"


def test_order_and_counts(target):
    lease = open_lease("test:a")
    for n in range(1000):
        lease.put({"n": n})
    lease.close()
    assert target[0].got == list(range(1000))
    assert (lease.published, lease.dropped, lease.pending) == (1000, 0, 0)
    assert target[0].closed


def test_one_url_is_one_writer_until_the_last_lets_go(target):
    first, second = open_lease("test:a"), open_lease("test:a")
    other = open_lease("test:b")
    assert first.writer is second.writer is not other.writer
    first.put({"n": 1})
    first.close()
    assert not target[0].closed
    second.put({"n": 2})
    second.close()
    assert target[0].closed and target[0].got == [1, 2]
    assert (first.published, second.published) == (1, 1)
    other.close()


def test_a_file_shared_by_many_threads_keeps_whole_lines(tmp_path):
    url = f"file:{tmp_path}/a.jsonl"
    leases = [open_lease(url) for _ in range(4)]

    def work(k: int) -> None:
        for n in range(200):
            leases[k].put({"k": k, "n": n, "pad": "x" * 500})

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for lease in leases:
        lease.close()
    lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert len(lines) == 800
    assert all([m["n"] for m in lines if m["k"] == k] == list(range(200)) for k in range(4))


def test_a_slow_target_never_blocks_and_drops_are_said_once(target):
    warnings = []
    lease = open_lease("test:a", size=5, on_warning=warnings.append)
    target[0].gate.clear()
    begin = time.monotonic()
    for n in range(50):
        lease.put({"n": n})
    assert time.monotonic() - begin < 1
    target[0].gate.set()
    lease.close()
    assert lease.dropped >= 44 and lease.published + lease.dropped == 50
    assert target[0].got == list(range(lease.published))
    assert len(warnings) == 1 and "too slow" in str(warnings[0])


def test_waiting_loses_nothing(target):
    lease = open_lease("test:a", size=2)
    target[0].gate.clear()
    threading.Timer(0.2, target[0].gate.set).start()
    for n in range(20):
        lease.put({"n": n}, wait=True)
    lease.close()
    assert target[0].got == list(range(20)) and lease.dropped == 0


def test_interrupt_releases_a_waiting_put(target):
    lease = open_lease("test:a", size=1)
    target[0].gate.clear()
    threading.Timer(0.2, lease.interrupt).start()
    with pytest.raises(Flushed):
        for n in range(5):
            lease.put({"n": n}, wait=True)
    target[0].gate.set()
    lease.resume()
    lease.put({"n": 9}, wait=True)
    lease.close()
    assert target[0].got[-1] == 9 and lease.dropped == 0


def test_a_failing_target_is_reported_once_to_everyone_and_then_raised(target):
    told: list[tuple[str, Exception]] = []
    leases = [open_lease("test:a", on_error=lambda e, k=k: told.append((k, e))) for k in "ab"]
    target[0].fail_at = 1
    leases[0].put({"n": 0})
    leases[0].put({"n": 1})
    assert not leases[0].drain()
    deadline = time.monotonic() + 5
    while len(told) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert sorted(k for k, _ in told) == ["a", "b"]
    with pytest.raises(PublishError, match="the wire is cut"):
        leases[1].put({"n": 2})
    for lease in leases:
        lease.close()
    assert (leases[0].published, leases[0].dropped) == (1, 1)
    again = open_lease("test:a")
    again.put({"n": 5})
    again.close()
    assert target[-1].got == [5]


def test_a_stuck_target_is_left_after_some_patience(target):
    lease = open_lease("test:a")
    target[0].gate.clear()
    for n in range(3):
        lease.put({"n": n})
    begin = time.monotonic()
    lease.close(patience=0.2)
    assert time.monotonic() - begin < 3
    target[0].gate.set()


def test_unknown_and_missing_schemes():
    with pytest.raises(UnknownNameError, match="publisher 'carrier-pigeon'"):
        open_lease("carrier-pigeon:x")
    with pytest.raises(ConfigError, match="no scheme"):
        open_lease("out.jsonl")
