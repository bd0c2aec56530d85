"""`bench`: its JSON and files, peers, scripted models, and one sentence for bad input.

A peer is another library's decoder. A scripted model has random weights, and is made to print a log's outputs.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from specrace.cli.bench import lookup_lane
from specrace.cli.main import main
from specrace.core.bundled import BUNDLED_MODEL
from specrace.core.files import write_atomically
from specrace.engine.lane_name import method_of
from specrace.engine.spec import RaceSpec
from specrace.lab.bench import calibrate as calibrating
from specrace.lab.bench.llama_cpp import write_gguf
from specrace.workbench import Workbench
from tests.models import write_zero_gguf

FIELDS = {
    "lane", "tokens", "steps", "tau", "drafted_per_step", "acceptance_rate", "decode_ms", "tokens_per_s", "speedup",
    "identical", "first_difference", "text",
}  # fmt: skip


@pytest.fixture(autouse=True)
def bench_cache(
    tmp_path_factory: pytest.TempPathFactory, cache_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """A cache folder of its own, so that the cost curves measured here change no other test's draft sizes.

    Only embedded passages are shared with other tests. Curves are measured quickly: three sizes, once.
    """
    folder = tmp_path_factory.getbasetemp() / "cache"
    bench_folder, shared = folder / "specrace", cache_folder / "specrace"
    copy_passages(shared, bench_folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    monkeypatch.setattr(calibrating, "calibrate", partial(calibrating.calibrate, rounds=1))
    monkeypatch.setattr(calibrating, "measure", partial(calibrating.measure, rows=(1, 4, 64), contexts=(32,)))
    monkeypatch.setattr(calibrating, "WARM_UP_ROUNDS", 0)
    yield
    copy_passages(bench_folder, shared)


def copy_passages(source: Path, target: Path) -> None:
    for file in source.glob("passages-*"):
        if not (target / file.name).exists():
            write_atomically(target / file.name, file.read_bytes())


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    try:
        # With --traceback, an unexpected error is raised instead of reported in a sentence.
        code = main(["--traceback", "bench", *arguments])
    except SystemExit as exit_:
        code = int(str(exit_.code))
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_json_and_files_have_the_same_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(
        '{"id": "a", "question": "What is the n-gram trie built from?"}\n\n'
        '{"prompt": "the moon and the tide"}\n{"prompt_ids": [5, 6, 7, 5, 6]}\n'
    )
    code, out, err = run(
        capsys, "--prompts", str(prompts), "--peers", "transformers,transformers-pld", "--repetitions", "1",
        "--max-new-tokens", "4", "--json", "--out", str(tmp_path / "out"),
    )  # fmt: skip
    assert (code, err) == (0, "")
    result: dict[str, Any] = json.loads(out)
    assert [lane["lane"] for lane in result["lanes"]] == ["vanilla", "trie", "prompt-lookup"]
    for lane in result["lanes"]:
        assert set(lane) >= FIELDS and lane["identical"] is True and lane["peak_memory_bytes"] != 0
    assert [peer["peer"] for peer in result["peers"]] == ["transformers", "transformers-pld"]
    # A prompt without an id is named by its line.
    assert [prompt["id"] for prompt in result["prompts"]] == ["a", "3", "4"] and result["lanes"][0]["text"]
    assert result["prompts"][0]["prompt_tokens"] > 100 and result["prompts"][2]["prompt_tokens"] == 5
    assert result["model"] == "tiny" and result["versions"]["torch"] and result["machine"]["cores"] and result["date"]
    assert json.loads((tmp_path / "out" / "bench.json").read_text()) == result
    assert result["settings"]["earlier_outputs"] == "kept" and result["settings"]["cost_curve"]["rows"][0] == 1
    rows = list(csv.DictReader((tmp_path / "out" / "bench.csv").open()))
    # Three prompts, and five decoders: three lanes and two peers.
    assert len(rows) == 3 * 5 and {row["decoder"] for row in rows} >= {"vanilla", "transformers-pld"}
    table = (tmp_path / "out" / "bench.md").read_text()
    assert "can draft from outputs of earlier prompts" in table and "Cut at the limit of new tokens" in table
    assert "a" in result["cut_at_limit"] and result["prompts"][0]["lanes"][0]["end"] == "length"
    assert "| vanilla |" in table and "prompt-lookup against transformers-pld" in table and result["date"] in table


def test_forget_outputs_is_recorded_and_a_draft_model_is_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt_ids": [5, 6, 7, 5, 6]}\n{"prompt_ids": [5, 6, 7, 5, 6, 8]}\n')
    code, out, _ = run(
        capsys, "--prompts", str(prompts), "--lanes", "draft-model,fusion", "--repetitions", "1", "--json",
        "--max-new-tokens", "8", "--num-draft", "4", "--forget-outputs", "--draft-model", str(BUNDLED_MODEL),
        "--out", str(tmp_path),
    )  # fmt: skip
    result = json.loads(out)
    assert code == 0 and result["settings"]["earlier_outputs"] == "not kept"
    assert result["lanes"][1]["lane"] == "draft-model" and result["lanes"][1]["acceptance_rate"] > 0.5
    assert "Earlier outputs" not in (tmp_path / "bench.md").read_text()


def test_score_computes_the_tokens_per_step_that_bench_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """This holds for lanes that read neither documents nor the target's scores, if answers end before the limit."""
    questions, transcripts, curve = (tmp_path / name for name in ("two.jsonl", "saved.jsonl", "curve.json"))
    document = tmp_path / "owls.md"
    document.write_text("Owls hear a mouse under the snow.")
    # The answers are short and alike, so that the second one is drafted from the first.
    questions.write_text('{"question": "What do owls hear?"}\n{"question": "What is it that owls hear?"}\n')
    lanes = ("vanilla", "trie", "suffix", "fusion")
    shared_flags = ("--lanes", ",".join(lanes), "--num-draft", "12", "--json")
    code, out, _ = run(
        capsys, "--prompts", str(questions), "--docs", str(document), *shared_flags,
        "--repetitions", "1", "--max-new-tokens", "100", "--save-transcripts", str(transcripts),
    )  # fmt: skip
    result = json.loads(out)
    assert code == 0 and not result["loops"] and not result["cut_at_limit"]
    lines = [json.loads(line) for line in transcripts.read_text().splitlines()]
    assert [set(line) for line in lines] == [{"id", "category", "prompt_ids", "output_ids"}] * 2
    assert {line["category"] for line in lines} == {"two"}
    curve.write_text(json.dumps(result["settings"]["cost_curve"]))
    without_other_sources = ("--option", "fusion.corpus=false", "--option", "fusion.recycling=false")
    assert (
        main(
            [
                "score",
                str(transcripts),
                *shared_flags,
                *without_other_sources,
                "--keep-outputs",
                "--cost-curve",
                str(curve),
            ]
        )
        == 0
    )
    scored = {row["lane"]: row for row in json.loads(capsys.readouterr().out)["groups"] if row["category"] == "all"}
    # The options that score was given, and bench has by default, are in the names.
    assert "fusion:corpus=false:recycling=false" in scored
    scored = {method_of(name).name: row for name, row in scored.items()}
    for lane in result["lanes"]:
        assert scored[lane["lane"]]["tokens"] == lane["tokens"]
        assert scored[lane["lane"]]["tau"] == pytest.approx(lane["tau"], abs=0.005), lane["lane"]


