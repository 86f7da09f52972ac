"""Waiting for frames on their way, and who wakes whom."""

from __future__ import annotations

import threading
import time

import pytest

from gstinfer.errors import PredictError
from gstinfer.ticket import Ticket, release_in_turn

PATIENCE = 10


def _waiter(ticket: Ticket, woken: list[Ticket]) -> threading.Thread:
    def wait() -> None:
        ticket.wait()
        woken.append(ticket)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    while not ticket._awaited:
        time.sleep(0.001)
    return thread


def _tickets(count: int) -> list[Ticket]:
    return [Ticket(None, (object(),)) for _ in range(count)]  # type: ignore[arg-type]


def test_everybody_who_waits_is_woken() -> None:
    tickets, woken = _tickets(9), []
    threads = [_waiter(ticket, woken) for ticket in tickets]
    assert all(ticket._deliver(0, ()) for ticket in tickets)
    assert not woken
    release_in_turn(tickets)
    for thread in threads:
        thread.join(PATIENCE)
    assert len(woken) == 9


def test_a_ticket_that_nobody_waits_for_holds_nobody_up() -> None:
    tickets, woken = _tickets(5), []
    threads = [_waiter(ticket, woken) for ticket in tickets[1::2]]
    for ticket in tickets:
        ticket._deliver(0, ())
    release_in_turn(tickets)
    for thread in threads:
        thread.join(PATIENCE)
    assert len(woken) == 2
    for ticket in tickets:
        # Late comers and second readers pass.
        assert ticket.result() == [()]


def test_a_ticket_of_two_frames_is_done_with_the_second() -> None:
    ticket = Ticket(None, (object(), object()))  # type: ignore[arg-type]
    assert not ticket._deliver(1, ())
    assert ticket._deliver(0, ())


def test_a_failed_ticket_wakes_without_a_turn() -> None:
    (ticket,), woken = _tickets(1), []
    thread = _waiter(ticket, woken)
    ticket._fail(PredictError("no"))
    thread.join(PATIENCE)
    assert woken
    with pytest.raises(PredictError):
        ticket.result()
