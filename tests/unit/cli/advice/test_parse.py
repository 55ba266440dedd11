import json
from base64 import b64decode
from pathlib import Path

import pytest

CASES = json.loads((Path(__file__).parents[3] / "vectors" / "advice" / "parse.json").read_text())["cases"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_vectors(run, case):
    body = b"".join(b64decode(part) * times for part, times in case["body"])
    told = run("parse", "-", "--identity", ",".join(case["identity"]), stdin=body)
    assert (told.code, told.err) == (0, "")
    assert told.json == case["expected"]
    assert told.out.count(b"\n") == 1
    assert b"-0" not in told.out


def test_a_file_is_read_as_standard_input_is(run, tmp_path):
    file = tmp_path / "advice.json"
    file.write_bytes(b'[{"user_agent":"Ex\xc3\xa4mple","fraction":0.25}]')
    assert run("parse", file, "--identity", " Exämple , *").json == {"disallowed": False, "fraction": 0.25}
    assert run("parse", "--identity", "Exämple,*", stdin=file.read_bytes()).json["fraction"] == 0.25
    assert run("parse", file, "--identity", "Other,*").out == b"null\n"


def test_a_document_without_end_is_refused_and_a_long_one_read(run):
    long = b'[{"user_agent":"*","fraction":0.5}' + b" " * (1 << 20) + b"]"
    assert run("parse", "-", "--identity", "A,*", stdin=long).json == {"disallowed": False, "fraction": 0.5}
    told = run("parse", "-", "--identity", "A,*", stdin=bytes((16 << 20) + 1))
    assert (told.code, told.out) == (2, b"")
    assert told.err == "headgate: -: longer than 16 MiB, the limit for traffic advice\n"
