"""Clients behind nginx and a gate are told apart by the next gate, and by an application, whatever they forge."""

import http.client
import sys

import pytest

from tests import servers
from tests.e2e import programs

FIRST = '[gate]\ntrusted_proxies = ["127.0.0.1"]\n[[domain]]\nname = "a"\nrules = ["{}"]\n'
APPLICATION = """
from waitress import serve
from headgate.limit import Domain, Gatekeeper, Rule
from headgate.origin import client_address
from headgate.origin.wsgi import GatekeeperMiddleware

def app(environ, start_response):
    start_response("200 OK", [("Content-Length", "0")])
    return []

gatekeeper = Gatekeeper.embedded([Domain("d", (Rule.parse("1/min burst 3"),))])
app = GatekeeperMiddleware(app, gatekeeper=gatekeeper, identify=client_address(["127.0.0.1/32"]))
serve(app, host="127.0.0.1", port=PORT, clear_untrusted_proxy_headers=False)
"""
PASSED_ON = """location / {{ proxy_pass http://127.0.0.1:{};
    proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; }}"""


def status(port, client, forged):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10, source_address=(client, 0))
    try:
        connection.request("GET", "/", headers={"Forwarded": f"for={forged}", "X-Forwarded-For": "192.0.2.8"})
        return connection.getresponse().status
    finally:
        connection.close()


def application(folder):
    port, file = servers.free_port(), folder / "app.py"
    file.write_text(APPLICATION.replace("PORT", str(port)))
    return servers.started([sys.executable, file], port, folder)


def gate(folder, rule, origin):
    file = folder / f"{len(list(folder.iterdir()))}.toml"
    file.write_text(FIRST.format(rule))
    return programs.gate(folder, "--config", file, "--origin", origin)


@pytest.mark.needs("nginx")
@pytest.mark.parametrize("last", ["gate", "application"])
def test_each_client_has_a_budget_of_its_own_behind_nginx_and_a_gate(tmp_path, nginx, last):
    with (
        programs.origin() as origin,
        gate(tmp_path, "1/min burst 3", origin.url) if last == "gate" else application(tmp_path) as end,
        gate(tmp_path, "1000/s burst 1000", f"http://127.0.0.1:{end.port}") as first,
    ):
        front = nginx(server=PASSED_ON.format(first.port))
        clients = [f"127.0.0.{number}" for number in range(11, 15)]
        statuses = [status(front.port, client, f"192.0.2.{n}") for n in range(3) for client in clients]
        assert statuses == [200] * 12
        assert {status(front.port, clients[0], f"192.0.2.{n}") for n in range(3, 6)} == {503}
