"""`answers` on the bundled model: figures that follow from the answers, and transcripts that `score` reads."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from specrace.answers import Answer, make_answer, prepare, summarise
from specrace.cli.main import main
from specrace.cli.shared.servers import decoder
from specrace.core.bundled import QUESTIONS
from specrace.core.errors import InputError
from specrace.engine.spec import RaceSpec
from specrace.lab.logs.transcripts import TranscriptFile
from specrace.retrieval.grounding import GROUNDED
from specrace.workbench import Workbench
from tests.servers.replies import as_json, serving, vllm_answering, vllm_routes


def sample_answer(text: str, end: str, grounded: float | None, output: tuple[int, ...] = (1, 2)) -> Answer:
    """An answer to the question "q", with a prompt of three tokens.

    `grounded`: the share of its wording that comes from the passages; None without passages.
    """
    return Answer("1", "q", (5, 6, 7), output, end, grounded, text)


def test_the_summary_has_shares_and_means_over_all_answers() -> None:
    # The second output is one token forty times, which counts as a loop. An answer is grounded from 0.8 on.
    answers = [
        sample_answer("a", "eos", 1.0),
        sample_answer("b", "length", 0.79, (3,) * 40),
        sample_answer("c", "eos", 0.8),
    ]
    summary = summarise(answers)
    assert summary["loops"] == pytest.approx(1 / 3) and summary["stops"] == summary["grounded"] == pytest.approx(2 / 3)
    assert (summary["count"], summary["mean_tokens"], summary["mean_prompt_tokens"]) == (3, pytest.approx(44 / 3), 3)
    assert summarise([sample_answer("a", "eos", None)])["grounded"] is None


@pytest.mark.parametrize(
    ("text", "repeats"),
    [
        ("It rises slowly here. It falls. It rises slowly here.", True),
        ("Yes. Yes. It rises slowly here.", False),
        ("", False),
    ],
)
def test_a_repeated_sentence_of_four_words_or_more_is_a_repetition(text: str, repeats: bool) -> None:
    assert sample_answer(text, "eos", 1.0).repeats is repeats


def test_thoughts_are_kept_apart_from_the_answer_and_count_as_output(
    bundled: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, tokenizer = RaceSpec(("trie",), max_new_tokens=8), bundled.target.tokenizer
    monkeypatch.setattr(tokenizer, "chat_template", "{{ messages[0].content }}<think>\n")
    prepared = prepare(bundled, {"id": "1", "question": "What is a trie?"}, spec, 1, on_cuts=lambda *_: None)
    output = tuple(tokenizer("It rises slowly here.</think> Yes. It rises slowly here.")["input_ids"])
    answer = make_answer(bundled, prepared, output, "eos")
    assert (answer.thoughts, answer.text) == ("It rises slowly here.</think>", "Yes. It rises slowly here.")
    assert not answer.repeats and answer.output == output
    assert answer.as_json()["thoughts"] == answer.thoughts


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, dict]:
    """Two questions, the saved answers to them, and what the command printed."""
    folder = tmp_path_factory.mktemp("answers")
    questions, saved = folder / "two.jsonl", folder / "saved.jsonl"
    questions.write_text("".join(QUESTIONS.read_text().splitlines(keepends=True)[:2]))
    output, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(output), redirect_stderr(errors):
        code = main(["answers", "--questions", str(questions), "--json", "--save-transcripts", str(saved)])
    assert (code, errors.getvalue()) == (0, "")
    return questions, saved, json.loads(output.getvalue())


def test_answers_are_made_with_passages_and_without_them(call_main, answered: tuple[Path, Path, dict]) -> None:
    questions, saved, result = answered
    assert (result["stops"], result["loops"], result["model"]) == (1.0, 0.0, "tiny")
    grounded = [answer["grounded"] >= GROUNDED for answer in result["answers"]]
    assert result["grounded"] == sum(grounded) / 2
    assert [answer["end"] for answer in result["answers"]] == ["eos", "eos"]
    assert [len(transcript.output) for transcript in TranscriptFile(saved)] == [
        answer["tokens"] for answer in result["answers"]
    ]
    done = call_main("answers", "--questions", questions, "--passages", "0", "--max-new-tokens", "3")
    assert done.returncode == 0 and "3 tokens, cut at the limit" in done.stdout
    summary = "two, 2 answers: 0% loop, 0% repeat a sentence, 0% stop by themselves; on average 3 tokens"
    assert summary in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--questions", "no-such-set"], "no-such-set"),
        (["--passages", "13"], "Passages: 13"),
        (["--max-new-tokens", "0"], "New tokens: 0"),
        (["--save-transcripts", "/no/such/folder/t.jsonl"], "/no/such/folder"),
    ],
)
def test_bad_arguments_print_one_sentence(call_main, arguments: list[str], message: str) -> None:
    done = call_main("answers", *arguments)
    assert done.returncode == 2 and message in done.stderr and len(done.stderr.strip().splitlines()) == 1


def test_a_file_with_a_prompt_but_no_question_is_refused(call_main, tmp_path: Path) -> None:
    (tmp_path / "ids.jsonl").write_text('{"question": "Why?"}\n{"prompt_ids": [1]}\n')
    done = call_main("answers", "--questions", tmp_path / "ids.jsonl")
    assert done.returncode == 2 and "without a question" in done.stderr


def test_the_error_names_the_question_that_does_not_fit_the_context(bundled: Workbench) -> None:
    with pytest.raises(InputError, match=r"^Question q7: "):
        prepare(bundled, {"id": "q7", "question": "why " * 2000}, RaceSpec(("trie",)), None, on_cuts=lambda *_: None)
    with pytest.raises(InputError, match=r"^Question q8: .*takes 2048"):
        prepare(
            bundled,
            {"id": "q8", "question": "Why?"},
            RaceSpec(("trie",), max_new_tokens=4096),
            None,
            on_cuts=lambda *_: None,
        )


def test_a_server_answers_and_its_counts_reach_score_and_recommend(
    call_main, answered: tuple[Path, Path, dict], tmp_path: Path
) -> None:
    questions, _, without_server = answered
    saved = tmp_path / "saved.jsonl"
    target = Workbench.open().target
    ngram = {"num_speculative_tokens": 4, "prompt_lookup_min": 2, "prompt_lookup_max": 4}
    completions = vllm_answering(target, decoder(target), "vllm-ngram", **ngram)
    arguments = ("answers", "--questions", questions, "--json", "--save-transcripts", saved)
    with serving(vllm_routes(completions)) as address:
        done = call_main(*arguments, "--server", f"tested={address.url}")
    assert (done.returncode, done.stderr) == (0, "")
    result = json.loads(done.stdout)
    # A server with the same weights writes the same answers in float32.
    assert result["server"] == "vLLM 0.32.0" and result["answers"] == without_server["answers"]
    options = [word for key, value in ngram.items() for word in ("--option", f"vllm-ngram.{key}={value}")]
    done = call_main("score", saved, "--lanes", "vllm-ngram", *options, "--json")
    (agreement,) = json.loads(done.stdout)["agreement"]
    assert (agreement["outputs"], agreement["equal"]) == (2, 2)
    assert agreement["measured_tau"] == agreement["forecast_tau"] > 1.0
    done = call_main("recommend", saved, "--lanes", "vllm-ngram", "--json")
    assert json.loads(done.stdout)["text"][-1].startswith("Measured on vLLM 0.32.0 in 2 requests: ")


def test_a_server_that_fails_is_named_with_the_question(call_main, tmp_path: Path) -> None:
    questions = tmp_path / "one.jsonl"
    questions.write_text('{"id": "first", "question": "Why does bread rise?"}')
    with serving(vllm_routes(as_json({"error": {"message": "no room"}}, 500))) as address:
        done = call_main("answers", "--questions", questions, "--server", f"mine={address.url}")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == "Question first: The server mine answers with status 500: no room."
    done = call_main("answers", "--server", "no-address")
    assert done.returncode == 2 and "is not of the form NAME=URL" in done.stderr
