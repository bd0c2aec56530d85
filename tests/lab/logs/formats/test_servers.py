"""The logs of servers: SGLang's requests."""

from __future__ import annotations

from pathlib import Path

from specrace.lab.logs.transcripts import TranscriptFile
from tests.lab.logs.formats.written import sglang


def test_a_request_of_sglang_keeps_its_id(tmp_path: Path) -> None:
    transcripts = list(TranscriptFile(sglang(tmp_path)[0]))
    assert [transcript.id for transcript in transcripts] == [str(number) for number in range(20)]
