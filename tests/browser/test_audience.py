"""The audience's votes, on the stage and on a phone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.apps import serving
from tests.browser.parts import RECORDING, open_race, run_clock_until, skip, wait_for
from tests.browser.parts import stage as stage_data

pytestmark = pytest.mark.browser

PHONE = {"width": 390, "height": 844}
# Longer than a countdown, and than the race that it would start.
HELD_MS = 30_000


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a page that plays recordings, under a name that phones reach."""
    arguments = ("--replay", str(RECORDING), "--allowed-hosts", "stage.localhost")
    with serving(tmp_path_factory.mktemp("audience"), *arguments, forked=True) as (url, _):
        yield url.replace("127.0.0.1", "stage.localhost")


def test_a_phone_votes_and_learns_who_won(home: str, open_page: Any) -> None:
    stage = open_page(home, ready=False)
    wait_for(stage, mode="result")
    stage.keyboard.press("a")
    dialog = stage.get_by_role("dialog", name="The audience votes")
    expect(dialog.get_by_role("img", name="QR code")).to_be_visible()
    link = dialog.locator(".link").inner_text()
    assert f"http://{link}".startswith(f"{home}audience/")

    phone = stage.context.browser.new_page(viewport=PHONE)
    phone.goto(f"http://{link}")
    expect(phone.get_by_role("heading")).to_have_text("Who wins?")
    buttons = phone.get_by_role("button")
    assert min(button.bounding_box()["height"] for button in buttons.all()) >= 44
    titles = buttons.all_inner_texts()
    winner = stage.evaluate("document.querySelector('.pane.winner h3').textContent.trim()")
    phone.get_by_role("button", name=winner).click()
    expect(phone.get_by_role("heading")).to_contain_text(f"You say: {winner}")
    expect(dialog.locator(".votes")).to_have_text("Audience: 1 vote.")

    stage.keyboard.press("Escape")
    open_race(stage, RECORDING)
    expect(stage.locator(".audience-line")).to_have_text(f"Audience: {winner} 1. 1 of 1 guessed right.")
    expect(phone.get_by_role("heading")).to_have_text(f"{winner} won. You were right.")
    assert buttons.all_inner_texts() == [f"{title}: {int(title == winner)}" for title in titles]
    phone.close()


def test_a_race_waits_for_a_key_while_the_audience_votes(home: str, open_page: Any) -> None:
    stage = open_page(home, ready=False, reduced_motion=False, stopped=True)
    stage.keyboard.press("a")
    dialog = stage.get_by_role("dialog", name="The audience votes")
    expect(dialog.locator(".votes")).to_have_text("Audience: no votes yet.")
    link = dialog.locator(".link").inner_text()
    stage.keyboard.press("Escape")
    open_race(stage, RECORDING)
    expect(stage.locator(".announcer")).to_contain_text("The vote is open. Space")
    skip(stage, HELD_MS)
    assert stage_data(stage)["mode"] == "idle" and stage.locator(".pane .run").count() == 0

    phone = stage.context.browser.new_page(viewport=PHONE)
    phone.goto(f"http://{link}")
    phone.get_by_role("button", name="Vanilla").click()
    expect(phone.get_by_role("heading")).to_contain_text("You say: Vanilla")
    phone.close()
    stage.keyboard.press(" ")
    expect(stage.locator(".countdown")).to_have_text("3")
    run_clock_until(stage, "() => document.querySelector('.stage').dataset.mode === 'replay'")
    skip(stage, HELD_MS)
    assert stage_data(stage)["mode"] == "result"
    expect(stage.locator(".audience-line")).to_contain_text("Audience: Vanilla 1.")


def test_a_server_that_phones_cannot_reach_says_how_to_start_it(replay_app: str, open_page: Any) -> None:
    stage = open_page(replay_app, ready=False)
    wait_for(stage, mode="result")
    stage.keyboard.press("a")
    expect(stage.locator(".announcer")).to_contain_text("--host 0.0.0.0")
