"""Unpacks a compressed file and turns its text into UTF-8 while it is read, in bounded memory.

The first bytes decide, not the name. They tell gzip, Zstandard (RFC 8878), xz and bzip2 apart, and UTF-16 and UTF-32 by
their byte order marks; UTF-16 without a mark has zeros between its first letters.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import zlib
from collections.abc import Callable
from pathlib import PurePath
from typing import Any, BinaryIO, Protocol

import zstandard

from specrace.core.errors import InputError, shorten
from specrace.lab.logs.files.kinds import HEAD_BYTES, PACKED_SUFFIXES, refuse_unreadable

_GZIP_MAGIC = b"\x1f\x8b"
# How many compressed bytes are unpacked at once. A Zstandard block of 128 KiB may take only four bytes, so 512 bytes
# unpack to at most 16 MiB.
_CHUNK = 512
# The memory that a decompressor may take: `xz -9` needs 65 MiB, `zstd --long=27` 128 MiB.
_MAX_MEMORY = 256 << 20
_MAX_WINDOW = 128 << 20
# Up to this size any ratio is harmless. A log rarely unpacks to 50 times its size; gzip cannot exceed 1,032 times.
_HARMLESS_BYTES = 1 << 30
_MAX_RATIO = 1000
_AGAIN = "copy or write it again"
# Byte order mark -> encoding. UTF-32's mark begins with UTF-16's, so it comes first.
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


class DamagedError(Exception):
    """A compressed or encoded file is damaged at this point; the message says how, and what to do."""


class _Decompressor(Protocol):
    """What `lzma`, `bz2` and `_Zstd` have in common: one stream's decompressor."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    @property
    def needs_input(self) -> bool: ...

    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class _Zstd:
    """Decompresses one frame. Its output cannot be limited, except by the size of its input."""

    needs_input = True

    def __init__(self) -> None:
        self._frame: Any = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW).decompressobj()

    @property
    def eof(self) -> bool:
        return bool(self._frame.eof)

    @property
    def unused_data(self) -> bytes:
        return bytes(self._frame.unused_data)

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        return bytes(self._frame.decompress(data))


def _xz() -> _Decompressor:
    return lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=_MAX_MEMORY)


# Magic -> (kind, its decompressor).
_KINDS: dict[bytes, tuple[str, Callable[[], _Decompressor]]] = {
    b"\x28\xb5\x2f\xfd": ("Zstandard", _Zstd),
    # Zstandard's skippable frames begin with 50 to 5f.
    **{bytes([first]) + b"\x2a\x4d\x18": ("Zstandard", _Zstd) for first in range(0x50, 0x60)},
    b"\xfd7zXZ\0": ("xz", _xz),
    b"BZh": ("bzip2", bz2.BZ2Decompressor),
}


class _Unpacked(io.RawIOBase):
    """The bytes of a file that holds one or more compressed streams. Reading raises DamagedError."""

    def __init__(self, packed: BinaryIO, kind: str, make_decompressor: Callable[[], _Decompressor]) -> None:
        self._packed = packed
        self._kind = kind
        self._make_decompressor = make_decompressor
        self._current: _Decompressor | None = None
        self._unpacked = b""
        self._sizes = [0, 0]  # packed, unpacked

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            while not self._unpacked:
                if not self._advance(len(buffer)):
                    return 0
        except (lzma.LZMAError, zlib.error, zstandard.ZstdError, OSError, ValueError, EOFError, MemoryError) as error:
            raise DamagedError(f"the {self._kind} file is damaged here; {_AGAIN}") from error
        size = min(len(buffer), len(self._unpacked))
        buffer[:size] = self._unpacked[:size]
        self._unpacked = self._unpacked[size:]
        return size

    def _advance(self, size: int) -> bool:
        """Unpack some more; False at the end of the file."""
        current = self._current
        data = b""
        if current is None or current.eof or current.needs_input:
            ended = current is not None and current.eof
            # The bytes after the end of a stream begin the next one.
            data = (current.unused_data if current is not None and ended else b"") or self._read()
            if not data:
                if current is not None and not ended:
                    raise DamagedError(f"the {self._kind} file breaks off here; {_AGAIN}")
                return False
            if ended:
                # Streams may be padded with zeros.
                data = data.lstrip(b"\0")
                current = None
            self._current = current = current or (self._make_decompressor() if data else None)
        if current is not None:
            self._unpacked = current.decompress(data, size)
            check_ratio(self._sizes, len(self._unpacked))
        return True

    def _read(self) -> bytes:
        data = self._packed.read(_CHUNK)
        self._sizes[0] += len(data)
        return data


