"""bundled-exchanges-01.txt, step by step: each test quotes the sentences that it proves."""

import asyncio
import io

import pytest

from headgate.agent.bundle import BundleTransport
from headgate.bundle import BundleError, BundleWriter, FormatError, open_bundle, parse_metadata
from headgate.bundle.format.cbor import CborError, Items, head, read_head
from headgate.bundle.model import Location
from headgate.bundle.stream import HeadEvent, MetadataEvent, PayloadEvent, StreamReader
from headgate.errors import HeadgateError, ResponseError
from headgate.origin.bundle import BundleApp
from tests.malformed import CASES, named
from tests.malformed.agreement import check_case
from tests.malformed.parts import (
    LOCATIONS,
    MANIFEST,
    PRIMARY,
    array,
    b2,
    data,
    entry,
    header_map,
    index,
    pairs,
    response,
    text,
    trailer,
    uint,
)
from tests.malformed.parts import Bundle as Parts
from tests.quotes import quotes

GOOD = Parts()
VARIANTS = b"Accept-Encoding;gzip;br, Accept-Language;en;fr;ja"


def refusal(parts, **settings) -> BundleError:
    content = parts if isinstance(parts, bytes) else parts.written()
    with pytest.raises(BundleError) as caught:
        open_bundle(content, **settings)
    return caught.value


def format_error(parts, step, **settings):
    """See that the metadata is refused at this step, with the fallback URL where that is known."""
    error = refusal(parts, **settings)
    assert isinstance(error, FormatError)
    assert step in error.step.split(", ")[0]
    early = step in {f"3.3 step {number}" for number in range(1, 7)} or step.startswith("3.3.6")
    assert error.fallback_url == (None if early else PRIMARY)
    return error


def response_error(first, step, length=None, **settings):
    """See that one response is refused at this step, and the other one is not."""
    bundle = open_bundle(GOOD.answering(first, length).written(), **settings)
    with pytest.raises(ResponseError) as caught:
        bundle.response(PRIMARY)
    assert step in caught.value.step.split(", ")
    assert bundle.response(MANIFEST).status == 200
    return caught.value


def refused_at(section, steps):
    """See that the cases of the malformed table for these steps of a section are refused there."""
    for step in steps.split():
        cases = [case for case in CASES if case.step == f"{section} step {step}"]
        assert cases
        for case in cases:
            with named(case.name):
                check_case(case, "strict")


def indexed(entries):
    return GOOD.having(index=index({MANIFEST: entry(LOCATIONS[1]), **entries}))


def fields(*wanted, **more):
    named = {b":status": b"200", b"content-type": b"text/plain"}
    for pair in wanted:
        named |= pair
    return header_map({name: value for name, value in named.items() if value is not None})


def whole(content):
    """Read one item, and nothing behind it."""
    items = Items(content)
    items.any()
    items.end()


