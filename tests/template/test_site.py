"""The documentation site builds without warnings, needs no network, and has every page of the repository."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml
from playwright.sync_api import Browser, expect

from app import api
from app.cli import COMMANDS
from app.version import __version__
from tests.kit.environments import ROOT

from .test_docs import pages

INDEX = ROOT / "docs/index.md"
CAPTIONS = ["Tutorial", "How-to guides", "Reference", "Explanation", "For contributors"]
# The repository's own README, its forms, and calls that a project's README contains.
NOT_ON_THE_SITE = re.compile(r"README\.md|\.github/pull_request_template\.md|examples/.*/calls\.md")
# Pages with another beginning: a list by version, and generated tables.
NO_BEGINNING = re.compile(r"CHANGELOG\.md|.*/results/.*\.md")
BEGINNING = re.compile(
    r"(Th(is|ese) .*\b[Yy]ou need (it|them)|You need this page) (if|when|to|for) "
)
SECRET = "value-from-the-environment-of-the-build"
# The columns of the tables of rates, of which the first is this service.
SERVERS = ("this service", "MLServer", "KServe", "Triton", "BentoML")
# Attributes of HTML from which a browser loads files.
LOADED = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src"}


class Loads(HTMLParser):
    """Collects the addresses of the files that a page loads."""

    def __init__(self, text: str):
        super().__init__()
        self.found: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found |= {value for name, value in attrs if value and name == LOADED.get(tag)}


def listed() -> dict[str, set[str]]:
    """Return the pages in each part of the index, relative to the root, without the suffix."""
    parts: dict[str, set[str]] = {}
    for block in re.findall(r"```\{toctree\}\n(.*?)```", INDEX.read_text(), re.DOTALL):
        caption, entries = re.match(r":caption: (.*)\n:hidden:\n\n(.*)", block, re.DOTALL).groups()  # type: ignore[union-attr]
        parts[caption] = {os.path.normpath(f"docs/{entry}") for entry in entries.split()}
    assert ":glob:\n\n*\n" in (ROOT / "docs/guides/index.md").read_text()
    return parts


def on_the_site() -> list[Path]:
    names = [
        page.relative_to(ROOT)
        for page in [*pages(ROOT), *ROOT.glob("dev/**/results/*.md"), *ROOT.glob("docs/**/*.md")]
    ]
    return sorted(
        {
            name
            for name in names
            if not NOT_ON_THE_SITE.fullmatch(str(name)) and "_build" not in name.parts
        }
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site with the options of `make docs`. A warning is an error."""
    folder = tmp_path_factory.mktemp("site")
    (options,) = re.findall(r"-m sphinx (.*) docs/_build", (ROOT / "dev/template.mk").read_text())
    assert "--fail-on-warning" in options
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *options.split(), folder],
        cwd=ROOT,
        env={**os.environ, "SOME_SECRET": SECRET},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_site_has_every_page(site: Path) -> None:
    """Each page is a document of the site and of its search, and the root opens the index."""
    search = (site / "searchindex.js").read_text()
    for page in on_the_site():
        name = str(page.with_suffix(""))
        assert (site / name).with_suffix(".html").exists()
        assert f'"{name}"' in search
    assert "url=docs/index.html" in (site / "index.html").read_text()


def test_site_loads_only_its_own_files(site: Path) -> None:
    """No page, style or script of the site loads a file of another server, so the site and its search work offline."""
    names = [*site.rglob("*.html")]
    assert len(names) > 30
    for page in names:
        for address in Loads(page.read_text()).found:
            assert not re.match(r"(\w+:)?//", address), (page, address)
            assert (
                address.startswith("data:")
                or (page.parent / address.split("?")[0].split("#")[0]).exists()
            ), address
    for style in site.rglob("*.css"):
        assert not re.findall(r"""(?:@import\s+|url\(\s*)["']?(?:\w+:)?//""", style.read_text()), (
            style
        )
    for script in site.rglob("*.js"):
        loads = r"""(?:fetch|import|importScripts|\.src\s*=)\s*\(?\s*["'`](?:\w+:)?//"""
        assert not re.findall(loads, script.read_text()), script


def test_search_works_offline(site: Path, chromium: Browser) -> None:
    """The search of the built files finds the page about scaling, without a network and without a server."""
    with chromium.new_context(offline=True) as context:
        page = context.new_page()
        requests: list[str] = []
        page.on("request", lambda request: requests.append(request.url))
        page.goto(f"file://{site}/search.html?q=replicas")
        results = page.locator("#search-results")
        expect(results.get_by_role("link", name="Scaling", exact=True)).to_be_visible()
        assert all(url.startswith(("file:", "data:")) for url in requests)


def test_site_shows_nothing_of_the_machine(site: Path) -> None:
    """The signatures do not contain the environment of the build."""
    for page in site.rglob("*.html"):
        assert SECRET not in page.read_text()


def test_reference_is_generated(site: Path) -> None:
    """The site describes each name of app.api, each command and its options."""
    names = set(re.findall(r'id="app\.api\.(\w+)"', (site / "docs/api.html").read_text()))
    assert names == {*api.__all__}
    options = (site / "docs/options.html").read_text()
    for command in COMMANDS:
        assert f"Usage: python -m app {command} " in options
    assert "--max-queue-size VALUE" in options


