import io

import pytest

from headgate.cli.token import keys
from headgate.errors import ConfigurationError


class Endless(io.BytesIO):
    """What is read to its end only by who has no end of memory."""

    def read(self, size=-1):
        assert 0 <= size < 1_000_000
        return bytes(size)


def test_of_what_never_ends_no_more_is_read_than_a_key_file_has(monkeypatch):
    monkeypatch.setattr(keys.click, "open_file", lambda *_: Endless())
    with pytest.raises(ConfigurationError, match=r"^/dev/zero: a key file has at most 65536 bytes$"):
        keys.keys_in("/dev/zero")
