"""Writes a whole configuration of nginx: one server with a listener and an origin, and what limits it.

With Lua, workers decide on requests by `headgate.lua`; without, nginx asks the sidecar by its module auth_request. The
file is made from the template `nginx.conf`, and what limits without Lua from `auth_request_http.conf` and
`auth_request_server.conf`, where `%name` stands for a text of the site: "$" begins a variable of nginx. It runs in the
foreground (``nginx -p FOLDER -c FILE``), as root and as an ordinary user.
"""

import re
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from string import Template
from typing import Final
from urllib.parse import quote

from headgate.errors import fail_if
from headgate.origin.identify import AGENT
from headgate.origin.sidecar.site import Site

_TEMPLATE: Final = Path(__file__).with_name("nginx.conf")
_USER: Final = """\
# Started by root, nginx runs its workers as another user, who cannot reach the socket in this folder.
user root;
"""
MODULE_FOLDERS: Final = (
    Path("/usr/lib/nginx/modules"),
    Path("/usr/lib64/nginx/modules"),
    Path("/usr/local/nginx/modules"),
    Path("/etc/nginx/modules"),
)
"""Where packages of nginx have their modules."""
LUA_MODULE: Final = "ngx_http_lua_module.so"
"""The file of nginx's Lua module."""
_MODULES: Final = ("ndk_http_module.so", LUA_MODULE)
_LUA: Final = Path(__file__).with_name("lua")
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
_WITH_SIGNATURE: Final = (
    "            # All fields: a signature may cover any. The sidecar needs [web_bot_auth] in its file.\n"
    "            proxy_set_header X-Headgate-Host $http_host;\n"
    "            proxy_set_header X-Headgate-Method $request_method;\n"
    "            proxy_set_header X-Headgate-Target $request_uri;\n"
)


def _configuration(site: Site, kind: str, parts: Mapping[str, str]) -> str:
    """Return the text of a file for nginx.

    `parts` has the lines at the places `warning`, `main`, `http` and `server` of the template. `kind` is the flag of
    the sidecar, without the hyphens.
    """
    places = dict.fromkeys(("warning", "main", "http", "server"), "") | dict(parts)
    if not is_reachable(Path(site.socket)):
        places["main"] = _USER + places["main"]
    return Template(_TEMPLATE.read_text("utf-8")).substitute(
        places, command=site.command(f"--{kind}", site.socket), listen=site.listen, origin=site.origin_address
    )


def is_reachable(path: Path) -> bool:
    """Return whether every user may pass through the folders of a path, as far as they exist."""
    for folder in path.absolute().parents:
        with suppress(OSError):
            if not folder.stat().st_mode & stat.S_IXOTH:
                return False
    return True


def lua_configuration(site: Site, module_folders: tuple[Path, ...] = MODULE_FOLDERS) -> str:
    """Return the text of a file for ``nginx -p FOLDER -c FILE``."""
    options = f"socket = {lua_string(site.socket)}"
    if site.identify is not None:
        method = "client-address" if site.header is None else f"header:{site.header}"
        options += f", identify = {lua_string(method)}"
    http = f"""
    # headgate: begin
    lua_shared_dict headgate 64m;  # about 400,000 held clients
    init_by_lua_block {{
        package.path = {lua_string(f"{_LUA}/?.lua;")} .. package.path
        require("headgate").configure({{ dictionary = "headgate", {options} }})
    }}
    init_worker_by_lua_block {{ require("headgate").start() }}
    # headgate: end
"""
    server = f"""
        # headgate: begin (in a server or location to limit)
        rewrite_by_lua_block {{ require("headgate").limit({lua_string(site.domain)}) }}
        lua_check_client_abort on;  # a delayed request ends when its client leaves
        # headgate: end
"""
    return _configuration(site, "nginx-lua", {"main": _load_modules(module_folders), "http": http, "server": server})


def lua_string(text: str) -> str:
    """Write a text as a string of Lua; nginx reads nothing in it but a string."""
    encoded = text.encode("utf-8", "surrogateescape")
    plain = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 ./_:;?-"
    return '"' + "".join(chr(byte) if byte in plain else f"\\{byte:03d}" for byte in encoded) + '"'


def _load_modules(folders: tuple[Path, ...]) -> str:
    """Write the lines that load the Lua module; nothing where it is part of nginx, as in OpenResty."""
    found = [folder for folder in folders if (folder / LUA_MODULE).exists()]
    if not found:
        return "# This nginx has Lua built in, or needs: load_module FOLDER/ngx_http_lua_module.so;\n"
    lines = [f"load_module {found[0] / name};\n" for name in _MODULES if (found[0] / name).exists()]
    return "# headgate: begin\n" + "".join(lines) + "# headgate: end\n"


class _NginxTemplate(Template):
    delimiter = "%"


def auth_request_configuration(site: Site) -> str:
    """Return the text of a file for ``nginx -p FOLDER -c FILE``.

    Raises `ConfigurationError`, which names the flag, for a header that nginx does not pass on.
    """
    by_agent = site.identify == AGENT
    header = None if by_agent else site.header
    fail_if(
        header is not None and not _HEADER.fullmatch(header),
        f"--identify: nginx ignores the header {header!r}; expected a name of letters, digits and hyphens",
    )
    method = AGENT if by_agent else "client-address" if header is None else f"header:{header}"
    socket = f"unix:{site.socket}".replace("\\", "\\\\").replace('"', '\\"')
    texts = {
        "socket": f'"{socket}"',
        "target": f"/check/{quote(site.domain, safe='')}?identify={method}",
        "fields": _WITH_SIGNATURE if by_agent else _WITHOUT_FIELDS if header is None else _WITH_FIELDS,
        "failures": _FAILURES,
    }
    parts = {
        place: _NginxTemplate(path.read_text("utf-8")).substitute(texts)
        for place, path in (("http", _HTTP), ("server", _SERVER))
    }
    return _configuration(site, "auth-request", {"warning": _WARNING} | parts)
