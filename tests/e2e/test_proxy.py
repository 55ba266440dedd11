"""`headgate proxy` as a program: its ready line, its refusals, its log, its listeners, its end."""

import os
import re
import signal
import socket
import ssl
import time
from pathlib import Path

import pytest

from tests.e2e import programs
from tests.e2e.proxied import Client, origin_running, proxy

WORKERS = pytest.mark.parametrize("workers", [1, 2])


@pytest.mark.parametrize("tls", [True, False])
def test_a_tunnel_to_an_origin_that_advises_nothing(tmp_path, tls):
    with proxy(tmp_path, tls=tls) as running, running.client() as client:
        scheme = "https" if tls else "http"
        assert re.fullmatch(rf"{scheme}://127\.0\.0\.1:[1-9]\d+", running.program.ready["address"])
        assert client.ask(f"www.example.org:{running.origin.port}").status == 200
        assert client.echoes()
        (head,) = running.origin.asked
        assert head.startswith("GET /.well-known/traffic-advice HTTP/1.1\r\n")
        assert "\r\nUser-Agent: headgate\r\n" in head
        client.sock.close()
        running.wait_for(tunnels=0)
        assert running.metrics()['headgate_proxy_bytes_total{direction="sent"}'] == 5


def test_a_certificate_to_try_it_out(tmp_path):
    with programs.headgate(tmp_path, "proxy", "--self-signed", "--listen", "localhost:0") as running:
        assert running.ready["admin"] == "none"
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(["h2", "http/1.1"])
        with context.wrap_socket(socket.create_connection(("localhost", running.port))) as sock:
            assert sock.version() == "TLSv1.3"
            assert sock.selected_alpn_protocol() == "h2"
            assert sock.getpeercert(binary_form=True)
        assert running.end() == 0
    assert list(tmp_path.glob("headgate-*/")) == []
