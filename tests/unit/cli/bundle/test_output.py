from headgate.bundle import open_bundle
from headgate.bundle.reader import Bundle
from headgate.cli.bundle.output import iterate_responses
from tests.malformed import parts

LONG = parts.response(parts.header_map({b":status": b"200", b"content-type": b"text/plain", b"x": b"y" * 500_000}))


def overlapping(tmp_path, lengths):
    """Write a bundle whose URLs have one long response, of these lengths by their locations."""
    entries = {f"https://e.com/{number:04}": parts.entry((1, length)) for number, length in enumerate(lengths)}
    sections = {"index": parts.index(entries), "manifest": parts.text("https://e.com/0000")}
    path = tmp_path / "overlapping.wbn"
    path.write_bytes(parts.Bundle(sections={**sections, "responses": parts.array(LONG)}).written())
    return path


def test_shared_response_is_loaded_once(tmp_path, monkeypatch):
    loaded = []
    load = Bundle.head
    monkeypatch.setattr(Bundle, "head", lambda self, location: (loaded.append(location), load(self, location))[1])
    with open_bundle(overlapping(tmp_path, [len(LONG)] * 1_000)) as bundle:
        found = list(iterate_responses(bundle))
        assert (len(found), len(loaded), {head.status for _, _, _, head in found}) == (1_000, 1, {200})
        assert len({url for url, _, _, _ in found}) == 1_000