class TestSemantics:
    @quotes(
        "bundled-exchanges-01 2.2",
        "a map ([INFRA]) of metadata containing at least keys named: [...] primaryUrl [...] requests [...] manifest",
    )
    @quotes(
        "bundled-exchanges-01 3.3",
        'Let "sectionsStart" be the current offset within "stream".',
        'Set "sectionOffsets["name"]" to ("currentOffset", "length").',
        'Set "currentOffset" to "currentOffset + length".',
        'If ""name""\'s Metadata field (Section 6.2) is "No", continue to the next triple.',
    )
    @quotes(
        "bundled-exchanges-01 3.3.1",
        'return a "ResponseMetadata" struct whose offset is "sectionOffsets["responses"].offset" + '
        '"offset" and whose length is "length".',
    )
    def test_load_metadata_returns_a_map_with_the_places_of_sections_and_responses(self):
        metadata = parse_metadata(GOOD.written()[: GOOD.at("responses")])
        assert metadata.primary_url == PRIMARY
        assert set(metadata.requests) == {PRIMARY, MANIFEST}
        assert metadata.manifest_url == MANIFEST
        assert metadata.sections[0].offset == GOOD.at("sections") + 1
        for section in metadata.sections:
            assert (section.offset, section.length) == (GOOD.at(section.name), len(GOOD.sections[section.name]))
        offset, length = LOCATIONS[1]
        assert metadata.requests[MANIFEST] == Location(GOOD.at("responses") + offset, length)

    @quotes(
        "bundled-exchanges-01 2.2",
        "This operation only waits for a prefix of the stream that, if the bundle is encoded with the "
        '"responses" section last, ends before the first response.',
    )
    def test_metadata_waits_for_a_prefix_that_ends_before_the_first_response(self):
        content, ready = GOOD.written(), GOOD.at("responses")
        reader = StreamReader()
        assert reader.feed(content[: ready - 1]) == []
        assert [type(event) for event in reader.feed(content[ready - 1 : ready])] == [MetadataEvent]

    @quotes(
        "bundled-exchanges-01 2.1",
        "If the stream ends before enough bytes are received, either due to a network error or because "
        "the stream has a finite length, the read operation returns an error instead.",
    )
    def test_a_read_that_ends_early_is_an_error(self):
        for end in range(GOOD.at("responses")):
            assert isinstance(refusal(GOOD.written()[:end]), FormatError)

    @quotes(
        "bundled-exchanges-01 2.3",
        "This operation can be completed without inspecting bytes other than those that make up the loaded response",
    )
    def test_a_response_is_loaded_from_its_own_bytes(self):
        content = bytearray(GOOD.written())
        other = parse_metadata(content).requests[MANIFEST]
        content[other.offset : other.offset + other.length] = bytes(other.length)
        assert bytes(open_bundle(content).response(PRIMARY).payload) == b"hello"

    @quotes(
        "bundled-exchanges-01 2.3",
        "For a URL with multiple variants, the client SHOULD use the algorithm in Section 4 of "
        "[I-D.ietf-httpbis-variants] to select the best variant.",
    )
    def test_a_variant_is_selected_by_the_variants_draft(self):
        stored = [response(fields(), key.encode()) for key in ("gzip;en", "gzip;fr", "br;en", "br;fr")]
        places, start = [], 1
        for item in stored:
            places.append((start, len(item)))
            start += len(item)
        variants = b"Accept-Encoding;gzip;br, Accept-Language;en;fr"
        entries = {PRIMARY: entry(*places, variants=variants), MANIFEST: entry(places[0])}
        bundle = open_bundle(GOOD.having(index=index(entries), responses=array(*stored)).written())
        found = bundle.select(PRIMARY, {"Accept-Encoding": "gzip;q=0.5, br", "Accept-Language": "fr"})
        assert bytes(found.payload) == b"br;fr"


def served_headers(path):
    """Give the headers of the answer to a GET for the bundle at `path`."""
    sent = []

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": "/", "raw_path": b"/", "query_string": b"", "headers": []}
    asyncio.run(BundleApp(path)(scope, None, send))
    return dict(sent[0]["headers"])


class TestServingConstraints:
    @quotes(
        "bundled-exchanges-01 3.2",
        'When served over HTTP, a response containing an "application/ webbundle" payload MUST include at '
        "least the following response header fields, to reduce content sniffing vulnerabilities (Section "
        "5.2): o Content-Type: application/webbundle o X-Content-Type-Options: nosniff",
    )
    @quotes("bundled-exchanges-01 6.1", "v: A string denoting the version of the file format.")
    def test_a_bundle_is_served_with_its_type_version_and_nosniff(self, tmp_path):
        for version, parts in ((b"b1", GOOD), (b"b2", b2())):
            path = tmp_path / f"{version!r}.wbn"
            path.write_bytes(parts.written())
            headers = served_headers(path)
            assert headers[b"content-type"] == b"application/webbundle;v=" + version
            assert headers[b"x-content-type-options"] == b"nosniff"


