"""`race`, `replay` and `lanes` with the bundled model, documents and embedder."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from specrace.core.events import Finished, Started
from specrace.views.recording_check import read_recording
from specrace.workbench import Workbench
from tests.servers.replies import serving, vllm_answering, vllm_routes

FIELDS = {
    "lane", "tokens", "steps", "tau", "drafted_per_step", "acceptance_rate", "decode_ms", "tokens_per_s", "speedup",
    "identical", "first_difference", "text",
}  # fmt: skip


def test_the_default_lanes_give_vanillas_text_and_quote_the_evidence(recorded_race) -> None:
    result, _ = recorded_race
    lanes = {lane["lane"]: lane for lane in result["lanes"]}
    assert list(lanes) == ["vanilla", "trigram", "lookahead", "trie", "fusion"]
    for lane in lanes.values():
        assert set(lane) >= FIELDS
        assert lane["tokens"] >= 40
        assert lane["identical"] is True
        assert lane["text"] == lanes["vanilla"]["text"]
    assert lanes["vanilla"]["tau"] == 1.0
    assert lanes["trie"]["tau"] > max(1.8, lanes["lookahead"]["tau"])
    passages = " ".join(passage["text"] for passage in result["passages"])
    sentences = [sentence for passage in result["passages"] for sentence in passage["sentences"]]
    evidence = [sentence["text"] for sentence in sentences if sentence["evidence"]]
    quoted = [sentence for sentence in evidence if sentence in lanes["vanilla"]["text"]]
    assert quoted and all(sentence in passages for sentence in quoted)
    assert {"model", "dtype", "device", "versions", "settings"} <= set(result)


def test_replay_shows_what_was_recorded(call_main, recorded_race) -> None:
    result, path = recorded_race
    done = call_main("replay", path, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == result


def test_replay_without_json_prints_the_table(call_main, recorded_race) -> None:
    done = call_main("replay", recorded_race[1], "--speed", "500")
    assert done.returncode == 0, done.stderr
    assert "identical" in done.stdout and "trie" in done.stdout


def test_a_race_is_repeated_and_saved_with_its_range(call_main, tmp_path: Path) -> None:
    file = tmp_path / "race.jsonl"
    settings = ("--lanes", "trie", "--max-new-tokens", "8", "--repeat", "3", "--save", file, "--json")
    done = call_main("race", "Why does bread rise?", *settings)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert 1 <= result["runs"] <= 3 and result["repeated"]["note"]
    for lane in result["lanes"]:
        assert lane["speedup_low"] <= lane["speedup"] <= lane["speedup_high"]
    kinds = [json.loads(line)["type"] for line in file.read_text().splitlines()]
    assert kinds[-2:] == ["finished", "repeated"] and kinds.count("repeated") == 1
    assert json.loads(call_main("replay", file, "--json").stdout) == result


def test_a_sampled_race_reads_given_documents_and_prints_no_control_character(call_main, tmp_path: Path) -> None:
    hostile = "# \x1b[31mRed <img src=x>\n\nThe zebrafinch sings at dawn to <|end|> mark ${alert(1)} its nest.\n"
    (tmp_path / "zebra finch.md").write_text(hostile)
    (tmp_path / "noise.txt").write_bytes(b"\x00\xff\x01")
    done = call_main(
        "race", "When does the zebrafinch sing?", "--docs", tmp_path, "--lanes", "trie,jacobi", "--temperature", "0.8",
        "--seed", "7", "--max-new-tokens", "24", "--option", "trie.n=5",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert done.stdout.count("identical") == 2
    assert "Left out:" in done.stderr and "noise.txt is not UTF-8 text" in done.stderr


def test_a_lane_is_raced_twice_and_every_name_shows_its_options(call_main, tmp_path: Path) -> None:
    file, document = tmp_path / "race.jsonl", tmp_path / "bread.md"
    document.write_text("# Bread\n\nBread rises because yeast makes gas, and gas makes bread rise.\n")
    arguments = (
        "--docs",
        document,
        "--lanes",
        "vanilla,trie:n=3,trie,trigram",
        "--max-new-tokens",
        "16",
        "--option",
        "trie.prefix=2",
    )
    done = call_main("race", "Why does bread rise?", *arguments, "--save", file)
    assert done.returncode == 0, done.stderr
    names = ["vanilla", "trie:n=3:prefix=2", "trie:prefix=2", "trigram"]
    rows = [line.split()[0] for line in done.stdout.splitlines() if re.search("identical|reference", line)]
    assert rows == names
    started, *_, finished = read_recording(file)
    assert isinstance(started, Started) and isinstance(finished, Finished)
    assert [info.lane for info in started.lanes] == [lane.lane for lane in finished.lanes] == names
    assert [info.title for info in started.lanes[1:3]] == ["N-gram trie (n=3, prefix=2)", "N-gram trie (prefix=2)"]
    assert all(lane.identical for lane in finished.lanes)


def test_lanes_lists_options_with_bounds(call_main) -> None:
    done = call_main("lanes", "--json")
    lanes = {row["lane"]: row for row in json.loads(done.stdout)["lanes"]}
    options = {option["name"]: option for row in lanes.values() for option in row["options"]}
    names = "trie.n trie.prefix trie.static trigram.min_context_count prompt-lookup.longest lookahead.window"
    assert set(f"{names} lookahead.n lookahead.guesses lookahead.pool_from_prompt".split()) <= set(options)
    assert options["trie.n"]["default"] == 13


BAD = [
    (("",), "Type a question first"),
    (("Why?", "--docs", "{empty}"), "{empty}"),
    (("Why?", "--docs", "nowhere/at/all"), "nowhere"),
    (("Why?", "--lanes", "vanilla,warp"), "warp"),
    (("Why?", "--lanes", ","), "lane"),
    (("Why?", "--lanes", "trie,trie"), "The lane trie is given twice; leave one out"),
    (("Why?", "--lanes", "trie:n"), "'trie:n' is not of the form"),
    (("Why?", "--model", "./no-such-model"), "no-such-model"),
    (("Why?", "--model", "{empty}"), "{empty}"),
    (("Why?", "--num-draft", "-1"), "-1"),
    (("Why?", "--num-draft", "many"), "many"),
    (("Why?", "--max-new-tokens", "0"), "0"),
    (("Why?", "--max-new-tokens", "4000"), "context|takes"),
    (("Why?", "--temperature", "nan"), "nan"),
    (("Why?", "--dtype", "int3"), "int3"),
    (("Why?", "--option", "trie.n"), "trie.n"),
    (("Why?", "--option", "trie.n=1"), "trie.n"),
    (("Why?", "--option", "trie.m=1"), "'m'"),
    (("Why?", "--passages", "13"), "13"),
    (("Why?", "--repeat", "0"), "whole number from 1 to 50 or auto"),
    (("Why?", "--repeat", "51"), "whole number from 1 to 50 or auto"),
    (("Why?", "--repeat", "often"), "often"),
    (("Why?", "--save", "{empty}/no/race.jsonl"), "no folder"),
    (("Why? " * 600,), "characters"),
]


def assert_one_sentence(done: subprocess.CompletedProcess[str], words: str) -> None:
    """Assert that the command ended with code 2 and printed one sentence with one of `words`, which "|" separates."""
    message = done.stderr.strip()
    assert (done.returncode, done.stdout) == (2, "")
    assert any(word in message for word in words.split("|")), message
    assert message.count("\n") == 0 and "Traceback" not in message


@pytest.mark.parametrize(("arguments", "words"), BAD)
def test_bad_input_prints_one_sentence_and_exits_with_2(call_main, tmp_path: Path, arguments, words: str) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    done = call_main("race", *(text.format(empty=empty) for text in arguments), "--json")
    assert_one_sentence(done, words.format(empty=empty))
    assert list(empty.iterdir()) == []


def test_a_new_process_prints_only_the_sentence(run) -> None:
    """The libraries, which are imported before the model is looked up, print nothing either."""
    assert_one_sentence(run("race", "Why?", "--model", "./no-such-model", "--json"), "no-such-model")


BAD_RECORDINGS = ["", "{}\n", "not json", '{"type": "started"}\n', "\xff\xfe"]


@pytest.mark.parametrize("text", BAD_RECORDINGS)
def test_a_bad_recording_prints_one_sentence(call_main, tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(text, encoding="latin-1")
    assert_one_sentence(call_main("replay", path), str(path))


@pytest.mark.parametrize("name", ["x" * 100_000, "\x1b[2J\x07x"])
def test_names_in_messages_are_shortened_and_have_no_control_characters(call_main, name: str) -> None:
    for arguments in (
        ("race", "Why?", "--lanes", name),
        ("replay", name),
        ("race", "Why?", "--num-draft", name),
        (name,),
    ):
        done = call_main(*arguments)
        assert_one_sentence(done, "x")
        assert len(done.stderr) < 1000 and done.stderr.rstrip("\n").isprintable()


def test_save_without_msgspec_is_refused_before_the_race(call_main, tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "msgspec", None)
    assert_one_sentence(call_main("race", "Why?", "--save", tmp_path / "race.jsonl"), "msgspec")


def test_a_server_races_beside_our_lanes_and_replays_without_it(call_main, tmp_path: Path) -> None:
    """The server speaks vLLM's protocol and decodes with our target and the twin of vLLM's n-gram drafter."""
    target, file = Workbench.open().target, tmp_path / "race.jsonl"

    def decode(tokens: Sequence[int]) -> str:
        return str(target.tokenizer.decode(list(tokens), skip_special_tokens=True))

    answer = vllm_answering(target, decode, prompt_lookup_min=2, prompt_lookup_max=4)
    settings = ("--lanes", "trie", "--max-new-tokens", "16", "--save", file)
    with serving(vllm_routes(answer)) as address:
        servers = ("--server", f"fast={address.url}", "--server", f"slow={address.url}/nowhere")
        done = call_main("race", "Why does bread rise?", *settings, *servers, "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    vanilla, _, fast = result["lanes"]
    assert fast["lane"] == "fast" and fast["identical"] is True and fast["text"] == vanilla["text"]
    assert fast["speedup"] is None and fast["served"]["engine"] == "vLLM 0.32.0" and fast["tau"] > 1
    assert result["servers_left_out"][0].startswith("The server slow lists no models")
    replayed = call_main("replay", file, "--json")
    assert replayed.returncode == 0 and json.loads(replayed.stdout) == result
    shown = " ".join(call_main("replay", file, "--speed", "1000").stdout.split())
    assert "Measured on fast (vLLM 0.32.0, m)" in shown and "this is not race time" in shown
    assert "Left out: The server slow" in shown


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--server", "127.0.0.1:8000"), "is not of the form NAME=URL"),
        (("--server", "trie=http://127.0.0.1:9"), "a lane has this name already"),
        (("--server", "a=http://127.0.0.1:9", "--temperature", "1"), "needs --temperature 0"),
        (("--server", "a=http://127.0.0.1:9", "--reference", "b"), "--reference b is not one of several servers"),
        (
            ("--server", "a=http://127.0.0.1:9", "--together"),
            "--together lets several servers answer at once; give two",
        ),
    ],
)
def test_a_server_that_cannot_race_is_refused_before_a_model_is_loaded(call_main, arguments, words: str) -> None:
    done = call_main("race", "Why?", "--model", "no-such-folder", *arguments)
    assert done.returncode == 2 and words in done.stderr
