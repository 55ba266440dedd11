import io
import json
import sys
from typing import NamedTuple

import pytest

from headgate.cli import main


class Ran(NamedTuple):
    code: int
    out: bytes
    err: str

    @property
    def json(self):
        return json.loads(self.out)

    @property
    def lines(self):
        return self.out.decode().splitlines()


@pytest.fixture
def run(capsysbinary, monkeypatch):
    """Run `headgate token` in this process, as the program would end."""

    def run(*arguments, stdin=b""):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as caught:
            main(["token", *map(str, arguments)])
        said = capsysbinary.readouterr()
        return Ran(caught.value.code, said.out, said.err.decode())

    return run


@pytest.fixture
def key(run, tmp_path):
    """A key file."""
    file = tmp_path / "key.json"
    assert run("new-key", "-o", file).code == 0
    return file


@pytest.fixture
def halves(run, tmp_path):
    """A key file of Ed25519, and one with its public half."""
    site, proxy = tmp_path / "site.json", tmp_path / "proxy.json"
    assert run("new-key", "--algorithm", "ed25519", "-o", site, "--public", proxy).code == 0
    return site, proxy
