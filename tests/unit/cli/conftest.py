import io
import json
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from headgate.cli import main


class Ran(NamedTuple):
    code: int
    out: bytes
    err: str

    @property
    def json(self) -> Any:
        """What it printed, where that is JSON."""
        return json.loads(self.out)

    @property
    def objects(self) -> list[Any]:
        """What it printed, where each line is JSON."""
        return [json.loads(line) for line in self.lines]

    @property
    def lines(self) -> list[str]:
        return self.out.decode().splitlines()


@pytest.fixture
def headgate(capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """Run `headgate` in this process, as the program would end."""

    def run(*arguments: object, stdin: bytes = b"") -> Ran:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as caught:
            main([*map(str, arguments)])
        said = capsysbinary.readouterr()
        assert isinstance(caught.value.code, int)
        return Ran(caught.value.code, said.out, said.err.decode())

    return run