def test_every_result_of_a_scripted_bench_says_that_it_is_scripted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    transcripts = tmp_path / "t.jsonl"
    rows = [
        {"id": n, "prompt_ids": [n, *[1, 2, 3, 4, 5, 6] * 3], "output_ids": [n, 1, 2, 3, 4, 9, 8, n]} for n in (7, 8)
    ]
    transcripts.write_text("\n".join(map(json.dumps, rows)))
    code, out, _ = run(
        capsys, "--scripted", str(transcripts), "--shape", "tiny", "--limit", "1", "--repetitions", "1", "--json",
        "--out", str(tmp_path / "out"),
    )  # fmt: skip
    result = json.loads(out)
    assert code == 0 and "random weights" in result["scripted"] and result["model"].startswith("scripted")
    assert all(lane["tokens"] == 8 and lane["identical"] for lane in result["lanes"]) and len(result["prompts"]) == 1
    assert "**Scripted:**" in (tmp_path / "out" / "bench.md").read_text()
    code, out, _ = run(
        capsys, "--scripted", str(transcripts), "--shape", "tiny", "--lanes", "trie", "--repetitions", "1"
    )
    assert code == 0 and "Scripted:" in out and "trie" in out


def test_a_script_with_two_outputs_for_one_prompt_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    transcripts = tmp_path / "t.jsonl"
    rows = [{"id": n, "prompt_ids": [1, 2, 3], "output_ids": [n, 1, 2]} for n in (7, 8)]
    transcripts.write_text("\n".join(map(json.dumps, rows)))
    code, out, err = run(capsys, "--scripted", str(transcripts), "--shape", "tiny")
    assert code == 2 and out == "" and "has prompts with more than one output (1 lines too many)" in err


