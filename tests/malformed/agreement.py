"""That all the ways to read a bundle say the same of it."""

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from headgate.bundle.model import Location, Metadata, Profile
from tests.malformed import drivers
from tests.malformed.drivers import Read, Refusal
from tests.malformed.parts import data, trailer

BLOCK = data("🖋📦".encode())
"""The magic of an integrity block, which `open_bundle` steps over."""


def check_agreement(content: bytes, profile: Profile, cuts: Sequence[int], path: Path | None = None) -> drivers.Answer:
    """Hold every driver against the first, and give what that says; a path is where the one for paths may write."""
    told = drivers.from_bytes(content, profile)
    assert drivers.from_file(content, profile) == told
    if path is not None:
        path.write_bytes(content)
        assert drivers.from_path(path, profile) == told
    parts = list(drivers.pieces(content, cuts))
    assert _with_liberty(drivers.from_stream(parts, profile), told) == told
    if content[1:].startswith(BLOCK):
        return told
    alone = drivers.metadata_alone(content, profile)
    assert alone == (told.metadata if isinstance(told, Read) else told)
    if content[-9:] == trailer(len(content)):
        assert drivers.from_end(content, profile) == told
        assert drivers.behind(b"MZ" * 7, content, profile) == told
    return told


def _with_liberty(streamed: drivers.Answer, told: drivers.Answer) -> drivers.Answer:
    """Forgive a stream the one thing it cannot do: go back for a response that begins inside another."""
    if not isinstance(streamed, Read) or not isinstance(told, Read):
        return streamed
    inside = _inside_others(streamed.metadata)
    responses = {
        key: told.responses.get(key, found)
        if key in inside and isinstance(found, Refusal) and found.step == "3.4 step 1"
        else found
        for key, found in streamed.responses.items()
    }
    return Read(streamed.metadata, responses)


def _inside_others(metadata: Metadata) -> set[drivers.Keys]:
    """Give the keys of responses that begin before another, which begins no later, has ended."""
    inside: set[drivers.Keys] = set()
    furthest = 0
    for (offset, length), shared in groupby(sorted(locations(metadata)), key=lambda located: located[:2]):
        if offset < furthest:
            inside |= {(url, key or None) for _, _, url, key in shared}
        furthest = max(furthest, offset + length)
    return inside


def locations(metadata: Metadata) -> list[tuple[int, int, str, str]]:
    """Give offset, length, URL and variant key (or "") of every response."""
    listed: list[tuple[int, int, str, str]] = []
    for url, found in metadata.requests.items():
        if isinstance(found, Location):
            listed.append((found.offset, found.length, url, ""))
        else:
            listed += [(at.offset, at.length, url, key) for key, at in found.locations.items()]
    return listed
