"""Writes a configuration of nginx with Lua, whose workers decide on requests by `headgate.lua`."""

from pathlib import Path
from typing import Final

from headgate.origin.sidecar.nginx_conf import nginx_configuration
from headgate.origin.sidecar.site import Site

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


def configuration(site: Site, module_folders: tuple[Path, ...] = MODULE_FOLDERS) -> str:
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
    return nginx_configuration(
        site, "nginx-lua", {"main": _load_modules(module_folders), "http": http, "server": server}
    )


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
