"""The addresses of servers: what is read, and what is refused."""

from __future__ import annotations

import pytest

from specrace.core.errors import InputError
from specrace.engine.spec import RaceSpec
from specrace.servers.address import KEY_VARIABLE, check_spec, parse_server


def test_an_address_has_a_name_a_base_url_a_model_and_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "k")
    address = parse_server("my.vllm-1=https://[::1]:8000/proxy/v1/#org/model")
    assert (address.name, address.url, address.model, address.key) == (
        "my.vllm-1",
        "https://[::1]:8000/proxy",
        "org/model",
        "k",
    )


@pytest.mark.parametrize(
    "text",
    [
        "http://127.0.0.1:8000",
        "=http://127.0.0.1",
        "a b=http://127.0.0.1",
        "<b>=http://127.0.0.1",
        "a" * 41 + "=http://127.0.0.1",
        "a=",
        "a=127.0.0.1:8000",
        "a=ftp://127.0.0.1",
        "a=file:///etc/passwd",
        "a=http://",
        "a=http://127.0.0.1:port",
        "a=http://127.0.0.1:99999",
        "a=http://[::1",
        "a=http://me:secret@127.0.0.1",
        "a=http://127.0.0.1/?key=1",
    ],
)
def test_a_bad_address_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_server(text)
    assert "secret" not in str(caught.value) and str(caught.value).endswith(".")


def test_servers_race_greedily_and_under_names_of_their_own() -> None:
    one, two = parse_server("one=http://127.0.0.1:1"), parse_server("two=http://127.0.0.1:2")
    check_spec(RaceSpec(), [one, two], lambda _: False)
    with pytest.raises(InputError, match="--temperature 0"):
        check_spec(RaceSpec(temperature=0.5), [one], lambda _: False)
    with pytest.raises(InputError, match="--server one: a lane has this name"):
        check_spec(RaceSpec(), [one, one], lambda _: False)
    with pytest.raises(InputError, match="--server two: a lane has this name"):
        check_spec(RaceSpec(), [one, two], lambda name: name == "two")