class TestLoadMetadata:
    @quotes(
        "bundled-exchanges-01 3.3",
        'If reading 10 bytes from "stream" returns an error or doesn\'t return the bytes with hex encoding '
        '"84 48 F0 9F 8C 90 F0 9F 93 A6"',
        'Let "version" be the result of reading 5 bytes from "stream". If this is an error, return a "format error".',
        'If this is an error or "urlType" is not 3 (a CBOR text string), return a "format error".',
        'Let "fallbackUrlBytes" be the result of reading "urlLength" bytes from "stream". If this is an '
        'error, return a "format error".',
        'If either the UTF-8 decoding or parsing fails, return a "format error".',
        'If "version" does not have the hex encoding "44 31 00 00 00" [...], return a "version error" '
        'with "fallbackUrl".',
        'Let "sectionLengthsLength" be the result of getting the length of the CBOR bytestring header '
        'from "stream" (Section 3.5.2). If this is an error, return a "format error" with "fallbackUrl".',
        'If "sectionLengthsLength" is 8192 (8*1024) or greater, return a "format error" with "fallbackUrl".',
        'If "sectionLengthsBytes" is an error, return a "format error" with "fallbackUrl".',
        'Let "sectionLengths" be the result of parsing one CBOR item (Section 3.5) from '
        '"sectionLengthsBytes", matching the section-lengths rule in the CDDL ([CDDL]) above.',
        'If "sectionLengths" is an error, return a "format error" with "fallbackUrl".',
        'If "sectionsType" is not "4" (a CBOR array) or "numSections" is not half of the length of '
        '"sectionLengths", return a "format error" with "fallbackUrl".',
        'If "sectionOffsets["name"]" exists, return a "format error" with "fallbackUrl". That is, '
        "duplicate sections are forbidden.",
        'If the "responses" section is not last in "sectionLengths", return a "format error" with "fallbackUrl".',
        'Seek to offset "offset" in "stream". If this fails, return a "format error" with "fallbackUrl".',
        'Let "sectionContents" be the result of reading "length" bytes from "stream". If '
        '"sectionContents" is an error, return a "format error" with "fallbackUrl".',
        'If "metadata" doesn\'t have entries with keys "requests" and "manifest", return a "format error" '
        'with "fallbackUrl".',
    )
    def test_each_step_refuses(self):
        refused_at("3.3", "2 3 4 5 6 7 8 9 10 11 12 13 19.2 20 22 24")

    @quotes(
        "bundled-exchanges-01 3.3",
        "From this point forward, errors also include the fallback URL to help clients recover.",
    )
    def test_step_6_note_later_errors_have_the_fallback_url(self):
        assert refusal(GOOD.having(manifest=b"\x01")).fallback_url == PRIMARY

    @quotes(
        "bundled-exchanges-01 3.3",
        'Let "metadata" be a map ([INFRA]) initially containing the single key/value pair '
        '""primaryUrl""/"fallbackUrl".',
    )
    def test_step_21_primary_url(self):
        assert (
            parse_metadata(Parts(url=text("https://test.example.com/Other")).written()).primary_url == PRIMARY + "Other"
        )

    @quotes(
        "bundled-exchanges-01 3.3",
        "Implementations that don't implement any such sections are free to omit the relevant steps.",
        'If ""name"" isn\'t in "knownSections", continue to the next triple.',
    )
    def test_steps_19_1_and_22_1_unknown_sections(self):
        parts = GOOD.arranged(("first", b"\xff"), *GOOD.having(later=b"\x01").sections.items())
        assert set(open_bundle(parts.written()).metadata.requests) == {PRIMARY, MANIFEST}

    @quotes(
        "bundled-exchanges-01 3.3",
        'Follow ""name""\'s specification from "knownSections" to process the section [...] If this '
        'returns an error, return a "format error" with "fallbackUrl".',
    )
    def test_step_22_6_a_refused_section_refuses_the_bundle(self):
        for name in ("index", "manifest", "critical", "signatures"):
            assert isinstance(refusal(GOOD.having(**{name: b"\xf6"})), FormatError)


