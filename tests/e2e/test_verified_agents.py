"""Agents that sign their requests at a gate: verified and forged ones, and directories that fail."""

import json
import os
import signal
import time

import pytest

from headgate.identity import SigningKey
from headgate.identity.url import PATH
from tests.e2e import programs
from tests.e2e.agent_directories import SITE, Agent, running_directories, until_equal

FILE = """
[gate]
origin = "{origin}"
max_delay = 0
identify = ["web-bot-auth", "client-address"]
[web_bot_auth]
authorities = ["www.example.org"]
{more}
[log]
access = "{log}"
[admin]
control = true
[[domain]]
name = "named"
agent = "{agent}"
rules = ["5/min burst 5"]
[[domain]]
name = "agents"
agent = "*"
priority = "verified"
rules = ["10/min burst 10"]
[[domain]]
name = "others"
rules = ["1/min burst 1"]
"""
LOCAL = 'allow_addresses = ["127.0.0.0/8", "::1/128"]\nca = "{ca}"'


@pytest.fixture
def directories(tmp_path):
    with running_directories(tmp_path) as running:
        yield running


@pytest.fixture
def gate(tmp_path, directories):
    with programs.origin() as origin:
        file = tmp_path / "gate.toml"
        texts = {"origin": origin.url, "log": tmp_path / "access.log", "agent": directories.url("named")}
        file.write_text(FILE.format(more=LOCAL.format(ca=tmp_path / "ca.pem"), **texts))
        with programs.gate(tmp_path, "--config", file) as gate:
            gate.file = file
            yield gate


def domain_of(gate, fields, path="/"):
    """Ask the gate; return the domain in which the request was counted."""
    before = {one["name"]: one["accepted"] + one["rejected"] for one in gate.state()["domains"]}
    gate.get(path, **fields)
    after = {one["name"]: one["accepted"] + one["rejected"] for one in gate.state()["domains"]}
    return next((name for name in after if after[name] != before[name]), None)


def test_verified_agents_have_rules_of_their_own(tmp_path, gate, directories):
    bot, other, named = (directories.new_agent(name) for name in ("bot", "other", "named"))
    for agent, domain in ((bot, "agents"), (other, "agents"), (named, "named")):
        until_equal(lambda agent=agent: domain_of(gate, agent.fields), domain)
    statuses = [[gate.get(**agent.fields).status for _ in range(12)] for agent in (bot, other)]
    assert [found.count(200) for found in statuses] == [9, 9]  # each has had one already
    assert [gate.get(**named.fields).status for _ in range(6)].count(200) == 4
    assert [gate.get(Host=SITE).status for _ in range(2)] == [503, 503]  # unsigned: used up by those before the fetch
    # A good key under the URL of another agent, and a good URL with another key.
    stolen = Agent(bot.key, directories.url("other"))
    forged = Agent(SigningKey(os.urandom(32)), directories.url("bot"))
    assert [domain_of(gate, agent.fields) for agent in (stolen, forged)] == ["others", "others"]
    lines = gate.until(lambda: [json.loads(line) for line in (tmp_path / "access.log").read_text().splitlines()], "log")
    assert {line["agent"] for line in lines} == {None, *map(directories.identifier, ("bot", "other", "named"))}
    assert all(line["identifier"] == line["agent"] for line in lines if line["agent"])
    asked = "ctl", "why", "--identifier", directories.url("bot"), "--json"
    answer = programs.command(*asked, "--admin", gate.ready["admin"].removeprefix("http://"))
    shown = json.loads(answer.out)["requests"][0]
    assert shown["agent"] == shown["identifier"] == directories.identifier("bot")
    assert gate.metrics()["headgate_gateway_signatures_total verified"] >= 24


def test_directories_that_fail_make_nobody_wait_and_keep_no_good_one_out(gate, directories):
    bot = directories.new_agent("bot")
    agents = {name: directories.new_agent(name) for name in ("huge", "never", "redirect")}
    agents["gone"] = Agent(SigningKey(os.urandom(32)), directories.url("gone"))
    start = time.monotonic()
    assert {name: domain_of(gate, agent.fields) for name, agent in agents.items()} == dict.fromkeys(agents, "others")
    assert time.monotonic() - start < 4  # a fetch may take 5 s
    until_equal(lambda: domain_of(gate, bot.fields), "agents")
    gate.until(lambda: set(agents) <= set(directories.asked), "fetches")
    time.sleep(0.5)
    assert {name: domain_of(gate, agent.fields) for name, agent in agents.items()} == dict.fromkeys(agents, "others")
    assert directories.asked.count("bot") == 1  # also the redirection was not followed


def test_keys_change_and_directories_go_away_over_a_reload(gate, directories):
    bot = directories.new_agent("bot")
    until_equal(lambda: domain_of(gate, bot.fields), "agents")
    del directories.keys["bot"]
    gate.process.send_signal(signal.SIGHUP)
    gate.wait_for("read again")
    assert domain_of(gate, bot.fields) == "agents"
    rotated = directories.new_agent("bot")
    assert domain_of(gate, rotated.fields) == "others"
    assert domain_of(gate, bot.fields) == "agents"


def test_private_addresses_are_not_dialled(tmp_path, directories):
    bot = directories.new_agent("bot")
    agents = [bot, *(Agent(bot.key, f"https://{host}:{directories.port}{PATH}") for host in ("127.0.0.1", "[::1]"))]
    with programs.origin() as origin:
        file = tmp_path / "gate.toml"
        more = f'ca = "{tmp_path / "ca.pem"}"'
        file.write_text(FILE.format(origin=origin.url, log=tmp_path / "a", agent="*", more=more))
        with programs.gate(tmp_path, "--config", file) as gate:
            for agent in agents:
                assert domain_of(gate, agent.fields) == "others"
            time.sleep(0.5)
            assert [domain_of(gate, agent.fields) for agent in agents] == ["others"] * 3
    assert directories.asked == []
