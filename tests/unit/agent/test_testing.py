import requests

from headgate.agent import Courtesy
from headgate.agent.requests import Adapter
from headgate.agent.testing import Clock, scripted
from tests.e2e.polite_origin import Answer, running


def test_nothing_sleeps_and_no_advice_is_fetched():
    courtesy = Courtesy("ExampleBot", retry=2, rate="1/h", wait=True)
    with running() as origin, requests.Session() as session:
        session.mount("http://", Adapter(courtesy))
        origin.say("/", Answer(503, {"Retry-After": "7200"}), 503, 200)
        with scripted(courtesy, Clock(1000.0)) as clock:
            assert session.get(origin.url).status_code == 200
            assert clock.waited == clock.now - 1000.0 >= 7200 + 3600
        assert [asked.path for asked in origin.asked] == ["/"] * 3
        session.get(f"{origin.url}/other", timeout=10)  # an hour later only by the clock of the test
        assert "/.well-known/traffic-advice" in [asked.path for asked in origin.asked]
