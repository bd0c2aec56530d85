"""The exceptions that a user may see."""

from __future__ import annotations

MAX_MESSAGE = 800


class InputError(Exception):
    """The user gave something that cannot be used.

    The message is one sentence: what is wrong, where, and what to do; an endless one is cut in its middle. The command
    line prints it and exits with 2; the page shows it as a toast. Anything else that escapes is a fault of ours.
    """

    def __init__(self, message: str) -> None:
        super().__init__(shorten(message, MAX_MESSAGE))


class DeviceError(InputError):
    """The device is not there, or has too little memory; the CPU may do."""


def lacks_memory(error: BaseException) -> bool:
    """Whether memory ran out: Python's own, or a device's or a CPU's in torch, which need not be imported here."""
    return (
        isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError" or "allocate memory" in str(error)
    )


def shorten(value: object, most: int = 200) -> str:
    """`value` as a message shows it: a name, path or number of the user's loses its middle if it is too long."""
    text = str(value).encode(errors="replace").decode()
    return text if len(text) <= most else f"{text[: most // 2]}…{text[-(most // 2) :]}"
