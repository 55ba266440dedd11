"""A tunnel between two connections without sockets; each row of its table."""

import pytest

from headgate.origin.gateway.states import TUNNEL_TRANSITIONS, TunnelEvent, TunnelState
from headgate.origin.gateway.tunnel import UpgradeTunnel
from tests.unit.origin.gateway.stub import StubTransport


class Harness:
    """A tunnel, its two transports, and whether its end was reported."""

    def __init__(self) -> None:
        self.client, self.origin = StubTransport(), StubTransport()
        self.closed: list[UpgradeTunnel] = []
        self.tunnel = UpgradeTunnel(self.client, self.origin, self.closed.append)

    def in_state(self, state: TunnelState) -> "Harness":
        """Bring the tunnel into a state, from the client's end where one end does it."""
        if state is not TunnelState.OPEN:
            self.tunnel.client_end.connection_lost(None)
            if state is TunnelState.CLOSED:
                self.tunnel.origin_end.connection_lost(None)
        assert self.tunnel.state is state
        return self


ROWS = [(state, event, target) for state, row in TUNNEL_TRANSITIONS.items() for event, target in row.items()]


@pytest.mark.parametrize(("state", "_event", "target"), ROWS)
def test_each_row(state: TunnelState, _event: TunnelEvent, target: TunnelState) -> None:
    harness = Harness().in_state(state)
    harness.tunnel.origin_end.connection_lost(None)
    assert harness.client.closed
    assert harness.tunnel.state is target
    assert harness.closed == ([harness.tunnel] if target is TunnelState.CLOSED else [])


def test_bytes_are_passed_on_both_ways_until_the_receiver_closes() -> None:
    harness = Harness()
    assert harness.client.protocol is harness.tunnel.client_end
    harness.tunnel.client_end.data_received(b"to the origin")
    harness.tunnel.origin_end.data_received(b"to the client")
    assert (harness.client.written, harness.origin.written) == (b"to the client", b"to the origin")
    harness.origin.close()
    harness.tunnel.client_end.data_received(b"too late")
    assert harness.origin.written == b"to the origin"


def test_a_slow_end_pauses_the_other() -> None:
    harness = Harness()
    harness.tunnel.client_end.pause_writing()
    assert (harness.client.reading, harness.origin.reading) == (True, False)
    harness.tunnel.client_end.resume_writing()
    assert harness.origin.reading


def test_an_end_that_sends_no_more_closes() -> None:
    assert not Harness().tunnel.client_end.eof_received()


def test_abort_closes_both_ends_at_once() -> None:
    harness = Harness()
    harness.tunnel.abort()
    assert harness.client.aborted
    assert harness.origin.aborted