def test_reference_lists_every_name() -> None:
    """The first table, which GitHub shows too, has each name of app.api, and no other."""
    table = (ROOT / "docs/api.md").read_text().split("| Name in another module |")[0]
    cells = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    assert {name for cell in cells for name in re.findall(r"`(\w+)", cell)} == {*api.__all__}


def test_index_has_every_page_once() -> None:
    """The index has four parts for readers and one for contributors, and a new page needs a place in one of them."""
    parts = listed()
    assert [*parts] == CAPTIONS
    assert sum(len(names) for names in parts.values()) == len(set.union(*parts.values()))
    guides = {str(page.with_suffix("").relative_to(ROOT)) for page in ROOT.glob("docs/guides/*.md")}
    expected = {str(page.with_suffix("")) for page in on_the_site()} - {"docs/index"}
    assert set.union(*parts.values()) | guides == expected


def test_index_links_to_every_page() -> None:
    """The text of the index links to each page, except results. GitHub does not show the lists of Sphinx."""
    text = re.sub(r"```.*?```", "", INDEX.read_text(), flags=re.DOTALL)
    linked = {os.path.normpath(f"docs/{link}") for link in re.findall(r"\]\((\S+)\.md\)", text)}
    assert linked == {
        name for names in listed().values() for name in names if "/results/" not in name
    }


@pytest.mark.parametrize(
    "page", [page for page in on_the_site() if not NO_BEGINNING.fullmatch(str(page))], ids=str
)
def test_page_begins_with_its_purpose(page: Path) -> None:
    """The first paragraph of a page states what it covers and who needs it, in at most two sentences."""
    title, paragraph, *_ = (ROOT / page).read_text().split("\n\n")
    assert title.startswith("# ")
    assert BEGINNING.match(" ".join(paragraph.split())), paragraph
    assert len(re.findall(r"[.?!](?=\s|$)", paragraph)) <= 2, paragraph


def measured() -> tuple[str, dict[str, dict[str, str]]]:
    """Return the text of the last benchmark, and the cells of its table by case and column."""
    text = (ROOT / "dev/benchmarks/results/results.md").read_text()
    head, *cells = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if "|" in line
    ]
    return text, {cell[0].split()[0]: dict(zip(head, cell, strict=True)) for cell in cells}


def test_comparison_has_measured_ratios() -> None:
    """The ratios in the comparison are those of the last benchmark, and so are the versions of the servers."""
    page = (ROOT / "docs/comparison.md").read_text()
    text, rows = measured()
    versions = re.findall(r"\b(?:mlserver|kserve|nvidia-pytriton) \d+\.\d+\.\d+", text)
    assert len(versions) == 3
    assert all(version in page for version in versions)
    rows_of_page = re.findall(r"^\| ([A-Z]\d+): [^|]*\| (.*) \|$", page, re.MULTILINE)
    assert [case for case, _ in rows_of_page] == ["U1", "D1", "D100", "B1", "G1", "G3"]
    for case, ratios in rows_of_page:
        assert ratios.split(" | ") == [
            rows[case][f"times {name}"] or rows[case][name] for name in SERVERS[1:]
        ]


@pytest.mark.parametrize(
    ("title", "case"), [("Small JSON", "U1"), ("Small gRPC", "G1"), ("1 MiB gRPC", "G3")]
)
def test_readme_has_measured_rates(title: str, case: str) -> None:
    """The rates in the README are those of the last benchmark. A dash means that the server has no gRPC."""
    (cells,) = re.findall(
        rf"^\| {title} request[^|]*\| (.*) \|$", (ROOT / "README.md").read_text(), re.MULTILINE
    )
    rows = measured()[1]
    rates = [rows[case][name].partition(" (")[0] for name in SERVERS]
    assert cells.split(" | ") == ["-" if rate == "not supported" else rate for rate in rates]


def test_performance_has_measured_rates() -> None:
    """The rates on the page about performance are those of the last benchmark."""
    page = (ROOT / "docs/performance.md").read_text()
    rates = dict(re.findall(r"^\| ([A-Z]\d+) \| [^|]* \| ([\d,]+) \|$", page, re.MULTILINE))
    assert list(rates) == ["U1", "D1", "D100", "G1"]
    rows = measured()[1]
    for case, rate in rates.items():
        assert rate == rows[case]["this service"].partition(" (")[0]


def test_citation_has_version() -> None:
    """CITATION.cff has the version of the service, and the fields that the format requires."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == __version__
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()


def test_issue_forms_are_valid() -> None:
    """Each issue form has a name, a description and inputs with labels."""
    forms = [
        path for path in (ROOT / ".github/ISSUE_TEMPLATE").iterdir() if path.name != "config.yml"
    ]
    assert len(forms) == 2
    for form in forms:
        content = yaml.safe_load(form.read_text())
        assert {"name", "description", "body"} <= content.keys()
        assert all(
            part["attributes"].get("label") or part["type"] == "markdown"
            for part in content["body"]
        )
