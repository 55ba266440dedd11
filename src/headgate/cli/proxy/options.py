"""What was asked for on the command line, laid over the file each time the file is read."""

from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final

from headgate.cli.config import configuration
from headgate.errors import ConfigurationError

if TYPE_CHECKING:
    from headgate.config.proxy import Proxy

__all__ = ["Wish", "require_way"]

_WAYS: Final[dict[str, dict[str, Any]]] = {
    "cert": {"self_signed": False, "plaintext": False},
    "self_signed": {"cert": "", "key": "", "plaintext": False},
    "plaintext": {"cert": "", "key": "", "self_signed": False},
}
"""The ways to listen, and what each that a flag names sets aside of the file's."""


@dataclass(frozen=True)
class Wish:
    """A file, if any is named, and the keys of [proxy] that flags name."""

    file: str | None = None
    flags: dict[str, Any] = field(default_factory=dict)

    def read(self) -> "tuple[Proxy, str | None]":
        """Read the file and lay the flags over it; give the table and the file's name, if there is one.

        On loopback, where a certificate is not given and nothing else is asked for, one is made.
        """
        from msgspec.structs import replace

        from headgate.config.reading import check

        tree, name = configuration(self.file)
        aside: dict[str, Any] = {}
        for way in _WAYS.keys() & self.flags.keys():
            aside |= _WAYS[way]
        proxy = replace(tree.proxy, **(aside | self.flags))
        check(replace(tree, proxy=proxy))
        if not _has_way(proxy) and _is_loopback(proxy.listen):
            proxy = replace(proxy, self_signed=True)
        return proxy, name


def require_way(proxy: "Proxy") -> None:
    """Raise `ConfigurationError` where it is not said how clients are listened to."""
    if not _has_way(proxy):
        raise ConfigurationError(
            "no certificate: add --cert F and --key F, or --self-signed to try it out; "
            "there is --plaintext for what ends TLS on this machine"
        )


def _has_way(proxy: "Proxy") -> bool:
    return bool(proxy.cert or proxy.self_signed or proxy.plaintext)


def _is_loopback(listen: str) -> bool:
    from headgate.config import Address

    host = Address.parse(listen).host
    try:
        return ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host == "localhost"
