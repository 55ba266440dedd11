"""`headgate serve` and a polite transport together: the agent obeys the gate's responses."""

import math
import time
from contextlib import suppress

import httpx
import httpx2
import pytest

from headgate.agent import Courtesy, RetryLater
from headgate.agent.httpx import Client, Transport
from headgate.throttle import Policy, Throttle
from tests.e2e import programs
from tests.e2e.polite_origin import Answer, running

PROGRAM = Policy(jitter_factor=0)
CONFIGURATION = """
[gate]
origin = "{origin}"
identify = "header:X-Key"
max_delay = 0

[[domain]]
name = "default"
rules = ["1/s burst 3"]

[[advice]]
user_agent = "ExampleBot"
disallow = true

[[advice]]
user_agent = "*"
"""


@pytest.fixture
def origin():
    with running() as origin:
        yield origin


@pytest.fixture
def gate(tmp_path, origin):
    (tmp_path / "headgate.toml").write_text(CONFIGURATION.format(origin=origin.url))
    with programs.gate(tmp_path) as running:
        yield running


@pytest.mark.parametrize("library", [httpx2, httpx])
def test_an_agent_obeys_the_responses_of_a_gate(gate, origin, library):
    base = f"http://127.0.0.1:{gate.port}"

    def agent(name, policy=PROGRAM, **options):
        throttle = Throttle(policy, hold_localhost=True)
        transport = Transport(Courtesy(throttle=throttle, **options))
        return library.Client(transport=transport, headers={"X-Key": name}, base_url=base)

    def refused(client, path):
        before = gate.totals(), len(origin.asked)
        with pytest.raises(library.TransportError) as caught:
            client.get(path)
        assert isinstance(caught.value, RetryLater)
        assert (gate.totals(), len(origin.asked)) == before
        return caught.value

    # The gate says when nothing is left of the burst; until then nothing more reaches it.
    with agent("impatient") as client:
        assert [client.get("/").status_code for _ in range(3)] == [200] * 3
        held = refused(client, "/?again")
        assert (held.reason, held.target) == ("rate-limit", base)
        assert held.release_time == pytest.approx(time.time() + 3, abs=2)
        assert gate.totals() == (3, 0, 0)

    # One that may wait is never rejected.
    with agent("patient", wait=5) as client:
        assert [client.get("/").status_code for _ in range(4)] == [200] * 4
        assert gate.totals() == (3 + 4, 0, 0)

    # One that does not read these fields is rejected, and obeys the Retry-After.
    with agent("draft", policy=Policy.draft()) as client:
        assert [client.get("/").status_code for _ in range(4)] == [200, 200, 200, 503]
        held = refused(client, "/?again")
        assert (held.reason, held.target) == ("retry-after", f"{base}/*")

    # What the origin behind it says of its targets goes through the gate: they are held together,
    origin.say("/api/1", Answer(503, {"DDoS-Bucket-With": "/api"}))
    with agent("bucket") as client:
        assert [client.get("/api/1").status_code for _ in range(3)] == [503] * 3
        assert refused(client, "/api/2").target == f"{base}/api*"

    # or not at all; but the gate's own Retry-After, which comes next, holds even so.
    origin.say("/free", Answer(503, {"Exponential-Throttling": "disable"}))
    with agent("opted out", policy=Policy.draft()) as client:
        assert [client.get("/free").status_code for _ in range(4)] == [503] * 4
        assert len(origin.got("/free")) == 3
        assert refused(client, "/free").reason == "retry-after"

    # The gate's advice applies to the agents that it names only; the limit is independent of it.
    with agent("advised", identity=["ExampleBot", "*"]) as client:
        with pytest.raises(RetryLater) as caught:
            client.get("/advised")
        assert (caught.value.reason, caught.value.target) == ("advice_disallowed", base)
        assert 600 <= caught.value.release_time - time.time() < math.inf
    with agent("advised", identity=["OtherBot", "*"]) as client:
        assert [client.get("/advised").status_code for _ in range(3)] == [200] * 3
    assert len(origin.got("/advised")) == 3


def test_an_agent_with_two_addresses_obeys_what_a_gate_says_to_one(tmp_path, origin):
    with programs.gate(tmp_path, "--origin", origin.url, "--rule", "1/min burst 1", "--max-delay", "0") as gate:
        courtesy = Courtesy(throttle=Throttle(hold_localhost=True))
        one, other = (
            httpx2.Client(transport=Transport(courtesy, httpx2.HTTPTransport(local_address=address)))
            for address in ("127.0.0.2", "127.0.0.3")
        )
        url = f"http://127.0.0.1:{gate.port}/"
        with one, other:
            # The gate limits each address by itself, and the agent all of its addresses: it cannot know that the hold
            # is for one of them.
            assert one.get(url).status_code == 200
            with pytest.raises(RetryLater, match="held by its rate limit"):
                other.get(url)
        assert gate.totals() == (1, 0, 0)


def test_a_crawler_keeps_to_the_rule_of_a_gate(tmp_path, origin):
    """The rule is faster than a crawler would have it, so that the test is short."""
    rule = CONFIGURATION.replace("1/s burst 3", "4/s burst 4").replace('identify = "header:X-Key"\n', "")
    (tmp_path / "headgate.toml").write_text(rule.format(origin=origin.url).replace('"ExampleBot"', '"OtherBot"'))
    with programs.gate(tmp_path) as gate:
        pages = [f"http://127.0.0.1:{gate.port}/{number}" for number in range(14)]
        with Client(Courtesy("ExampleBot", throttle=Throttle(hold_localhost=True), wait=True)) as client:
            assert [client.get(page).status_code for page in pages] == [200] * 14
        rejected = gate.totals()[2]
        assert rejected <= 3
        with Client(Courtesy("ExampleBot", throttle=Throttle(hold_localhost=True))) as client:
            for page in pages:
                with suppress(RetryLater):
                    client.get(page)
        assert gate.totals()[2] - rejected <= 3
