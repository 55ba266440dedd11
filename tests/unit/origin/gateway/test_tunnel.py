"""A tunnel between two connections without sockets; each row of its table."""

import pytest

from headgate.origin.gateway.states import TUNNEL_TRANSITIONS, TunnelEvent, TunnelState
from headgate.origin.gateway.tunnel import Tunnel
from tests.unit.origin.gateway.stub import StubTransport


class Joined:
    """A tunnel, its two transports, and whether its end was reported."""

    def __init__(self, *, half_open: bool = True) -> None:
        self.client, self.origin = StubTransport(half_open=half_open), StubTransport()
        self.closed: list[Tunnel] = []
        self.tunnel = Tunnel(self.client, self.origin, self.closed.append)

    def in_state(self, state: TunnelState) -> "Joined":
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
    joined = Joined().in_state(state)
    if event is TunnelEvent.ENDED:
        stays = joined.tunnel.origin_end.eof_received()
        assert stays is (state is TunnelState.OPEN)
        assert joined.client.ended is (state is TunnelState.OPEN)
    else:
        joined.tunnel.origin_end.connection_lost(None)
        assert joined.client.closed
    assert joined.tunnel.state is target
    assert joined.closed == ([joined.tunnel] if target is TunnelState.CLOSED else [])


def test_bytes_are_passed_on_both_ways_until_the_receiver_closes() -> None:
    joined = Joined()
    assert joined.client.protocol is joined.tunnel.client_end
    joined.tunnel.client_end.data_received(b"to the origin")
    joined.tunnel.origin_end.data_received(b"to the client")
    assert (joined.client.written, joined.origin.written) == (b"to the client", b"to the origin")
    joined.origin.close()
    joined.tunnel.client_end.data_received(b"too late")
    assert joined.origin.written == b"to the origin"


def test_a_slow_end_pauses_the_other() -> None:
    joined = Joined()
    joined.tunnel.client_end.pause_writing()
    assert (joined.client.reading, joined.origin.reading) == (True, False)
    joined.tunnel.client_end.resume_writing()
    assert joined.origin.reading


def test_an_end_that_cannot_stay_half_open_closes() -> None:
    joined = Joined(half_open=False)
    assert not joined.tunnel.client_end.eof_received()
    assert joined.origin.ended
    assert not Joined(half_open=False).tunnel.origin_end.eof_received()


def test_abort_closes_both_ends_at_once() -> None:
    joined = Joined()
    joined.tunnel.abort()
    assert joined.client.aborted
    assert joined.origin.aborted
