"""Writes a configuration of nginx without Lua, which asks the sidecar by its module auth_request.

What limits it is made from the templates `auth_request_http.conf` and `auth_request_server.conf`, where `%name` stands
for a text of the site: "$" begins a variable of nginx.
"""

import re
from pathlib import Path
from string import Template
from typing import Final
from urllib.parse import quote

from headgate.config import Address
from headgate.errors import ConfigurationError
from headgate.origin.sidecar.nginx_conf import nginx_configuration
from headgate.origin.sidecar.site import Site

_HTTP: Final = Path(__file__).with_name("auth_request_http.conf")
_SERVER: Final = Path(__file__).with_name("auth_request_server.conf")

_FAILURES: Final = "400 405 408 413 414 429 500 501 502 503 504"
"""Statuses that a sidecar that works does not answer with: the request is accepted."""

_HEADER: Final = re.compile(r"[a-z0-9-]+")

# A key has to fit into proxy_buffer_size: an answer for a longer value is stored under a key that is never looked up.
_KEY_MAP: Final = """\
    map $http_%name $headgate_key {
        default $http_%name;
        "~^.{2049}" $request_id;
    }
"""


class _NginxTemplate(Template):
    delimiter = "%"


def configuration(site: Site) -> str:
    """Return the text of a file for ``nginx -p FOLDER -c FILE``.

    If the site does not say how clients are identified, the sidecar decides. Raises `ConfigurationError`, which names
    the flag, for a header that nginx does not pass on.
    """
    header = site.header
    if header is not None and not _HEADER.fullmatch(header):
        raise ConfigurationError(
            f"--identify: nginx ignores the header {header!r}; expected a name of letters, digits and hyphens"
        )
    texts = {
        "socket": _quoted(f"unix:{site.socket}"),
        "listen": site.listen,
        "self": _own_address(site.listen),
        "target": _target(site),
        "key": "" if header is None else " $headgate_key",
        "key_map": "" if header is None else _NginxTemplate(_KEY_MAP).substitute(name=header.replace("-", "_")),
        "failures": _FAILURES,
    }
    parts = {
        place: _NginxTemplate(path.read_text("utf-8")).substitute(texts)
        for place, path in (("http", _HTTP), ("server", _SERVER))
    }
    return nginx_configuration(site, "auth-request", parts)


def _target(site: Site) -> str:
    """Return the target of a check: the domain, and how to identify clients if the site says it."""
    target = f"/check/{quote(site.domain, safe='')}"
    if site.identify is None:
        return target
    header = site.header
    return f"{target}?identify={'client-address' if header is None else f'header:{header}'}"


def _own_address(listen: Address) -> Address:
    """Return the address by which nginx reaches its own listener."""
    return Address({"*": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(listen.host, listen.host), listen.port)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
