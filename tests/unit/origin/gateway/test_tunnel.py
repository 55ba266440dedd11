"""A tunnel between two connections without sockets."""

from headgate.origin.gateway.tunnel import UpgradeTunnel
from tests.unit.origin.gateway.stub import StubTransport


class Harness:
    """A tunnel, its two transports, and whether its end was reported."""

    def __init__(self) -> None:
        self.client, self.origin = StubTransport(), StubTransport()
        self.closed: list[UpgradeTunnel] = []
        self.tunnel = UpgradeTunnel(self.client, self.origin, self.closed.append)


def test_when_one_end_closes_the_other_one_closes_and_then_the_tunnel_ends() -> None:
    for first, second in (("client", "origin"), ("origin", "client")):
        harness = Harness()
        getattr(harness.tunnel, f"{first}_end").connection_lost(None)
        assert getattr(harness, second).closed
        assert harness.closed == []
        getattr(harness.tunnel, f"{second}_end").connection_lost(None)
        assert harness.closed == [harness.tunnel]


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