class TestIndex:
    @quotes(
        "bundled-exchanges-01 3.3.1",
        'Let "index" be the result of parsing "sectionContents" as a CBOR item matching the "index" rule '
        'in the above CDDL (Section 3.5). If "index" is an error, return an error.',
        'If "offset" + "length" is larger than "sectionOffsets["responses"].length", return an error.',
        'If "parsedUrl" is a failure, its fragment is not null, or it includes credentials, return an error.',
        'If the length of "responses" is not 3 (i.e. there is more than one "location-in-responses" in '
        "responses), return an error.",
        'Let "variants" be the result of parsing the first element of "responses" as the value of the '
        '"Variants" HTTP header field (Section 2 of [I-D.ietf-httpbis-variants]). If this fails, return '
        "an error.",
        'If the length of "responses" is not "2 * len(variantKeys) + 1", return an error.',
    )
    def test_each_step_refuses(self):
        refused_at("3.3.1", "1 3 4.2 4.3.1 4.4.1 4.4.3")

    @quotes(
        "bundled-exchanges-01 3.3.1",
        'assert that "requests"["parsedUrl"] does not exist, and set "requests"["parsedUrl"] to '
        '"MakeRelativeToStream(location-in-responses)"',
    )
    def test_step_4_3_2_each_url_once(self):
        twice = {PRIMARY: entry(LOCATIONS[0]), PRIMARY.upper(): entry(LOCATIONS[0])}
        format_error(indexed(twice), "3.3.1 step 4.3.2")

    @quotes(
        "bundled-exchanges-01 3.3.1",
        'Set "requests"["parsedUrl"] to a map from "variantKeys"["i"] to the result of calling '
        '"MakeRelativeToStream" on the "location-in-responses" at "responses"["2*i+1"] and '
        '"responses"["2*i+2"]',
    )
    def test_step_4_4_4_each_key_has_its_location(self):
        places = [(number, 1) for number in range(6)]
        found = open_bundle(indexed({PRIMARY: entry(*places, variants=VARIANTS)}).written()).metadata.requests[PRIMARY]
        start = parse_metadata(indexed({PRIMARY: entry(*places, variants=VARIANTS)}).written()).sections[-1].offset
        assert [location.offset - start for location in found.locations.values()] == list(range(6))
        assert list(found.locations) == ["gzip;en", "gzip;fr", "gzip;ja", "br;en", "br;fr", "br;ja"]
        wrong = indexed({PRIMARY: entry(*places[:5], (9_999, 1), variants=VARIANTS)})
        format_error(wrong, "3.3.1 step 3.1")


class TestManifest:
    @quotes(
        "bundled-exchanges-01 3.3.2",
        "The URL MUST refer to the one or more response(s) contained in the bundle itself.",
    )
    def test_the_writer_keeps_the_manifest_in_the_bundle(self):
        with (
            pytest.raises(HeadgateError, match="manifest"),
            BundleWriter(io.BytesIO(), primary_url=PRIMARY, manifest_url=MANIFEST) as writer,
        ):
            writer.add(PRIMARY, headers={"content-type": "text/html"}, payload=b"<p>")

    @quotes(
        "bundled-exchanges-01 3.3.2",
        'Let "urlString" be the result of parsing "sectionContents" as a CBOR item matching the above '
        '"manifest" rule (Section 3.5. If "urlString" is an error, return that error.',
        'If "url" is a failure, its fragment is not null, or it includes credentials, return an error.',
    )
    def test_each_step_refuses(self):
        refused_at("3.3.2", "1 3")

    @quotes("bundled-exchanges-01 3.3.2", 'Set "metadata["manifest"]" to "url".')
    def test_step_4_metadata(self):
        parts = GOOD.having(manifest=text("HTTPS://test.example.com/./manifest"))
        assert parse_metadata(parts.written()).manifest_url == MANIFEST


