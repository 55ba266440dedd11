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
        """What it printed, where that is JSON."""
        return json.loads(self.out)

    @property
    def objects(self):
        """What it printed, where each line is JSON."""
        return [json.loads(line) for line in self.lines]

    @property
    def lines(self):
        return self.out.decode().splitlines()


@pytest.fixture
def headgate(capsysbinary, monkeypatch):
    """Run `headgate` in this process, as the program would end."""

    def run(*arguments, stdin=b""):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as caught:
            main([*map(str, arguments)])
        said = capsysbinary.readouterr()
        return Ran(caught.value.code, said.out, said.err.decode())

    return run
