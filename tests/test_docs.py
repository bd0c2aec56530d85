"""README and docs: commands and examples run, links have targets, and every lane, option and flag is named."""

from __future__ import annotations

import argparse
import gzip
import json
import re
import shlex
import textwrap
import time
from collections.abc import Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from huggingface_hub.cli import hf

import specrace
from specrace.cli import answers, app, main
from specrace.core.bundled import ASSETS, BUNDLED_MODEL
from specrace.core.cost_curve import ASSUMED_CPU
from specrace.core.verify import verify
from specrace.drafters import METHODS
from specrace.drafters.base import Bounds
from specrace.heads import __main__ as heads
from specrace.lab.plots import drawing
from specrace.tiny import __main__ as tiny
from specrace.workbench import Workbench
from tests.generated_docs import count_words, generate, num_words
from tests.models import tiny_target
from tests.parts import inputs

ROOT = Path(__file__).resolve().parents[1]
README, DOCS = ROOT / "README.md", ROOT / "docs"
PAGES = (README, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(DOCS.glob("*.md")))
# Pages beside data; their commands are checked like those of the docs.
ASSET_PAGES = sorted(ASSETS.glob("**/README.md"))
MAX_README_WORDS = 1000
# Words that somebody wrote; generated parts do not count. A page that grows beyond it says something twice.
MAX_DOCS_WORDS = 15_000

# Commands that do not run here; only their arguments are checked. A part of the command -> why it does not run.
NOT_RUN = {
    "app.py": "serves a page until it is interrupted",
    "-m specrace app": "serves a page until it is interrupted",
    "torchrun": "starts a process for each GPU",
    "--device cuda": "needs a GPU",
    "--peers": "measures two more decoders on 30 questions",
    "--num-draft 4 --temperature 0.8": "answers 30 questions; tests/tiny/test_characters.py measures one",
    "models get": "fetches 93 MB; tests/model/weights/test_fetching.py fetches small files",
    "recommend results/": "needs the results of a sweep; tests/cli/test_recommend.py has some",
    " --add": "needs an existing index; tests/cli/test_index.py has one",
    "-m specrace calibrate": "measures for 15 seconds; tests/lab/bench/test_calibrate.py measures one round",
}
# The parts of the install line, which ran before the tests.
INSTALL_COMMANDS = ("python3 -m venv .venv", ".venv/bin/pip install -r requirements.txt")
# Paths in examples, whose files do not exist.
EXAMPLE_PATHS = ("specrace/drafters/echo.py", "tests/drafters/test_echo.py")

# Phrases that were removed from the project. Pattern -> the files and folders where it must not come back.
EVERYWHERE = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs", "specrace")
BANNED_PHRASES = {
    r"\bsittings?\b": EVERYWHERE,
    r"\bThe drafter tells\b": EVERYWHERE,
    r"\bis through first\b": EVERYWHERE,
    r"\bengine's to lose\b": EVERYWHERE,
    r"\blent\b": EVERYWHERE,
    # Old recordings have the key "sampling_rule", so it is allowed in quotes.
    r"SamplingRule|(?<!\")sampling_rule|\bsampling rule\b": EVERYWHERE,
    r"\bgoes on\b": ("docs", "specrace/ngrams", "specrace/drafters"),
    r"\blongest end\b": EVERYWHERE,
    r"_blind\b": EVERYWHERE,
    r"\b(Trust|Account|Prices)\b(?=\(|:|`)": EVERYWHERE,
    r"\bpass(es)? over what is loaded\b": EVERYWHERE,
}


