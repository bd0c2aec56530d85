"""The exceptions whose message a user may see."""

from __future__ import annotations

import re

# In characters; a guess that keeps a message readable in a toast of the page.
MAX_MESSAGE = 800


class InputError(Exception):
    """The user gave something that cannot be used.

    The message is one sentence: what is wrong, where, and what to do. A very long message is shortened in the middle.
    The command line prints the message and exits with 2; the page shows the message as a toast. Any other exception
    that escapes is a bug.
    """

    def __init__(self, message: str) -> None:
        super().__init__(shorten(message, MAX_MESSAGE))


class DeviceError(InputError):
    """The device does not exist or has too little memory; the CPU may work instead."""


def lacks_memory(error: BaseException) -> bool:
    """Whether memory ran out: in Python, or in torch on a device or a CPU (recognised without importing torch)."""
    return (
        isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError" or "allocate memory" in str(error)
    )


def memory_error(device: str, name: str) -> InputError:
    """What to raise if the device "cpu", "cuda" or the like has too little memory for the model `name`."""
    if device == "cpu":
        return InputError(f"This machine has too little memory for {name}; give a smaller model.")
    return DeviceError(f"The device {device} has too little memory for {name}; give a smaller model.")


def first_line(error: object) -> str:
    """The first line of an error's message, shortened and without an errno; the error's type if it has no message."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return shorten(re.sub(r"^\[Errno -?\d+\] ", "", lines[0]))


def shorten(value: object, max_characters: int = 200) -> str:
    """`value` as text for a message, its middle left out if it is too long.

    >>> shorten("/a/very/long/path.txt", 8)
    '/a/v….txt'
    """
    text = str(value).encode(errors="replace").decode()
    half = max_characters // 2
    return text if len(text) <= max_characters else f"{text[:half]}…{text[-half:]}"
