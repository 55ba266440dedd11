"""The file of the advice loop: what survives, and what is never written over."""

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from headgate.runtime.gate.advice.state_file import SavedAdvice, SavedAgent, StateFile

SAVED = SavedAdvice(
    saved=1_700_000_000.0,
    fractions={"prefetch-proxy": 0.0, "*": 0.25},
    capacity=512.5,
    agents=(SavedAgent("192.0.2.1", "Bot"),),
)


@pytest.fixture
def messages() -> list[str]:
    return []


def test_what_is_written_is_read(tmp_path: Path, messages: list[str]) -> None:
    file = StateFile(str(tmp_path / "state"), messages.append)
    assert file.read() is None
    file.write(SAVED)
    assert StateFile(str(tmp_path / "state"), messages.append).read() == SAVED
    assert [path.name for path in tmp_path.iterdir()] == ["state"]
    assert messages == []


def test_without_a_path_nothing_is_read_or_written(tmp_path: Path, messages: list[str]) -> None:
    file = StateFile("", messages.append)
    assert file.read() is None
    file.write(SAVED)
    assert messages == []


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"root:x:0:0:root:/root:/bin/bash\n",
        b'{"format":"headgate-advice-1","saved":17',
        b'{"format":"headgate-advice-2","saved":17,"fractions":{}}',
        b'{"format":"headgate-advice-1","saved":17,"fractions":{"*":2}}',
        b'{"format":"headgate-advice-1","saved":-1,"fractions":{}}',
        b'{"format":"headgate-advice-1","saved":NaN,"fractions":{}}',
        b'{"format":"headgate-advice-1","saved":17,"fractions":{},"capacity":"many"}',
        b"\xff\xfe",
        b'{"format":"headgate-advice-1","saved":17,"fractions":{},"more":' + b"[" * 10_000 + b"]" * 10_000 + b"}",
        b" " * (33 << 20),
    ],
)
def test_another_file_is_a_warning_and_is_not_written_over(tmp_path: Path, messages: list[str], content: bytes) -> None:
    path = tmp_path / "state"
    path.write_bytes(content)
    file = StateFile(str(path), messages.append)
    assert file.read() is None
    file.write(SAVED)
    assert path.read_bytes() == content
    (message,) = messages
    assert message.startswith(f"warning: advice.state: {path}: ")
    assert message.endswith("expected a state file of headgate, or none; nothing is restored or saved")


def test_the_largest_state_is_read(tmp_path: Path, messages: list[str]) -> None:
    addresses = (f"2001:db8:1234:{number:04x}::/64" for number in range(10_000))
    agents = tuple(SavedAgent(address, f"{brand}" + "\xff" * 199) for address in addresses for brand in "abcd")
    file = StateFile(str(tmp_path / "state"), messages.append)
    file.write(replace(SAVED, agents=agents))
    saved = file.read()
    assert saved is not None
    assert len(saved.agents) == 40_000


@pytest.mark.parametrize("target", ["/dev/null", "/dev/zero", "/dev/full", ".", "state"])
def test_what_is_no_regular_file_is_a_warning(tmp_path: Path, messages: list[str], target: str) -> None:
    (tmp_path / "state").symlink_to(target)
    file = StateFile(str(tmp_path / "state"), messages.append)
    assert file.read() is None
    file.write(SAVED)
    assert len(messages) == 1


def test_a_link_is_followed(tmp_path: Path, messages: list[str]) -> None:
    (tmp_path / "link").symlink_to("state")
    StateFile(str(tmp_path / "link"), messages.append).write(SAVED)
    assert StateFile(str(tmp_path / "state"), messages.append).read() == SAVED
    assert (tmp_path / "link").is_symlink()
    assert messages == []


def test_a_named_pipe_does_not_block(tmp_path: Path, messages: list[str]) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert StateFile(str(tmp_path / "pipe"), messages.append).read() is None
    assert len(messages) == 1


def test_a_folder_that_is_missing_is_one_warning(tmp_path: Path, messages: list[str]) -> None:
    file = StateFile(str(tmp_path / "none" / "state"), messages.append)
    assert file.read() is None
    file.write(SAVED)
    file.write(SAVED)
    (message,) = messages
    assert message.startswith("warning: advice.state: not saved: ")
