"""The pools of the origins: replaced at a reload, and lines about origins that fail."""

import asyncio
import errno
from functools import partial

import pytest

from headgate.config.origin_section import OriginSection
from headgate.config.tree import Timeouts
from headgate.errors import ConfigurationError, ProtocolError
from headgate.http.h1 import RequestLimits
from headgate.origin.gateway.exchange import UpstreamConnection, UpstreamPool, UpstreamState
from headgate.origin.gateway.origins import Origins, client_tls
from headgate.origin.gateway.record import GatewayCounters
from tests.unit.origin.gateway.stub import StubTransport


def origins(*urls: str) -> Origins:
    make_pool = partial(
        UpstreamPool, timeouts=Timeouts(), limits=RequestLimits(), counters=GatewayCounters(), clock=lambda: 100.0
    )
    return Origins([OriginSection(url=url) for url in urls], make_pool)


def connection(pool: UpstreamPool) -> UpstreamConnection:
    made = UpstreamConnection(pool)
    made.connection_made(StubTransport())
    return made


def test_a_reload_keeps_the_connections_of_origins_that_stay_and_lets_the_others_end() -> None:
    found = origins("http://a", "http://b")
    stays, leaves = found.pools
    kept, idle, busy = connection(stays), connection(leaves), connection(leaves)
    stays.give_back(kept)
    leaves.give_back(idle)
    stays.fail("unreachable", "refused")
    found.configure([OriginSection(url="http://a", weight=3, host="c"), OriginSection(url="https://b")], [None, None])
    assert found.pools[0] is stays
    assert found.pools[1] is not leaves
    assert (stays.health.weight, stays.health.failures, stays.rewrite is not None) == (3, 1, True)
    assert (kept.state, idle.state, busy.state) == (UpstreamState.IDLE, UpstreamState.CLOSED, UpstreamState.IDLE)
    assert list(found.tick(100.0)) == []
    assert found._retired == [leaves]
    leaves.give_back(busy)  # the end of its exchange
    assert busy.state is UpstreamState.CLOSED
    assert list(found.tick(100.0)) == found._retired == []


def test_a_change_is_one_line_and_changes_that_follow_fast_are_one_more_later() -> None:
    found = origins("http://a")
    (pool,) = found.pools
    lines = []
    for now in (100.0, 100.1, 100.2, 100.3, 109.0, 110.0, 110.1):
        if now == 100.2:
            pool.health.succeed()
        elif now < 101:
            pool.fail("tls", "certificate has expired")
        lines += [(now, line) for line in found.tick(now)]
    assert lines == [(100.0, "warning: origin a:80 has failed (tls: certificate has expired)")]
    pool.health.succeed()
    assert list(found.tick(111.0)) == ["origin a:80 answers again"]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(errno.EMFILE, "Too many open files"), ""),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), "/ok: Connection refused"),
        (TimeoutError(), "/ok: no answer within 2 s"),
        (ProtocolError(502, "no status"), "/ok: no status"),
    ],
)
async def test_a_check_that_fails_is_the_failure_of_the_origin_unless_descriptors_are_missing(
    error: Exception, reason: str
) -> None:
    async def connect() -> UpstreamConnection:
        raise error

    found = origins()
    found.configure([OriginSection(url="http://a", health="/ok")], [None])
    (pool,) = found.pools
    pool.connect = connect  # type: ignore[method-assign]  # no socket
    for now in (100.0, 101.0):
        assert list(found.tick(now)) == (
            [f"warning: origin a:80 has failed ({reason})"] if reason and now > 100 else []
        )
        await asyncio.sleep(0)
    assert (pool.health.release, pool.failure) == (112.0 if reason else 0.0, reason)


def test_files_that_cannot_be_used_are_an_error_that_names_them() -> None:
    for key, value in (("ca", "/none.pem"), ("ca", __file__)):
        with pytest.raises(ConfigurationError, match=rf"origin 'https://a': {value} cannot be used \(.*\); give PEM"):
            client_tls(OriginSection(url="https://a", **{key: value}))
    assert client_tls(OriginSection(url="http://a")) is None
    context = client_tls(OriginSection(url="https://a", verify=False))
    assert context is not None
    assert not context.check_hostname
