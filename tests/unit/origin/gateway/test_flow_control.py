import pytest

from headgate.origin.gateway.flow_control import FlowControl
from tests.unit.origin.gateway.stub import StubTransport


def test_reading_is_paused_for_either_reason() -> None:
    transport = StubTransport()
    flow = FlowControl(transport)
    flow.set_buffer_full(True)
    assert not transport.reading
    flow.set_upstream_slow(True)
    flow.set_buffer_full(False)
    assert not transport.reading
    flow.set_upstream_slow(False)
    assert transport.reading
    flow.set_upstream_slow(True)
    flow.set_buffer_full(True)
    flow.release()
    assert transport.reading
    assert not flow.upstream_slow


def test_a_closing_transport_is_left_alone() -> None:
    transport = StubTransport()
    transport.close()
    FlowControl(transport).set_buffer_full(True)
    assert transport.reading


def test_the_client_reads_when_its_progress_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    progress = iter([5, 5, 7, None, None])
    monkeypatch.setattr("headgate.origin.gateway.flow_control.send_progress", lambda _: next(progress))
    flow = FlowControl(StubTransport())
    assert [flow.client_reads() for _ in range(5)] == [True, False, True, False, False]
