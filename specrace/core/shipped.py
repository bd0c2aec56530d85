"""What ships with the package: the bundled models, the corpus, questions and recordings."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
# A wheel carries these folders inside the package; in a checkout they lie beside it.
_HOME = _PACKAGE if (_PACKAGE / "assets").is_dir() else _PACKAGE.parent

ASSETS = _HOME / "assets"
CORPUS = _HOME / "corpus"
BUNDLED_MODEL = ASSETS / "tiny"
BUNDLED_DRAFT_MODEL = ASSETS / "tiny-draft"
QUESTIONS = ASSETS / "questions.jsonl"
RECORDINGS = ASSETS / "recordings"
