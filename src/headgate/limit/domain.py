"""Domains: a name, its rules, and whom they pass over.

This file knows nothing of histories or messages. "A domain can have zero or more rules; it will throttle a request if
any rule says it should be throttled" (smockron.txt, Definitions).
"""

import ipaddress
from dataclasses import dataclass, field
from typing import Literal

from headgate.errors import ConfigurationError
from headgate.limit.history import ALGORITHMS, AlgorithmName
from headgate.limit.rule import Rule

__all__ = ["Domain", "Mode"]

Mode = Literal["enforce", "shadow", "off"]

_MODES: tuple[Mode, ...] = ("enforce", "shadow", "off")
_MAX_NAME = 254

_LONG_LOG = 10_000
"""Timestamps of one identifier that cost little: 80 kB, and a microsecond for each request."""

_LONGEST_LOG = 1_000_000
"""Timestamps of one identifier that are still kept: 8 MB, and a tenth of a millisecond for each request."""

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True)
class Domain:
    """A group of resources limited together.

    Raises `ConfigurationError` for a name that cannot be a topic, an unknown algorithm or mode, a burst too great for
    the algorithm `log`, or an exempt entry with a slash that is no CIDR.
    """

    name: str
    """Its name: 1 to 254 bytes of UTF-8, without NUL (it is a frame of at most 255 bytes on the wire)."""
    rules: tuple[Rule, ...] = ()
    """The rules that all hold; none means that nothing is limited."""
    algorithm: AlgorithmName = "log"
    """How a history becomes a release time."""
    mode: Mode = "enforce"
    """`enforce`; `shadow`, which works everything out and publishes nothing; `off`, which only counts."""
    exempt: tuple[str, ...] = ()
    """Identifiers, and CIDRs of identifiers that are addresses, which no rule applies to."""
    _identifiers: frozenset[bytes] = field(init=False, repr=False, compare=False)
    _networks: tuple[Network, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        size = len(self.name.encode("utf-8", "surrogateescape"))
        if not 0 < size <= _MAX_NAME or "\0" in self.name:
            raise ConfigurationError(
                f"invalid domain name {self.name[:40]!r}; expected 1 to {_MAX_NAME} bytes of UTF-8 without NUL"
            )
        if self.algorithm not in ALGORITHMS:
            raise ConfigurationError(
                f"domain {self.name!r}: invalid algorithm {self.algorithm!r}; expected one of {', '.join(ALGORITHMS)}"
            )
        if self.mode not in _MODES:
            raise ConfigurationError(
                f"domain {self.name!r}: invalid mode {self.mode!r}; expected one of {', '.join(_MODES)}"
            )
        if self._log > _LONGEST_LOG:
            raise ConfigurationError(
                f"domain {self.name!r}: the algorithm log keeps {self._log} timestamps of each client, "
                f"{self._log * 8 // 1_000_000} MB; use algorithm gcra, or a burst of at most {_LONGEST_LOG}"
            )
        object.__setattr__(self, "_identifiers", frozenset(text.encode("utf-8") for text in self.exempt))
        object.__setattr__(self, "_networks", tuple(self._network(text) for text in self.exempt if "/" in text))

    def _network(self, text: str) -> Network:
        try:
            return ipaddress.ip_network(text)
        except ValueError as error:
            raise ConfigurationError(
                f"domain {self.name!r}: invalid exempt entry {text!r} ({error}); expected a CIDR such as '192.0.2.0/24'"
            ) from None

    @property
    def _log(self) -> int:
        """How many timestamps of one identifier are kept."""
        return max((rule.burst for rule in self.rules), default=0) if self.algorithm == "log" else 0

    @property
    def warning(self) -> str:
        """A sentence about rules that cost much; empty where they do not."""
        if self._log <= _LONG_LOG:
            return ""
        return (
            f"domain {self.name!r}: the algorithm log keeps {self._log} timestamps of each client, up to "
            f"{self._log * 8 // 1_000} kB, and moves them with each request; algorithm gcra keeps one number"
        )

    def exempts(self, identifier: bytes) -> bool:
        """Say whether no rule applies to `identifier`; one that is an address is looked up in the CIDRs too."""
        if identifier in self._identifiers:
            return True
        if not self._networks:
            return False
        try:
            # An identifier may be a whole network (IPv6 grouped by /64): it is exempt when all of it is.
            network = ipaddress.ip_network(identifier.decode("ascii"))
        except ValueError:
            return False
        return any(_within(network, exempt) for exempt in self._networks)


def _within(network: Network, exempt: Network) -> bool:
    if isinstance(network, ipaddress.IPv4Network):
        return isinstance(exempt, ipaddress.IPv4Network) and network.subnet_of(exempt)
    return isinstance(exempt, ipaddress.IPv6Network) and network.subnet_of(exempt)
