"""specrace's own transcripts: {"prompt_ids": [...], "output_ids": [...]} or {"prompt": "...", "output": "..."}.

`bench --save-transcripts` and `answers --save-transcripts` write the ids.
"""

from __future__ import annotations

from collections.abc import Iterable

from specrace.lab.formats.base import Exchange, Format, Row, label, read_ids, read_text


class Own(Format):
    """A request a line, its ids or its text; where a line has both, the ids count."""

    name = "specrace"
    title = "transcripts (prompt and output)"

    @staticmethod
    def looks_like(row: Row) -> bool:
        return bool({"prompt_ids", "output_ids", "output"} & row.keys()) and "type" not in row

    def read(self, row: Row) -> Iterable[Exchange]:
        exact = "prompt_ids" in row or "output_ids" in row
        names = ("prompt_ids", "output_ids") if exact else ("prompt", "output")
        hint = (
            "write both prompt_ids and output_ids" if exact else "write prompt_ids and output_ids, or prompt and output"
        )
        for name in names:
            if row.get(name) is None:
                raise ValueError(f"there is no {name}; {hint}")
        read = read_ids if exact else read_text
        prompt, output = (read(row[name], name) for name in names)
        yield Exchange(prompt, output, label(row, "id"), label(row, "category"))
