"""specrace's own transcripts: {"prompt_ids": [...], "output_ids": [...]} or {"prompt": "...", "output": "..."}.

`bench --save-transcripts` and `answers --save-transcripts` write the ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from specrace.lab.formats.base import Exchange, Format, Row, Tokens, read_ids, read_label, read_text


class SpecraceFormat(Format):
    """One request per line, as token ids or text; if a line has both, the ids are used."""

    name = "specrace"
    title = "transcripts (prompt and output)"

    @staticmethod
    def looks_like(row: Row) -> bool:
        return bool({"prompt_ids", "output_ids", "output"} & row.keys()) and "type" not in row

    def read(self, row: Row) -> Iterable[Exchange]:
        if "prompt_ids" in row or "output_ids" in row:
            read: Callable[[object, str], Tokens | str] = read_ids
            names = ("prompt_ids", "output_ids")
            hint = "write both prompt_ids and output_ids"
        else:
            read = read_text
            names = ("prompt", "output")
            hint = "write prompt_ids and output_ids, or prompt and output"
        for name in names:
            if row.get(name) is None:
                raise ValueError(f"there is no {name}; {hint}")
        prompt, output = (read(row[name], name) for name in names)
        yield Exchange(prompt, output, read_label(row, "id"), read_label(row, "category"))
