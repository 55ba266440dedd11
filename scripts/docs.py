"""Build the documentation site: `make docs` writes it to build/site/VERSION.

The pages of docs/, the lab's own page and the generated reference are copied to build/docs, where Sphinx reads them;
every warning is an error. Then each link of each built page is checked: its file and anchor exist, and no page loads
anything from another host.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from headgate.version import VERSION
from scripts import reference

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "build" / "docs"
SITE = ROOT / "build" / "site"
NAME = ".".join(VERSION.split(".")[:2])
COPIED = {"lab/README.md": "lab.md", "tests/vectors/README.md": "reference/vectors.md"}
"""Pages of other folders that are pages of the site."""
_LINK = re.compile(r"(?<=\]\()[^)#:\s]+(?=[#)])")
_LOADING = {"script": "src", "img": "src", "source": "src", "iframe": "src", "object": "data"}


def main() -> int:
    """Build the site and check it; return the exit code."""
    assemble()
    built = SITE / NAME
    shutil.rmtree(built, ignore_errors=True)
    print(f"building {len(list(SOURCE.rglob('*.md')))} pages; that takes half a minute", flush=True)
    quiet = [] if sys.stdout.isatty() else ["-q"]
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-n", *quiet, "-b", "html"]
    command += ["-j", str(min(4, os.cpu_count() or 1)), "-d", str(ROOT / "build" / "doctrees")]
    done = subprocess.run([*command, str(SOURCE), str(built)], check=False)
    if done.returncode:
        return done.returncode
    names = sorted((path.name for path in SITE.iterdir() if (path / "index.html").exists()), key=_number, reverse=True)
    (SITE / "versions.json").write_text(json.dumps(names) + "\n")
    home = f"{names[0]}/index.html"
    (SITE / "index.html").write_text(
        '<!doctype html><meta charset="utf-8"><title>Headgate</title>'
        f'<meta http-equiv="refresh" content="0; url={home}"><a href="{home}">Headgate</a>\n'
    )
    wrong = problems(built)
    print("\n".join(wrong) or f"{built.relative_to(ROOT)}/index.html: {len(list(built.rglob('*.html')))} pages")
    return bool(wrong)


def _number(name: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", name)]


def assemble() -> None:
    """Copy what Sphinx reads to build/docs; files that have not changed keep their time."""
    sources = {path.relative_to(ROOT / "docs"): path for path in (ROOT / "docs").rglob("*") if path.is_file()}
    sources |= {Path(name): ROOT / page for page, name in COPIED.items()}
    texts = {Path("reference", name): write().encode() for name, write in reference.PAGES.items()}
    for name, path in sources.items():
        texts |= _relinked(path, name) if path.suffix == ".md" else {name: path.read_bytes()}
    for path in [path for path in SOURCE.rglob("*") if path.is_file() and path.relative_to(SOURCE) not in texts]:
        path.unlink()
    for name, text in texts.items():
        target = SOURCE / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists() or target.read_bytes() != text:
            target.write_bytes(text)


def _relinked(path: Path, name: Path) -> dict[Path, bytes]:
    """Return a page whose links to files outside docs/ lead to their copies in the site, and these copies."""
    copies = {}

    def relink(link: re.Match[str]) -> str:
        target = (path.parent / link[0]).resolve()
        if not target.is_relative_to(ROOT) or not target.is_file():
            return link[0]
        if target.is_relative_to(ROOT / "docs"):
            within = target.relative_to(ROOT / "docs")
        else:
            relative = target.relative_to(ROOT)
            within = Path(COPIED.get(str(relative), Path("files", relative)))
            if within.parts[0] == "files":
                copies[within] = target.read_bytes()
        return os.path.relpath(within, name.parent)

    text = _LINK.sub(relink, path.read_text(encoding="utf-8"))
    return {name: text.encode(), **copies}


class _Page(HTMLParser):
    """Collects the anchors of a page, its links, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag in _LOADING and _LOADING[tag] in given:
            self.loaded.append(given[_LOADING[tag]])
        if tag == "link" and given.get("rel") not in {"canonical", "index", "search", "next", "prev", "author"}:
            self.loaded.append(given["href"])
        if tag == "img" and not given.get("alt"):
            self.links.append(f"#an image without alternative text: {given.get('src')}")


def problems(site: Path) -> list[str]:
    """Return what is wrong in the built pages: links and anchors that do not exist, and requests to other hosts."""
    pages = {path: _Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    wrong = []
    for path, page in pages.items():
        for link in [*page.links, *page.loaded]:
            parts = urlsplit(link)
            if parts.scheme == "data" or (parts.scheme and link in page.links and link not in page.loaded):
                continue
            target = path if not parts.path else (path.parent / unquote(parts.path)).resolve()
            if parts.scheme or parts.netloc or not target.exists():
                wrong.append(f"{path.relative_to(site)}: {link}")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                wrong.append(f"{path.relative_to(site)}: {link}: no such anchor")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
