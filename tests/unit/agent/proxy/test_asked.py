"""What crosses between a proxy's connections and its decisions."""

import math

from headgate.agent.proxy.asked import Asked, Limits


def test_a_field_is_given_when_it_is_the_only_one_of_its_name() -> None:
    asked = Asked(authority="a:443", peer=("127.0.0.1", 1), fields=[("host", "a"), ("x", "1"), ("x", "2")])
    assert asked.field("host") == "a"
    assert asked.field("x") is None
    assert asked.field("y") is None


def test_nothing_but_silence_is_limited_unless_it_is_asked_for() -> None:
    assert Limits() == Limits(idle=300, max_seconds=math.inf, max_bytes=math.inf, byte_ratio=0)
