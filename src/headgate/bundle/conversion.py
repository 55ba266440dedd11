"""Write a bundle again in another version of the format.

Responses are copied as they are stored, one at a time, in the same order, and keys that share one still do. The index
and the other sections are written anew.
"""

from collections.abc import Mapping

from headgate.bundle.files.atomic_file import Progress, Target, check_target
from headgate.bundle.files.payloads import SizedChunks
from headgate.bundle.files.writer import Responses
from headgate.bundle.format.cbor import encode, text
from headgate.bundle.format.headers import encode_stored_headers, join_header_map
from headgate.bundle.format.metadata import known_sections
from headgate.bundle.format.sections import read_critical
from headgate.bundle.layout import BundleSpec, VariantEntry, normalize_url, stored_entry
from headgate.bundle.model import Location, Section, VariantSet, Version
from headgate.bundle.reader import Bundle, reject_overlapping_responses
from headgate.errors import HeadgateError, fail_if
from headgate.http.url import parse_url, without_fragment


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
    b2, for one with relative URLs, for one without manifest or primary URL as draft-01 or b1, and for one whose
    responses overlap. Open the bundle with a base URL to make its URLs absolute. Raises `ResponseError` for a malformed
    response, and the errors of writing.

    Signatures stay valid between b1 and draft-01: the URLs, Variants values, header maps and payloads that they sign
    are copied unchanged. b2 does not have them.
    """
    fail_if(not isinstance(bundle, Bundle), f"expected an open bundle, got {bundle!r:.200}; open it with open_bundle")
    check_target(target)
    return _Conversion(bundle, version).write(target, primary_url, manifest_url, progress)


class _Conversion:
    """Copies a bundle: its responses unchanged, the index and the other sections new."""

    def __init__(self, bundle: Bundle, version: Version) -> None:
        self._bundle = bundle
        self._metadata = bundle.metadata
        self._version: Version = version
        self._remarks: list[str] = []

    def write(
        self, target: Target, primary_url: str | None, manifest_url: str | None, progress: Progress | None
    ) -> list[str]:
        """Write the copy, and return the remarks."""
        primary, manifest = self._metadata.primary_url, self._metadata.manifest_url
        if primary_url is not None:
            primary = normalize_url(primary_url, is_primary=True)
            if self._version == "b2":
                self._check_contained("primary", primary)
        if manifest_url is not None:
            manifest = normalize_url(manifest_url)
            self._check_contained("manifest", manifest)
        if self._bundle.integrity_block is not None:
            self._remarks.append("the integrity block is left out: it signs the old bytes")
        reject_overlapping_responses(self._bundle)
        if self._version != self._metadata.version:
            primary, manifest = self._keep_contained("primary", primary), self._keep_contained("manifest", manifest)
        elif manifest is None and self._version == "b1":
            self._remarks.append("the manifest section is missing, so strict readers refuse the bundle (3.3 step 24)")
        self._check_urls(primary, manifest)
        spec = self._build_spec(primary, manifest)
        responses, ordinals = self._responses()
        responses.write(target, spec, self._index(ordinals), progress)
        return self._remarks

    def _check_contained(self, what: str, url: str) -> None:
        # 3.3.2: "The URL MUST refer to the one or more response(s) contained in the bundle itself."
        # b2's document says the same of its primary section.
        fail_if(
            without_fragment(url) not in self._metadata.requests,
            f"the {what} URL {url} is not in the bundle; name one that is",
        )

    def _keep_contained(self, what: str, url: str | None) -> str | None:
        """Return the primary or manifest URL; None if it is optional (b2) and not in the bundle."""
        if self._version != "b2" or url is None or without_fragment(url) in self._metadata.requests:
            return url
        self._remarks.append(f"the {what} URL {url} is left out: it is not in the bundle")
        return None

    def _check_urls(self, primary: str | None, manifest: str | None) -> None:
        """Refuse relative URLs, and a b1 or draft-01 without the URLs that it must have."""
        urls = (url for url in (primary, manifest, *self._metadata.requests) if url is not None)
        relative = next((url for url in urls if parse_url(url) is None), None)
        if relative is not None:
            raise HeadgateError(
                f"the bundle has relative URLs such as {relative[:200]!r}; "
                "set the URL that they are relative to with base_url (--base-url)"
            )
        if self._version in ("b2", self._metadata.version):
            return
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
        made = {"index": b""}
        if manifest is not None:
            made["manifest"] = text(manifest)
        if primary is not None and self._version == "b2":
            made["primary"] = text(primary)
        stored = {section.name: section for section in self._metadata.sections[:-1]}
        kept = {name: section for name, section in stored.items() if self._is_kept(name)}
        sections = {name: item for name, item in made.items() if name not in kept}
        for name, section in kept.items():
            if name == "critical":
                names = read_critical(self._item(section), known_sections(self._metadata.version))
                if left := [each for each in names if each in kept or each in made]:
                    sections[name] = encode(left)
            elif name in made:
                sections[name] = made[name]
            elif name != "manifest" and not (name == "primary" and self._version == "b2"):
                sections[name] = self._item(section)
        return BundleSpec(self._version, primary, sections)

    def _is_kept(self, name: str) -> bool:
        if name == "signatures" and self._version == "b2":
            self._remarks.append("the signatures are left out: b2 has none")
            return False
        # Outside of b2 a "primary" section is unknown, and kept like others.
        return name != "primary" or (self._version == "b2") == (self._metadata.version == "b2")

    def _item(self, section: Section) -> bytes:
        return bytes(self._bundle.read(section.offset, section.length))

    def _responses(self) -> tuple[Responses, Mapping[Location, int]]:
        """Return the responses in the order of their locations, and the ordinal of each location."""
        responses = Responses()
        ordinals: dict[Location, int] = {}
        for location, _ in self._metadata.in_file_order():
            head = self._bundle.head(location)
            written = join_header_map(encode_stored_headers(head.status, head.stored_headers))
            ordinals[location] = len(responses)
            responses.append(written, SizedChunks(self._bundle.pieces(head.payload), head.payload.length))
        return responses, ordinals

    def _index(self, ordinals: Mapping[Location, int]) -> Mapping[str, int | VariantEntry]:
        requests = self._metadata.requests
        negotiated = next((url for url, found in requests.items() if isinstance(found, VariantSet)), None)
        if negotiated is not None and self._version == "b2":
            raise HeadgateError(
                f"{negotiated} has variants, which b2 does not have; the bundle stays {self._metadata.version}"
            )
        return {url: stored_entry(found, ordinals.__getitem__) for url, found in requests.items()}
