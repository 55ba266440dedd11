"""The pools of the origins: replaced at a reload, and lines about origins that fail."""

import asyncio
import errno

import pytest

from headgate.config.origin_section import OriginSection
from headgate.errors import ConfigurationError, ProtocolError
from headgate.origin.gateway.exchange import UpstreamConnection, UpstreamPool, UpstreamState
from headgate.origin.gateway.origins import Origins, client_tls
from tests.unit.origin.gateway.stub import StubTransport, make_context


def origins(*urls: str) -> Origins:
    context = make_context()
    context.now = 100.0
    return Origins([OriginSection(url=url) for url in urls], context)


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
    assert list(found.tick(100.0)) == ["warning: origin a:80: requests fail (unreachable 1)"]
    assert found._retired == [leaves]
    leaves.give_back(busy)  # the end of its exchange
    assert busy.state is UpstreamState.CLOSED
    assert list(found.tick(100.0)) == found._retired == []


def test_each_origin_has_at_most_one_line_in_an_interval_and_no_failure_is_left_out() -> None:
    found = origins("http://a", "http://b")
    a, b = found.pools

    def said(now: float, *failed: UpstreamPool, kind: str = "timeout") -> list[str]:
        for pool in failed:
            pool.fail(kind, "why")
        return [line.removeprefix("warning: origin ") for line in found.tick(now)]

    assert said(100.0) == []
    assert said(100.1, a, a, b) == ["a:80: requests fail (timeout 2)", "b:80: requests fail (timeout 1)"]
    assert said(100.2, a) == said(109.0, a) == []
    assert said(110.1) == ["a:80 has failed (timeout: why)"]
    a.health.succeed()
    assert said(111.0, b) == ["b:80: requests fail (timeout 1)"]
    assert said(120.2) == ["origin a:80 answers again"]
    assert said(121.1, b, kind="tls") == ["b:80 has failed (tls: why)"]


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
        with pytest.raises(ConfigurationError, match=rf"origin 'https://a': {value} cannot be used: .*; give PEM"):
            client_tls(OriginSection(url="https://a", **{key: value}))
    assert client_tls(OriginSection(url="http://a")) is None
    context = client_tls(OriginSection(url="https://a", verify=False))
    assert context is not None
    assert not context.check_hostname
