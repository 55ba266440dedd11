"""Limits of tunnels."""

import math

import pytest

from headgate.proxy.connect import TunnelLimits


def test_only_idle_time_is_limited_by_default() -> None:
    assert TunnelLimits() == TunnelLimits(idle=300, max_seconds=math.inf, max_bytes=math.inf, byte_ratio=0)


@pytest.mark.parametrize(
    ("limits", "received", "sent", "sending", "why"),
    [
        (TunnelLimits(), 1 << 40, 1 << 40, True, None),
        (TunnelLimits(max_bytes=10), 4, 6, True, None),
        (TunnelLimits(max_bytes=10), 4, 7, True, "max_bytes"),
        (TunnelLimits(max_bytes=10), 5, 6, False, "max_bytes"),
        (TunnelLimits(byte_ratio=2), 0, 16_384, True, None),
        (TunnelLimits(byte_ratio=2), 100, 16_434, True, None),
        (TunnelLimits(byte_ratio=2), 100, 16_435, True, "byte_ratio"),
        (TunnelLimits(byte_ratio=2), 100, 16_435, False, None),
    ],
)
def test_exceeded_limits(limits: TunnelLimits, received: int, sent: int, sending: bool, why: str | None) -> None:
    assert limits.exceeded_by(received, sent, sending=sending) == why


@pytest.mark.parametrize(("passed", "most"), [(0, 10), (4, 6), (9, 1), (10, 1), (11, 1)])
def test_the_read_size_is_limited_and_never_zero(passed: int, most: int) -> None:
    assert TunnelLimits(max_bytes=10).read_size(passed, 1000) == most
    assert TunnelLimits(byte_ratio=1).read_size(passed, 1000) == 1000
