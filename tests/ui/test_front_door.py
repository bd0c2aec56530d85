"""The command line of the app: which arguments are refused, and which model, questions and recording it uses."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path

import pytest

from specrace.cli import app, main
from specrace.core.bundled import BUNDLED_MODEL, RECORDINGS
from specrace.core.errors import InputError
from specrace.model.weights.names import PREFERRED
from specrace.ui import greeting, loading, offers
from specrace.ui.page import audience


@pytest.fixture
def model(tmp_path: Path) -> str:
    """A folder that looks like a model until something loads it."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    return str(tmp_path / "model")


def refusal(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Check that these arguments exit with code 2; returns the one sentence that is printed."""
    try:
        code = app.main(arguments)
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else -1
    captured = capsys.readouterr()
    assert code == 2 and captured.out == ""
    assert captured.err.count("\n") == 1 and "Traceback" not in captured.err
    return captured.err


def test_help_names_every_lane_that_drafts_from_past_outputs(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        app.main(["--help"])
    help_text = " ".join(capsys.readouterr().out.split())
    # From the flag's own line to the next flag.
    keep_outputs_help = help_text[help_text.index("--keep-outputs", help_text.index("options:")) :].partition(
        " --device"
    )[0]
    assert all(name in keep_outputs_help for name in ("fusion", "suffix decoding", "recycling.warm"))


def test_a_missing_model_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no model at" in refusal(["--model", str(tmp_path / "nothing")], capsys)
    assert "no model at" in refusal(["--model", str(tmp_path)], capsys)


def test_a_corpus_without_text_is_refused(tmp_path: Path, model: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    assert "No text was found" in refusal(["--model", model, "--corpus", str(tmp_path / "empty")], capsys)
    assert "does not exist" in refusal(["--model", model, "--corpus", str(tmp_path / "nothing")], capsys)


def test_an_adapter_needs_a_named_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "name that model with --model" in refusal(["--adapter", str(tmp_path)], capsys)


def test_a_head_needs_a_named_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "name the model of --head with --model" in refusal(["--head", str(tmp_path)], capsys)
    assert app.read_config(app.parse(["--model", "tiny", "--head", "eagle=x"])).model.heads == ("eagle=x",)


def test_a_folder_with_a_models_name_does_not_change_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    for name in ("tiny", PREFERRED):
        (tmp_path / name).mkdir()
    assert app.choose_starting_model(app.parse(["--no-fetch"])).source.location == BUNDLED_MODEL


def test_offline_applies_to_a_library_that_is_already_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub.constants as constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    loading.stay_offline()
    assert constants.HF_HUB_OFFLINE and constants.is_offline_mode()


@pytest.mark.parametrize("port", ["0", "-1", "70000", "x"])
def test_a_port_out_of_range_is_refused(model: str, port: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "port" in refusal(["--model", model, "--port", port], capsys)


def test_a_port_in_use_is_refused(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert f"{port} cannot be served on" in refusal(["--model", model, "--port", str(port)], capsys)


def test_unknown_devices_dtypes_and_hosts_are_refused(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "--device" in refusal(["--model", model, "--device", "abacus"], capsys)
    assert "--dtype" in refusal(["--model", model, "--dtype", "int3"], capsys)
    for host in ("203.0.113.7", ".local", "a..b", "a" * 64):
        assert "cannot be served on" in refusal(["--model", model, "--host", host], capsys)


@pytest.mark.parametrize(("words", "reason"), [("odd", "odd"), ("", "RuntimeError")])
def test_an_unexpected_error_gets_one_sentence(
    words: str, reason: str, model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: object) -> int:
        raise RuntimeError(words)

    monkeypatch.setattr(app, "serve", fail)
    codes = {"app": app.main(["--model", model]), "COMMAND ...": main.main(["app", "--model", model])}
    assert set(codes.values()) == {1}
    assert capsys.readouterr().err.splitlines() == [
        f"specrace failed: {reason}; to see where, run: python -m specrace --traceback {command}" for command in codes
    ]
    with pytest.raises(RuntimeError):
        main.main(["--traceback", "app", "--model", model])


def test_auto_is_accepted_as_a_device(model: str) -> None:
    assert app.parse(["--model", model, "--device", "auto"]).device == "auto"


def test_example_questions_are_offered_only_for_the_bundled_documents(model: str, tmp_path: Path) -> None:
    questions = offers.example_questions(app.read_config(app.parse(["--model", model])))
    assert questions[: len(offers.FIRST_QUESTIONS)] == list(offers.FIRST_QUESTIONS)
    (tmp_path / "own.md").write_text("Something else.")
    config = app.read_config(app.parse(["--model", model, "--corpus", str(tmp_path)]))
    assert offers.example_questions(config) == []


def test_a_recording_that_cannot_be_played_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "odd.jsonl").write_text("hello")
    assert "line 1 is not an event" in refusal(["--replay", str(tmp_path / "odd.jsonl")], capsys)
    assert "cannot be read" in refusal(["--replay", str(tmp_path / "nothing.jsonl")], capsys)
    copy = tmp_path / "tides.jsonl"
    copy.write_bytes((RECORDINGS / copy.name).read_bytes())
    assert "two files of the same name" in refusal(["--replay", str(copy), str(RECORDINGS / copy.name)], capsys)


def test_the_page_is_refused_under_torchrun(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert "without torchrun" in refusal([], capsys)


def test_the_bundled_model_replaces_a_fetched_one_that_does_not_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page says what is wrong with the fetched model. A model that the user named is refused instead."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "owls.md").write_text("Owls hear well.")
    folder = tmp_path / "specrace" / "models" / PREFERRED
    shutil.copytree(BUNDLED_MODEL, folder)
    (folder / "model.safetensors").write_bytes(b"cut")
    for arguments, loads in (([], True), (["--model", PREFERRED], False)):
        # One document, since this new cache holds no embedded passages.
        config = app.read_config(app.parse(["--no-fetch", "--corpus", str(tmp_path / "owls.md"), *arguments]))
        assert Path(config.model.source.location) == folder
        if not loads:
            with pytest.raises(InputError, match="could not be loaded"):
                loading.loader(config)([].append)
            continue
        status: list[str] = []
        workbench = loading.loader(config)(status.append)
        assert workbench.target.name == "tiny" and status[-1].startswith("Ready: tiny") and "could not be" in status[-1]


def test_a_server_on_all_interfaces_prints_the_address_that_others_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audience, "_in_container", lambda: False)
    monkeypatch.setattr(audience, "_local_address", lambda: "192.168.1.7")
    for host, others in (("0.0.0.0", ["Others on this network open http://192.168.1.7:7860"]), ("127.0.0.1", [])):
        network_address = audience.find_network_address([host], 7860)
        assert greeting.greeting("http://localhost:7860", network_address) == [
            "specrace serves http://localhost:7860",
            *others,
        ]
    own = "http://192.168.1.7:7860"
    assert greeting.greeting(own, audience.find_network_address(["192.168.1.7"], 7860)) == [f"specrace serves {own}"]
