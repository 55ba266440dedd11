"""From what a CONNECT names to where it may be dialled: looked up once, and every address checked.

What comes out is what is dialled, for advice and for the tunnel, and nothing looks the name up again: an answer that
changes between check and use does no harm. One forbidden address refuses the name, however many others it has.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from headgate.proxy.admission.authority import Authority
from headgate.proxy.admission.destinations import AddressRules
from headgate.proxy.admission.overrides import Overrides
from headgate.proxy.net.endpoint import Address, Endpoint
from headgate.proxy.refusal import Refusal

__all__ = ["Resolver"]

_MOST_SETTLED: Final = 1024
"""Authorities remembered, which are the clients' to name."""


class Resolver:
    """Resolves under `rules`; names that `overrides` have no entry for by `lookup`, which raises `Refusal`.

    `lookup` is given the name and the client that asks for it.
    """

    def __init__(
        self,
        rules: AddressRules,
        lookup: Callable[[str, bytes], Awaitable[Sequence[Address]]],
        *,
        overrides: Overrides | None = None,
    ) -> None:
        self._rules = rules
        self._lookup = lookup
        self._settled: dict[str, tuple[Endpoint, ...]] = {}
        self._overrides = overrides or Overrides()

    async def resolve(self, authority: Authority, client: bytes) -> tuple[Endpoint, ...]:
        """Give where an authority may be dialled, at least one; raises `Refusal` "address", and what the lookup does.

        Only a name that has to be looked up makes this wait.
        """
        settled = self._settled.get(authority.origin)
        if settled is not None:
            return settled
        endpoints = self._overrides.endpoints(authority)
        if authority.address is None and not endpoints:
            found = await self._lookup(authority.host, client)
            endpoints = tuple(Endpoint(address, authority.port) for address in found)
            self._check_all(authority, endpoints)
            return endpoints
        if authority.address is not None:
            itself = Endpoint(authority.address, authority.port)
            self._check(authority, itself)
            endpoints = endpoints or (itself,)
        self._check_all(authority, endpoints)
        self._settle(authority, endpoints)
        return endpoints

    def _settle(self, authority: Authority, endpoints: tuple[Endpoint, ...]) -> None:
        """Remember what nothing but the configuration says, as the addresses of this machine do not."""
        ports = {authority.port, *(endpoint.port for endpoint in endpoints)}
        if not any(map(self._rules.may_change, ports)):
            if len(self._settled) >= _MOST_SETTLED:
                self._settled.clear()
            self._settled[authority.origin] = endpoints

    def _check_all(self, authority: Authority, endpoints: Sequence[Endpoint]) -> None:
        for endpoint in endpoints:
            self._check(authority, endpoint)

    def _check(self, authority: Authority, endpoint: Endpoint) -> None:
        forbidden = self._rules.forbids(endpoint.address, endpoint.port)
        if forbidden is not None:
            raise Refusal("address", f"{authority} is at {endpoint.host}, which is {forbidden}")
