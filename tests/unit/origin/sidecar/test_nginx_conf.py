"""The configurations of nginx with and without Lua. Whether nginx accepts them is the matter of end-to-end tests."""

import pytest

from headgate.errors import ConfigurationError
from headgate.origin.sidecar.nginx_conf import (
    LUA_MODULE,
    auth_request_configuration,
    is_reachable,
    lua_configuration,
    lua_string,
)
from tests.unit.origin.sidecar.sites import site


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


def test_marks_without_lua():
    text = auth_request_configuration(site())
    assert text.count("# headgate: begin") == text.count("# headgate: end") == 2
    assert "%" not in text


def test_domain_and_socket_are_escaped():
    text = auth_request_configuration(site(domain='a b$x"{;é', socket='/tmp/a "b\\$c'))
    assert "http://headgate_sidecar/check/a%20b%24x%22%7B%3B%C3%A9?identify=client-address;" in text
    assert 'server "unix:/tmp/a \\"b\\\\$c" max_fails=1' in text


def test_only_what_the_sidecar_reads_is_sent():
    """A header that identifies is the exception: nginx cannot see that it is repeated."""
    text = auth_request_configuration(site(identify="client-address"))
    assert "/check/api?identify=client-address;" in text
    assert text.count("proxy_pass_request_headers off;") == 2
    text = auth_request_configuration(site(identify="header:X-Api-Key"))
    assert "/check/api?identify=header:x-api-key;" in text
    assert text.count("proxy_pass_request_headers off;") == 1


@pytest.mark.parametrize("name", ["X_Api_Key", "X.Key", "!"])
def test_header_that_nginx_does_not_pass_on_is_refused(name):
    with pytest.raises(ConfigurationError, match="--identify: nginx ignores the header"):
        auth_request_configuration(site(identify=f"header:{name}"))
