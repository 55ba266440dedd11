"""The origins of a gateway: built from the configuration, replaced at a reload, checked, and closed at the end."""

import ssl
from collections.abc import Iterator, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, Final

from headgate.config.origin_section import OriginSection, OriginUrl
from headgate.errors import explaining
from headgate.origin.gateway.context import GatewayContext
from headgate.origin.gateway.exchange import MAX_IDLE_CONNECTIONS, UpstreamPool

_MIN_IDLE: Final = 8
_connection_settings = attrgetter("url", "ca", "server_name", "cert", "key", "verify")


class ClientTls(ssl.SSLContext):
    """TLS to an origin, which offers the last session to the next handshake."""

    session: ssl.SSLSession | None = None

    def wrap_bio(self, *arguments: Any, **named: Any) -> ssl.SSLObject:
        """Begin a connection: see `ssl.SSLContext`."""
        return super().wrap_bio(*arguments, **(named | {"session": self.session}))


def client_tls(origin: OriginSection) -> ClientTls | None:
    """Return the TLS settings of an https origin; raises `ConfigurationError` for files that cannot be used."""
    if OriginUrl.parse(origin.url).scheme != "https":
        return None
    context = ClientTls(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["http/1.1"])
    if not origin.verify:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    files = ", ".join(filter(None, (origin.ca, origin.cert, origin.key)))
    with explaining(f"origin {origin.url!r}: {files} cannot be used", "give PEM files that can be read"):
        if origin.ca:
            context.load_verify_locations(origin.ca)
        else:
            context.load_default_certs()
        if origin.cert:
            context.load_cert_chain(origin.cert, origin.key)
    return context


class Origins:
    """The pools of all origins, from which `context.balancer` chooses."""

    def __init__(self, sections: Sequence[OriginSection], context: GatewayContext) -> None:
        self._context = context
        self._retired: list[UpstreamPool] = []
        self.configure(sections, [client_tls(section) for section in sections])

    @property
    def pools(self) -> Sequence[UpstreamPool]:
        """The pools, in the order of the configuration."""
        return self._context.balancer.origins

    def configure(self, sections: Sequence[OriginSection], contexts: Sequence[ssl.SSLContext | None]) -> None:
        """Put other origins in force. Those that stay keep their connections; requests at the others end there."""
        known = {_connection_settings(pool.origin): pool for pool in self.pools}
        pools = []
        for section, tls in zip(sections, contexts, strict=True):
            pool = known.pop(_connection_settings(section), None)
            if pool is None:
                pool = UpstreamPool(section, self._context, tls)
            else:
                pool.configure(section, tls)
            pool.max_idle = max(_MIN_IDLE, MAX_IDLE_CONNECTIONS // len(sections))  # descriptors are shared
            pools.append(pool)
        self._context.balancer.replace(pools)
        self._retired += known.values()
        for pool in known.values():
            pool.retire()

    def tick(self, now: float) -> Iterator[str]:
        """Close idle connections and begin the checks that are due; yield lines about origins that fail."""
        self._retired = [pool for pool in self._retired if pool.open]
        for pool in chain(self.pools, self._retired):
            pool.tick(now)
        yield from filter(None, (pool.news(now) for pool in self.pools))

    def close(self) -> None:
        """Close every connection at once."""
        for pool in chain(self.pools, self._retired):
            pool.close()
