"""Domains: a name, its rules, and the identifiers exempt from them.

This module knows neither histories nor messages. "A domain can have zero or more rules; it will throttle a request if
any rule says it should be throttled" (smockron.txt, Definitions).
"""

import ipaddress
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from headgate.errors import ConfigurationError, explaining, fail_if
from headgate.limit.history import ALGORITHMS, AlgorithmName
from headgate.limit.messages import header_identifier
from headgate.limit.rule import Rule

Mode = Literal["enforce", "shadow", "off"]

_MODES: tuple[Mode, ...] = ("enforce", "shadow", "off")
MAX_NAME = 254
"""Maximum bytes of the name of a domain."""

_WARNING_SIZE = 10_000
"""Timestamps of one identifier without a warning: 80 kB, and a microsecond per request."""

_MAX_SIZE = 1_000_000
"""Maximum timestamps of one identifier: 8 MB, and a tenth of a millisecond per request."""

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True)
class Domain:
    """A group of resources limited together.

    Raises `ConfigurationError` for a name that cannot be a topic, rules that are not a tuple of `Rule`, an unknown
    algorithm or mode, a burst too large for the algorithm `log`, or an exempt entry with a slash that is not a CIDR.
    """

    name: str
    """Its name: 1 to 254 bytes of UTF-8, without NUL (it is a frame of at most 255 bytes on the wire)."""
    rules: tuple[Rule, ...] = ()
    """The rules; all of them apply. Without rules, nothing is limited."""
    algorithm: AlgorithmName = "gcra"
    """How the history of an identifier is stored and evaluated."""
    mode: Mode = "enforce"
    """`enforce`; `shadow` computes release times without publishing them; `off` only counts requests."""
    exempt: tuple[str, ...] = ()
    """Identifiers that no rule applies to: addresses, CIDRs (with a slash), or values of the header that identifies."""
    _identifiers: frozenset[bytes] = field(init=False, repr=False, compare=False)
    _networks: tuple[Network, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check_name(self.name)
        object.__setattr__(self, "rules", self._entries("rules", Rule, "(Rule.parse('10/s burst 20'),)"))
        object.__setattr__(self, "exempt", self._entries("exempt", str, "('192.0.2.0/24',)"))
        fail_if(
            self.algorithm not in ALGORITHMS,
            f"domain {self.name!r}: invalid algorithm {self.algorithm!r}; expected one of {', '.join(ALGORITHMS)}",
        )
        fail_if(
            self.mode not in _MODES,
            f"domain {self.name!r}: invalid mode {self.mode!r}; expected one of {', '.join(_MODES)}",
        )
        fail_if(
            self._history_size > _MAX_SIZE,
            f"domain {self.name!r}: the algorithm log stores {self._history_size} timestamps of each client, "
            f"{self._history_size * 8 // 1_000_000} MB; use algorithm gcra, or a burst of at most {_MAX_SIZE}",
        )
        object.__setattr__(self, "_identifiers", frozenset(_exempted(self.exempt)))
        object.__setattr__(self, "_networks", tuple(self._network(text) for text in self.exempt if "/" in text))

    def _entries(self, name: str, kind: type, example: str) -> tuple[object, ...]:
        """Return the value of a field, which may be a list, as a tuple; raises `ConfigurationError` for other types."""
        given = getattr(self, name)
        entries = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else (None,)
        fail_if(
            not all(isinstance(entry, kind) for entry in entries),
            f"domain {self.name!r}: {name} must be a tuple such as {example}, got {given!r:.80}",
        )
        return entries

    def _network(self, text: str) -> Network:
        with explaining(f"domain {self.name!r}: invalid exempt entry", "expected a CIDR such as '192.0.2.0/24'"):
            return ipaddress.ip_network(text)

    @property
    def window(self) -> float:
        """The seconds after which a request has no effect: the longest burst/rate of the rules, 0.0 without rules."""
        return max((rule.window for rule in self.rules), default=0.0)

    @property
    def _history_size(self) -> int:
        """The number of timestamps stored for one identifier."""
        return max((rule.burst for rule in self.rules), default=0) if self.algorithm == "log" else 0

    def warnings(self, *, shared: bool) -> Iterator[str]:
        """Yield a warning about rules that need much memory, and one about rules that cannot be `shared` as they are.

        They are shared by several gatekeepers.
        """
        if self._history_size > _WARNING_SIZE:
            yield (
                f"domain {self.name!r}: the algorithm log stores {self._history_size} timestamps of each client, up to "
                f"{self._history_size * 8 // 1_000} kB, and moves them with each request; algorithm gcra stores one "
                "number"
            )
        if shared and self._history_size:
            yield (
                f"domain {self.name!r}: with the algorithm log, several gatekeepers or workers admit a multiple "
                "of the rule; use algorithm gcra"
            )

    def exempts(self, identifier: bytes) -> bool:
        """Return whether no rule applies to `identifier`. An address is also compared with the CIDRs."""
        if identifier in self._identifiers:
            return True
        if not self._networks:
            return False
        try:
            # An identifier may be a network (IPv6 grouped by /64): it is exempt if the whole network is.
            network = ipaddress.ip_network(identifier.decode("ascii"))
        except ValueError:
            return False
        return any(_within(network, exempt) for exempt in self._networks)


def check_domains(domains: Iterable[object]) -> Iterator[Domain]:
    """Yield the domains; raises `ConfigurationError` for what is not a list of them."""
    for domain in domains if isinstance(domains, Iterable) else (None,):
        if not isinstance(domain, Domain):
            raise ConfigurationError(f"expected a list of Domain, such as [Domain('api', …)], got {domains!r:.80}")
        yield domain


def _check_name(name: object) -> None:
    fail_if(
        not isinstance(name, str) or not 0 < len(name.encode("utf-8", "surrogateescape")) <= MAX_NAME or "\0" in name,
        f"invalid domain name {name!r:.42}; expected 1 to {MAX_NAME} bytes of UTF-8 without NUL",
    )


def _exempted(entries: Iterable[str]) -> Iterator[bytes]:
    """Yield the identifiers that the entries name; one that is an address is not the value of a header."""
    for entry in entries:
        value = entry.encode("utf-8")
        yield value
        try:
            ipaddress.ip_network(entry)
        except ValueError:
            yield from (header_identifier(name, value) for name in (b"", b"authorization"))


def _within(network: Network, exempt: Network) -> bool:
    if isinstance(network, ipaddress.IPv4Network):
        return isinstance(exempt, ipaddress.IPv4Network) and network.subnet_of(exempt)
    return isinstance(exempt, ipaddress.IPv6Network) and network.subnet_of(exempt)
