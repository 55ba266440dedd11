"""Traffic advice between two processes: a gate that publishes it, and an agent that fetches it."""

import json

import pytest

from tests.e2e import programs

FILE = """\
[gate]
origin = "{origin}"
[[domain]]
name = "default"
rules = ["1/min burst 1"]
[[advice]]
user_agent = "prefetch-proxy"
fraction = 0.25
[[advice]]
user_agent = "*"
disallow = true
"""


def said(*arguments, stdin=""):
    """Run `headgate advice` to its end; give its exit code and what it printed."""
    done = programs.command("advice", *arguments, stdin=stdin)
    assert done.err == ""
    return done.code, json.loads(done.out)


@pytest.fixture
def gate(tmp_path):
    with programs.origin() as origin:
        file = tmp_path / "gate.toml"
        file.write_text(FILE.format(origin=origin.url))
        with programs.gate(tmp_path, "--config", file) as gate:
            yield gate


def test_an_agent_reads_the_advice_that_the_gate_publishes(gate):
    address = gate.ready["address"]
    proxy = said("fetch", address, "--identity", "ExampleProxy,prefetch-proxy,*", "--json")
    bot = said("fetch", f"{address}/any/path?and=query", "--identity", "ExampleBot,*", "--json")
    assert [code for code, _ in (proxy, bot)] == [0, 0]
    assert proxy[1]["result"] == {"disallowed": False, "fraction": 0.25}
    assert bot[1]["result"] == {"disallowed": True, "fraction": 1}
    assert bot[1]["url"] == f"{address}/.well-known/traffic-advice"
    assert bot[1]["fresh_for"] == 1800


def test_there_is_no_finding_about_the_advice_of_the_gate(gate):
    document = gate.get("/.well-known/traffic-advice").body.decode()
    for what, stdin in ((gate.ready["address"], ""), ("-", document)):
        code, report = said("check", what, "--json", stdin=stdin)
        assert (code, report) == (0, {"conforming": {"disallowed": False, "fraction": 0.25}, "findings": []})
