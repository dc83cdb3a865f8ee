"""Build the documentation with Zensical, warnings as errors, and check every link in it.

``make docs`` runs this file. Zensical checks links between pages; this checks images, files and
anchors of the pages that were built. Pages also link to files outside of docs/, so that they work
in a checkout: figures and rows are copied beside the pages, and code is linked to its repository.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import yaml

ROOT = Path(__file__).parents[1]
SITE = ROOT / "site"
COPIED = {".csv", ".json", ".png", ".svg"}
LINK = re.compile(r'(?P<before>\b(?:href|src)=)"(?P<target>[^"]*)"')


def build() -> None:
    """Build the site; exit if there is any warning."""
    command = [Path(sys.executable).with_name("zensical"), "build", "--clean", "--strict"]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    printed = made.stdout + made.stderr
    print(printed)
    if made.returncode or re.search(r"warning|error|could not", printed, re.IGNORECASE):
        raise SystemExit("the site has warnings: see above")


def bring_in(site: Path, root: Path, repository: str) -> None:
    """Copy or link what pages refer to outside of docs/."""
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        changed = LINK.sub(
            partial(_inside, page=page, site=site, root=root, repository=repository), text
        )
        if changed != text:
            page.write_text(changed, encoding="utf-8")


def _inside(found: re.Match[str], page: Path, site: Path, root: Path, repository: str) -> str:
    target = found["target"]
    place = Path(os.path.normpath(page.parent / unquote(target)))
    if urlsplit(target).scheme or target.startswith(("#", "/")) or place.is_relative_to(site):
        return found[0]
    source = Path(os.path.relpath(place, site.parent))  # a page at a/b is one level below docs/
    if not (root / source).exists():
        return found[0]
    if source.suffix not in COPIED:
        kind = "tree" if (root / source).is_dir() else "blob"
        return f'{found["before"]}"{repository}/{kind}/main/{source.as_posix()}"'
    (site / source).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(root / source, site / source)
    return f'{found["before"]}"{Path(os.path.relpath(site / source, page.parent)).as_posix()}"'


class Page(HTMLParser):
    """What a page links to, and the names that others may link to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.names: set[str] = {""}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.names |= {found[name] for name in ("id", "name") if name in found}
        self.links += [found[name] for name in ("href", "src") if name in found]


def placed(page: Path, link: str) -> Path:
    """Return the file that a relative link of a page leads to."""
    place = Path(os.path.normpath(page.parent / link)) if link else page
    return place / "index.html" if place.is_dir() else place


def broken(site: Path) -> Iterator[str]:
    """Yield the links of a site that lead nowhere."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    for path, page in pages.items():
        if path.name == "404.html":  # its links begin at the root of the server
            continue
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            place = placed(path, unquote(parts.path))
            if not place.is_relative_to(site) or not place.exists():
                yield f"{path.relative_to(site)}: {link} does not exist"
            elif place in pages and unquote(parts.fragment) not in pages[place].names:
                yield f"{path.relative_to(site)}: {link} has no such anchor"


def main() -> None:
    """Build and check."""
    build()
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    bring_in(SITE, ROOT, settings["extra"]["social"][0]["link"])
    if wrong := sorted(set(broken(SITE))):
        raise SystemExit("\n".join(wrong))
    print(f"{len(list(SITE.rglob('*.html')))} pages in {SITE}, every link leads somewhere")


if __name__ == "__main__":
    main()
