"""The tables `[[origin]]`: the origins behind a gate, and how each is reached, chosen and checked."""

import re
from collections.abc import Sequence
from typing import Annotated, Final, NamedTuple
from urllib.parse import urlsplit

from msgspec import Meta

from headgate.config.section import (
    Address,
    ConfigSection,
    Count,
    File,
    Format,
    Seconds,
    check_socket_path,
    is_host,
)
from headgate.errors import ConfigurationError, fail_any, fail_if
from headgate.http.h1 import is_host_and_port

_PORTS: Final = {"http": 80, "https": 443}
_PATH: Final = re.compile(r"/[!-\"$->@-~]*")
"""A path without query and fragment."""
_DOT_SEGMENT: Final = re.compile(r"/\.{1,2}(/|$)")
_EXAMPLES: Final = "such as 'http://127.0.0.1:8000', 'https://app.example' or 'unix:/run/app.sock'"


class OriginUrl(NamedTuple):
    """The parts of the URL of an origin."""

    scheme: str
    """http, https or unix."""
    host: str
    """Name or address; `localhost` for a unix socket."""
    port: int = 0
    path: str = ""
    """What is put before the path of each request; does not end with a slash."""
    socket: str = ""
    """The path of a unix socket."""

    @classmethod
    def parse(cls, url: str) -> "OriginUrl":
        """Parse ``http://HOST:PORT/PREFIX``, ``https://…``, ``unix:/path`` or ``unix:/path:/PREFIX``.

        Raises `ConfigurationError` with the text and examples.
        """
        if url.startswith("unix:"):
            socket, _, path = url.removeprefix("unix:").partition(":/")
            check_socket_path(socket)
            return cls("unix", "localhost", path=_prefix(url, f"/{path}"), socket=socket)
        scheme, separator, _ = url.partition("://")
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            parts, port = urlsplit(""), None
        fail_if(
            not separator and _is_address(url),
            f"invalid origin {url!r}: the scheme is missing; expected 'http://{url}'",
        )
        # urlsplit drops tabs and line feeds without an error.
        invalid = any(one in "?#@ " or not one.isprintable() for one in url)
        if scheme not in _PORTS or not parts.hostname or not is_host(parts.hostname) or invalid or port == 0:
            raise ConfigurationError(f"invalid origin {url!r}; expected a URL {_EXAMPLES}")
        host = parts.hostname.encode("idna").decode()
        return cls(scheme, host, port or _PORTS[scheme], _prefix(url, parts.path or "/"))

    @property
    def authority(self) -> str:
        """The value of Host for a request without one."""
        return str(Address(self.host, self.port)) if self.port else self.host

    @property
    def name(self) -> str:
        """The name of the origin in logs and metrics: the URL without ``http://``."""
        if not self.socket:
            return self.authority + self.path
        return f"unix:{self.socket}:{self.path}" if self.path else f"unix:{self.socket}"


def _is_address(text: str) -> bool:
    host = text.partition("/")[0]
    return bool(host) and is_host_and_port(host.encode("utf-8", "replace"))


def _prefix(url: str, path: str) -> str:
    fail_if(
        not _PATH.fullmatch(path) or _DOT_SEGMENT.search(path),
        f"invalid path {path!r} in origin {url!r}; expected a plain one such as '/app'",
    )
    return path.rstrip("/")


class OriginSection(ConfigSection, frozen=True):
    """An origin that requests are forwarded to. Several share them; `gate.origin` is the short form of this list.

    SIGHUP changes the list; requests under way end where they are.
    """

    url: Annotated[str, Format("URL", OriginUrl.parse)]
    """http://HOST:PORT, https://HOST:PORT or unix:/path, each with an optional path that is put before that of each
    request, as in http://HOST:PORT/app or unix:/path:/app."""
    weight: Annotated[int, Meta(ge=1, le=1_000)] = 1
    """Share of requests, relative to the other origins."""
    backup: bool = False
    """Ask this origin only while the others have failed or are full."""
    max_in_flight: Count = 0
    """Maximum requests in flight per worker. Beyond it another origin is asked; if all are full, the request is
    answered 503. 0 for no limit."""
    host: str = "pass"
    """The value of Host: pass sends that of the client, any other text is sent instead."""
    ca: File = ""
    """Certificates that an https origin may be signed by, PEM, instead of those of the system."""
    server_name: str = ""
    """Name that the certificate of an https origin is checked for, also sent as SNI; empty for the host of `url`."""
    cert: File = ""
    """Client certificate chain for an https origin, PEM; needs `key`."""
    key: File = ""
    """Private key of the client certificate, PEM."""
    verify: bool = True
    """Whether the certificate of an https origin is checked. With false, each start and reload logs a warning: any host
    on the path to the origin can read and change all requests."""
    health: str = ""
    """Path that is fetched every `health_interval` seconds, such as /healthz. The origin has failed while the answer is
    not 2xx or 3xx. Empty disables it."""
    health_interval: Seconds = 5.0
    """Seconds between two of these checks, in each worker."""
    health_timeout: Seconds = 2.0
    """Seconds to wait for the answer to such a check."""
    max_failures: Count = 3
    """Failed requests within `failure_window`, without a successful one in between, after which the origin is left out
    for `failure_window`; then one request tries it. A response with any status is a success. 0 to ignore them."""
    failure_window: Seconds = 10.0
    """Seconds in which `max_failures` count, and for which the origin is left out."""


def check_origins(origins: Sequence[OriginSection]) -> None:
    """Raise `ConfigurationError` for keys of an origin that do not go together, and for an origin listed twice."""
    names: set[str] = set()
    default = OriginSection(url="http://a")
    for index, origin in enumerate(origins):
        where, url = f"origin[{index}]", OriginUrl.parse(origin.url)
        fail_if(url.name in names, f"{where}.url: {origin.url!r} is listed twice; use `weight` for a larger share")
        names.add(url.name)
        for name in ("ca", "server_name", "cert", "key", "verify"):
            fail_if(
                url.scheme != "https" and getattr(origin, name) != getattr(default, name),
                f"{where}.{name}: only for an https origin, got {origin.url!r}; expected https://… or no `{name}`",
            )
        fail_any(
            (bool(origin.cert) != bool(origin.key), f"{where}: a certificate needs its key; set `cert` and `key`"),
            (
                not origin.verify and (origin.ca or origin.server_name),
                f"{where}.verify: false checks nothing, but `ca` or `server_name` is set; remove one of them",
            ),
            (
                origin.host != "pass" and not is_host_and_port(origin.host.encode("utf-8", "replace")),
                f"{where}.host: invalid host {origin.host!r}; expected pass, or a name such as 'app.example'",
            ),
            (
                origin.health and not re.fullmatch(r"/[!-\"$-~]*", origin.health),
                f"{where}.health: invalid path {origin.health!r}; expected one such as '/healthz'",
            ),
        )
