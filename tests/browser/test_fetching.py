"""A model that is fetched while the page runs: the page shows the progress, and one click races with the model."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from specrace.core.bundled import BUNDLED_DRAFT_MODEL
from specrace.model.weights import names
from specrace.ui.helper.fetcher import Fetcher
from specrace.ui.races.worker import Worker
from tests.browser.apps import open_front_door, wait_until
from tests.browser.conftest import OpenPage
from tests.browser.parts import question_field, reels, wait_for_reel

pytestmark = pytest.mark.browser
NAME = "other"


@pytest.fixture(scope="module")
def fetching_page() -> Iterator[tuple[str, Fetcher]]:
    """The address of a page that fetches a model, and the fetcher, whose progress the test sets."""
    fetchers, workers, start = list[Fetcher](), list[Worker](), Worker.start

    def start_and_keep(worker: Worker) -> None:
        workers.append(worker)
        start(worker)

    def begin_to_fetch(fetcher: Fetcher) -> None:
        fetchers.append(fetcher)
        fetcher.text = "Fetching SmolLM2-135M: 43 of 93 MB"

    with pytest.MonkeyPatch.context() as patch:
        model = names.NamedModel(NAME, "maker/SmolLM2-135M-Instruct", 1)
        patch.setitem(names.NAMES, NAME, model)
        # The model is missing until the page begins to fetch it; then the bundled draft model takes its place.
        find = names.NamedModel.find
        patch.setattr(
            names.NamedModel,
            "find",
            lambda named: find(named) if named is not model else BUNDLED_DRAFT_MODEL if fetchers else None,
        )
        patch.setattr("specrace.cli.app.PREFERRED", NAME)
        patch.setattr(Fetcher, "start", begin_to_fetch)
        patch.setattr(Worker, "start", start_and_keep)
        url = open_front_door(fetch=True)
        wait_until(lambda: fetchers)
        yield url, fetchers[0]
        wait_until(lambda: workers[0].loading.settled)


def test_the_page_shows_the_progress_and_one_click_races_with_the_model(
    open_page: OpenPage, fetching_page: tuple[str, Fetcher]
) -> None:
    url, fetcher = fetching_page
    page = open_page(url + "?tokens=8&lanes=vanilla,trie")
    progress, button = page.locator("#fetch-host"), page.locator("#race-fetched")
    expect(progress).to_contain_text("Fetching SmolLM2-135M: 43 of 93 MB")
    expect(page.locator(".status")).to_contain_text("Ready: tiny")
    assert button.count() == 0
    fetcher.text = "other cannot be fetched: <b>no</b> hub"
    expect(progress).to_contain_text("<b>no</b> hub")
    fetcher.ready, fetcher.text = True, "SmolLM2-135M is ready"
    fetcher._on_ready(NAME)
    fetcher._done.set()
    expect(button).to_have_text("Race with SmolLM2-135M")
    expect(button).to_be_in_viewport(ratio=1)
    expect(progress).to_contain_text("SmolLM2-135M is ready")
    question_field(page).fill("What is the n-gram trie built from?")
    number = reels(page)
    button.click()
    wait_for_reel(page, number)
    expect(page.locator(".stage")).to_contain_text("tiny-draft")
    expect(page.locator(".status")).not_to_contain_text("Ready: tiny,")
    expect(button).to_have_count(0)
    page.locator("#settings-button").click()
    expect(page.get_by_role("combobox", name="Model", exact=True)).to_have_value(NAME)
