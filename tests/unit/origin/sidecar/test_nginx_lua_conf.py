"""The configuration of nginx with Lua. Whether nginx accepts it is the matter of an end-to-end test."""

import pytest

from headgate.config import Address
from headgate.origin.sidecar.nginx_conf import LUA_MODULE, is_reachable, lua_configuration, lua_string
from headgate.origin.sidecar.site import Site


def site(**changes):
    return Site(
        **{
            "listen": Address("127.0.0.1", 8080),
            "origin": "http://127.0.0.1:8000",
            "domain": "api",
            "socket": "/run/headgate.sock",
        }
        | changes
    )


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("api", '"api"'),
        ('a"b\\c', '"a\\034b\\092c"'),
        ("}#$'\n", '"\\125\\035\\036\\039\\010"'),
        ("ü", '"\\195\\188"'),
        ("\udcff1", '"\\2551"'),
    ],
)
def test_a_text_cannot_end_its_string(text, written):
    assert lua_string(text) == written


def test_a_method_is_written_only_if_it_is_given():
    assert "identify" not in lua_configuration(site())
    assert 'identify = "client-address"' in lua_configuration(site(identify="client-address"))
    assert 'identify = "header:x-api-key"' in lua_configuration(site(identify="header:X-Api-Key"))


def test_modules_are_loaded_from_the_folder_that_has_them(tmp_path):
    nothing, only_lua, both = (tmp_path / name for name in ("nothing", "lua", "both"))
    for folder, names in ((nothing, ()), (only_lua, (LUA_MODULE,)), (both, ("ndk_http_module.so", LUA_MODULE))):
        folder.mkdir()
        for name in names:
            (folder / name).touch()
    text = lua_configuration(site(), (nothing, both, only_lua))
    assert f"load_module {both}/ndk_http_module.so;\nload_module {both}/{LUA_MODULE};\n" in text
    assert "ndk" not in lua_configuration(site(), (only_lua,))
    assert "\nload_module" not in lua_configuration(site(), (nothing,))


def test_workers_stay_root_only_if_others_cannot_reach_the_socket(tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    assert not is_reachable(closed / "headgate.sock")
    assert "user root;" in lua_configuration(site(socket=str(closed / "headgate.sock")))
    assert is_reachable(tmp_path.__class__("/tmp/headgate.sock"))
    assert "user root;" not in lua_configuration(site(socket="/tmp/headgate.sock"))