CERTIFICATE = pairs((text("cert"), data(b"c")))
SUBSET = pairs((text("sig"), data(b"s")), (text("signed"), data(b"t")), (text("authority"), uint(0)))


class TestSignatures:
    @quotes(
        "bundled-exchanges-01 3.3.3",
        'Let "signatures" be the result of parsing "sectionContents" as a CBOR item matching the '
        '"signatures" rule in the above CDDL (Section 3.5).',
    )
    def test_each_step_refuses(self):
        refused_at("3.3.3", "1")

    @quotes(
        "bundled-exchanges-01 3.3.3",
        'Set "metadata["authorities"]" to the list of authorities in the first element of the "signatures" array.',
        'Set "metadata["vouched-subsets"]" to the second element of the "signatures" array.',
    )
    def test_steps_2_and_3_metadata(self):
        metadata = parse_metadata(GOOD.having(signatures=array(array(CERTIFICATE), array(SUBSET))).written())
        assert metadata.authorities == (CERTIFICATE,)
        (subset,) = metadata.vouched_subsets
        assert (subset.authority, subset.sig, subset.signed) == (0, b"s", b"t")

    @quotes(
        "bundled-exchanges-01 3.3.3", "In particular, the algorithm below does not check that signatures are valid."
    )
    def test_parsing_verifies_no_signature(self):
        assert open_bundle(GOOD.having(signatures=array(b"\x80", array(SUBSET))).written()).metadata.vouched_subsets


class TestCritical:
    @quotes(
        "bundled-exchanges-01 3.3.4",
        'Let "critical" be the result of parsing "sectionContents" as a CBOR item matching the above '
        '"critical" rule (Section 3.5). If "critical" is an error, return that error.',
        'For each value "sectionName" in the "critical" list, if the client has not implemented sections '
        'named "sectionName", return an error.',
    )
    def test_each_step_refuses(self):
        refused_at("3.3.4", "1 2")

    @quotes("bundled-exchanges-01 3.3.4", "This section does not modify the returned metadata.")
    def test_it_changes_no_metadata(self):
        found = parse_metadata(GOOD.having(critical=array(text("index"))).written())
        plain = parse_metadata(GOOD.written())
        assert (found.primary_url, found.manifest_url, set(found.requests)) == (PRIMARY, MANIFEST, set(plain.requests))


class TestFromEnd:
    @quotes(
        "bundled-exchanges-01 3.3.6",
        'Let "byteStringHeader" be "bytes[bytes.length - 9]". If "byteStringHeader is not "0x48` (the '
        "CBOR ([CBORbis]) initial byte for an 8-byte byte string), return an error.",
        'If "bundleLength > bytes.length", return an error.',
    )
    def test_each_step_refuses(self):
        refused_at("3.3.6", "1 3")

    @quotes("bundled-exchanges-01 3.3.6", 'Return the result of running Section 3.3 with "stream" as input.')
    def test_steps_4_and_5_the_stream(self):
        with open_bundle(b"\x7fELF" * 100 + GOOD.written(), from_end=True) as bundle:
            assert bundle.metadata == parse_metadata(GOOD.written())
            assert bytes(bundle.response(PRIMARY).payload) == b"hello"
        format_error(Parts(trailer=trailer(0)), "3.3 step 2", from_end=True)


