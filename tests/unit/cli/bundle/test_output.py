from headgate.bundle import open_bundle
from headgate.bundle.reader import Bundle
from headgate.cli.bundle.output import iterate_responses
from tests.malformed import parts

LONG = parts.response(parts.header_map({b":status": b"200", b"content-type": b"text/plain", b"x": b"y" * 500_000}))


def test_shared_response_is_loaded_once(tmp_path, monkeypatch):
    path, loaded, load = tmp_path / "overlapping.wbn", [], Bundle.head
    path.write_bytes(parts.sharing(1_000, LONG).written())
    monkeypatch.setattr(Bundle, "head", lambda self, location: (loaded.append(location), load(self, location))[1])
    with open_bundle(path) as bundle:
        found = list(iterate_responses(bundle))
        assert (len(found), len(loaded), {head.status for _, _, _, head in found}) == (1_000, 1, {200})
        assert len({url for url, _, _, _ in found}) == 1_000
