"""Formats in which servers of models log their requests.

- SGLang's request log in JSON: {"event": "request.received" | "request.finished", "rid", "obj", "out"}
  (sgl-project/sglang, python/sglang/srt/utils/request_logger.py); unless the log level is 3, long values are cut.
- Bedrock's invocation log: {"schemaType": "ModelInvocationLog", "input": {"inputBodyJson"}, "output":
  {"outputBodyJson"}} (docs.aws.amazon.com/bedrock/latest/userguide/model-invocation-logging.html).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from specrace.core.errors import shorten
from specrace.lab.logs.formats.apis import read_exchanges
from specrace.lab.logs.formats.apis.answers import read_usage
from specrace.lab.logs.formats.base import NO_USAGE, Exchange, Format, Row, read_label, require_object

# SGLang cuts a long value to its two ends, `_KEPT` characters in all, with `_CUT` between them.
_CUT = "..."
_KEPT = 2048


class SGLangLog(Format):
    """One event of a request per line; the event request.finished has the request, too."""

    name = "sglang"
    title = "SGLang request log"

    def __init__(self) -> None:
        # The ids of requests that were received and are not finished.
        self._begun: set[str] = set()

    @staticmethod
    def looks_like(row: Row) -> bool:
        return str(row.get("event")).startswith("request.") and "rid" in row

    def read(self, row: Row) -> Iterable[Exchange]:
        name = read_label(row, "rid")
        if row.get("event") != "request.finished":
            self._begun.add(name)
            return ()
        self._begun.discard(name)
        request = require_object(row.get("obj"), "obj")
        response = require_object(row.get("out"), "out")
        for fields, ids in ((request, "input_ids"), (response, "output_ids")):
            key = ids if fields.get(ids) else "text"
            if fields.get(key) is None:
                raise ValueError(f"{key} is not in the log; log with --log-requests-level 3")
            if _is_cut(fields[key]):
                raise ValueError(f"{key} is cut in the middle; log with --log-requests-level 3")
        return read_exchanges(request, response, name)

    def end(self) -> Iterable[Exchange]:
        for name in sorted(self._begun):
            yield Exchange("", "", name, left_out="the log has request.received and not request.finished")


def _is_cut(value: Any) -> bool:
    """Whether SGLang left out the middle of a long value, which level 2 of its log does."""
    if isinstance(value, list):
        return _CUT in value
    return isinstance(value, str) and len(value) == _KEPT + len(_CUT) and value[_KEPT // 2 :].startswith(_CUT)


class BedrockLog(Format):
    """One invocation of a model per line."""

    name = "bedrock"
    title = "Amazon Bedrock invocation log"

    @staticmethod
    def looks_like(row: Row) -> bool:
        return row.get("schemaType") == "ModelInvocationLog"

    def read(self, row: Row) -> Iterable[Exchange]:
        if row.get("errorCode"):
            raise ValueError(f"the request failed ({shorten(row['errorCode'], 40)}); there is no output")
        logged, written = (require_object(row.get(name), name) for name in ("input", "output"))
        for fields, name in ((logged, "inputBody"), (written, "outputBody")):
            if f"{name}Json" not in fields:
                where = " but in another file of S3" if f"{name}S3Path" in fields else ""
                raise ValueError(f"{name}Json is not in the line{where}")
        request = logged["inputBodyJson"]
        if isinstance(request, dict) and "messages" in request:
            # Claude and Nova continue an assistant message at the end of the request; this field marks such a request.
            request = {"anthropic_version": ""} | request
        counted = read_usage({"inputTokenCount": logged.get("inputTokenCount")} | written)
        for exchange in read_exchanges(request, written["outputBodyJson"], read_label(row, "requestId")):
            yield exchange if exchange.usage != NO_USAGE else replace(exchange, usage=counted)
