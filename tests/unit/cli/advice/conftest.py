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


@pytest.fixture
def run(capsysbinary, monkeypatch):
    """Run `headgate advice` in this process, as the program would end."""

    def run(*arguments, stdin=b""):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as caught:
            main(["advice", *map(str, arguments)])
        said = capsysbinary.readouterr()
        return Ran(caught.value.code, said.out, said.err.decode())

    return run
