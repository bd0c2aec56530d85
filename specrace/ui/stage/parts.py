"""What the page and an exported race share: style sheets, templates, and descriptions of the methods."""

from __future__ import annotations

from specrace.drafters import METHODS
from specrace.ui.server.scripts import STATIC
from specrace.ui.wire import MethodCard
from specrace.views.colours import hue_index, hue_style

# What the page is, in its top bar. A narrow bar leaves out the <span>.
TAGLINE = "Ways to make a language model write faster<span>, raced on your documents</span>"
BRAND = f"<h1>specrace</h1><p>{TAGLINE}</p>"
# On a page that cannot race, this shows the question of the race on stage, in place of the field (`showAsked`).
ASKED = '<h2 dir="auto" hidden></h2>'
# The order matters: of two rules with equally specific selectors, the later one wins.
STYLES = (
    "page.css",
    "stage/stage.css",
    "panes/tokens.css",
    "inspector/inspector.css",
    "explanations/explanations.css",
    "film/film.css",
    "stage/present.css",
    "phone.css",
    "logs/logs.css",
    "logs/advice.css",
    "questions/questions.css",
)


def read_static(name: str) -> str:
    """The text of a file in `ui/static`."""
    return (STATIC / name).read_text(encoding="utf-8")


def stage_style() -> str:
    """The CSS of the stage and of everything around it."""
    return "".join(map(read_static, STYLES)) + hue_style("#stage-host")


def describe_methods() -> list[MethodCard]:
    """What the stage knows about each method before a race."""
    return [
        MethodCard(method.name, method.title, method.summary, hue_index(method.name, index))
        for index, method in enumerate(METHODS.values())
    ]
