"""Operator settings: who may sign in, whether uploads are accepted, and which models visitors may choose."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from http.cookies import SimpleCookie
from pathlib import Path
from urllib.parse import urlencode

import pytest

from specrace.cli import app as app_command
from specrace.core.bundled import BUNDLED_DRAFT_MODEL, BUNDLED_MODEL
from specrace.model.weights.source import choose_model
from specrace.ui.config import ServerConfig
from specrace.ui.offers import offered_models
from specrace.ui.page.gradio_private import password_check
from specrace.ui.server.visitors import LOGINS_PER_MINUTE
from tests.ui.api.test_endpoints import error_of
from tests.ui.served import Answer, Served, component_value, serving
from tests.ui.test_front_door import refusal

PASSWORD = "sesame: open"
FORM = "application/x-www-form-urlencoded"


@pytest.fixture(scope="module")
def locked_app() -> Iterator[Served]:
    """A server that requires visitors to sign in."""
    with serving("--auth", f"ann:{PASSWORD}") as app:
        yield app


def sign_in(app: Served, user: str, password: str) -> Answer:
    """Send the sign-in form."""
    body = urlencode({"username": user, "password": password}).encode()
    return app.ask("POST", "/login", body, Content_Type=FORM)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/config"),
        ("GET", "/gradio_api/info"),
        ("GET", "/gradio_api/race/a-key"),
        ("GET", "/gradio_api/queue/data?session_hash=a"),
        ("POST", "/gradio_api/upload"),
        ("POST", "/gradio_api/recording"),
        ("POST", "/gradio_api/shared"),
        ("GET", "/gradio_api/shared/a-code"),
        ("POST", "/gradio_api/logs"),
        ("GET", "/gradio_api/logs"),
        ("POST", "/gradio_api/queue/join"),
        ("POST", "/gradio_api/component_server"),
        ("POST", "/gradio_api/call/v2/race"),
        ("POST", "/gradio_api/cancel"),
        ("POST", "/audience"),
        ("POST", "/audience/"),
    ],
)
def test_requests_without_a_sign_in_are_refused(locked_app: Served, method: str, path: str) -> None:
    answer = locked_app.ask(method, path, {} if method == "POST" else None)
    assert answer.status == 401
    assert locked_app.ask(method, path, {} if method == "POST" else None, Cookie="access-token-x=y").status == 401


def test_a_signed_in_visitor_may_use_the_server_and_the_password_is_not_logged(
    locked_app: Served, capfd: pytest.CaptureFixture[str]
) -> None:
    assert b"auth_required" in locked_app.ask("GET", "/").body
    for user, password in (("ann", "sesame"), ("bob", PASSWORD), ("ann", ""), ("", PASSWORD)):
        assert sign_in(locked_app, user, password).status in (400, 422)
    signed_in = sign_in(locked_app, "ann", PASSWORD)
    assert signed_in.status == 200
    cookies = "; ".join(
        f"{morsel.key}={morsel.value}" for morsel in SimpleCookie(signed_in.headers["set-cookie"]).values()
    )
    assert locked_app.ask("GET", "/config", Cookie=cookies).status == 200
    assert locked_app.ask("POST", "/gradio_api/recording", b"x", Cookie=cookies).status == 400
    logged = capfd.readouterr()
    assert PASSWORD not in logged.out + logged.err


def test_health_and_votes_need_no_sign_in(locked_app: Served) -> None:
    assert locked_app.ask("GET", "/healthz").status == 200
    assert locked_app.ask("GET", "/audience/abcdef").status == 200
    assert locked_app.ask("GET", "/audience/abcdef/state").status == 400


@pytest.mark.skipif(sys.platform != "linux", reason="another visitor comes from 127.0.0.2")
def test_sign_in_attempts_are_rate_limited(locked_app: Served) -> None:
    visitor = replace(locked_app, source="127.0.0.2")
    answers = [sign_in(visitor, "ann", str(number)).status for number in range(LOGINS_PER_MINUTE + 1)]
    assert answers == [400] * LOGINS_PER_MINUTE + [429]
    assert sign_in(visitor, "ann", PASSWORD).status == 429


def test_the_whole_user_name_and_password_must_match() -> None:
    # The user is "ann", and the password is "ü:b".
    check = password_check("ann:ü:b")
    assert check is not None and check("ann", "ü:b")
    assert not check("ann", "ü:") and not check("ann", "") and not check("", "ann:ü:b")
    assert password_check(None) is None


def test_the_password_may_come_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPECRACE_AUTH", f"ann:{PASSWORD}")
    assert app_command.parse([]).auth == f"ann:{PASSWORD}"
    with pytest.raises(SystemExit):
        app_command.main(["--help"])
    assert PASSWORD not in capsys.readouterr().out


@pytest.mark.parametrize("account", ["secret-word", ":secret-word", "secret-word:", " : "])
def test_an_incomplete_account_is_refused_without_printing_it(account: str, capsys: pytest.CaptureFixture[str]) -> None:
    sentence = refusal(["--auth", account], capsys)
    assert "USER:PASSWORD" in sentence and "secret-word" not in sentence


def test_a_server_without_uploads_refuses_files() -> None:
    with serving("--no-uploads") as app:
        for answer in (app.upload({"a.md": b"A."}), app.ask("POST", "/gradio_api/recording/?name=a", b"x")):
            assert answer.status == 403 and answer.text == "This server takes no files."
        assert error_of(app, "score", text="{}") == "This server takes no files."
        # The choices for scoring are still listed, so that the page can say that logs are not accepted.
        assert app.ask("GET", "/gradio_api/logs").json()["tokenizers"][0] == "tiny"
        for path in ("/gradio_api/logs", "/gradio_api/advice"):
            answer = app.ask("POST", path, b"{}")
            assert answer.status == 403 and answer.text == "This server takes no files."
        assert app.files() == []
        config = app.ask("GET", "/config").json()
        props = [component["props"] for component in config["components"]]
        assert next(prop for prop in props if prop.get("elem_id") == "documents-host")["visible"] is False
        assert next(prop for prop in props if prop.get("elem_id") == "stage-host")["props"]["takes_files"] is False
        assert "key" in app.race()


def test_visitors_may_choose_only_named_models() -> None:
    with serving("--models", str(BUNDLED_DRAFT_MODEL)) as app:
        config = app.ask("GET", "/config").json()
        model = next(component for component in config["components"] if component["props"].get("label") == "Model")
        assert component_value(config, model["id"], None, {}) == ""
        choices = [value for _, value in model["props"]["choices"]]
        assert choices == ["", BUNDLED_MODEL.name, BUNDLED_DRAFT_MODEL.name]
        assert "There is no model" in app.race(Model="smollm2-135m") and "key" in app.race(Model="tiny-draft")


def test_folders_with_equal_names_are_all_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("run1/final", "run2/final", "other/tiny"):
        Path(name).mkdir(parents=True)
    arguments = ["--model", "other/tiny", "--models", "run1/final", str(tmp_path / "run2" / "final"), "org/final"]
    offered = offered_models(ServerConfig(model=choose_model(arguments[1]), models=arguments[3:]))
    assert [*offered] == ["tiny", "run1/final", "run2/final", "org/final"]
    assert [Path(path) for path in offered.values()] == [Path(name) for name in arguments[1:2] + arguments[3:]]
    # A bundled model is also called "tiny".
    with_bundled = offered_models(ServerConfig(model=choose_model(arguments[1])))
    assert next(iter(with_bundled)) == "other/tiny" and with_bundled["assets/tiny"] == str(BUNDLED_MODEL)
    duplicates = offered_models(ServerConfig(model=choose_model("other/tiny"), models=[str(tmp_path / "other/tiny")]))
    assert duplicates == {"tiny": "other/tiny"}


def test_no_model_is_fetched_when_models_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path))
        config = app_command.read_config(app_command.parse(["--models"]))
        assert config.model_to_fetch is None and list(offered_models(config)) == ["tiny"]
        assert "not on this machine" in refusal(["--models", "smollm2-135m"], capsys)
        assert "no model at" in refusal(["--models", str(tmp_path)], capsys)
