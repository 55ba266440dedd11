import io
import json
import sys
from typing import NamedTuple

import pytest

from headgate.bundle import BundleWriter
from headgate.cli import main

BASE = "https://example.com/"


class Ran(NamedTuple):
    code: int
    out: bytes
    err: str

    @property
    def json(self):
        return json.loads(self.out)

    @property
    def lines(self):
        return [json.loads(line) for line in self.out.splitlines()]


@pytest.fixture
def run(capsysbinary, monkeypatch):
    """Run `headgate bundle` in this process, as the program would end."""

    def run(*arguments, stdin=b""):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as caught:
            main(["bundle", *map(str, arguments)])
        said = capsysbinary.readouterr()
        return Ran(caught.value.code, said.out, said.err.decode())

    return run


@pytest.fixture
def make(tmp_path):
    """Write a bundle of URL (or tail of one) to payload, or to what `BundleWriter.add` takes; give its path."""

    def make(exchanges, name="made.wbn", **options):
        options = {"primary_url": BASE, **options}
        if options.get("version") != "b2":
            options = {"manifest_url": next(iter(exchanges), BASE), **options}
        path = tmp_path / name
        with BundleWriter(path, **options) as writer:
            for url, found in exchanges.items():
                for added in found if isinstance(found, list) else [found]:
                    added = added if isinstance(added, dict) else {"payload": added}
                    writer.add(url, **{"headers": {"content-type": "text/plain"}, **added})
        return path

    return make
