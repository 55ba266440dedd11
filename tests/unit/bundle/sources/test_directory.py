import os
import re
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from headgate.bundle.model import Exchange
from headgate.bundle.sources import directory, find_manifest
from headgate.bundle.sources.directory import media_type
from headgate.errors import ConfigurationError

BASE = "https://example.com/"


def put(root: Path, name: str, content: bytes = b"x") -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def read(root: Path, base: str = BASE) -> tuple[dict[str, Exchange], list[str]]:
    messages: list[str] = []
    exchanges = list(directory(root, base, tell=messages.append))
    assert len({exchange.url for exchange in exchanges}) == len(exchanges)
    return {exchange.url: exchange for exchange in exchanges}, messages


def test_index_has_the_url_of_its_directory_and_a_redirect(tmp_path: Path) -> None:
    put(tmp_path, "index.html", b"<p>top")
    put(tmp_path, "sub/index.html", b"<p>sub")
    found, _ = read(tmp_path)
    assert list(found) == [BASE, f"{BASE}sub/", f"{BASE}index.html", f"{BASE}sub/index.html"]
    assert found[f"{BASE}sub/"].payload.path == str(tmp_path / "sub/index.html")
    moved = found[f"{BASE}sub/index.html"]
    assert (moved.status, moved.headers["location"], moved.payload) == (301, "./", b"")
    assert moved.headers["content-type"]  # without one a strict reader refuses the response


def test_charset_is_set_for_valid_utf_8_only(tmp_path: Path) -> None:
    put(tmp_path, "utf.html", "é".encode())
    put(tmp_path, "old.html", b"<meta charset=windows-1251>\xcf")
    put(tmp_path, "cut.html", b"x" * (1 << 18) + "é".encode()[:1])
    put(tmp_path, "wide.html", b"x" * ((1 << 18) - 1) + "é".encode())
    put(tmp_path, "data.json", "é".encode())
    types = {url.removeprefix(BASE): exchange.headers["content-type"] for url, exchange in read(tmp_path)[0].items()}
    assert types == {
        "utf.html": "text/html; charset=utf-8",
        "old.html": "text/html",
        "cut.html": "text/html",
        "wide.html": "text/html; charset=utf-8",
        "data.json": "application/json",
    }


def test_hidden_files_are_left_out_except_well_known(tmp_path: Path) -> None:
    for name in [".git/config", ".env", ".DS_Store", "sub/.htpasswd", ".well-known/security.txt", "a.txt"]:
        put(tmp_path, name)
    found, messages = read(tmp_path)
    assert list(found) == [f"{BASE}.well-known/security.txt", f"{BASE}a.txt"]
    (sentence,) = messages
    assert "left out 4, such as" in sentence
    assert ".DS_Store" in sentence
    assert "hidden" in sentence


