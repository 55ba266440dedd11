"""Check that all ways to read a bundle give the same result."""

import re
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from headgate.bundle.model import Location, Metadata, Profile
from tests.malformed import drivers
from tests.malformed.case import Case
from tests.malformed.drivers import Read, Refusal
from tests.malformed.parts import MANIFEST, PRIMARY, data, trailer

BLOCK = data("🖋📦".encode())
"""The magic of an integrity block, which `open_bundle` skips."""


def check_agreement(content: bytes, profile: Profile, cuts: Sequence[int], path: Path | None = None) -> drivers.Answer:
    """Compare every driver's result with the first one's, and return that; `path` is a file to read from."""
    answer = drivers.from_bytes(content, profile)
    assert drivers.from_file(content, profile) == answer
    if path is not None:
        path.write_bytes(content)
        assert drivers.from_path(path, profile) == answer
    parts = list(drivers.pieces(content, cuts))
    assert _without_overlaps(drivers.from_stream(parts, profile), answer) == answer
    if content[1:].startswith(BLOCK):
        return answer
    alone = drivers.metadata_alone(content, profile)
    assert alone == (answer.metadata if isinstance(answer, Read) else answer)
    if content[-9:] == trailer(len(content)):
        assert drivers.from_end(content, profile) == answer
        assert drivers.after_other(b"MZ" * 7, content, profile) == answer
    return answer


def check_case(case: Case, profile: Profile) -> None:
    """See that a bundle is read or refused as its case says."""
    read = drivers.from_end if case.from_end else drivers.from_bytes
    answer = read(case.content, profile)
    expected = case.expected_of(profile)
    if expected == "either":
        return
    if isinstance(answer, Read):
        refused = answer.refused()
        assert expected == ("response" if refused else "ok")
        assert {url for url, _ in refused} <= {PRIMARY}
        assert expected == "ok" or MANIFEST in {url for url, _ in answer.responses}
        refusals = list(refused.values())
    else:
        assert answer.kind == expected
        refusals = [answer]
    for refusal in refusals:
        assert not case.step or re.search(re.escape(case.step) + r"(?!\d)", refusal.step)
        assert refusal.fallback_url == case.fallback_url
        assert case.offset in (None, refusal.offset)
        assert refusal.offset >= 0


def _without_overlaps(streamed: drivers.Answer, answer: drivers.Answer) -> drivers.Answer:
    """Take the results of responses inside others from `answer`: a stream cannot go back for them."""
    if not isinstance(streamed, Read) or not isinstance(answer, Read):
        return streamed
    inside = _inside_others(streamed.metadata)
    responses = {
        key: answer.responses.get(key, found)
        if key in inside and isinstance(found, Refusal) and found.step == "3.4 step 1"
        else found
        for key, found in streamed.responses.items()
    }
    return Read(streamed.metadata, responses)


def _inside_others(metadata: Metadata) -> set[drivers.Keys]:
    """Return the keys of responses that begin inside an earlier one."""
    inside: set[drivers.Keys] = set()
    furthest = 0
    for (offset, length), shared in groupby(sorted(locations(metadata)), key=lambda located: located[:2]):
        if offset < furthest:
            inside |= {(url, key or None) for _, _, url, key in shared}
        furthest = max(furthest, offset + length)
    return inside


def locations(metadata: Metadata) -> list[tuple[int, int, str, str]]:
    """Return offset, length, URL and variant key (or "") of every response."""
    listed: list[tuple[int, int, str, str]] = []
    for url, found in metadata.requests.items():
        if isinstance(found, Location):
            listed.append((found.offset, found.length, url, ""))
        else:
            listed += [(at.offset, at.length, url, key) for key, at in found.locations.items()]
    return listed