class TestLoadResponse:
    @quotes(
        "bundled-exchanges-01 3.4",
        "The headers can be loaded from the bundle's stream before waiting for the payload, and similarly "
        "the payload can be streamed to downstream consumers.",
    )
    def test_the_headers_come_before_the_payload(self):
        large = GOOD.answering(response(payload=b"x" * 9_000)).written()
        reader = StreamReader()
        kinds = [type(event) for event in reader.feed(large[: large.index(b"xxx") + 1])]
        assert kinds[-2:] == [HeadEvent, PayloadEvent]

    @quotes(
        "bundled-exchanges-01 3.4",
        'Read 1 byte from "stream". If this is an error or isn\'t "0x82", return an error.',
        'Let "headerLength" be the result of getting the length of a CBOR bytestring header from "stream" '
        '(Section 3.5.2). If "headerLength" is an error, return that error.',
        'If "headerLength" is 524288 (512*1024) or greater, return an error.',
        'Let "headerCbor" be the result of reading "headerLength" bytes from "stream" and parsing a CBOR '
        'item from them matching the "headers" CDDL rule. If either the read or parse returns an error, '
        "return that error.",
        "If \"pseudos\" does not have a key named ':status' or its size isn't 1, return an error.",
        "If \"pseudos[':status']\" isn't exactly 3 ASCII decimal digits, return an error.",
        'If "headers" does not contain a "Content-Type" header, return an error.',
        'Let "payloadLength" be the result of getting the length of a CBOR bytestring header from '
        '"stream" (Section 3.5.2). If "payloadLength" is an error, return that error.',
        'If "stream.currentOffset + payloadLength != responseMetadata.offset + responseMetadata.length", '
        "return an error.",
        'starting at the current offset and ending after "payloadLength" bytes.',
    )
    def test_each_step_refuses(self):
        refused_at("3.4", "2 3 4 5 7 8 9 10 11 12")

    @quotes(
        "bundled-exchanges-01 3.4",
        'Let ("headers", "pseudos") be the result of converting "headerCbor" to a header list and '
        "pseudoheaders using the algorithm in Section 3.6. If this returns an error, return that error.",
    )
    def test_step_6_the_header_list(self):
        response_error(response(fields({b"X": b"y"})), "3.4 step 6")

    @quotes(
        "bundled-exchanges-01 3.4",
        "The client MUST interpret the following payload as this specified media type instead of trying "
        "to sniff a media type from the bytes of the payload, for example by appending an artificial "
        '"X-Content-Type-Options: nosniff" header field ([FETCH]) to "headers".',
    )
    def test_step_9_content_is_not_sniffed(self):
        headers = open_bundle(GOOD.written()).response(PRIMARY).headers
        assert list(headers.items())[-1] == ("x-content-type-options", "nosniff")

    @quotes(
        "bundled-exchanges-01 3.4",
        'Let "response" be a new response ([FETCH]) whose: [...] status is "pseudos[\':status\']", header '
        'list is "headers", and body is "body".',
    )
    def test_steps_12_to_14_the_response(self):
        stored = response(fields({b":status": b"404"}, {b"etag": b'"1"'}), b"gone")
        found = open_bundle(GOOD.answering(stored).written()).response(PRIMARY)
        assert (found.status, bytes(found.payload)) == (404, b"gone")
        assert found.stored_headers == {"content-type": "text/plain", "etag": '"1"'}


