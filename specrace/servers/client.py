"""One request to a server: sent, read and checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from specrace.core.errors import InputError, shorten
from specrace.servers.connection import Connection
from specrace.servers.dialects import Dialect
from specrace.servers.reply import Reply, Request, field_of

# The text of token ids, without control tokens.
Decode = Callable[[Sequence[int]], str]
# Stands for bytes that form no character: an answer may be cut inside one.
_BROKEN = "\ufffd"
# A character has up to four bytes, each perhaps a token of its own: a server may hold back three until it has the last.
_MAX_HELD_BACK = 3


def ask(connection: Connection, dialect: Dialect, request: Request, decode: Decode, vocab_size: int) -> Reply:
    """Send the request, and check the answer. Raises InputError for one that breaks off or contradicts itself."""
    reply = Reply()
    try:
        for at_ms, event in connection.stream(dialect.path, dialect.body(request)):
            if not isinstance(event, Mapping):
                raise connection.fault(f"streamed an event that is no object: {shorten(event, 80)!r}")
            if message := _error_in(event):
                raise connection.fault(f"broke off its answer: {message}")
            dialect.read(at_ms, event, reply)
            # A chunk without token ids counts as one token. An end-of-text token may come on top of the limit.
            if sum(len(chunk.tokens or "?") for chunk in reply.chunks) > request.max_new_tokens + 1:
                raise connection.fault(f"streamed more than the {request.max_new_tokens} tokens that were asked for")
    except InputError as error:
        if reply.chunks:
            so_far = f"after {len(reply.chunks)} chunk{'s' if len(reply.chunks) > 1 else ''}"
            raise InputError(f"{str(error).rstrip('.')} ({so_far}).") from error
        raise
    if fault := find_fault(reply, dialect, request, decode, vocab_size):
        raise connection.fault(fault)
    return reply


def find_fault(reply: Reply, dialect: Dialect, request: Request, decode: Decode, vocab_size: int) -> str:
    """What is wrong with a whole answer, as the end of a sentence that begins with the server; "" if nothing is."""
    if not reply.chunks:
        return "ended its answer without a single token"
    if not reply.end:
        return "ended its stream without saying why the text ends, so the answer may be cut"
    if reply.prompt is not None and reply.prompt != request.prompt:
        return "read another prompt than the one that was sent, so its answer cannot be compared"
    if not dialect.sends_ids:
        return _find_fault_in_text(reply, request)
    if any(chunk.tokens is None for chunk in reply.chunks):
        return f"streams text without token ids, which {dialect.engine} should send"
    tokens = [token for chunk in reply.chunks for token in chunk.tokens or ()]
    if max(tokens) >= vocab_size:
        return f"sent the token {max(tokens)}, which the target's vocabulary of {vocab_size} does not have"
    if reply.num_tokens is not None and reply.num_tokens != len(tokens):
        return _explain_count(reply, reply.num_tokens, len(tokens))
    if not _same_text(decode(tokens), reply.text):
        return "sent token ids that are not those of its text: its tokenizer is another one than the target's"
    return find_contradiction(reply, tokens)


def _find_fault_in_text(reply: Reply, request: Request) -> str:
    """What is wrong with an answer without token ids; "" if nothing is."""
    if reply.has_thoughts:
        return "sends its thoughts apart from its answer, so its text is not whole; start it without a reasoning parser"
    if reply.num_tokens is not None and not 0 < reply.num_tokens <= request.max_new_tokens:
        return f"counts {reply.num_tokens} tokens in its answer, where 1 to {request.max_new_tokens} were asked for"
    return ""


def find_contradiction(reply: Reply, tokens: Sequence[int]) -> str:
    """How the counts of draft tokens contradict each other or the `tokens`; "" if they do not."""
    accepted, drafted = reply.accepted or (), reply.drafted or ()
    if len(accepted) != len(drafted) and reply.drafted is not None:
        return f"lists the accepted tokens of {len(accepted)} steps, and the draft tokens of {len(drafted)}"
    if any(num_accepted > num_drafted for num_accepted, num_drafted in zip(accepted, drafted, strict=False)):
        return "counts more accepted than drafted tokens in a step"
    # vLLM's total includes tokens that were accepted past the end of the text. Where the number of steps is known, it
    # was computed from the total, or there is no total.
    max_accepted = len(tokens) if reply.num_steps is not None else reply.num_drafted or len(tokens)
    if (reply.num_accepted or 0) > max_accepted:
        return "counts more accepted tokens than it streamed"
    return ""


def _explain_count(reply: Reply, counted: int, streamed: int) -> str:
    """The fault of a server that counts another number of tokens than it streamed, as in `find_fault`."""
    if reply.end == "length" and 0 < counted - streamed <= _MAX_HELD_BACK:
        return (
            f"streamed {streamed} of its {counted} tokens, as llama.cpp does if the limit cuts a character; allow a "
            "few tokens more or fewer"
        )
    return f"streamed {streamed} tokens, but counts {counted}"


def _same_text(decoded: str, streamed: str) -> bool:
    """Whether two texts are equal, except for whitespace around them and a cut character at their end."""
    return decoded.strip().rstrip(_BROKEN) == streamed.strip().rstrip(_BROKEN)


def _error_in(event: Mapping[str, object]) -> str:
    """The message of an event that reports an error; "" for any other event."""
    error = event.get("error")
    if not error:
        return ""
    message = error if isinstance(error, str) else field_of(error, "message")
    return " ".join(shorten(message or error, 160).split()).rstrip(".")
