"""The standards' algorithms against an engine that has them: Node.js's JSON.parse, TextDecoder and MIMEType."""

import base64
import json
import random
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

from headgate.advice.parser import decode_utf8, parse_json
from headgate.http.media_type import parse_essence
from tests.servers import find_program

SCRIPT = Path(__file__).parent / "node" / "advice.mjs"
COUNT = 20_000

# fmt: off
TOKENS = ["[", "]", "{", "}", ",", ":", '"', '"a"', '"user_agent"', '"*"', '"__proto__"', '"1"', "null", "true",
          "false", "NaN", "Infinity", "-Infinity", "undefined", "0", "-0", "00", "01", "-", "1", "-1", "1.5", ".5",
          "5.", "1e5", "1E+5", "1e-400", "1e400", "-1e400", "1e", "9" * 400, "0." + "3" * 40,
          "123456789012345678901234567890", "9007199254740993", "2.2250738585072011e-308", "1e23", "5e-324",
          "2e-324", "0x1", "1_0", "+1", " ", "\t", "\n", "\r", "\x0b", "\x0c", "\xa0", "\ufeff", "\u2028", "\x00",
          "\x1f", "\x7f", "é", "\U0001f600", "\ud800", "\udc00", "\\", '\\"', "\\u", "\\ud800", "\\udc00",
          "\\ud83d\\ude00", "\\u0041", "\\u004", "\\uFFFF", "\\n", "\\/", "\\x41", "\\'", "'", "/", "//",
          "\\u0000", '"\\ud800"', '"\\udc00\\ud800"', '"a\\u0022b"']
# fmt: on
PIECES = [bytes([byte]) for byte in range(256)] + [text.encode() for text in ("é", "€", "\U0001f600", "\ufeff", "a")]
PIECES += [b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xf0\x9f\x98", b"\xe2\x82", b"\xc0\x80", b"\xf8\x88\x80\x80\x80"]
TYPES = ["text", "html", "application", "trafficadvice+json", *'//;= \ta*"\\,é']


def units(text: str) -> str:
    return base64.b64encode(text.encode("utf-16-le", "surrogatepass")).decode()


def told(value: Any) -> Any:
    """Return a value in the script's form."""
    if isinstance(value, str):
        return ["text", units(value)]
    if isinstance(value, float):
        return ["number", struct.pack(">d", value).hex()]
    if isinstance(value, list):
        return ["list", [told(item) for item in value]]
    if isinstance(value, dict):
        return [
            "map",
            sorted(([units(name), told(member)] for name, member in value.items()), key=lambda pair: pair[0]),
        ]
    return ["constant", {None: "null", True: "true", False: "false"}[value]]


def made(chance: random.Random, depth: int = 0) -> str:
    """Make a text that is JSON."""
    kind = chance.random()
    if depth > 3 or kind < 0.4:
        return chance.choice(["null", "true", "-0", "0.1", "1e400", '"a"', '"\\ud800"', '"\\u0041"', '""', "[]", "{}"])
    if kind < 0.7:
        return "[" + ",".join(made(chance, depth + 1) for _ in range(chance.randrange(4))) + "]"
    names = ['"a"', '"\\u0061"', '"b"', '"1"', '"__proto__"', '""']
    return (
        "{" + ",".join(f"{chance.choice(names)}: {made(chance, depth + 1)}" for _ in range(chance.randrange(4))) + "}"
    )


def spoilt(text: str, chance: random.Random) -> str:
    """Put tokens into a text, or take some of it out."""
    for _ in range(chance.randrange(3)):
        at = chance.randrange(len(text) + 1)
        text = text[:at] + chance.choice([*TOKENS, ""]) + text[at + chance.randrange(2) :]
    return text


@pytest.mark.needs("node")
def test_json_text_and_media_types_are_parsed_as_by_a_javascript_engine() -> None:
    chance = random.Random(20_260_401)
    texts = ["".join(chance.choices(TOKENS, k=chance.randrange(1, 6))) for _ in range(COUNT)]
    texts += [spoilt(made(chance), chance) for _ in range(COUNT)]
    datas = [b"".join(chance.choices(PIECES, k=chance.randrange(8))) for _ in range(COUNT)]
    types = ["".join(chance.choices(TYPES, k=chance.randrange(1, 9))) for _ in range(COUNT)]
    asked = {
        "texts": [units(text) for text in texts],
        "bytes": [base64.b64encode(data).decode() for data in datas],
        "types": [base64.b64encode(text.encode("latin-1")).decode() for text in types],
    }
    node = find_program("node")
    assert node is not None
    ran = subprocess.run([node, SCRIPT], input=json.dumps(asked).encode(), capture_output=True, check=True)
    answers = json.loads(ran.stdout)
    for text, answer in zip(texts, answers["texts"], strict=True):
        assert attempted(text) == answer, text
    for data, answer in zip(datas, answers["bytes"], strict=True):
        assert units(decode_utf8(data)) == answer, data
    for text, answer in zip(types, answers["types"], strict=True):
        assert parse_essence(text) == answer, text
    # Both sides say yes, and no, often enough.
    for kind, least in (("texts", COUNT // 4), ("types", COUNT // 200)):
        assert least < sum(answer is not None for answer in answers[kind]) < len(answers[kind]) - least


def attempted(text: str) -> Any:
    try:
        return told(parse_json(text))
    except ValueError:
        return None
