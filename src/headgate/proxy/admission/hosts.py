"""Rules for the ports and hosts that a CONNECT may name, checked before anything is looked up.

A rule for a host includes its subdomains: `example.com` matches `www.example.com`, not `notexample.com`. A rule that
denies always wins. If any rule allows hosts, all others are refused.
"""

from collections.abc import Iterable

from headgate.errors import ConfigurationError
from headgate.proxy.admission.authority import HTTPS, Authority, parse_host
from headgate.proxy.refusal import Refusal


class HostRules:
    """Hosts to `allow` exclusively, hosts to `deny`, and `ports` beside 443.

    Raises `ConfigurationError` for an invalid host or port.
    """

    def __init__(self, *, allow: Iterable[str] = (), deny: Iterable[str] = (), ports: Iterable[int] = ()) -> None:
        self._allowed = frozenset(map(_rule, allow))
        self._denied = frozenset(map(_rule, deny))
        self._ports = frozenset({HTTPS, *ports})
        for port in self._ports:
            if not 1 <= port <= 65_535:
                raise ConfigurationError(f"invalid port {port}; expected 1 to 65535")

    def refusal(self, authority: Authority) -> Refusal | None:
        """Return the refusal of a target that these rules reject, or None."""
        if authority.port not in self._ports:
            return Refusal("port", f"port {authority.port} is not allowed")
        if _matches(self._denied, authority):
            return Refusal("host", f"{authority.name} is denied")
        if self._allowed and not _matches(self._allowed, authority):
            return Refusal("host", f"{authority.name} is not an allowed host")
        return None


def _matches(rules: frozenset[str], authority: Authority) -> bool:
    """Return whether a rule names the host or a parent domain; parts of an address match no rule."""
    name = authority.name if rules else ""
    while name and name not in rules:
        _, _, name = name.partition(".")
    return bool(name)


def _rule(text: str) -> str:
    host = parse_host(text.strip())
    if host is None or "*" in host:
        raise ConfigurationError(
            f"invalid host {text!r}; expected a name such as 'example.com', which includes its subdomains, or '[::1]'"
        )
    return host.strip("[]").removesuffix(".")