class TestCborItems:
    @quotes("bundled-exchanges-01 3.5.1", 'If "bytes" are not a well-formed CBOR item, return an error.')
    def test_3_5_1_step_1_well_formed(self):
        self.refused("3.5.1 step 1", b"", b"\x82\x01", b"\x1c", b"\x42a", b"\xff", b"\xf8\x10")

    @quotes(
        "bundled-exchanges-01 3.5.1",
        'If "bytes" does not satisfy the core deterministic encoding requirements from Section 4.2.1 of '
        "[CBORbis], return an error.",
    )
    def test_3_5_1_step_2_deterministic(self):
        twice, unordered = b"\xa2\x01\x01\x01\x02", b"\xa2\x02\x01\x01\x02"
        self.refused("3.5.1 step 2", b"\x18\x05", b"\x9f\xff", b"\x5f\xff", twice, unordered, b"\xfa\x3f\x80\0\0")

    @quotes(
        "bundled-exchanges-01 3.5.1",
        'If "bytes" includes extra bytes after the encoding of a CBOR item, return an error.',
    )
    def test_3_5_1_step_3_extra_bytes(self):
        self.refused("3.5.1 step 3", b"\x01\x01", b"\x80\xff")

    @quotes(
        "bundled-exchanges-01 3.5.1", 'If a CDDL rule was specified, but "item" does not match it, return an error.'
    )
    def test_3_5_1_step_5_the_cddl(self):
        with pytest.raises(CborError) as caught:
            Items(b"\x41a").text()
        assert caught.value.step == "3.5.1 step 5"

    @quotes("bundled-exchanges-01 3.5.2", 'If "type" is not "2", the item is not a bytestring. Return an error.')
    def test_3_5_2_step_2_a_bytestring(self):
        assert "3.5.2 step 2" in response_error(b"\x82" + text("headers"), "3.4 step 3").step

    @quotes(
        "bundled-exchanges-01 3.5.3",
        'Let "firstByte" be the result of reading 1 byte from the stream. If "firstByte" is an error, '
        "return that error.",
    )
    def test_3_5_3_step_1_a_first_byte(self):
        assert "3.5.3 step 1" in format_error(GOOD.written()[: GOOD.at("lengths head")], "3.3 step 8").step

    @quotes("bundled-exchanges-01 3.5.3", '0..23, inclusive Return ("type", "firstByte & 0x1F").')
    def test_3_5_3_step_3_the_argument(self):
        assert [read_head(bytes([byte]))[:2] for byte in (0x00, 0x17, 0x57, 0x97)] == [
            (0, 0),
            (0, 23),
            (2, 23),
            (4, 23),
        ]

    @quotes(
        "bundled-exchanges-01 3.5.3",
        '24 Let "content" be the result of reading 1 byte from the stream. If "content" is an error or is '
        'less than 24, return an error. 25 Let "content" be the result of reading 2 bytes from the '
        'stream. If "content" is an error or its first byte is 0, return an error. 26 Let "content" be '
        'the result of reading 4 bytes from the stream. If "content" is an error or its first two bytes '
        'are 0, return an error. 27 Let "content" be the result of reading 8 bytes from the stream. If '
        '"content" is an error or its first four bytes are 0, return an error.',
    )
    @pytest.mark.parametrize("width", [1, 2, 4, 8])
    def test_3_5_3_step_3_the_shortest(self, width):
        least = {1: 24, 2: 256, 4: 65_536, 8: 2**32}[width]
        assert read_head(head(2, least)) == (2, least, 1 + width)
        for wrong in (head(2, least)[:1] + (least - 1).to_bytes(width, "big"), head(2, least)[:-1]):
            with pytest.raises(CborError) as caught:
                read_head(wrong)
            assert caught.value.step == "3.5.3 step 3"

    @quotes(
        "bundled-exchanges-01 3.5.3",
        "28..31, inclusive Return an error. Note: This intentionally does not support indefinite-length items.",
    )
    def test_3_5_3_step_3_no_indefinite_lengths(self):
        for low in range(28, 32):
            with pytest.raises(CborError):
                read_head(bytes([0x40 | low]) + bytes(9))

    def refused(self, step, *wrong):
        for content in wrong:
            with pytest.raises(CborError) as caught:
                whole(content)
            assert caught.value.step == step, content


