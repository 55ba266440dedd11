"""What is known of an origin's advice, and what follows for one request."""

import msgspec
import pytest

from headgate.advice.cache import Fetch
from headgate.advice.decision import Advice
from headgate.advice.fetching import AdviceRequest
from headgate.advice.parser import UNREACHABLE, AdviceEntry, AdviceResult
from headgate.release import ASAP

HALF, NONE_WANTED = AdviceEntry(fraction=0.5), AdviceEntry(disallowed=True)


def advice(result: AdviceResult, *, hold_until: float = ASAP, previous: AdviceEntry | None = None) -> Advice:
    return Advice("https://example.com", result, "", 1000.0, hold_until, previous)


@pytest.mark.parametrize(
    ("known", "draw", "release"),
    [
        (advice(None), 1.0, ASAP),
        (advice(AdviceEntry()), 1.0, ASAP),
        (advice(NONE_WANTED), 0.0, 1000.0),
        (advice(HALF), 0.5, ASAP),
        (advice(HALF), 0.51, 1000.0),
        (advice(UNREACHABLE), 1.0, ASAP),
        (advice(UNREACHABLE, hold_until=1000.0), 0.0, 1000.0),
        (advice(UNREACHABLE, previous=NONE_WANTED), 0.0, 1000.0),
        (advice(UNREACHABLE, previous=HALF), 0.5, ASAP),
        (advice(UNREACHABLE, hold_until=1000.0, previous=HALF), 0.5, 1000.0),
    ],
)
def test_the_release_time_of_a_request(known: Advice, draw: float, release: float) -> None:
    assert known.release_time(draw) == release


def test_the_last_entry_stands_only_while_the_origin_is_unreachable() -> None:
    assert advice(UNREACHABLE, previous=HALF).entry == HALF
    assert advice(UNREACHABLE).entry is None
    assert advice(None, previous=HALF).entry is None
    assert advice(NONE_WANTED, previous=HALF).entry == NONE_WANTED


@pytest.mark.parametrize("result", [None, UNREACHABLE, HALF])
def test_answers_can_be_told_to_another_process(result: AdviceResult) -> None:
    known = advice(result, hold_until=1.0, previous=HALF)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(known), type=Advice) == known
    fetch = Fetch("https://example.com", AdviceRequest("https://example.com/x", (("Accept", "a"),)), 1.0)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(fetch), type=Fetch) == fetch
