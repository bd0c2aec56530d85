"""`recommend`: what it prints and writes, the logs and sweeps that it reads, and bad arguments."""

from __future__ import annotations

import html
import json
from pathlib import Path

import pytest

from specrace.cli.main import build_parser
from specrace.cli.shared.arguments import race_spec
from specrace.core.bundled import BUNDLED_MODEL
from specrace.lab.advice.exports import ENGINES
from tests.cli.conftest import Run
from tests.lab.parts import mostly_copying, write, write_log
from tests.ui.helper.test_log_advice import advise

# Lanes that reproduce the drafters of vLLM and SGLang, and a small grid of our own lanes.
TWINS = ("--lanes", "vllm-ngram,sglang-ngram", "--grid", "num_draft=8")
SMALL_GRID = ("--lanes", "prompt-lookup,suffix,trie", "--grid", "num_draft=8")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return write_log(tmp_path / "log.jsonl", mostly_copying(40))


def test_the_json_has_the_documented_fields(call_main: Run, log: Path) -> None:
    done = call_main("recommend", log, *SMALL_GRID, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    result = json.loads(done.stdout)
    figures = ("tau", "tau_low", "tau_high", "speedup", "speedup_low", "speedup_high")
    assert list(result["recommendation"]) == ["lane", "options", "num_draft", *figures]
    assert result["recommendation"]["tau_low"] < result["recommendation"]["tau"] < result["recommendation"]["tau_high"]
    assert set(result["exports"]) == set(ENGINES)
    assert set(result["profile"]) == {
        "marginal_accept_rates", "conditional_accept_rates", "mean_accept_length", "acceptance_length_histogram",
    }  # fmt: skip
    assert {group["category"] for group in result["groups"]} == {"copy", "fresh"}
    assert result["not_tested"] and result["text"]


def test_engine_restricts_the_lanes_to_those_of_the_engine(call_main: Run, log: Path) -> None:
    done = call_main("recommend", log, "--engine", "transformers", "--grid", "num_draft=4", "--json")
    result = json.loads(done.stdout)
    assert result["recommendation"]["lane"] in ("vanilla", "prompt-lookup")
    assert list(result["exports"]) == ["transformers"]


def test_a_sweep_gives_the_same_recommendation_and_fixes_the_settings(
    call_main: Run, log: Path, tmp_path: Path
) -> None:
    out = tmp_path / "sweep"
    assert call_main("sweep", log, *SMALL_GRID, "--cost-curve", "assumed-cpu", "--out", out).returncode == 0
    first = json.loads(call_main("recommend", out, "--json").stdout)
    second = json.loads(call_main("recommend", log, *SMALL_GRID, "--cost-curve", "assumed-cpu", "--json").stdout)
    for name in ("recommendation", "groups", "profile", "batches"):
        assert first[name] == second[name]
    refused = call_main("recommend", out, *SMALL_GRID)
    assert refused.returncode == 2 and "holds a sweep with its own settings" in refused.stderr


def test_quick_gives_the_recommendation_of_the_full_grid(call_main: Run, log: Path) -> None:
    arguments = ("recommend", log, "--lanes", "prompt-lookup,suffix,trie", "--json")
    full, quick = (json.loads(call_main(*arguments, *extra).stdout) for extra in ((), ("--quick", "--seed", "1")))
    names = ("lane", "options", "num_draft", "tau")
    assert [quick["recommendation"][name] for name in names] == [full["recommendation"][name] for name in names]
    # `--quick` tries the 13 settings of these lanes on a sample first.
    assert any(sentence.startswith("Of 13 settings tried on 16 requests the best") for sentence in quick["text"])
    assert all(quick["exports"].values())


def test_the_page_gives_the_recommendation_of_quick(call_main: Run, tmp_path: Path) -> None:
    # More requests than `--quick` tries first.
    log = write_log(tmp_path / "log.jsonl", mostly_copying(20))
    by_engine = {engine["engine"]: engine for engine in advise(log)["engines"]}
    for engine in ("vllm", "transformers"):
        done = json.loads(call_main("recommend", log, "--quick", "--engine", engine, "--json").stdout)
        # Drafting times differ between runs, but do not count here, because this curve has no milliseconds.
        assert by_engine[engine]["recommendation"] == done["recommendation"]
        assert by_engine[engine]["export"]["settings"] == done["exports"][engine]["settings"]
        assert by_engine[engine]["text"] == done["text"]


def test_batch_sets_the_batch_size_of_the_recommendation_and_of_a_heads(
    call_main: Run, log: Path, tmp_path: Path
) -> None:
    (tmp_path / "head.json").write_text('{"by_depth": [0.7, 0.6], "pass_cost": 0.1}')
    arguments = (*SMALL_GRID, "--cost-curve", "l4-8b", "--batch", "64", "--head-profile", tmp_path / "head.json")
    done = call_main("recommend", log, *arguments, "--json")
    result = json.loads(done.stdout)
    # Up to 403 rows, all forwards of this curve take equally long: a step with two draft tokens costs 1 + 2 x 0.1.
    assert result["head"] == pytest.approx({"num_draft": 2, "tau": 2.12, "speedup": 2.12 / 1.2, "break_even": 0.1})
    assert "2.12 tokens a step with drafts of 2, a forecast speedup of 1.77x" in result["text"][-1]
    assert result["settings"]["batch"] == 64 and "in batches of 64," in result["text"][0]
    (row,) = [row for row in result["batches"] if row["batch"] == 64]
    assert row["speedup"] == result["recommendation"]["speedup"]


def test_out_gets_the_exports_the_profile_and_the_corpus(call_main: Run, log: Path, tmp_path: Path) -> None:
    (tmp_path / "hall.md").write_text("The hall was built in 1911.")
    out = tmp_path / "exports"
    done = call_main("recommend", log, *SMALL_GRID, "--out", out, "--docs", tmp_path / "hall.md")
    assert done.returncode == 0, done.stderr
    assert json.loads((out / "sglang-corpus.jsonl").read_text()) == "The hall was built in 1911."
    assert "--speculative-ngram-external-corpus-path sglang-corpus.jsonl" in (out / "sglang.txt").read_text()
    profile = json.loads((out / "speculation_profile.json").read_text())
    assert profile["measured"] is True
    # Requests with long copies have few steps, so they weigh less in a mean over steps than in one over requests.
    assert profile["mean_accept_length_per_request"] > profile["mean_accept_length"] > 1
    accepted = round(profile["mean_accept_length"] - 1, 3)
    assert f"--spec-accepted-tokens {accepted}" in (out / "simulators.txt").read_text()
    assert "--speculative-config" in done.stdout and "Not tested:" in done.stdout


def test_out_gets_the_logs_answers_as_sglangs_corpus(call_main: Run, tmp_path: Path) -> None:
    """The corpus has each answer once, and no answer that loops."""
    answers = ["The hall was built in 1911.", "Nobody knows.", "Nobody knows.", "yes " * 60]
    lines = [{"prompt": f"Question {number}?", "output": answer} for number, answer in enumerate(answers)]
    log, out = write(tmp_path / "log.jsonl", *lines), tmp_path / "out"
    (tmp_path / "hall.md").write_text("A hall.")
    arguments = ("recommend", log, *TWINS, "--tokenizer", BUNDLED_MODEL, "--out", out, "--answers")
    assert call_main(*arguments, "--docs", tmp_path / "hall.md").returncode == 0
    corpus = [json.loads(line) for line in (out / "sglang-corpus.jsonl").read_text().splitlines()]
    assert [text.strip() for text in corpus] == ["A hall.", *answers[:2]]
    assert (
        "To use the documents and the log's answers, add this, which was not tested: --spec"
        in (out / "sglang.txt").read_text()
    )


@pytest.fixture
def sampled_log(tmp_path: Path) -> Path:
    """SGLang's log of 30 requests: 10 have a presence penalty; in the other 20, it has its neutral value."""
    lines = [
        {
            "event": "request.finished",
            "rid": str(number),
            "obj": {
                "input_ids": list(request.prompt),
                "sampling_params": {"presence_penalty": 0.5 if number < 10 else 0, "temperature": 1.0},
            },
            "out": {"output_ids": list(request.output)},
        }
        for number, request in enumerate(mostly_copying(30))
    ]
    return write(tmp_path / "sampled.jsonl", *lines)


def test_the_recommendation_says_what_an_engine_does_with_the_requests_options(
    call_main: Run, sampled_log: Path, tmp_path: Path
) -> None:
    sweep, out = tmp_path / "sweep", tmp_path / "out"
    assert call_main("sweep", sampled_log, *TWINS, "--out", sweep).returncode == 0
    for source, arguments in ((sampled_log, TWINS), (sweep, ())):
        done = json.loads(call_main("recommend", source, *arguments, "--engine", "vllm", "--json").stdout)
        assert done["options"] == {"temperature": 30, "presence_penalty": 10}
        assert [(row["effect"], row["requests"]) for row in done["exports"]["vllm"]["requests"]] == [
            ("slower", 10), ("as measured", 30),
        ]  # fmt: skip
        assert done["option_notes"][0].startswith("10 of 30 requests (33 %) have presence_penalty: vLLM 0.32.0 applies")
    shown = call_main("recommend", sampled_log, *TWINS, "--engine", "sglang", "--out", out).stdout
    sentence = "10 of 30 requests (33 %) have presence_penalty: SGLang 0.5.23 applies the same penalty"
    assert sentence in " ".join(shown.split())
    assert sentence in (out / "sglang.txt").read_text()
    for_all_engines = call_main("recommend", sampled_log, *TWINS).stdout
    assert "temperature in 30, presence_penalty in 10" in " ".join(for_all_engines.split())


def test_a_log_without_options_says_nothing_about_them(call_main: Run, log: Path) -> None:
    done = json.loads(call_main("recommend", log, *TWINS, "--engine", "vllm", "--json").stdout)
    assert (done["options"], done["option_notes"], done["exports"]["vllm"]["requests"]) == ({}, [], [])


def test_a_report_has_the_figures_the_remarks_and_the_text_to_paste(
    call_main: Run, sampled_log: Path, tmp_path: Path
) -> None:
    files = [tmp_path / name for name in ("report.html", "report.md")]
    arguments = ("recommend", sampled_log, *TWINS, "--engine", "vllm", "--json")
    with_html, with_markdown = (call_main(*arguments, "--report", file) for file in files)
    result = json.loads(with_html.stdout)
    assert result["remarks"] == with_html.stderr.splitlines() and "presence_penalty in 10" in result["remarks"][0]
    assert json.loads(with_markdown.stdout)["recommendation"] == result["recommendation"]
    page, text = (file.read_text() for file in files)
    shown = [html.unescape(page), text.replace("\\", "")]
    sentences = [*result["text"], *result["remarks"], *result["option_notes"], *result["not_tested"]]
    for sentence in [*sentences, result["exports"]["vllm"]["settings"], result["exports"]["vllm"]["synthetic"]]:
        assert [sentence in words for words in shown] == [True, True], sentence
    figures = f"{result['recommendation']['tau']:.2f} ({result['recommendation']['tau_low']:.2f} to"
    assert all(figures in words and "sampled.jsonl: 30 requests" in words for words in shown)
    # A report may be handed on, so it names no folder of this machine.
    assert str(tmp_path) not in page and str(tmp_path) not in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("log.jsonl", "--report", "report.pdf"), "ends in .html or .md"),
        (("log.jsonl", "--report", "nowhere/report.md"), "there is no folder nowhere"),
        (("log.jsonl", "--engine", "lamp"), "invalid choice"),
        (("log.jsonl", "--seed", "x"), "Seed: 'x'"),
        (("log.jsonl", "--docs", "notes"), "--docs needs --out"),
        (("log.jsonl", "--answers"), "--answers needs --out"),
        (("log.jsonl", "--answers", "--out", "nowhere"), "--answers needs --tokenizer, and logs"),
        (("log.jsonl", "--head-profile", "nowhere.json"), "nowhere.json cannot be read"),
        (("log.jsonl", "--batch", "0"), "--batch is '0'; give 1 to"),
        (("log.jsonl", "--quick", "--grid", "num_draft=4"), "leave out --grid and --keep-outputs"),
        (("nowhere",), "nowhere cannot be read"),
        (("specrace",), "specrace holds no log"),
    ],
)
def test_bad_arguments_print_one_sentence(call_main: Run, log: Path, arguments: tuple[str, ...], words: str) -> None:
    done = call_main("recommend", *(str(log) if argument == "log.jsonl" else argument for argument in arguments))
    assert done.returncode == 2 and done.stdout == ""
    assert words in done.stderr and done.stderr.count("\n") == 1


def test_a_race_and_a_bench_read_the_settings_file(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    file.write_text('{"method": "trie", "num_draft": 6, "options": {"n": 5}}')
    for command in (("race", "Why?"), ("bench",)):
        spec = race_spec(build_parser().parse_args([*command, "--settings", str(file), "--seed", "3"]))
        assert (spec.lanes, spec.num_draft, spec.seed) == (("vanilla", "trie"), 6, 3)
        assert spec.options == {"trie": {"n": 5}}
