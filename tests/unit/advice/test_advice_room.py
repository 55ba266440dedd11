"""What a program finds in the room's front door, by the names that the how-to and the reference use."""

import headgate.advice
from headgate.advice import (
    UNREACHABLE,
    AdviceEntry,
    AdviceResponse,
    AgentIdentity,
    interpret,
    parse_advice,
    traffic_advice_url,
)

IDENTITY = AgentIdentity(["ExampleBot", "*"])
FIELDS = [("Content-Type", headgate.advice.MEDIA_TYPE)]


def test_all_that_is_promised_is_there():
    assert all(hasattr(headgate.advice, name) for name in headgate.advice.__all__)


def test_an_agent_needs_no_other_door():
    assert traffic_advice_url("http://0x7f.1:80") == "http://127.0.0.1/.well-known/traffic-advice"
    document = b'[{"user_agent":"*","fraction":0.5}]'
    assert parse_advice(document.decode(), IDENTITY) == AdviceEntry(fraction=0.5)
    assert interpret(AdviceResponse(200, FIELDS, document), IDENTITY) == AdviceEntry(fraction=0.5)
    assert interpret(AdviceResponse(404, FIELDS, document), IDENTITY) is None
    assert interpret(AdviceResponse(503, FIELDS, document), IDENTITY) is UNREACHABLE
