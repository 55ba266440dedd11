"""Make a bundle from another: in another version of the format, or for another origin.

Responses are copied as they are stored, one at a time, in the same order, and keys that share one still do. The index
and the other sections are written with the checks of a new bundle.
"""

import re
from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import Final

from msgspec import Struct

from headgate.bundle.files.atomic_file import Progress, Target, check_target
from headgate.bundle.files.payloads import COPY_SIZE, SizedChunks
from headgate.bundle.files.writer import Responses
from headgate.bundle.format.headers import encode_stored_headers, join_header_map
from headgate.bundle.format.metadata import known_sections
from headgate.bundle.format.sections import read_critical
from headgate.bundle.layout import BundleSpec, VariantEntry, build_sections
from headgate.bundle.model import Location, Metadata, Section, Version
from headgate.bundle.reader import Bundle, reject_overlapping_responses
from headgate.bundle.url_rules import UrlRules
from headgate.bundle.variants import parse_variants, variant_keys
from headgate.errors import ConfigurationError, HeadgateError
from headgate.http.url import parse_url, resolve, without_fragment

_ORIGIN: Final = re.compile(r"([a-z][a-z0-9+.\-]*://[^/?#@]+)(?![^/?#])")
_ABSOLUTE: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:|//")
"""The beginning of a reference with an origin or a host."""
_URL_HEADERS: Final = ("location", "content-location")
"""Response headers whose value is a URL."""


def convert(
    bundle: Bundle,
    target: Target,
    *,
    version: Version,
    primary_url: str | None = None,
    manifest_url: str | None = None,
    progress: Progress | None = None,
) -> list[str]:
    """Write `bundle` to `target` in another version; return a sentence for each thing that changed.

    `primary_url` and `manifest_url` replace those of the bundle. Raises `HeadgateError` for a bundle with variants as
    b2, for one with relative URLs or without manifest or primary URL as draft-01 or b1, and for one whose responses
    overlap. Open the bundle with a base URL to make its URLs absolute. Raises `ResponseError` for a malformed response,
    and the errors of writing.

    Signatures stay valid between b1 and draft-01: the URLs, Variants values, header maps and payloads that they sign
    are copied unchanged. b2 does not have them.
    """
    _check_bundle(bundle)
    check_target(target)
    metadata = bundle.metadata
    url_rules = UrlRules(None, relative=False)
    primary, manifest = metadata.primary_url, metadata.manifest_url
    if primary_url is not None:
        primary = url_rules.primary(primary_url)
        if version == "b2":
            _check_contained("primary", primary, metadata, primary)
    if manifest_url is not None:
        manifest = url_rules.stored(manifest_url)
        _check_contained("manifest", manifest, metadata, primary)
    return _BundleCopy(bundle, version, None).write(target, primary, manifest, progress)


def rebase(
    bundle: Bundle, target: Target, *, to: str, of: str | None = None, progress: Progress | None = None
) -> list[str]:
    """Write `bundle` to `target` with its URLs at another origin; return a sentence for each thing that changed.

    Every URL of the origin `of`, by default the primary URL's, moves to the origin `to`: in the index, the primary
    and the manifest URL, and in the headers Location and Content-Location if they name the origin. Payloads and other
    headers stay as they are. Signatures sign URLs, and are left out. Raises
    `ConfigurationError` for an invalid origin, `HeadgateError` where two URLs become one, and what `convert` raises.
    """
    _check_bundle(bundle)
    check_target(target)
    metadata = bundle.metadata
    move = _OriginMove(_origin_to_move(metadata.primary_url, of), check_origin(to))
    primary = metadata.primary_url and move.url(metadata.primary_url)
    manifest = metadata.manifest_url and move.url(metadata.manifest_url)
    return _BundleCopy(bundle, metadata.version, move).write(target, primary, manifest, progress)


def _check_bundle(bundle: object) -> None:
    if not isinstance(bundle, Bundle):
        raise ConfigurationError(f"expected an open bundle, got {bundle!r:.200}; open it with open_bundle")


