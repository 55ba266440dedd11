from headgate.advice.agent_history import AgentHistory


def test_an_agent_disobeys_if_it_sends_in_a_period_in_which_it_was_disallowed():
    history = AgentHistory(0.5, floor=0.001)
    conducts = []
    for fraction, requests in [(0.5, 0), (0.5, 1), (0.0, 1), (0.0, 0), (0.0, 1), (0.0, 0), (0.5, 1), (1.0, 0)]:
        if fraction != history.fraction:
            history.change(fraction)
        history.requests += requests
        history.begin()
        conducts.append(history.conduct.value)
    # The requests of the third period may have been sent before the agent knew that it was disallowed.
    assert conducts == ["unseen", "seen", "seen", "seen", "disobeys", "disobeys", "disobeys", "seen"]


def test_an_agent_that_may_be_several_disobeys_only_after_a_max_age():
    """One of two at an address was disallowed; the other may obey what it fetched before."""
    history = AgentHistory(0.5, floor=0.001, patience=3)
    history.begin()
    history.change(0.0)
    conducts = []
    for _ in range(5):
        history.requests += 1
        assert (history.demand, history.disobeying) == (0.0, 1.0)
        history.begin()
        conducts.append(history.conduct.value)
    # The first of these periods is not one in which it was disallowed all the time.
    assert conducts == ["seen", "seen", "seen", "seen", "disobeys"]


def test_first_period_of_an_agent_is_compared_with_none():
    """It began before the first fetch, so that only a part of its requests was counted."""
    history = AgentHistory(1.0, floor=0.001)
    for _ in range(3):
        history.requests += 1
        assert not history.is_comparable
        history.begin()
    assert history.is_comparable
