"""The configuration of nginx without Lua."""

import pytest

from headgate.config import Address
from headgate.errors import ConfigurationError
from headgate.origin.sidecar.auth_request_conf import configuration
from headgate.origin.sidecar.site import Site


def written(**values):
    site = {
        "listen": Address("127.0.0.1", 8080),
        "origin": "http://127.0.0.1:8000",
        "domain": "api",
        "socket": "/run/headgate.sock",
    }
    return configuration(Site(**(site | values)))


def test_marks():
    text = written()
    assert text.count("# headgate: begin") == text.count("# headgate: end") == 2
    assert "%" not in text


@pytest.mark.parametrize(
    ("host", "own"),
    [("0.0.0.0", "127.0.0.1"), ("*", "127.0.0.1"), ("::", "[::1]"), ("192.0.2.1", "192.0.2.1"), ("::1", "[::1]")],
)
def test_nginx_reaches_its_own_listener(host, own):
    text = written(listen=Address(host, 8080))
    assert f"server {own}:8080 backup;" in text


def test_domain_and_socket_are_escaped():
    text = written(domain='a b$x"{;é', socket='/tmp/a "b\\$c')
    assert "http://headgate_sidecar/check/a%20b%24x%22%7B%3B%C3%A9;" in text
    assert 'proxy_set_header X-Headgate-Target "/check/a%20b%24x%22%7B%3B%C3%A9";' in text
    assert 'server "unix:/tmp/a \\"b\\\\$c" max_fails=1' in text


def test_the_sidecar_identifies_unless_the_site_does():
    text = written()
    assert "/check/api;" in text
    assert "identify" not in text


def test_client_address():
    assert "/check/api?identify=client-address;" in written(identify="client-address")


def test_header():
    text = written(identify="header:X-Api-Key")
    assert "/check/api?identify=header:x-api-key;" in text
    assert "map $http_x_api_key $headgate_key {" in text
    assert text.count('$headgate_key";') == 2


@pytest.mark.parametrize("name", ["X_Api_Key", "X.Key", "!"])
def test_header_that_nginx_does_not_pass_on_is_refused(name):
    with pytest.raises(ConfigurationError, match="--identify: nginx ignores the header"):
        written(identify=f"header:{name}")


def test_port_0_is_refused():
    with pytest.raises(ConfigurationError, match="--listen: nginx needs a port, got 0"):
        written(listen=Address("127.0.0.1", 0))