class _OriginMove(Struct, frozen=True):
    """From one origin to another, both without a trailing slash."""

    old: str
    new: str

    def url(self, url: str) -> str:
        """Return the new URL of `url`, which is in normal form."""
        moved = self.new + url[len(self.old) :] if _origin(url) == self.old else url
        return parse_url(moved) or moved

    def headers(self, headers: Mapping[str, str], url: str) -> Mapping[str, str]:
        """Return the headers of the response for `url`, with URLs of the old origin at the new one."""
        moved = dict(headers)
        for name in _URL_HEADERS:
            value = headers.get(name, "")
            whole = resolve(_as_text(value), url) if _ABSOLUTE.match(value) else None
            if whole is not None and _origin(whole) == self.old:
                moved[name] = self.url(whole)
        return moved


class _StoredPayload(Struct, frozen=True):
    """The payload of a stored response, loaded when it is written."""

    bundle: Bundle
    location: Location

    def __iter__(self) -> Iterator[memoryview]:
        payload = self.bundle.load(self.location).payload
        for start in range(0, len(payload), COPY_SIZE):
            yield payload[start : start + COPY_SIZE]


class _BundleCopy:
    """Copies a bundle: its responses unchanged, the index and the other sections new."""

    def __init__(self, bundle: Bundle, version: Version, move: _OriginMove | None) -> None:
        self._bundle = bundle
        self._metadata = bundle.metadata
        self._version: Version = version
        self._move = move
        self._remarks: list[str] = []
        if bundle.integrity_block is not None:
            self._remarks.append("the integrity block is left out: it signs the old bytes")

    def write(self, target: Target, primary: str | None, manifest: str | None, progress: Progress | None) -> list[str]:
        """Write the copy, and return the remarks."""
        reject_overlapping_responses(self._bundle)
        if self._version != self._metadata.version:
            primary = self._keep_contained("primary", primary)
            manifest = self._keep_contained("manifest", manifest)
            self._check_urls(primary, manifest)
        elif manifest is None and self._version == "b1":
            self._remarks.append("the manifest section is missing, so strict readers refuse the bundle (3.3 step 24)")
        try:
            spec = self._build_spec(primary, manifest)
            responses, ordinals = self._responses()
            index = self._index(ordinals, UrlRules(None, relative=self._version == "b2", primary_url=primary))
        except ConfigurationError as error:
            # The cause is in the bundle, not in the arguments.
            raise HeadgateError(f"the bundle cannot be written as {self._version}: {error}") from error
        responses.write(target, spec, index, progress)
        return self._remarks

    def _keep_contained(self, what: str, url: str | None) -> str | None:
        """Return the primary or manifest URL; None if it is optional (b2) and not in the bundle."""
        if self._version != "b2" or url is None or without_fragment(url) in self._metadata.requests:
            return url
        self._remarks.append(f"the {what} URL {url} is left out: it is not in the bundle")
        return None

    def _check_urls(self, primary: str | None, manifest: str | None) -> None:
        """Refuse URLs that b1 and draft-01 cannot have."""
        if self._version == "b2":
            return
        urls = (url for url in (primary, manifest, *self._metadata.requests) if url is not None)
        relative = next((url for url in urls if parse_url(url) is None), None)
        if relative is not None:
            raise HeadgateError(
                f"the bundle has relative URLs such as {relative[:200]!r}, and {self._version} has absolute ones only; "
                "set the URL that they are relative to with base_url (--base-url)"
            )
        if primary is None:
            raise HeadgateError(
                f"the bundle lacks a primary URL, which {self._version} must have; set primary_url (--primary-url)"
            )
        if manifest is None or manifest not in self._metadata.requests:
            fault = "lacks a manifest" if manifest is None else f"does not contain its manifest {manifest}"
            raise HeadgateError(
                f"the bundle {fault}, which {self._version} must have; set manifest_url (--manifest-url)"
            )

    def _build_spec(self, primary: str | None, manifest: str | None) -> BundleSpec:
        """Return the sections: new ones first, then the others in their order."""
        version, named = self._version, {"manifest": manifest}
        if version == "b2":
            named["primary"] = primary
        stored = {section.name: section for section in self._metadata.sections[:-1] if self._is_kept(section.name)}
        left_out = {section.name for section in self._metadata.sections[:-1]} - stored.keys()
        critical: list[str] = []
        others: dict[str, bytes] = {}
        for name, section in stored.items():
            if name == "critical":
                names = read_critical(self._item(section), known_sections(self._metadata.version))
                critical = [each for each in names if each not in left_out]
            elif name != "index" and name not in named:
                others[name] = self._item(section)
        absent = {name for name, url in named.items() if url is None} | ({"critical"} if not critical else set())
        made = [name for name, url in named.items() if url is not None and name not in stored]
        order = [*made, *(name for name in stored if name not in absent)]
        return build_sections(version, primary, manifest, critical, others, order=order)

    def _is_kept(self, name: str) -> bool:
        version = self._version
        if name == "signatures" and (version == "b2" or self._move is not None):
            why = "b2 has none" if self._move is None else "they sign the old URLs"
            self._remarks.append(f"the signatures are left out: {why}")
            return False
        # Outside of b2 a "primary" section is unknown, and kept like others.
        return name != "primary" or version == self._metadata.version or "b2" not in (version, self._metadata.version)

    def _item(self, section: Section) -> bytes:
        return bytes(self._bundle.raw[section.offset : section.offset + section.length])

    def _responses(self) -> tuple[Responses, Mapping[Location, int]]:
        """Return the responses in the order of their locations, and the ordinal of each location."""
        urls: dict[Location, str] = {}
        for url, _, location in self._bundle.locations():
            urls.setdefault(location, url)
        responses = Responses()
        ordinals: dict[Location, int] = {}
        for location in sorted(urls, key=attrgetter("offset")):
            response = self._bundle.load(location)
            headers: Mapping[str, str] = response.stored_headers
            if self._move is not None:
                headers = self._move.headers(headers, urls[location])
            written, size = join_header_map(encode_stored_headers(response.status, headers)), len(response.payload)
            ordinals[location] = len(responses)
            responses.append(written, SizedChunks(_StoredPayload(self._bundle, location), size), size)
        return responses, ordinals

    def _index(self, ordinals: Mapping[Location, int], url_rules: UrlRules) -> Mapping[str, int | VariantEntry]:
        index: dict[str, int | VariantEntry] = {}
        known: set[str] = set()
        for stored, found in self._metadata.requests.items():
            url = url_rules.stored(stored if self._move is None else self._move.url(stored))
            identity = url_rules.lookup_key(url)
            if identity in known:
                raise HeadgateError(f"{identity} appears twice: two URLs of the bundle become this one")
            known.add(identity)
            if isinstance(found, Location):
                index[url] = ordinals[found]
            elif self._version == "b2":
                raise HeadgateError(
                    f"{url} has variants, which b2 does not have; the bundle stays {self._metadata.version}"
                )
            else:
                # A value that an axis has twice makes a key twice, with two locations.
                keys = variant_keys(axis.values for axis in parse_variants(found.variants) or ())
                locations = found.locations
                places = [ordinals[locations[key]] for key in keys]
                index[url] = VariantEntry(found.variants.encode("latin-1"), places)
        return index