def read(page: Path) -> str:
    """A page without the front matter."""
    return re.sub(r"\A---\n.*?\n---\n", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def fenced(page: Path) -> list[tuple[str, str]]:
    """(language, text) of every fenced block."""
    blocks = re.findall(r"^( *)```(\w*)\n(.*?)^\1```$", read(page), re.MULTILINE | re.DOTALL)
    return [(language, textwrap.dedent(text)) for _, language, text in blocks]


def list_commands() -> list[str]:
    """Every command in a fenced block, once."""
    blocks = [
        text for page in (*PAGES, *ASSET_PAGES) for language, text in fenced(page) if language in ("sh", "console")
    ]
    lines = [line.replace(".venv/bin/python ", "python ") for text in blocks for line in text.splitlines()]
    return list(dict.fromkeys(part.strip() for line in lines for part in line.split("&&") if part.strip()))


COMMANDS = list_commands()
RUN = [command for command in COMMANDS if "-m specrace " in command and not any(part in command for part in NOT_RUN)]
# Commands within a line of text: a command's name, or a whole command.
INLINE = sorted({text for page in PAGES for text in re.findall(r"`([^`\n]*-m specrace [^`\n]*)`", read(page))})


# A parser keeps nothing of what it parses.
parser = cache(main.build_parser)
text_of = cache(partial(Path.read_text, encoding="utf-8"))


def arguments_of(command: str, after: str) -> list[str]:
    """The words of a command that follow the word `after`."""
    words = shlex.split(command, comments=True)
    return words[words.index(after) + 1 :]


@pytest.mark.usefixtures("example_folder")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_can_be_parsed(command: str) -> None:
    words = shlex.split(command, comments=True)
    if command in INSTALL_COMMANDS:
        return
    if words[0] == "bash":
        assert (ROOT / words[1]).is_file()
    elif words[0] == "hf":
        parse_hub_command(words[1:])
    elif words[0] == "cp":
        assert (ROOT / words[1]).is_file() and words[2].endswith("/requirements.txt")
    elif words[0] == "git":
        assert words == ["git", "clone", ".", "../space"]
    elif words[0] == "docker":
        assert (ROOT / "Dockerfile").is_file()
        app.parse(words[words.index("specrace") + 1 :] if words[1] == "run" else [])
    elif "specrace" in words:
        parser().parse_args(arguments_of(command, "specrace"))
    elif "specrace.tiny" in words:
        tiny.parser().parse_args(arguments_of(command, "specrace.tiny"))
    elif "specrace.heads" in words:
        heads.parser().parse_args(arguments_of(command, "specrace.heads"))
    else:
        assert words[0].endswith("python"), f"this test cannot check {command!r}"
        app.parse(arguments_of(command, "app.py"))


def parse_hub_command(arguments: list[str]) -> None:
    """Parse the arguments of `hf` as `hf` does, and run nothing."""
    command: Any = hf.app
    name = "hf"
    while hasattr(command, "resolve_command"):
        name, command, arguments = command.resolve_command(command.context_class(command), arguments)
    command.make_context(name, list(arguments))


@pytest.mark.parametrize("command", INLINE)
def test_a_command_within_a_line_exists(command: str) -> None:
    arguments = arguments_of(command, "specrace")
    assert arguments[0] in main.COMMANDS
    if len(arguments) > 1:
        # Exits with an error if the command line is wrong.
        parser().parse_args(arguments)


def test_every_exception_is_in_the_docs_and_the_main_commands_run() -> None:
    for part, why in NOT_RUN.items():
        assert why and any(part in command for command in COMMANDS), part
    for name in ("race", "replay", "lanes", "models", "score", "bench"):
        assert any(f"specrace {name}" in command for command in RUN), name


class LetterEmbedder:
    """Embeds a text by how often it has each letter: enough to choose a passage, and quick to load."""

    name, dim, max_text_tokens = "letters", 26, 256

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        counts = [[1.0 + text.lower().count(chr(97 + letter)) for letter in range(26)] for text in texts]
        vectors = np.array(counts, np.float32).reshape(-1, 26)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    def count_weighted_tokens(self, texts: Sequence[str]) -> list[int]:
        return [len(text) // 4 for text in texts]


@pytest.fixture(scope="module")
def small_workbench(tmp_path_factory: pytest.TempPathFactory) -> Workbench:
    """The bundled model on a document of two sentences, with a cost curve."""
    folder = tmp_path_factory.mktemp("documents")
    (folder / "hall.md").write_text("# The hall\n\nThe hall was built in 1911. The moon pulls the sea.\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("specrace.workbench.load_embedder", lambda _: LetterEmbedder())
        workbench = Workbench.open(documents=[folder], cache_dir=folder)
    workbench.curve = ASSUMED_CPU
    return workbench


@pytest.fixture
def example_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that the commands name."""
    monkeypatch.chdir(tmp_path)
    for folder in ("corpus", "notes", "assets/recordings"):
        Path(folder).mkdir(parents=True)
    for folder in ("corpus", "notes"):
        Path(folder, "hall.md").write_text("The hall was built in 1911.\n")
    Path("my-model").symlink_to(BUNDLED_MODEL)
    logs = [{"prompt_ids": [5, 6, 7, 5, 6], "output_ids": [7, 5, 6, 7, 5], "category": kind} for kind in ("qa", "rag")]
    Path("logs.jsonl").write_text("".join(json.dumps(log) + "\n" for log in logs))
    Path("saved.jsonl").write_bytes(Path("logs.jsonl").read_bytes())
    Path("logs.jsonl.gz").write_bytes(gzip.compress(Path("logs.jsonl").read_bytes()))
    Path("texts.jsonl").write_text('{"prompt": "The moon pulls ", "output": "the sea."}\nnot JSON\n')
    request = {"custom_id": "a", "body": {"messages": [{"role": "user", "content": "What pulls the sea?"}]}}
    Path("requests.jsonl").write_text(json.dumps(request))
    answer = {"choices": [{"message": {"role": "assistant", "content": "The moon."}}]}
    Path("responses.jsonl").write_text(json.dumps({"custom_id": "a", "response": {"status_code": 200, "body": answer}}))
    Path("table.csv").write_text("question,answer\nWhat pulls the sea?, The moon.\n")
    Path("prompts.jsonl").write_text('{"question": "What does the moon pull?"}\n')
    Path("specrace-settings.json").write_text('{"method": "trie", "num_draft": 8, "options": {"n": 5}}')
    ASSUMED_CPU.save(Path("curve.json"))
    Path("race.jsonl").write_bytes((ASSETS / "recordings" / "ngram-trie.jsonl").read_bytes())
    return tmp_path


@pytest.mark.parametrize("command", RUN)
def test_a_command_runs(
    command: str,
    example_folder: Path,
    small_workbench: Workbench,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("specrace.cli.index.load_embedder", lambda *_, **__: LetterEmbedder())
    for name in ("answers", "race", "bench", "shared.sweeps"):
        monkeypatch.setattr(f"specrace.cli.{name}.open_workbench", lambda _: small_workbench)
    # Of each set of thirty questions, only two are asked.
    for name, (file, num_passages) in answers.SETS.items():
        short = example_folder / file.name
        short.write_text("".join(file.read_text(encoding="utf-8").splitlines(keepends=True)[:2]), encoding="utf-8")
        monkeypatch.setitem(answers.SETS, name, (short, num_passages))
    # `tests/paths/test_drawing.py` draws every kind of plot.
    monkeypatch.setattr(drawing, "draw", lambda *_: {"svg": b"<svg/>", "png": b"PNG"})
    monkeypatch.setattr(time, "sleep", lambda _: None)  # a replay sleeps between its steps
    monkeypatch.setattr("sys.argv", ["specrace"])
    arguments = arguments_of(command, "specrace")
    # argparse uses the last value of a repeated option.
    arguments += ["--max-new-tokens", "4"] if arguments[0] in ("race", "bench") else []
    arguments += ["--repetitions", "1"] if arguments[0] == "bench" else []
    assert main.main(arguments) == 0
    printed = capsys.readouterr().out
    assert json.loads(printed) if "--json" in arguments else printed.strip()
    output_files = [
        arguments[index + 1] for index, argument in enumerate(arguments) if argument in ("--save", "--out", "--csv")
    ]
    assert all((example_folder / argument).exists() for argument in output_files)


def loop_variables() -> dict[str, Any]:
    """The variables that the loop in the README uses."""
    target, context = tiny_target("llama"), [2, 3, 4, 2, 3]
    drafter = METHODS["trie"].build(inputs(context))
    session = target.session(target.prefill(context), 16)
    return {"drafter": drafter, "context": context, "budget": 8, "session": session, "verify": verify}


# tests/ui/api/test_endpoints.py runs the blocks of api.md, which call a server.
PYTHON = [page for page in PAGES if "```python" in read(page) and page.stem != "api"]


@pytest.mark.parametrize("page", PYTHON, ids=lambda page: page.stem)
@pytest.mark.usefixtures("example_folder")
def test_python_runs(page: Path, small_workbench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page's blocks share a namespace. Methods that a diff on the page adds to the registry are registered."""
    monkeypatch.setattr(specrace, "load_target", lambda: small_workbench.target, raising=False)
    monkeypatch.setattr("specrace.notebook._open_workbench", lambda *_: small_workbench)
    namespace: dict[str, Any] = {"__name__": page.stem} | (loop_variables() if page == README else {})
    for language, text in fenced(page):
        if language == "python":
            exec(compile(text, str(page), "exec", dont_inherit=True), namespace)
        elif language == "diff":
            (line,) = re.findall(r"^\+ +(Method\(.*\)),$", text, re.MULTILINE)
            method = eval(line, namespace | {"Method": type(METHODS["trie"])})
            monkeypatch.setitem(METHODS, method.name, method)
    if page == README:
        assert namespace["verdict"].path[0] == 0 and len(namespace["scores"].targets) == len(namespace["tree"])


def test_the_new_drafter_is_listed(small_workbench: Workbench) -> None:
    """docs/new-drafter.md writes a drafter `echo` and registers it, until the patch ends."""
    with pytest.MonkeyPatch.context() as patch:
        test_python_runs(DOCS / "new-drafter.md", small_workbench, patch)
        option = METHODS["echo"].options[0]
        assert (option.name, option.default, option.bounds) == ("longest", 6, Bounds(1, 32, "maximum tokens copied"))
        assert METHODS["echo"].check({"longest": "3"}) == {"longest": 3}
    assert "echo" not in METHODS


def test_the_readme_is_short_and_has_its_two_commands() -> None:
    text = read(README)
    assert num_words(text) <= MAX_README_WORDS
    for command in (f"{' && '.join(INSTALL_COMMANDS)} && .venv/bin/python app.py", "bash tests/run"):
        assert f"```sh\n{command}\n```" in text
    assert README.read_text(encoding="utf-8").startswith("---\n")


def test_the_documented_words_are_few() -> None:
    written, _ = count_words()
    assert written <= MAX_DOCS_WORDS


def test_contributing_lists_every_measuring_program() -> None:
    paths = (ROOT / "tests" / "measure").glob("*.py")
    names = [path.stem for path in paths if f"python -m tests.measure.{path.stem}" in path.read_text(encoding="utf-8")]
    table = read(ROOT / "CONTRIBUTING.md")
    assert len(names) > 20 and [name for name in names if not re.search(rf"\| `{name}\b", table)] == []


def slugs(page: Path) -> set[str]:
    """The anchors of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", read(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_targets_of_links_and_paths_exist(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", read(page))
    for link in links:
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        assert not anchor or anchor in slugs(target), link
    for path in re.findall(r"`((?:specrace|tests|assets|docs|corpus)/[\w./-]*)`", read(page)):
        assert (ROOT / path).exists() or path in EXAMPLE_PATHS, path


def test_pictures_have_titles_and_descriptions() -> None:
    for picture in DOCS.glob("*.svg"):
        root = ElementTree.parse(picture).getroot()
        for name in ("title", "desc"):
            words = root.find(f"{{http://www.w3.org/2000/svg}}{name}")
            assert words is not None and words.text


def all_text() -> str:
    """The text of README and docs."""
    return "\n".join(read(page) for page in (README, *DOCS.glob("*.md")))


@pytest.mark.parametrize("page", [README, *sorted(DOCS.glob("*.md"))], ids=lambda page: page.stem)
def test_generated_parts_are_current(page: Path) -> None:
    """`python -m tests.generated_docs` writes them."""
    assert generate(page.read_text(encoding="utf-8")) == page.read_text(encoding="utf-8")


def test_every_lane_and_option_is_documented_once() -> None:
    text = all_text()
    lines = [line for name in ("drafters.md", "twins.md") for line in read(DOCS / name).splitlines()]
    for lane, method in METHODS.items():
        assert f"`{lane}`" in text, lane
        for option in method.options:
            rows = [line for line in lines if line.startswith(f"| `{lane}.{option.name}` |")]
            assert len(rows) == 1, f"{lane}.{option.name}"


def flags_of(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Every --flag of a parser and of its commands, except old names, which have no help."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from flags_of(command)
        if action.help != argparse.SUPPRESS:
            yield from (flag for flag in action.option_strings if flag.startswith("--") and flag != "--help")


def test_every_flag_is_documented() -> None:
    text = all_text()
    flags = set(flags_of(parser()))
    assert {"--model", "--traceback", "--queue"} <= flags
    assert [flag for flag in sorted(flags) if not re.search(rf"(?<![\w-]){flag}(?![\w-])", text)] == []


@pytest.mark.parametrize("command", main.COMMANDS)
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Help is only checked when it is printed: argparse reads a percent sign in a help text as a format."""
    with pytest.raises(SystemExit) as exited:
        parser().parse_args([command, "--help"])
    assert exited.value.code == 0 and command in capsys.readouterr().out


def test_every_handshake_is_in_its_file_and_has_a_test() -> None:
    """In docs/handshakes.md the second column names what we use, the third the file, the fourth a test that fails."""
    tests = {name for file in (ROOT / "tests").rglob("*.py") for name in re.findall(r"def (test_\w+)", read(file))}
    rows = [line.split(" | ") for line in read(DOCS / "handshakes.md").splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 15
    for _, touched, file, fails, instead in rows:
        source = read(ROOT / file.strip("`"))
        assert [name for name in re.findall(r"`([^`]+)`", touched) if name not in source] == [], file
        named = re.findall(r"`(test_\w+)`", fails)
        assert named and tests.issuperset((*named, *re.findall(r"`(test_\w+)`", instead))), touched


def files_below(name: str) -> list[Path]:
    """The file of this name, or the text files in the folder of this name."""
    path = ROOT / name
    static = [file for file in path.glob("**/static/**/*") if file.is_file() and file.suffix != ".png"]
    return [path] if path.is_file() else [*path.rglob("*.md"), *path.rglob("*.py"), *static]


@pytest.mark.parametrize("pattern", BANNED_PHRASES)
def test_banned_phrases_do_not_come_back(pattern: str) -> None:
    files = [file for name in BANNED_PHRASES[pattern] for file in files_below(name)]
    # Otherwise a wrong name in BANNED_PHRASES would make the test pass.
    assert len(files) > len(PAGES) / 2
    matching = [str(file.relative_to(ROOT)) for file in files if re.search(pattern, text_of(file))]
    assert matching == []