class _Gzip(io.RawIOBase):
    """The bytes of a gzip file. The gzip module, unlike zlib, returns what precedes a wrong checksum."""

    def __init__(self, packed: io.BufferedReader) -> None:
        self._file = gzip.GzipFile(fileobj=packed)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._file.read1(len(buffer))
        except EOFError as error:
            raise DamagedError(f"the gzip file breaks off here; {_AGAIN}") from error
        except (OSError, zlib.error) as error:
            raise DamagedError(f"the gzip file is damaged here; {_AGAIN}") from error
        buffer[: len(data)] = data
        return len(data)


def check_ratio(sizes: list[int], num_bytes: int) -> None:
    """Add unpacked bytes to `sizes`, [packed, unpacked]. Raises DamagedError for a ratio that only a zip bomb has."""
    sizes[1] += num_bytes
    if sizes[1] > _HARMLESS_BYTES and sizes[1] > _MAX_RATIO * sizes[0]:
        raise DamagedError(f"this unpacks to more than {_MAX_RATIO:,} times its size; give the file itself")


class _Transcoded(io.RawIOBase):
    """A text in UTF-16 or UTF-32 as UTF-8."""

    def __init__(self, source: BinaryIO, encoding: str) -> None:
        self._source = source
        self._name = encoding.upper()
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._encoded = b""
        self._ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._encoded and not self._ended:
            data = self._source.read(io.DEFAULT_BUFFER_SIZE)
            self._ended = not data
            try:
                self._encoded = self._decoder.decode(data, final=self._ended).encode()
            except UnicodeError as error:
                raise DamagedError(f"the {self._name} text breaks off or is damaged here; write it as UTF-8") from error
        size = min(len(buffer), len(self._encoded))
        buffer[:size] = self._encoded[:size]
        self._encoded = self._encoded[size:]
        return size


def open_text(raw: io.BufferedReader, name: PurePath) -> io.BufferedReader:
    """A reader of the file's unpacked bytes; UTF-16 and UTF-32 are turned into UTF-8.

    Raises InputError for a file that cannot be unpacked or has no text, and for one that is not compressed as its
    `name` says. Reading raises DamagedError.
    """
    first_bytes = raw.peek(HEAD_BYTES)
    refuse_unreadable(first_bytes, name)
    stream = raw
    # (name of the kind, its decompressor); gzip, which `_Gzip` reads, has none.
    kind = next((_KINDS[magic] for magic in _KINDS if first_bytes.startswith(magic)), None)
    if kind is not None or first_bytes.startswith(_GZIP_MAGIC):
        stream = io.BufferedReader(_Gzip(raw) if kind is None else _Unpacked(raw, *kind))
        first_bytes = stream.peek(HEAD_BYTES)
        refuse_unreadable(first_bytes, name)
    elif first_bytes and name.suffix in PACKED_SUFFIXES:
        raise InputError(
            f"{shorten(name)}, line 1: this is not {PACKED_SUFFIXES[name.suffix]}, though the name ends in "
            f"{name.suffix}; rename or pack it."
        )
    encoding = next((_MARKS[mark] for mark in _MARKS if first_bytes.startswith(mark)), None)
    encoding = encoding or _encoding_without_mark(first_bytes)
    return stream if encoding is None else io.BufferedReader(_Transcoded(stream, encoding))


def _encoding_without_mark(first_bytes: bytes) -> str | None:
    """The encoding of UTF-16 text without a byte order mark; None for any other text.

    A log begins with ASCII, so in UTF-16 every second byte is 0.
    """
    for order, first_letter in (("le", 0), ("be", 1)):
        letters, zeros = first_bytes[first_letter:8:2], first_bytes[1 - first_letter : 8 : 2]
        is_ascii = all(32 <= letter < 127 or letter in b"\t\r\n" for letter in letters)
        if len(first_bytes) >= 8 and is_ascii and not any(zeros):
            return f"utf-16-{order}"
    return None
