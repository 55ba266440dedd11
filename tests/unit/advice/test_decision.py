import msgspec

from headgate.advice import permits
from headgate.advice.cache import Fetch
from headgate.advice.decision import DRAW_PERIOD, Advice, sticky_draw
from headgate.advice.fetching import AdviceRequest
from headgate.advice.parser import UNREACHABLE, AdviceEntry
from headgate.release import ASAP
from tests.quotes import quotes

KEY = b"k" * 32
NOW = 2_833_334 * DRAW_PERIOD
HALF, DISALLOWED = AdviceEntry(fraction=0.5), AdviceEntry(disallowed=True)


@quotes(
    "traffic-advice 7",
    "Agents may implement this as they see fit, but the following algorithm is suggested on establishment"
    " of an HTTP connection on behalf of a client. 1. Choose a uniform random number r between 0 and 1. "
    "2. If r is less than or equal to the result's fraction, then the traffic is permitted by the "
    "fraction. 3. Otherwise, a connection is not established.",
)
def test_draw_up_to_the_fraction_is_permitted():
    for entry, draw, expected in (
        (AdviceEntry(), 0.0, True),
        (AdviceEntry(), 1.0, True),
        (HALF, 0.5, True),
        (HALF, 0.5000000001, False),
        (AdviceEntry(fraction=0.0), 0.0, True),
        (AdviceEntry(fraction=0.0), 5e-324, False),
        (DISALLOWED, 0.0, False),
        (AdviceEntry(disallowed=True, fraction=1.0), 0.0, False),
    ):
        assert permits(entry, draw) is expected, (entry, draw)


def test_sticky_draw_depends_on_key_client_origin_and_period():
    draws = [
        sticky_draw(KEY, b"192.0.2.1", "https://example.com", now=NOW),
        sticky_draw(b"j" * 32, b"192.0.2.1", "https://example.com", now=NOW),
        sticky_draw(KEY, b"192.0.2.2", "https://example.com", now=NOW),
        sticky_draw(KEY, b"192.0.2.1", "https://example.org", now=NOW),
        sticky_draw(KEY, b"192.0.2.1", "https://example.com", now=NOW + DRAW_PERIOD),
        # The same bytes, divided differently.
        sticky_draw(KEY, b"192.0.2.1h", "ttps://example.com", now=NOW),
        sticky_draw(KEY, b"192.0.2.1", "https://example.com28", now=33_334 * DRAW_PERIOD),
    ]
    assert len(set(draws)) == len(draws)
    assert sticky_draw(KEY, b"192.0.2.1", "https://example.com", now=NOW) == draws[0]


def test_sticky_draw_stays_the_same_for_ten_minutes():
    draws = [sticky_draw(KEY, b"192.0.2.1", "https://example.com", now=NOW + after) for after in range(-1, 601)]
    assert len(set(draws)) == 3
    assert len(set(draws[1:-1])) == 1


def test_sticky_draw_is_above_0_and_at_most_1(monkeypatch):
    for digest, draw in ((b"\0" * 32, 2.0**-53), (b"\xff" * 32, 1.0)):
        monkeypatch.setattr("headgate.advice.decision.hmac.digest", lambda *_, digest=digest: digest)
        assert sticky_draw(KEY, b"", "", now=0.0) == draw
        assert not permits(AdviceEntry(fraction=0.0), draw)
        assert permits(AdviceEntry(fraction=1.0), draw)


def advice(result, *, hold_until=ASAP, previous=None):
    return Advice("https://example.com", result, "", 1000.0, hold_until, previous)


def test_refused_traffic_is_released_when_the_advice_is_stale():
    for known, draw, release in (
        (advice(None), 1.0, ASAP),
        (advice(AdviceEntry()), 1.0, ASAP),
        (advice(DISALLOWED), 0.0, 1000.0),
        (advice(HALF), 0.5, ASAP),
        (advice(HALF), 0.51, 1000.0),
        (advice(UNREACHABLE), 1.0, ASAP),
        (advice(UNREACHABLE, hold_until=1000.0), 0.0, 1000.0),
        (advice(UNREACHABLE, previous=DISALLOWED), 0.0, 1000.0),
        (advice(UNREACHABLE, previous=HALF), 0.5, ASAP),
        (advice(UNREACHABLE, hold_until=1000.0, previous=HALF), 0.5, 1000.0),
    ):
        assert known.release_time(draw) == release, (known, draw)


def test_previous_entry_applies_only_while_the_origin_is_unreachable():
    assert advice(UNREACHABLE, previous=HALF).entry == HALF
    assert advice(UNREACHABLE).entry is None
    assert advice(None, previous=HALF).entry is None
    assert advice(DISALLOWED, previous=HALF).entry == DISALLOWED


def test_answers_can_be_sent_to_another_process():
    fetch = Fetch("https://example.com", AdviceRequest("https://example.com/x", (("Accept", "a"),)), 1.0)
    for answer in (*(advice(result, hold_until=1.0, previous=HALF) for result in (None, UNREACHABLE, HALF)), fetch):
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(answer), type=type(answer)) == answer