def test_symbolic_links_are_followed_within_the_root_only(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", put(tmp_path, "outside/secret.txt")
    put(root, "v2/page.txt", b"new")
    put(tmp_path, "root-too/secret.txt")
    (root / "latest").symlink_to("v2")
    (root / "alias.txt").symlink_to(root / "v2/page.txt")
    (root / "secret.txt").symlink_to(outside)
    (root / "up").symlink_to("../outside")
    (root / "sibling").symlink_to("../root-too")
    (root / "v2/away").symlink_to(root / "up")
    (root / "gone").symlink_to("nothing")
    (root / "self").symlink_to("self")
    found, messages = read(root)
    assert list(found) == [f"{BASE}alias.txt", f"{BASE}latest/page.txt", f"{BASE}v2/page.txt"]
    assert found[f"{BASE}latest/page.txt"].payload.path == str(root / "v2/page.txt")  # where it really is
    assert [sentence.partition("left out ")[2].partition(", ")[0] for sentence in messages] == ["2", "5", ""]
    assert messages.pop().endswith("links to directories that were followed, so that files are stored again: 1")
    assert {sentence.rpartition(": ")[2] for sentence in messages} == {
        "a symbolic link that leads out of the directory",
        "a broken symbolic link",
    }


def test_circular_links_are_left_out(tmp_path: Path) -> None:
    put(tmp_path, "a/x.txt")
    put(tmp_path, "b/y.txt")
    (tmp_path / "a/home").symlink_to("..")
    (tmp_path / "a/b").symlink_to("../b")
    (tmp_path / "b/a").symlink_to("../a")
    found, messages = read(tmp_path)
    assert list(found) == [f"{BASE}{name}" for name in ["a/b/y.txt", "a/x.txt", "b/a/x.txt", "b/y.txt"]]
    assert re.search(r"/b/(a|home)': a symbolic link to a directory that it is in", messages[0])


def test_files_multiplied_by_links_are_limited(tmp_path: Path) -> None:
    put(tmp_path, "0/a.txt")
    for level in range(1, 40):
        folder = tmp_path / str(level)
        folder.mkdir()
        for name in "xy":
            (folder / name).symlink_to(f"../{level - 1}")
    with pytest.raises(ConfigurationError, match="has more than 500 files"):
        list(directory(tmp_path, BASE, max_files=500))


def test_directories_may_be_deeper_than_the_call_stack(tmp_path: Path) -> None:
    deep = [tmp_path]
    for _ in range(1_500):
        deep.append(deep[-1] / "d")
        deep[-1].mkdir()
    file = put(deep[-1], "a.txt")
    try:
        assert list(read(tmp_path)[0]) == [f"{BASE}{'d/' * 1_500}a.txt"]
    finally:
        file.unlink()
        for folder in reversed(deep[1:]):  # shutil cannot remove so deep a tree
            folder.rmdir()


def test_special_files_are_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.html")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        (tmp_path / "null.html").symlink_to("/dev/null")
        put(tmp_path, "a.txt")
        found, messages = read(tmp_path)
    assert list(found) == [f"{BASE}a.txt"]
    assert any("left out 2" in sentence and "neither a file nor a directory" in sentence for sentence in messages)


AS_NOBODY = """
import os, sys
from pathlib import Path
from headgate.bundle.sources import directory
from headgate.errors import HeadgateError
root = Path(sys.argv[1])
os.geteuid() or os.seteuid(65534)
try:
    print(list(directory(root, "https://a/")))
except HeadgateError as error:
    print(error)
"""


@pytest.mark.parametrize("name", ["secret.txt", "secret.png", "closed"])
def test_unreadable_file_is_reported(name: str) -> None:
    with tempfile.TemporaryDirectory() as made:  # pytest's own are for its user alone
        root = Path(made)
        root.chmod(0o755)
        put(root, "closed/a.txt" if name == "closed" else name)
        (root / name).chmod(0)
        command = [sys.executable, "-c", AS_NOBODY, made]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        (root / name).chmod(0o755)
    assert done.stdout.startswith(f"cannot read {root / name}: Permission denied")


def test_pages_styles_and_scripts_come_before_the_rest(tmp_path: Path) -> None:
    for name in ["a.png", "b.html", "c.css", "d.js", "e.txt", "index.html"]:
        put(tmp_path, name)
    early, rest = ["b.html", "c.css", "d.js"], ["a.png", "e.txt", "index.html"]
    assert list(read(tmp_path)[0]) == [BASE + name for name in ["", *early, *rest]]
    named = [exchange.url for exchange in directory(tmp_path, BASE, primary_url=f"{BASE}e.txt")]
    assert named == [BASE + name for name in ["e.txt", *early, "", "a.png", "index.html"]]


@pytest.mark.parametrize(
    ("base", "words"),
    [
        ("example.com/", "expected an absolute URL"),
        ("", "expected an absolute URL"),
        ("/site/", "expected an absolute URL"),
        ("data:text/plain,/", "expected an absolute URL"),
        ("https://", "expected an absolute URL"),
        ("https://example.com/site", "as in https://example.com/site/"),
        ("https://example.com/?", "must not have user, query"),
        ("https://example.com/?a=/", "must not have user, query"),
        ("https://example.com/#/", "must not have user, query"),
        ("https://me:secret@example.com/", "must not have user, query"),
    ],
)
def test_invalid_base_url_is_refused_at_once(base: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=words.replace("?", r"\?")):
        directory(tmp_path, base)


@pytest.mark.parametrize("name", ["missing", "a.txt"])
def test_root_that_is_not_a_directory_is_refused_at_once(name: str, tmp_path: Path) -> None:
    put(tmp_path, "a.txt")
    with pytest.raises(ConfigurationError, match=name):
        directory(tmp_path / name, BASE)
    with pytest.raises(ConfigurationError, match=name):
        find_manifest(tmp_path / name, BASE)


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["manifest.json", "manifest.webmanifest"], f"{BASE}manifest.webmanifest"),
        (["manifest.json"], f"{BASE}manifest.json"),
        (["site.webmanifest", "sub/manifest.json"], None),
        ([], None),
    ],
)
def test_manifest_is_found_at_the_root(names: list[str], found: str | None, tmp_path: Path) -> None:
    for name in names:
        put(tmp_path, name)
    assert find_manifest(tmp_path, BASE) == found


MEDIA_TYPES = [
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
    # A compressed file has no content coding; its type is that of the compression.
    ("page.html.gz", "application/gzip"),
    ("app.js.br", "application/octet-stream"),
    ("LICENSE", "application/octet-stream"),
    ("page.unknown-extension", "application/octet-stream"),
    ("html", "application/octet-stream"),
    (".html", "text/html"),
    ("dot.", "application/octet-stream"),
    ("sheet.xls", "application/vnd.ms-excel"),  # from Python's own table
]


def test_media_type_follows_from_the_extension() -> None:
    assert [(name, media_type(name)) for name, _ in MEDIA_TYPES] == MEDIA_TYPES
