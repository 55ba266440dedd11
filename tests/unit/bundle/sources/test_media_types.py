import subprocess
import sys
from pathlib import Path

import pytest

from headgate.bundle.sources.directory import PINNED, media_type


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("index.html", "text/html"),
        ("APP.JS", "text/javascript"),
        ("app.mjs", "text/javascript"),
        ("style.css", "text/css"),
        ("data.json", "application/json"),
        ("app.js.map", "application/json"),
        ("site.webmanifest", "application/manifest+json"),
        ("lib.wasm", "application/wasm"),
        ("logo.svg", "image/svg+xml"),
        ("font.woff2", "font/woff2"),
        ("photo.avif", "image/avif"),
        ("photo.webp", "image/webp"),
        ("favicon.ico", "image/vnd.microsoft.icon"),
        ("paper.pdf", "application/pdf"),
        ("film.mp4", "video/mp4"),
        ("notes.txt", "text/plain"),
        ("feed.xml", "application/xml"),
        # Nothing is declared a coding: what is in the file is a gzip.
        ("page.html.gz", "application/gzip"),
        ("app.js.br", "application/octet-stream"),
        ("LICENSE", "application/octet-stream"),
        ("odd.nobody-knows", "application/octet-stream"),
        ("html", "application/octet-stream"),
        (".html", "text/html"),
        ("dot.", "application/octet-stream"),
        ("sheet.xls", "application/vnd.ms-excel"),  # from Python's own table
    ],
)
def test_the_extension_tells(name: str, found: str) -> None:
    assert media_type(name) == found


def test_the_machines_tables_change_nothing(tmp_path: Path) -> None:
    table = tmp_path / "mime.types"
    table.write_text("text/evil html js odd\n")
    script = (
        f"import mimetypes; mimetypes.knownfiles.append({str(table)!r}); mimetypes.init()\n"
        "from headgate.bundle.sources.directory import media_type\n"
        "print(mimetypes.guess_type('a.odd')[0], media_type('a.html'), media_type('a.odd'))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["text/evil", "text/html", "application/octet-stream"]


def test_the_table_is_of_extensions_in_lower_case_and_of_types() -> None:
    for extension, found in PINNED.items():
        assert extension == extension.lower()
        assert extension.startswith(".")
        assert found.count("/") == 1
        assert ";" not in found
