import pytest

from headgate.origin.gateway.states import GATEWAY_TRANSITIONS, GatewayEvent, GatewayState
from tests.unit.origin.gateway.stub import make_context


@pytest.mark.parametrize("event", list(GatewayEvent))
@pytest.mark.parametrize("state", list(GatewayState))
def test_each_row(state: GatewayState, event: GatewayEvent) -> None:
    context = make_context()
    context.state = state
    target = GATEWAY_TRANSITIONS[state].get(event)
    if target is None:
        with pytest.raises(RuntimeError, match=f"{event.name.lower()} is not possible once it is {state.name.lower()}"):
            context.move(event)
    else:
        context.move(event)
        assert context.state is target
        assert context.draining is (target in {GatewayState.DRAINING, GatewayState.STOPPED})


def test_events_are_counted_and_reported() -> None:
    context = make_context()
    context.note("refused")
    context.note("refused")
    assert context.counts == {"refused": 2}