class TestHeaders:
    @quotes(
        "bundled-exchanges-01 3.6", 'If "item" doesn\'t match the "headers" rule in the above CDDL, return an error.'
    )
    def test_step_1_the_cddl(self):
        response_error(response(pairs((data(b":status"), text("200")))), "3.4 step 5")

    @quotes(
        "bundled-exchanges-01 3.6",
        'If "name" contains any upper-case or non-ASCII characters, return an error.',
        'If "name" or "value" doesn\'t satisfy the requirements for a header in [FETCH], return an error.',
    )
    def test_each_step_refuses(self):
        refused_at("3.6", "4.1 4.3")

    @quotes(
        "bundled-exchanges-01 3.6",
        'Assert: "headers" does not contain ([FETCH]) "name", because CBOR maps cannot contain duplicate keys',
    )
    def test_step_4_4_each_name_once(self):
        twice = pairs((data(b":status"), data(b"200")), *[(data(b"set-cookie"), data(b"a=b"))] * 2)
        response_error(response(twice), "3.5.1 step 2")

    @quotes("bundled-exchanges-01 3.6", "If \"name\" starts with a ':'", 'Return ("headers", "pseudos").')
    def test_steps_4_2_and_5_the_headers_without_pseudo_headers(self):
        stored = response(fields({b"x-name": "é".encode("latin-1")}))
        headers = open_bundle(GOOD.answering(stored).written()).response(PRIMARY).stored_headers
        assert headers == {"content-type": "text/plain", "x-name": "é"}


class TestAuthors:
    def written(self, **settings):
        target = io.BytesIO()
        with BundleWriter(target, primary_url=PRIMARY, manifest_url=MANIFEST, **settings) as writer:
            writer.add(PRIMARY, headers={"content-type": "text/plain"}, payload=b"hello")
            writer.add(MANIFEST, headers={"content-type": "application/json"}, payload=b"{}")
        return target.getvalue()

    @quotes(
        "bundled-exchanges-01 4",
        "Bundles SHOULD consist of a single CBOR item satisfying the core deterministic encoding "
        'requirements (Section 3.5) and matching the "webbundle" CDDL rule in Section 3.1.',
    )
    @quotes(
        "bundled-exchanges-01 3.3",
        'Implementations of drafts of this specification MUST NOT use the version "1" in this byte '
        "string, and MUST instead define an implementation- specific string to identify which draft is "
        "implemented.",
    )
    @quotes("bundled-exchanges-01 3.1", "length: bytes .size 8, ; Big-endian number of bytes in the bundle.")
    def test_the_writer_emits_one_deterministic_item_with_its_version_and_length(self):
        for version in ("b1", "b2"):
            content = self.written(version=version)
            whole(content)
            assert content[10:15] == b"\x44" + version.encode() + b"\0\0"
            assert content[-9:] == b"\x48" + len(content).to_bytes(8, "big")


class TestContentSniffing:
    @quotes(
        "bundled-exchanges-01 5.2",
        'To encourage servers to include the "X-Content-Type-Options: nosniff" header field, clients '
        "SHOULD reject bundles served without it.",
    )
    def test_a_bundle_without_nosniff_is_rejected(self):
        httpx2 = pytest.importorskip("httpx2")

        def serve(request):
            return httpx2.Response(200, headers={"content-type": "application/webbundle;v=b1"}, content=GOOD.written())

        told = []
        url = "https://test.example.com/site.wbn"
        transport = BundleTransport(url, httpx2.MockTransport(serve), tell=told.append)
        transport.handle_request(httpx2.Request("GET", PRIMARY))
        assert "expected X-Content-Type-Options: nosniff" in told[0]
        lax = BundleTransport("https://test.example.com/site.wbn", httpx2.MockTransport(serve), require_nosniff=False)
        assert lax.handle_request(httpx2.Request("GET", PRIMARY)).read() == b"hello"


class TestSectionNames:
    @quotes("bundled-exchanges-01 6.2", "Section Names MUST be encoded in UTF-8.")
    def test_section_names_are_utf_8(self):
        lengths = array(text(b"\xff"), uint(1), text("responses"), uint(1))
        format_error(Parts(lengths=lengths), "3.3 step 11")
