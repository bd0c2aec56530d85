"""Paths of the files that ship with the package: bundled models, corpus, questions and recordings."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
# A wheel has these folders inside the package, a checkout has them next to it.
_HOME = _PACKAGE if (_PACKAGE / "assets").is_dir() else _PACKAGE.parent

ASSETS = _HOME / "assets"
CORPUS = _HOME / "corpus"
BUNDLED_MODEL = ASSETS / "tiny"
BUNDLED_DRAFT_MODEL = ASSETS / "tiny-draft"
QUESTIONS = ASSETS / "questions.jsonl"
OPEN_QUESTIONS = ASSETS / "open-questions.jsonl"
SHIPPED_ADAPTER = ASSETS / "adapters" / "smollm2-135m"
# Trained heads, each in a folder of its own.
SHIPPED_HEADS = ASSETS / "heads"
RECORDINGS = ASSETS / "recordings"
