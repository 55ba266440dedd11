"""What a generated configuration of a server is for: a listener, an origin, a domain, and where the sidecar is.

The texts become part of a configuration file: what could end a line of it is refused here, whatever the file's syntax.
Each writer escapes the rest by its own syntax.
"""

import re
import shlex
from contextlib import suppress
from dataclasses import dataclass

from headgate.config import Address
from headgate.config.origin_section import OriginUrl
from headgate.config.section import check_socket_path
from headgate.errors import ConfigurationError, fail_if, naming
from headgate.limit import Accounting
from headgate.origin.identify import AGENT, Header, parse_identify
from headgate.origin.response import Rejections, Response
from headgate.release import Status

_HOST = re.compile(r"[A-Za-z0-9_:-]([A-Za-z0-9._:-]*[A-Za-z0-9_:-])?\.?")
_EVERY_ADDRESS = "*"
_SECONDS = 987_654_321_987
"""Stands for the seconds in a rejection; no name has it."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


@dataclass(frozen=True, kw_only=True)
class Site:
    """One server to configure. Raises `ConfigurationError`, which names the flag, for an invalid value."""

    listen: Address
    """Where the server listens."""
    origin: str
    """The URL of the origin, http://HOST:PORT."""
    domain: str
    """The name of the domain; any characters but control characters."""
    socket: str = ""
    """The unix socket of the sidecar, or of HAProxy; empty if the server has none."""
    table: str = ""
    """The stick table of HAProxy that has the holds; empty for other servers."""
    max_hold: float = 3_600.0
    """Seconds of the longest hold."""
    rlqs: Address | None = None
    """Where the rate limit quota service is; None for servers without one."""
    identify: str | None = None
    """How the server itself identifies clients; None leaves that to the sidecar."""
    ipv6_prefix: int = 64
    """Bits of an IPv6 address that form an identifier."""
    rejection_status: int = 503
    """The status of rejections."""
    rejections: Rejections | None = None
    """What writes rejections by the rules of the domain, with this status; None if the rules are not known."""

    def __post_init__(self) -> None:
        with naming("--origin"):
            origin = self.origin_address
        with naming("--identify"):
            _ = self.identify != AGENT and self.header  # only some servers have agents verified
        fail_if(not self.listen.port, "--listen: the server needs a port, got 0; expected one such as 127.0.0.1:8080")
        hosts = [("--origin", origin.host), ("--rlqs", self.rlqs.host if self.rlqs is not None else None)]
        for flag, host in (*hosts, ("--listen", None if self.listen.host == _EVERY_ADDRESS else self.listen.host)):
            fail_if(
                host is not None and not _HOST.fullmatch(host),
                f"{flag}: invalid host {host!r}; expected a name or an address, such as '127.0.0.1'",
            )
        fail_if(not self.domain, "--domain: the name is empty; expected one such as 'api'")
        for flag, text in (("--domain", self.domain), ("--socket", self.socket), ("--table", self.table)):
            if found := _CONTROL.search(text):
                raise ConfigurationError(
                    f"{flag}: {text!r} contains the character {found[0]!r}; expected a text without control characters"
                )
        if self.socket:
            with naming("--socket"):
                check_socket_path(self.socket)

    @property
    def origin_address(self) -> Address:
        """The host and port of the origin."""
        with suppress(ConfigurationError):
            url = OriginUrl.parse(self.origin)
            if url.scheme == "http" and not url.path:
                return Address(url.host, url.port)
        raise ConfigurationError(
            f"invalid origin {self.origin!r}; expected http://HOST:PORT, such as 'http://127.0.0.1:8000'"
        )

    @property
    def header(self) -> str | None:
        """The header that identifies clients, in lower case; None for their address."""
        identify = parse_identify("client-address" if self.identify is None else self.identify)
        return identify.name.decode() if isinstance(identify, Header) else None

    def command(self, *options: str) -> str:
        """Return the command that starts the sidecar, with these options."""
        return shlex.join(["headgate", "sidecar", "--master", "HOST:PORT", "--domain", self.domain, *options])


def rejection_template(rejections: Rejections, domain: str, accept: bytes | None, *, mark: bytes) -> Response:
    """Return the rejection in `domain` for a value of Accept, for a server that writes its own.

    It has a mark in place of the seconds, and no Content-Length.
    """
    rejected = Accounting(domain, Status.REJECTED, b"", 0.0, float(_SECONDS))
    response, seconds = rejections(rejected, now=0.0, accept=accept), b"%d" % _SECONDS
    marked = [(name, value.replace(seconds, mark)) for name, value in response.fields if name != b"content-length"]
    return Response(response.status, marked, response.body.replace(seconds, mark))
