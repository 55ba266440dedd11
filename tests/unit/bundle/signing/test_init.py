"""Only signing and verifying need cryptography; without it they name the extra to install."""

import io
import subprocess
import sys
from pathlib import Path

import pytest

from headgate.bundle.api import open_bundle
from headgate.bundle.reader import Bundle
from headgate.bundle.signing import add_integrity, remove_integrity, sign_bundle, verify_bundle
from headgate.errors import MissingExtra

VECTORS = Path(__file__).parents[3] / "vectors" / "bundle"


@pytest.fixture(autouse=True)
def _without_cryptography(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)


def swbn() -> Bundle:
    return open_bundle(VECTORS / "small_b2_signed.swbn")


def test_signing_and_verifying_name_the_extra() -> None:
    with swbn() as bundle:
        assert bundle.integrity_block is not None
        for use in (
            lambda: verify_bundle(bundle, now=0),
            lambda: add_integrity(bundle, io.BytesIO(), key=b""),
            lambda: remove_integrity(bundle, io.BytesIO(), key=b""),
            lambda: sign_bundle(bundle, io.BytesIO(), certificate=b"", key=b"", validity_url="", date=0, expires=1),
        ):
            with pytest.raises(MissingExtra, match="extra 'sign'"):
                use()


def test_blocks_are_read_and_removed_without_the_extra() -> None:
    out = io.BytesIO()
    with swbn() as bundle:
        assert bundle.integrity_block is not None
        assert [one.key_id for one in bundle.integrity_block.signatures] == [bundle.integrity_block.web_bundle_id]
        remove_integrity(bundle, out)
    assert out.getvalue() == (VECTORS / "small_b2.wbn").read_bytes()


def test_unsigned_bundle_needs_no_extra() -> None:
    with open_bundle(VECTORS / "small_b2.wbn") as bundle:
        assert not verify_bundle(bundle, now=0).valid


def test_importing_the_package_imports_no_cryptography() -> None:
    script = "import sys, headgate.bundle.signing; sys.exit('cryptography' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
