"""The configuration of nginx without Lua."""

import pytest

from headgate.config import Address
from headgate.errors import ConfigurationError
from headgate.origin.sidecar.nginx_conf import auth_request_configuration as configuration
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


def test_domain_and_socket_are_escaped():
    text = written(domain='a b$x"{;é', socket='/tmp/a "b\\$c')
    assert "http://headgate_sidecar/check/a%20b%24x%22%7B%3B%C3%A9?identify=client-address;" in text
    assert 'server "unix:/tmp/a \\"b\\\\$c" max_fails=1' in text


def test_only_what_the_sidecar_reads_is_sent():
    """A header that identifies is the exception: nginx cannot see that it is repeated."""
    text = written(identify="client-address")
    assert "/check/api?identify=client-address;" in text
    assert text.count("proxy_pass_request_headers off;") == 2
    text = written(identify="header:X-Api-Key")
    assert "/check/api?identify=header:x-api-key;" in text
    assert text.count("proxy_pass_request_headers off;") == 1


@pytest.mark.parametrize("name", ["X_Api_Key", "X.Key", "!"])
def test_header_that_nginx_does_not_pass_on_is_refused(name):
    with pytest.raises(ConfigurationError, match="--identify: nginx ignores the header"):
        written(identify=f"header:{name}")
