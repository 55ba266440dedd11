"""A tunnel between two connections without sockets; each row of its table."""

import pytest

from headgate.origin.gateway.states import TUNNEL_TRANSITIONS, TunnelEvent, TunnelState
from headgate.origin.gateway.tunnel import UpgradeTunnel
from tests.unit.origin.gateway.stub import StubTransport


class Harness:
    """A tunnel, its two transports, and whether its end was reported."""

    def __init__(self, *, half_open: bool = True) -> None:
        self.client, self.origin = StubTransport(half_open=half_open), StubTransport()
        self.closed: list[UpgradeTunnel] = []
        self.tunnel = UpgradeTunnel(self.client, self.origin, self.closed.append)

    def in_state(self, state: TunnelState) -> "Harness":
        """Bring the tunnel into a state, from the client's end where one end does it."""
        client_end, origin_end = self.tunnel.client_end, self.tunnel.origin_end
        if state is TunnelState.HALF_OPEN:
            client_end.eof_received()
        elif state is not TunnelState.OPEN:
            client_end.connection_lost(None)
            if state is TunnelState.CLOSED:
                origin_end.connection_lost(None)
        assert self.tunnel.state is state
        return self


ROWS = [(state, event, target) for state, row in TUNNEL_TRANSITIONS.items() for event, target in row.items()]


@pytest.mark.parametrize(("state", "event", "target"), ROWS)
def test_each_row(state: TunnelState, event: TunnelEvent, target: TunnelState) -> None:
    harness = Harness().in_state(state)
    if event is TunnelEvent.ENDED:
        stays = harness.tunnel.origin_end.eof_received()
        assert stays is (state is TunnelState.OPEN)
        assert harness.client.ended is (state is TunnelState.OPEN)
    else:
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


def test_an_end_that_cannot_stay_half_open_closes() -> None:
    harness = Harness(half_open=False)
    assert not harness.tunnel.client_end.eof_received()
    assert harness.origin.ended
    assert not Harness(half_open=False).tunnel.origin_end.eof_received()


def test_abort_closes_both_ends_at_once() -> None:
    harness = Harness()
    harness.tunnel.abort()
    assert harness.client.aborted
    assert harness.origin.aborted