def _check_contained(what: str, url: str, metadata: Metadata, primary: str | None) -> None:
    # 3.3.2: "The URL MUST refer to the one or more response(s) contained in the bundle itself."
    # b2's document says the same of its primary section.
    url_rules = UrlRules(None, relative=True, primary_url=primary)
    if url_rules.lookup_key(url) not in set(map(url_rules.lookup_key, metadata.requests)):
        raise ConfigurationError(f"the {what} URL {url} is not in the bundle; name one that is")


def _origin(url: str) -> str | None:
    found = _ORIGIN.match(url)
    return found[1] if found else None


def _origin_to_move(primary_url: str | None, of: str | None) -> str:
    if of is not None:
        return check_origin(of)
    origin = _origin(primary_url or "")
    if origin is None:
        raise HeadgateError(f"the primary URL {primary_url} has no origin; name the origin to move")
    return origin


def check_origin(url: str) -> str:
    """Return the origin in normal form; raises `ConfigurationError` for a URL with a path, and for other text."""
    normal = parse_url(url) or ""
    origin = _origin(normal)
    if origin is None or normal.removeprefix(origin) not in ("", "/"):
        raise ConfigurationError(
            f"{url[:200]!r} is not an origin; expected a scheme and a host, such as https://example.com"
        )
    return origin


def _as_text(value: str) -> str:
    """Return a header value as text: its bytes as UTF-8 if they are valid."""
    encoded = value.encode("latin-1")
    try:
        return encoded.decode()
    except UnicodeDecodeError:
        return value
