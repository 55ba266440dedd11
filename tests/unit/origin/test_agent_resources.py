"""What a gate publishes for the operator's own agent."""

import json
import os

import pytest

from headgate.errors import ConfigurationError
from headgate.http.h1 import RequestHead
from headgate.identity import agent_url, new_signing_key, parse_directory, write_signing_key
from headgate.identity.url import PATH
from headgate.origin.agent_resources import MAX_AGE, AgentResources

KEYS = [new_signing_key(entropy=os.urandom) for _ in range(2)]
CARD = json.dumps({"client_id": "https://bot.example/.well-known/signature-agent-card"}).encode()
FILES = {"a": write_signing_key(KEYS[0]), "b": write_signing_key(KEYS[1]), "card": CARD}


def asked(path: str, host: bytes = b"bot.example", method: bytes = b"GET") -> RequestHead:
    return RequestHead(b"", method=method, target=path.encode(), host=host)


def fields_of(response) -> list[tuple[str, str]]:
    return [(name.decode(), value.decode()) for name, value in response.fields]


def test_the_directory_is_signed_for_the_operators_hosts_and_anew_in_time():
    now = [1_000.0]
    resources = AgentResources(FILES, ["bot.example"], clock=lambda: now[0])
    first = resources(asked(PATH, b"BOT.example:443"))
    agent = agent_url("https://bot.example")
    assert agent
    directory = parse_directory(agent, fields_of(first), first.body, now=now[0])
    assert (set(directory.keys), directory.fresh_until) == ({key.key_id for key in KEYS}, now[0] + MAX_AGE)
    assert dict(fields_of(first))["signature-input"].count("created=1000") == 2
    now[0] += MAX_AGE - 1
    assert resources(asked(PATH)) is first
    now[0] += 1
    assert "created=4600" in dict(fields_of(resources(asked(PATH))))["signature-input"]
    now[0] = 2_000.0  # the clock was set back
    assert "created=2000" in dict(fields_of(resources(asked(PATH))))["signature-input"]
    other = resources(asked(PATH, b"evil.example"))
    assert "signature" not in dict(fields_of(other))
    assert other.body == first.body


def test_the_card_is_at_the_path_of_its_client_id():
    resources = AgentResources(FILES, ["bot.example"], clock=lambda: 0.0)
    card = resources(asked("/.well-known/signature-agent-card?a"))
    assert card.body == CARD
    assert ("content-type", "application/json") in fields_of(card)
    assert [resources(asked(path)) for path in ("/", "/.well-known/other")] == [None, None]
    assert resources(asked(PATH, method=b"POST")) is None
    assert AgentResources({"card": CARD}, [], clock=lambda: 0.0)(asked(PATH)) is None


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"{}", "'file': invalid key file; expected a private Ed25519 JSON Web Key"),
        (b'{"client_id": "https://bot.example/"}', "'file': invalid client_id 'https://bot.example/'; expected an"),
        (b'{"client_id": "http://bot.example/.well-known/a"}', "expected an https URL whose path begins with /.well"),
    ],
)
def test_other_files_are_refused(content, text):
    with pytest.raises(ConfigurationError) as caught:
        AgentResources({"file": content}, [], clock=lambda: 0.0)
    assert text in str(caught.value)
