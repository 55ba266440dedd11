"""Which ports and which hosts a CONNECT may name, before anything is looked up.

A rule names a host and every name below it: `example.com` is for `www.example.com` too, and not for `notexample.com`.
A rule that denies wins, however near one is that allows; where any allow, all that none of them names is refused.
"""

from collections.abc import Iterable

from headgate.errors import ConfigurationError
from headgate.proxy.admission.authority import HTTPS, Authority, parse_host
from headgate.proxy.refusal import Refusal

__all__ = ["HostRules"]


class HostRules:
    """Hosts to `allow` alone, hosts to `deny`, and `ports` beside 443.

    Raises `ConfigurationError` for a rule that names no host, and for a port that is none.
    """

    def __init__(self, *, allow: Iterable[str] = (), deny: Iterable[str] = (), ports: Iterable[int] = ()) -> None:
        self._allowed = frozenset(map(_rule, allow))
        self._denied = frozenset(map(_rule, deny))
        self._ports = frozenset({HTTPS, *ports})
        for port in self._ports:
            if not 1 <= port <= 65_535:
                raise ConfigurationError(f"{port} is no port; ports are from 1 to 65535")

    def refusal(self, authority: Authority) -> Refusal | None:
        """Give the refusal of what these rules are against; None for what may be looked up."""
        if authority.port not in self._ports:
            return Refusal("port", f"port {authority.port} is not open")
        if _names(self._denied, authority):
            return Refusal("host", f"{authority.name} is denied")
        if self._allowed and not _names(self._allowed, authority):
            return Refusal("host", f"{authority.name} is not among what is allowed")
        return None


def _names(rules: frozenset[str], authority: Authority) -> bool:
    """Say whether one of the rules names a host, or a name it is below; the end of an address is no host's name."""
    name = authority.name if rules else ""
    while name and name not in rules:
        _, _, name = name.partition(".")
    return bool(name)


def _rule(text: str) -> str:
    host = parse_host(text.strip())
    if host is None or "*" in host:
        raise ConfigurationError(
            f"{text!r} is no host of a rule; try 'example.com', which is for every name below it too, or '[::1]'"
        )
    return host.strip("[]").removesuffix(".")
