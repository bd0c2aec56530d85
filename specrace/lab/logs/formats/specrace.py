"""specrace's own transcripts: {"prompt_ids": [...], "output_ids": [...]} or {"prompt": "...", "output": "..."}.

`bench --save-transcripts` and `answers --save-transcripts` write the ids, and the latter also writes what a server
counted, under `measured`. With --columns the prompt may also be messages or a request's body, and the output a message
or a response's body.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from specrace.lab.logs.formats.apis import read_exchanges
from specrace.lab.logs.formats.apis.requests import parameters_of
from specrace.lab.logs.formats.base import (
    Exchange,
    Format,
    Message,
    Row,
    read_ids,
    read_label,
    read_text,
    require_object,
)
from specrace.lab.logs.formats.media import require_text_only
from specrace.lab.logs.formats.outcomes import require_answered, require_text_of_model


class SpecraceFormat(Format):
    """One request per line, as token ids or text; if a line has both, the ids are used."""

    name = "specrace"
    title = "transcripts (prompt and output)"

    @staticmethod
    def looks_like(row: Row) -> bool:
        # Other formats also have prompt and output, but a type beside them.
        return (bool({"prompt_ids", "output_ids"} & row.keys()) or {"prompt", "output"} <= row.keys()) and (
            "type" not in row and "request_type" not in row
        )

    def read(self, row: Row) -> Iterable[Exchange]:
        require_answered(row)
        name, category = read_label(row, "id"), read_label(row, "category")
        if "prompt_ids" in row or "output_ids" in row:
            _require(row, ("prompt_ids", "output_ids"), "write both prompt_ids and output_ids")
            prompt_ids, output_ids = (read_ids(row[key], key) for key in ("prompt_ids", "output_ids"))
            counts = row.get("measured")
            counts = None if counts is None else require_object(counts, "measured")
            yield Exchange(
                prompt=prompt_ids,
                output=output_ids,
                id=name,
                category=category,
                parameters=parameters_of(row),
                draft_counts=counts,
            )
            return
        require_text_only(row, "the prompt")
        _require(row, ("prompt", "output"), "write prompt_ids and output_ids, or prompt and output")
        if any(isinstance(row[key], dict | list) for key in ("prompt", "output")):
            request = row["prompt"] if row.get("tools") is None else {"messages": row["prompt"], "tools": row["tools"]}
            for exchange in read_exchanges(request, row["output"], name, category):
                yield replace(exchange, parameters=parameters_of(row) | dict(exchange.parameters))
        else:
            question, answer = (read_text(row[key], key) for key in ("prompt", "output"))
            require_text_of_model(answer)
            prompt, output = _with_system(row, question, answer)
            yield Exchange(prompt=prompt, output=output, id=name, category=category, parameters=parameters_of(row))


def _with_system(row: Row, question: str, answer: str) -> tuple[str, str] | tuple[list[Message], Message]:
    """Prompt and output as messages if a system prompt stands beside the prompt, else unchanged."""
    system = row.get("system") or row.get("system_prompt")
    if not isinstance(system, str) or system in question:
        return question, answer
    prompt = [{"role": "system", "content": system}, {"role": "user", "content": question}]
    return prompt, {"role": "assistant", "content": answer}


def _require(row: Row, names: tuple[str, str], hint: str) -> None:
    for name in names:
        if row.get(name) is None:
            raise ValueError(f"there is no {name}; {hint}")
