"""What stands before the sections again, once its parser has refused it (3.3 steps 1 to 7).

The version says which layout a bundle has. Where the head of the array says another, what follows the version tells
whether that is a primary URL.
"""

from typing import Final

from headgate.bundle.format.cbor import ARRAY, BYTES, TEXT, CborError
from headgate.bundle.format.constants import MAGIC
from headgate.bundle.format.preamble import Preamble
from headgate.bundle.lint.file import File
from headgate.bundle.lint.finding import MIXUP, Notes
from headgate.bundle.lint.relaxed import read_any_head
from headgate.bundle.model import Version
from headgate.errors import VersionError
from headgate.http.url import parse_url

__all__ = ["walk_lead"]

_LONGEST_HEAD: Final = 9
_B2: Final = 0x85
_OTHERS: Final = (0x84, 0x86)
_VERSIONS: Final[dict[bytes, Version]] = {b"1\0\0\0": "draft-01", b"b1\0\0": "b1", b"b2\0\0": "b2"}


def walk_lead(file: File, notes: Notes) -> Preamble | None:
    """Note what is wrong before the section lengths, and give what it means; None where these cannot be found."""
    walk = _Walk(file, notes)
    position = walk.magic()
    found = None if position is None else walk.version(position)
    return None if found is None else walk.lead(*found)


class _Walk:
    def __init__(self, file: File, notes: Notes) -> None:
        self._file = file
        self._notes = notes
        self._array_head = 0
        self._version_at = 0

    def magic(self) -> int | None:
        """Steps 1 and 2: give where the version is."""
        source = self._file.read(0, 2 * _LONGEST_HEAD + len(MAGIC))
        self._array_head = source[0] if source else 0
        if self._array_head in (_B2, *_OTHERS) and source[1:10] == MAGIC:
            return 10
        self._notes.fault(f"not a bundle: it begins with {source[:10].hex(' ') or 'nothing'}", "3.3 step 2", 0)
        try:
            array = read_any_head(source)
            magic = read_any_head(source, array.contents)
        except CborError:
            return None
        name = source[magic.contents : magic.contents + 8]
        is_known = array.major == ARRAY and magic.major in (BYTES, TEXT) and magic.argument == 8 and name == MAGIC[1:]
        return magic.contents + 8 if is_known else None

    def version(self, position: int) -> tuple[int, bytes] | None:
        """Step 3: give where what follows is, and the version."""
        self._version_at = position
        item = self._file.read(position, 5)
        if len(item) < 5:
            self._notes.fault("the version is cut", "3.3 step 3", position)
            return None
        name, after = item[1:], position + 5
        if item[0] != 0x44:
            source = self._file.read(position, _LONGEST_HEAD + 4)
            try:
                found = read_any_head(source)
            except CborError:
                found = None
            if found is not None and found.argument == 4 and len(source) >= found.contents + 4:
                name, after = source[found.contents : found.contents + 4], position + found.contents + 4
        if item[0] != 0x44 or name not in _VERSIONS:
            fault = f"version {name!r} is not known here" if item[0] == 0x44 else f"{item.hex(' ')} is no version"
            self._notes.refused(VersionError(fault, step="3.3 step 7", offset=position))
        return after, name

    def lead(self, position: int, name: bytes) -> Preamble | None:
        """Steps 4 to 7."""
        version = _VERSIONS.get(name)
        is_b2 = self._array_head == _B2 if version is None else version == "b2"
        is_mixed = self._array_head in (_OTHERS if is_b2 else (_B2,))
        if is_mixed:
            fault = f"version {version} does not begin with 0x{self._array_head:02x}"
            self._notes.fault(fault, "3.3 step 7", self._version_at, code=MIXUP)
        found = self._b2_url(position, is_mixed=is_mixed) if is_b2 else self._url(position, is_mixed=is_mixed)
        if found is None or version is None:
            return None
        url, after = found
        return Preamble(self._array_head, version, url, after)

    def _b2_url(self, position: int, *, is_mixed: bool) -> tuple[str | None, int] | None:
        """Give a primary URL that should not be here, and where what follows it is."""
        try:
            found = read_any_head(self._file.read(position, _LONGEST_HEAD))
        except CborError:
            return None, position
        url = _parsed(self._file.read(position + found.contents, found.argument or 0)) if found.major == TEXT else None
        if url is None:
            return None, position
        if not is_mixed:
            self._notes.fault("b2 has its primary URL in a section", "3.3 step 8, 3.5.2 step 2", position, code=MIXUP)
        return url, position + found.contents + (found.argument or 0)

    def _url(self, position: int, *, is_mixed: bool) -> tuple[str | None, int] | None:
        """Steps 4 to 6: give the URL, None for one that is refused, and where what follows it is."""
        try:
            found = read_any_head(self._file.read(position, _LONGEST_HEAD))
        except CborError as error:
            self._notes.fault(error.reason, f"3.3 step 4, {error.step}", position)
            return None
        if found.fault is not None:
            self._notes.fault(found.fault.reason, f"3.3 step 4, {found.fault.step}", position)
        size, begin = found.argument or 0, position + found.contents
        encoded = self._file.read(begin, size)
        url = _parsed(encoded)
        if found.major != TEXT and not is_mixed:
            self._notes.fault("the primary URL is no text string", "3.3 step 4", position)
        if found.major == BYTES and url is None:
            # These may be the section lengths: there is no URL, as in b2.
            return None, position
        if found.argument is None or found.major not in (TEXT, BYTES):
            return None
        if len(encoded) < size:
            self._notes.fault(f"the primary URL of {size} bytes is cut", "3.3 step 5", begin)
            return None
        if url is None:
            self._notes.fault(f"the primary URL {encoded[:200]!r} is no absolute URL", "3.3 step 6", begin)
        return url, begin + size


def _parsed(encoded: bytes) -> str | None:
    try:
        return parse_url(encoded.decode())
    except UnicodeDecodeError:
        return None