def test_results_are_written_despite_an_argument_that_is_not_utf8(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python passes the name of a file that is not UTF-8 with a lone surrogate."""
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"id": "\\ud800", "prompt_ids": [5, 6, 7, 5, 6]}\n')
    arguments = ["--prompts", str(prompts), "--out", str(tmp_path / "out"), "--max-new-tokens", "4", "--lanes", "trie"]
    arguments += ["--repetitions", "1"]
    monkeypatch.setattr("sys.argv", ["specrace", "bench", *arguments, "\udce9"])
    code, *_ = run(capsys, *arguments)
    assert code == 0 and {file.name for file in (tmp_path / "out").iterdir()} == {"bench.json", "bench.md", "bench.csv"}


def test_results_do_not_reveal_folders_of_this_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt_ids": [5, 6, 7, 5, 6]}\n')
    arguments = [
        "--prompts", str(prompts), f"--model={BUNDLED_MODEL}", "--out", str(tmp_path / "out"), "--max-new-tokens", "4",
        "--lanes", "trie", "--option", "trie.n=5", "--repetitions", "1", "--json",
    ]  # fmt: skip
    monkeypatch.setattr("sys.argv", ["specrace", "bench", *arguments])
    code, out, _ = run(capsys, *arguments)
    result = json.loads(out)
    assert code == 0 and result["settings"]["prompts"] == "prompts.jsonl" and result["model"] == "tiny"
    assert [lane["lane"] for lane in result["lanes"]] == ["vanilla", "trie:n=5"]
    assert result["command"] == (
        "python -m specrace bench --prompts prompts.jsonl --model=tiny --out out --max-new-tokens 4 --lanes trie "
        "--option trie.n=5 --repetitions 1 --json"
    )
    for file in ("bench.json", "bench.md", "bench.csv"):
        text = (tmp_path / "out" / file).read_text()
        assert str(tmp_path) not in text and str(BUNDLED_MODEL.parent) not in text


def test_peers_draft_as_the_first_lane_with_prompt_lookup() -> None:
    lanes = ("trie", "prompt-lookup:longest=2", "prompt-lookup")
    assert (lookup_lane(RaceSpec(lanes)), lookup_lane(RaceSpec(("trie",)))) == (lanes[1], "prompt-lookup")


def test_shipped_results_contain_no_absolute_paths() -> None:
    files = [file for kind in ("md", "json", "jsonl") for file in BUNDLED_MODEL.parent.rglob(f"*.{kind}")]
    assert len(files) > 10
    # A path of two names or more, at the start of a line or after a blank, a quote, "=" or "(".
    absolute = re.compile(r"""(?:^|[\s"'=(])(/\w+/\w+)""", re.MULTILINE)
    paths_by_file = {file: absolute.findall(file.read_text(encoding="utf-8")) for file in files}
    assert {file: paths for file, paths in paths_by_file.items() if paths} == {}


def test_llama_cpp_is_a_peer_and_prints_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """llama.cpp runs the weights of the bundled model, which have biases."""
    target, source, weights = Workbench.open().target, tmp_path / "source.gguf", tmp_path / "weights.gguf"
    write_zero_gguf(target, source)
    write_gguf(target, source, "f32", weights)
    question = tmp_path / "one.jsonl"
    question.write_text('{"question": "What is the n-gram trie built from?"}\n')
    arguments = ["--prompts", str(question), "--repetitions", "1", "--max-new-tokens", "12", "--lanes", "prompt-lookup"]
    arguments += ["--option", "prompt-lookup.longest=2"]
    arguments += ["--peers", "llama-cpp,llama-cpp-ngram-simple", "--peer-weights", str(weights)]
    capfd.readouterr()
    assert main(["bench", *arguments, "--out", str(tmp_path / "out"), "--json"]) == 0
    out, err = capfd.readouterr()
    result = json.loads(out)
    assert err == "" and [peer["identical"] for peer in result["peers"]] == [True, True]
    settings = result["settings"]["peers"]["llama-cpp-ngram-simple"]
    # A peer is compared with the lane of its method, whatever options are in the lane's name.
    assert [row["lane"] for row in result["comparisons"]] == ["vanilla", "prompt-lookup:longest=2"]
    assert settings["weights"] == "weights.gguf" and settings["size_n"] and str(tmp_path) not in out
    assert "| llama-cpp-ngram-simple |" in (tmp_path / "out" / "bench.md").read_text()


BAD = [
    (["--repetitions", "0"], "--repetitions"),
    (["--limit", "0"], "--limit"),
    (["--passages", "13"], "Passages: 13"),
    (["--lanes", "warp"], "warp"),
    (["--peers", "vllm"], "vllm"),
    (["--peers", "transformers", "--peer-weights", "f32"], "--peer-weights"),
    (["--peers", "llama-cpp", "--limit", "1"], "--peer-weights FILE.gguf"),
    (["--peers", "llama-cpp", "--peer-weights", "/no/such.gguf"], "/no/such.gguf"),
    (["--prompts", "/no/such.jsonl"], "/no/such.jsonl"),
    (["--out", "/no/such/folder"], "/no/such/folder"),
    (["--save-transcripts", "/no/such/folder/t.jsonl"], "/no/such/folder"),
    (["--shape", "7b"], "--scripted"),
    (["--scripted", "/no/such.jsonl"], "--shape"),
    (["--scripted", "/no/such.jsonl", "--shape", "tiny"], "/no/such.jsonl"),
    (["--scripted", "x", "--shape", "tiny", "--peers", "transformers"], "--peers"),
    (["--scripted", "x", "--shape", "tiny", "--lanes", "rest"], "rest"),
    (
        [
            "--scripted",
            "x",
            "--shape",
            "tiny",
            "--lanes",
            "sglang-ngram",
            "--option",
            "sglang-ngram.external_sam_budget=8",
        ],
        "drafts from documents",
    ),
    (["--scripted", "x", "--shape", "tiny", "--lanes", "lookahead"], "lookahead"),
    (["--shape", "9b", "--scripted", "x"], "9b"),
    (["--max-new-tokens", "0"], "New tokens: 0"),
    (["--model", "/no/model"], "/no/model"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD, ids=[" ".join(case[0]) for case in BAD])
def test_bad_arguments_print_one_sentence(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, *arguments, "--json")
    assert (code, out) == (2, "") and message in err and "Traceback" not in err and len(err.strip().splitlines()) == 1


def test_a_missing_weights_file_is_reported_before_a_model_is_loaded(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specrace.cli.bench.open_workbench", lambda _: pytest.fail("a model was loaded"))
    code, _, err = run(capsys, "--peers", "llama-cpp", "--peer-weights", "/no/such.gguf")
    assert code == 2 and "/no/such.gguf cannot be read" in err


def test_questions_are_drawn_from_given_documents(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The bundled questions are about the bundled documents, so they are not used."""
    (tmp_path / "owls.md").write_text("# Owls\n\nAn owl hears a mouse under the snow.\n")
    code, out, _ = run(
        capsys, "--docs", str(tmp_path), "--lanes", "trie", "--repetitions", "1", "--max-new-tokens", "4", "--json"
    )
    result = json.loads(out)
    assert code == 0 and result["settings"]["prompts"] == "auto" and len(result["prompts"]) == 2


@pytest.mark.parametrize(
    "text",
    ["", "not json", "[1]", "{}", '{"question": ""}', '{"question": 5}', '{"prompt_ids": []}', '{"prompt_ids": ["x"]}',
     '{"question": "a", "prompt": "b"}', "\udcff"],
)  # fmt: skip
def test_bad_prompts_print_one_sentence(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    code, out, err = run(capsys, "--prompts", str(file), "--json")
    assert (code, out) == (2, "") and "bad.jsonl" in err and len(err.strip().splitlines()) == 1
