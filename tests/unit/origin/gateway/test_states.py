"""The table of states: complete, and without a state that cannot be reached."""

from headgate.origin.gateway.states import NEXT_STATES, ClientState


def test_the_table_leads_from_the_first_state_to_all_and_from_all_to_the_last() -> None:
    assert set(NEXT_STATES) == set(ClientState)
    reached = more = {ClientState.IDLE}
    while more:
        more = {following for state in more for following in NEXT_STATES[state]} - reached
        reached = reached | more
    assert reached == set(ClientState)
    assert all(ClientState.CLOSED in following for following in NEXT_STATES.values())
