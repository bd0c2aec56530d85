"""Unpacks a compressed file and turns its text into UTF-8 while it is read, in bounded memory.

Kinds are told by their first bytes, not by names: gzip, Zstandard (RFC 8878), xz, bzip2; UTF-16 and UTF-32 by their
byte order marks, and UTF-16 without one by the zeros between its first letters.
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

_GZIP_MAGIC = b"\x1f\x8b"
# A zip, and one without members.
ZIP_MAGICS = (b"PK\x03\x04", b"PK\x05\x06")
# Endings of names that say how a file is packed.
PACKED_SUFFIXES = {".gz": "gzip", ".zst": "Zstandard", ".xz": "xz", ".bz2": "bzip2"}
# Packed files that are not read: (offset, magic) -> kind.
_UNREAD = {
    (0, b"7z\xbc\xaf\x27\x1c"): "a 7z archive",
    (0, b"Rar!\x1a\x07"): "a RAR archive",
    (0, b"\x04\x22\x4d\x18"): "packed by lz4",
    (257, b"ustar"): "a tar archive",
}
# Files without text, by their first bytes.
_NO_TEXT = {
    b"%PDF-": "a PDF",
    b"\x89PNG": "a PNG image",
    b"\xff\xd8\xff": "a JPEG image",
    b"SQLite format 3\0": "an SQLite database",
    b"\xd0\xcf\x11\xe0": "an old or encrypted Office file",
    b"\x93NUMPY": "a NumPy array",
    b"\x80\x04\x95": "a Python pickle",
    b"\x80\x05\x95": "a Python pickle",
    b"GGUF": "a model in GGUF",
    b"Obj\x01": "an Avro file",
    b"\x89HDF": "an HDF5 file",
}
_PEEKED = 512
# Bytes that are unpacked at once. A block of Zstandard has 128 KiB and may be packed into four bytes, so this number of
# them unpacks to 16 MiB at most.
_CHUNK = 512
# The decoder's memory: `xz -9` needs 65 MiB, `zstd --long=27` 128 MiB.
_MAX_MEMORY = 256 << 20
_MAX_WINDOW = 128 << 20
# Up to this size any ratio is harmless. Text of a log seldom reaches 50; gzip has a limit, 1,032.
_HARMLESS_BYTES = 1 << 30
_MAX_RATIO = 1000
_AGAIN = "copy or write it again"
# UTF-32's mark begins with that of UTF-16.
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


class DamagedError(Exception):
    """A packed or encoded file cannot be read on; the message says why, and what to do."""


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
    """A frame's decompressor, whose output is bounded by the size of what it is fed."""

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
    # zstd's frames that are skipped begin with 50 to 5f.
    **{bytes([first]) + b"\x2a\x4d\x18": ("Zstandard", _Zstd) for first in range(0x50, 0x60)},
    b"\xfd7zXZ\0": ("xz", _xz),
    b"BZh": ("bzip2", bz2.BZ2Decompressor),
}


class _Unpacked(io.RawIOBase):
    """The bytes of a file of one or more packed streams. Raises DamagedError."""

    def __init__(self, packed: BinaryIO, kind: str, start: Callable[[], _Decompressor]) -> None:
        self._packed = packed
        self._kind = kind
        self._start = start
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
            data = (current.unused_data if current is not None and ended else b"") or self._read()
            if not data:
                if current is not None and not ended:
                    raise DamagedError(f"the {self._kind} file breaks off here; {_AGAIN}")
                return False
            if ended:
                # Streams may be padded with zeros.
                data = data.lstrip(b"\0")
                current = None
            self._current = current = current or (self._start() if data else None)
        if current is not None:
            self._unpacked = current.decompress(data, size)
            check_ratio(self._sizes, len(self._unpacked))
        return True

    def _read(self) -> bytes:
        data = self._packed.read(_CHUNK)
        self._sizes[0] += len(data)
        return data


class _Gzip(io.RawIOBase):
    """The bytes of a gzip file. Unlike zlib's, gzip's reader returns what is before a wrong checksum."""

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
    """Add a number of unpacked bytes to `sizes`, [packed, unpacked]. Raises DamagedError for what only bombs reach."""
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
    """A reader of the file's unpacked bytes, as UTF-8 if they begin as UTF-16 or UTF-32.

    Raises InputError for what cannot be unpacked or has no text, and for a file that is not packed as its `name` says.
    Reading raises DamagedError.
    """
    head = raw.peek(_PEEKED)
    _refuse(head, name)
    stream = raw
    kind = next((_KINDS[magic] for magic in _KINDS if head.startswith(magic)), None)
    if kind is not None or head.startswith(_GZIP_MAGIC):
        stream = io.BufferedReader(_Gzip(raw) if kind is None else _Unpacked(raw, *kind))
        head = stream.peek(_PEEKED)
        _refuse(head, name)
    elif head and name.suffix in PACKED_SUFFIXES:
        raise InputError(
            f"{shorten(name)}, line 1: this is not {PACKED_SUFFIXES[name.suffix]}, though the name ends in "
            f"{name.suffix}; rename or pack it."
        )
    encoding = next((_MARKS[mark] for mark in _MARKS if head.startswith(mark)), None) or _unmarked(head)
    return stream if encoding is None else io.BufferedReader(_Transcoded(stream, encoding))


def _unmarked(head: bytes) -> str | None:
    """The encoding of a text in UTF-16 without a byte order mark; a log begins with ASCII, so every other byte is 0."""
    for order, first in (("le", 0), ("be", 1)):
        letters, zeros = head[first:8:2], head[1 - first : 8 : 2]
        if len(head) >= 8 and not any(zeros) and all(32 <= letter < 127 or letter in b"\t\r\n" for letter in letters):
            return f"utf-16-{order}"
    return None


def _refuse(head: bytes, name: PurePath) -> None:
    """Raises InputError for a kind of archive that is not read, and for a kind of file that has no text."""
    if head.startswith(ZIP_MAGICS):
        raise InputError(f"{shorten(name)} is a zip within another file or a pipe; unpack it.")
    for (offset, magic), kind in _UNREAD.items():
        if head[offset:].startswith(magic):
            raise InputError(f"{shorten(name)} is {kind}; unpack it, and give the file or the folder.")
    for magic, kind in _NO_TEXT.items():
        if head.startswith(magic):
            raise InputError(
                f"{shorten(name)} is {kind}; write the requests and outputs as JSON lines, CSV or Parquet."
            )
