"""`export` and `site`: their arguments, the files that they write, and what they refuse."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from specrace.ui.stage import html_file
from specrace.ui.stage.bundle import bundle
from specrace.ui.stage.html_file import read_recordings, unused_name, write_html
from specrace.views.reel import reel_json

ROOT = Path(__file__).resolve().parents[2]
RECORDINGS = ROOT / "assets" / "recordings"
TIDES = RECORDINGS / "tides.jsonl"
# What an exported file with one race may take: twice the 0.79 MB that it took when `export` was written.
MAX_BYTES = 1_500_000
# A race in an exported file: its name, and its JSON in gzip and base64.
REEL = re.compile(r'<script type="application/octet-stream" data-reel="([^"]*)">([^<]*)</script>')


def reels(page: str) -> dict[str, Any]:
    """The races (reels) in an exported file, by name."""
    return {name: json.loads(gzip.decompress(base64.b64decode(code))) for name, code in REEL.findall(page)}


def test_export_writes_the_races_and_the_tour(call_main: Any, tmp_path: Path) -> None:
    file = tmp_path / "race.html"
    done = call_main("export", TIDES, TIDES, "--html", file, "--tour")
    assert done.returncode == 0 and "plays in any browser" in done.stdout
    page = file.read_text(encoding="utf-8")
    assert list(reels(page)) == ["tides", "tides-2", *html_file.TOUR]
    assert reels(page)["tides"] == json.loads(reel_json(read_recordings([TIDES])[0].events))
    # Only the two races of the command are offered, not those of the tour.
    assert '"num_offered":2' in page and file.stat().st_mode & 0o777 == 0o644


def test_a_file_runs_only_its_own_script_and_loads_nothing() -> None:
    page = write_html(read_recordings([TIDES]))
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    assert policy and len(scripts) == 1
    digest = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    assert f"default-src 'none'; script-src 'sha256-{digest}';" in policy[1]
    # Outside its script, no attribute names another file.
    assert not re.search(r'(?:src|href)="(?!#)', re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL))
    assert len(page) < MAX_BYTES


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("{tides}", "--html", "{folder}/race.txt"), "--html is 'race.txt'; give a file that ends in .html."),
        (("{tides}", "--html", "{folder}/none/race.html"), "there is no folder"),
        (("{folder}/none.jsonl", "--html", "{folder}/race.html"), "none.jsonl cannot be read"),
        (("{folder}/other.jsonl", "--html", "{folder}/race.html"), "other.jsonl"),
    ],
)
def test_export_refuses_bad_arguments_in_one_sentence(
    call_main: Any, tmp_path: Path, arguments: Any, message: str
) -> None:
    (tmp_path / "other.jsonl").write_text('{"type": "other"}\n', encoding="utf-8")
    done = call_main("export", *(text.format(tides=TIDES, folder=tmp_path) for text in arguments))
    assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "race.html").exists()


def test_site_writes_a_page_for_each_race(call_main: Any, tmp_path: Path) -> None:
    (tmp_path / "index.jsonl").write_bytes(TIDES.read_bytes())
    report = tmp_path / "log.html"
    report.write_text("<!DOCTYPE html><title>Report</title>", encoding="utf-8")
    done = call_main("site", tmp_path / "site", TIDES, tmp_path / "index.jsonl", "--report", report, "--title", "A & B")
    assert done.returncode == 0
    names = {path.name for path in (tmp_path / "site").iterdir()}
    assert names == {"tides.html", "index-2.html", "tour.html", "report-log.html", "index.html"}
    index = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert "A &amp; B" in index and all(f'href="{name}"' in index for name in names - {"index.html"})


def test_site_replaces_only_pages_that_specrace_wrote(call_main: Any, tmp_path: Path) -> None:
    assert [call_main("site", tmp_path, TIDES).returncode for _ in range(2)] == [0, 0]
    (tmp_path / "index.html").write_text("<!doctype html><title>Mine</title>")
    before = (tmp_path / "tides.html").stat().st_ino
    done = call_main("site", tmp_path, TIDES)
    assert done.returncode == 2 and "index.html was not written by specrace" in done.stderr
    assert "Mine" in (tmp_path / "index.html").read_text() and (tmp_path / "tides.html").stat().st_ino == before


def test_site_refuses_a_report_that_is_not_a_page(call_main: Any, tmp_path: Path) -> None:
    done = call_main("site", tmp_path / "site", TIDES, "--report", TIDES)
    assert done.returncode == 2 and "tides.jsonl is not an HTML page" in done.stderr
    assert not (tmp_path / "site").exists()


def test_a_name_that_is_taken_gets_a_number() -> None:
    assert [unused_name("a", taken) for taken in ([], ["a"], ["a", "a-2"])] == ["a", "a-2", "a-3"]


def test_modules_become_functions_in_the_order_of_their_imports(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "main.js").write_text('import { two as deux, Three } from "./lib/a.js";\ndeux(new Three());\n')
    (tmp_path / "lib/a.js").write_text(
        'import { ONE } from "./b.js";\nexport async function two() {}\nexport class Three {}\nconst HIDDEN = ONE;\n'
    )
    (tmp_path / "lib/b.js").write_text("export const ONE = 1;\n")
    assert bundle(tmp_path, "main.js") == (
        '"use strict";\n(() => {\n'
        "const lib_b_js = (() => {\nconst ONE = 1;\nreturn { ONE };\n})();\n"
        "const lib_a_js = (() => {\nconst { ONE } = lib_b_js;\nasync function two() {}\nclass Three {}\n"
        "const HIDDEN = ONE;\nreturn { two, Three };\n})();\n"
        "const main_js = (() => {\nconst { two: deux, Three } = lib_a_js;\ndeux(new Three());\nreturn {  };\n})();\n"
        "})();\n"
    )


@pytest.mark.parametrize(
    "line", ['import all from "./a.js";', 'import * as all from "./a.js";', "export default 1;", "export { one };"]
)
def test_another_form_of_import_or_export_is_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "main.js").write_text(f"{line}\n")
    with pytest.raises(ValueError, match=r"main\.js: a form of import or export"):
        bundle(tmp_path, "main.js")
