"""Which kinds of files are read, by their suffixes, and which are refused, by their first bytes."""

from __future__ import annotations

from pathlib import PurePath

from specrace.core.errors import InputError, shorten

# Kind -> its suffixes.
_LOG_SUFFIXES = {
    "JSON": (".jsonl", ".ndjson", ".json"),
    "CSV": (".csv",),
    "TSV": (".tsv",),
    "Parquet": (".parquet",),
    "Arrow": (".arrow",),
}
LOG_SUFFIXES = tuple(suffix for suffixes in _LOG_SUFFIXES.values() for suffix in suffixes)
# The kinds in words, for messages: "JSON, CSV, TSV, Parquet or Arrow".
READ_KINDS = " or ".join([", ".join([*_LOG_SUFFIXES][:-1]), [*_LOG_SUFFIXES][-1]])
# Suffix of a compressed file -> how it is compressed.
PACKED_SUFFIXES = {".gz": "gzip", ".zst": "Zstandard", ".xz": "xz", ".bz2": "bzip2"}
# The first bytes of a zip with members, and of an empty one.
ZIP_MAGICS = (b"PK\x03\x04", b"PK\x05\x06")
# Archives and compressed files that are not read: (offset, magic) -> kind.
_UNREAD = {
    (0, b"7z\xbc\xaf\x27\x1c"): "a 7z archive",
    (0, b"Rar!\x1a\x07"): "a RAR archive",
    (0, b"\x04\x22\x4d\x18"): "packed by lz4",
    (257, b"ustar"): "a tar archive",
}
# Files without text: magic -> kind.
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
# How many of a file's first bytes `refuse_unreadable` needs.
HEAD_BYTES = 512


def unpacked_name(name: PurePath) -> PurePath:
    """The name without the suffix of a compressed file."""
    return name.with_suffix("") if name.suffix in PACKED_SUFFIXES else name


def is_log_name(name: PurePath) -> bool:
    """Whether a file's name has the suffix of a log."""
    return unpacked_name(name).suffix.lower() in LOG_SUFFIXES


def refuse_unreadable(first_bytes: bytes, name: PurePath) -> None:
    """Raises InputError if a file that begins with these HEAD_BYTES bytes is of a kind that is not read."""
    if first_bytes.startswith(ZIP_MAGICS):
        raise InputError(f"{shorten(name)} is a zip within another file or a pipe; unpack it.")
    for (offset, magic), kind in _UNREAD.items():
        if first_bytes[offset:].startswith(magic):
            raise InputError(f"{shorten(name)} is {kind}; unpack it, and give the file or the folder.")
    for magic, kind in _NO_TEXT.items():
        if first_bytes.startswith(magic):
            raise InputError(f"{shorten(name)} is {kind}; write the requests and outputs as {READ_KINDS}.")
