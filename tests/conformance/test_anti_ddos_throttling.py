"""What anti-ddos-throttling.txt says of many agents together, and of attackers; its rules are proved by unit tests."""

import random

from headgate.throttle import Policy, Throttle
from tests.quotes import quotes

NOW = 1_763_683_200.0
HOST = "http://www.example.com"
AGENTS = 200


def overload(*, capacity: int, polite: int = AGENTS, seconds: int = 180) -> list[int]:
    """Return the requests in each second of agents that want one a second; the first `polite` obey a throttle."""
    chance, history = random.Random(1), []
    throttles = [Throttle(Policy.draft(), draw=random.Random(number).random) for number in range(AGENTS)]
    for second in range(seconds):
        now = NOW + second
        senders = [
            throttle
            for number, throttle in enumerate(throttles)
            if number >= polite or throttle.release_time(HOST, now=now) <= now
        ]
        chance.shuffle(senders)
        for rank, throttle in enumerate(senders):
            throttle.response_received(HOST, 200 if rank < capacity else 503, {}, now=now)
        history.append(len(senders))
    return history


@quotes(
    "anti-ddos-throttling 1",
    "This causes the aggregate traffic from a multitude of User-Agents that have this mechanism to decrease to a level"
    " the web server can sustain.",
)
@quotes(
    "anti-ddos-throttling 4",
    "Backing off exponentially, with some randomization to avoid large numbers of clients retrying at the same time,"
    " causes the aggregate traffic of clients to fairly quickly decrease to the threshold where the web server is not"
    " overloaded, or only slightly overloaded, and so is able to mostly stop responding with 5xx status codes.",
)
def test_the_aggregate_traffic_decreases():
    sent = overload(capacity=10, seconds=600)
    assert sent[0] == AGENTS
    assert sum(sent[60:120]) / 60 < 3 * 10
    assert sum(sent[-60:]) / 60 < 2.1 * 10


@quotes(
    "anti-ddos-throttling 4",
    "However, it is important that a large percentage of clients perform exponential backoff, and for this reason we"
    " hope that other browser projects will adopt the mechanism.",
)
def test_a_large_percentage_is_needed():
    saved = {polite: AGENTS - overload(capacity=50, polite=polite)[-1] for polite in (20, 180, 200)}
    assert saved[180] > 0.8 * saved[200]
    assert saved[20] < 0.3 * saved[200]


@quotes("anti-ddos-throttling 4", 'with opt-in via the "DDoS-Bucket-With" header, all are mitigated.')
def test_crafted_urls_are_one_target_with_a_bucket():
    throttle = Throttle(Policy.draft())
    for number in range(4):
        throttle.response_received(f"{HOST}/{number}", 503, {}, now=NOW)
        throttle.response_received(f"http://b.example/{number}", 503, {"DDoS-Bucket-With": "/"}, now=NOW)
    held = [throttle.release_time(f"{host}/new", now=NOW) > NOW for host in (HOST, "http://b.example")]
    assert held == [False, True]


@quotes(
    "anti-ddos-throttling 8",
    "To fool the mechanism in this way, the attacker would need to be able to modify HTTP responses coming from the web"
    " server.",
)
def test_only_responses_of_the_server_hold_it():
    throttle, chance = Throttle(Policy.draft()), random.Random(7)
    origins = ["http://attacker.example", "https://www.example.com", f"{HOST}:81", "http://example.com"]
    values = [HOST, f"{HOST}/x", "/", "/x", "//www.example.com/x", "www.example.com"]
    for _ in range(3_000):
        url = chance.choice(origins) + chance.choice(["/x", "/", f"/{HOST}/x", "/x/../x"])
        fields = {"DDoS-Bucket-With": chance.choice(values), "Host": "www.example.com", "Location": f"{HOST}/x"}
        fields["Retry-After"] = "999999"
        throttle.response_received(url, chance.choice([200, 301, 500, 503]), fields, now=NOW)
    assert all(throttle.release_time(f"{origin}/x", now=NOW) > NOW for origin in origins)
    assert all(throttle.release_time(url, now=NOW) <= NOW for url in (f"{HOST}/x", f"{HOST}/"))
