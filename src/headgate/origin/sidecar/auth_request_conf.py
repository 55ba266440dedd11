"""Writes a configuration of nginx without Lua, which asks the sidecar by its module auth_request.

What limits it is made from the templates `auth_request_http.conf` and `auth_request_server.conf`, where `%name` stands
for a text of the site: "$" begins a variable of nginx.
"""

import re
from pathlib import Path
from string import Template
from typing import Final
from urllib.parse import quote

from headgate.errors import ConfigurationError
from headgate.origin.sidecar.nginx_conf import nginx_configuration
from headgate.origin.sidecar.site import Site

_HTTP: Final = Path(__file__).with_name("auth_request_http.conf")
_SERVER: Final = Path(__file__).with_name("auth_request_server.conf")

_FAILURES: Final = "400 405 408 413 414 429 500 501 502 503 504"
"""Statuses that a sidecar that works does not answer with: the request is accepted."""

_WARNING: Final = """\
# WARNING: auth_request opens each location that has "satisfy any": a request that is not rejected needs no password.
# Check your configuration, and write "auth_request off;" into each location that this finds:
#   nginx -T | grep -E "satisfy +any"
"""
_HEADER: Final = re.compile(r"[a-z0-9-]+")

_WITHOUT_FIELDS: Final = "            proxy_pass_request_headers off;\n"
_WITH_FIELDS: Final = (
    "            # All fields: only so the sidecar sees that the field which identifies is repeated.\n"
)


class _NginxTemplate(Template):
    delimiter = "%"


def configuration(site: Site) -> str:
    """Return the text of a file for ``nginx -p FOLDER -c FILE``.

    Raises `ConfigurationError`, which names the flag, for a header that nginx does not pass on.
    """
    header = site.header
    if header is not None and not _HEADER.fullmatch(header):
        raise ConfigurationError(
            f"--identify: nginx ignores the header {header!r}; expected a name of letters, digits and hyphens"
        )
    method = "client-address" if header is None else f"header:{header}"
    socket = f"unix:{site.socket}".replace("\\", "\\\\").replace('"', '\\"')
    texts = {
        "socket": f'"{socket}"',
        "target": f"/check/{quote(site.domain, safe='')}?identify={method}",
        "fields": _WITHOUT_FIELDS if header is None else _WITH_FIELDS,
        "failures": _FAILURES,
    }
    parts = {
        place: _NginxTemplate(path.read_text("utf-8")).substitute(texts)
        for place, path in (("http", _HTTP), ("server", _SERVER))
    }
    return nginx_configuration(site, "auth-request", {"warning": _WARNING} | parts)
