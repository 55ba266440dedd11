"""The language-neutral vectors against the core."""

import json
import re
from base64 import b64decode
from email.utils import formatdate
from pathlib import Path

import pytest

from headgate.advice import AgentIdentity
from headgate.advice.fetching import AdviceResponse, interpret
from headgate.advice.freshness import fresh_for
from headgate.advice.parser import UNREACHABLE, AdviceResult, parse_advice_bytes

VECTORS = Path(__file__).parents[2] / "vectors" / "advice"
DOCUMENTS = json.loads((VECTORS / "parse.json").read_text())["cases"]
RESPONSES = json.loads((VECTORS / "fetch.json").read_text())["cases"]
IDENTITY = AgentIdentity(["ExampleProxy", "prefetch-proxy", "*"])
NOW = 1_700_000_000.0


def as_json(result: AdviceResult) -> object:
    if result is UNREACHABLE:
        return "unreachable"
    return result and {"disallowed": result.disallowed, "fraction": result.fraction}


@pytest.mark.parametrize("case", DOCUMENTS, ids=lambda case: case["name"])
def test_documents(case: dict) -> None:
    body = b"".join(b64decode(part) * times for part, times in case["body"])
    assert as_json(parse_advice_bytes(body, AgentIdentity(case["identity"]))) == case["expected"]


@pytest.mark.parametrize("case", RESPONSES, ids=lambda case: case["name"])
def test_responses(case: dict) -> None:
    def dated(value: str) -> str:
        return re.sub(r"@DATE([+-]\d+)@", lambda match: formatdate(NOW + int(match[1]), usegmt=True), value)

    fields = [(name, dated(value)) for name, value in case["headers"]]
    response = AdviceResponse(case["status"], fields, None if "how" in case else b64decode(case["body"]))
    result = interpret(response, IDENTITY)
    assert as_json(result) == case["expected"]
    if "fresh_for" in case:
        assert fresh_for(response, result, now=NOW) in case["fresh_for"]
