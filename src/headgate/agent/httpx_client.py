"""Polite clients: `httpx2.Client` and `AsyncClient`, or httpx's where only that is installed, as classes.

They are in `headgate.agent.httpx`, which imports this module when they are asked for. A client with a given transport
does not use the proxies of the environment, so the transports are made here from the client's options.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.request import getproxies

from headgate.agent.courtesy import Courtesy
from headgate.agent.httpx_library import default_library
from headgate.agent.httpx_transport import AsyncTransport, Transport

if TYPE_CHECKING:
    import httpx2 as library
else:
    library = default_library("headgate.agent.httpx.Client")

_NETWORK: Final = ("http1", "http2", "limits")
_TIMEOUT: Final = 5.0
"""Seconds, the libraries' own default."""
_READ_TIMEOUT: Final = 15.0
"""Seconds without a byte of a response: a gate delays requests by five seconds, which is the libraries' default."""
_is_address: Final = re.compile(r"localhost|[0-9.]+").fullmatch


class Client(library.Client):
    """An `httpx2.Client` whose requests go through `courtesy`.

    In its place, an identity such as `"ExampleBot"` stands for `Courtesy("ExampleBot")`, and None for `Courtesy()`. The
    `options` are those of the client: `verify`, `proxy`, `mounts`, `timeout` and so on. It also uses the proxies that
    the environment names, as the library does. Its default timeout for reading is 15 seconds.
    """

    def __init__(self, courtesy: Courtesy | Iterable[str] | None = None, **options: Any) -> None:
        super().__init__(**_polite(courtesy, options, Transport, library.HTTPTransport))


class AsyncClient(library.AsyncClient):
    """The same for asyncio and trio."""

    def __init__(self, courtesy: Courtesy | Iterable[str] | None = None, **options: Any) -> None:
        super().__init__(**_polite(courtesy, options, AsyncTransport, library.AsyncHTTPTransport))


def _polite(
    courtesy: Courtesy | Iterable[str] | None,
    options: dict[str, Any],
    polite: Callable[..., Any],
    own: Callable[..., Any],
) -> dict[str, Any]:
    """Return the options with polite transports in place of those that make the client's own."""
    options = {"timeout": library.Timeout(_TIMEOUT, read=_READ_TIMEOUT), **options}
    shared = courtesy if isinstance(courtesy, Courtesy) else Courtesy(courtesy)
    trust_env, given = options.get("trust_env", True), options.pop("transport", None)
    proxy, mounts = options.pop("proxy", None), options.pop("mounts", None) or {}
    tls = library.create_ssl_context(options.pop("verify", True), options.pop("cert", None), trust_env)
    network = {name: options.pop(name) for name in _NETWORK if name in options}

    def make(url: Any = None) -> Any:
        return polite(shared, own(verify=tls, trust_env=trust_env, proxy=url, **network))

    proxies: Mapping[str, Any] = {"all://": proxy} if proxy is not None else {}
    if proxy is None and given is None and trust_env:
        proxies = _environment_proxies()
    made = {pattern: None if url is None else make(url) for pattern, url in proxies.items()}
    made |= {pattern: None if inner is None else polite(shared, inner) for pattern, inner in mounts.items()}
    return {**options, "transport": make() if given is None else polite(shared, given), "mounts": made}


def _environment_proxies() -> dict[str, str | None]:
    """Return the proxies of the environment by URL pattern; None for the hosts of NO_PROXY."""
    found = getproxies()
    hosts = [host for host in map(str.strip, found.get("no", "").split(",")) if host and "/" not in host]
    if "*" in hosts:
        return {}
    urls = [(scheme, found.get(scheme, "")) for scheme in ("http", "https", "all")]
    proxies = {f"{scheme}://": url if "://" in url else f"http://{url}" for scheme, url in urls if url}
    return {**proxies, **{_pattern(host): None for host in hosts}}


def _pattern(host: str) -> str:
    if host.count(":") > 1:
        return f"all://[{host.strip('[]')}]"
    return f"all://{host}" if _is_address(host.partition(":")[0]) or host.startswith("*") else f"all://*{host}"
