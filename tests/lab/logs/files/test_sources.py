"""Logs of several files: folders, zips, and batches whose requests and responses are in files of their own."""

from __future__ import annotations

import io
import json
import os
import zipfile
from pathlib import Path

import pyarrow
import pytest
from pyarrow.parquet import write_table

from specrace.core.errors import InputError
from specrace.lab.logs.files import sources
from specrace.lab.logs.files.pairs import pair_files
from specrace.lab.logs.files.sources import Source, find_sources
from specrace.lab.logs.transcripts import TranscriptFile
from tests.lab.logs.files.test_pairs import by_letter
from tests.lab.logs.formats.written import batch_pair
from tests.lab.parts import COPYING, FRESH, pack, write


def ids(path: Path, **options: object) -> list[str]:
    """The ids of the transcripts in a log."""
    return [transcript.id for transcript in TranscriptFile(path, **options)]  # type: ignore[arg-type]


def test_a_folder_is_one_log_in_the_order_of_names(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    (folder / "2026" / "01").mkdir(parents=True)
    (folder / ".hidden").mkdir()
    write(folder / "b.jsonl.gz", FRESH)
    pack(folder / "2026" / "01" / "z.jsonl.zst", json.dumps(COPYING).encode())
    (folder / "a.csv").write_text('id,prompt_ids,output_ids\ncsv,"[1]","[2]"\n')
    write(folder / ".hidden" / "c.jsonl", FRESH)
    (folder / "notes.md").write_text("no log")
    write(folder / "index.json", {"version": 1, "files": ["a", "b"]})
    file = TranscriptFile(folder)
    assert [transcript.id for transcript in file] == ["a", "csv", "2"]
    assert file.describe() == ("specrace+csv", "transcripts (prompt and output) and a CSV table")
    assert file.skipped == 0
    (sentence,) = file.remarks.sentences()
    assert (
        sentence.startswith("Not read, because they are not logs or are copies: 2 files (notes.md, ")
        and "index.json" in sentence
    )


def test_a_bad_line_in_a_folder_is_named_with_its_file(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", FRESH)
    write(tmp_path / "b.jsonl", COPYING, b"?")
    with pytest.raises(InputError, match=r"b\.jsonl, line 2: this is not JSON"):
        ids(tmp_path)
    file = TranscriptFile(tmp_path, skip_bad=True)
    assert len(list(file)) == 2 and file.skipped == 1


def test_a_folder_without_a_log_is_refused(tmp_path: Path) -> None:
    (tmp_path / "readme.md").write_text("x")
    with pytest.raises(InputError, match=r"holds no log, but 1 file .readme.md.; logs have names in .jsonl"):
        ids(tmp_path)


def test_the_members_of_a_zip_are_read_each_by_itself(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "t.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("logs/b.csv", "id;prompt_ids;output_ids\nsemicolon;[1];[2]\n")
        archive.writestr("logs/a.json", json.dumps([COPYING, FRESH], indent=1))
        archive.write(write(tmp_path / "c.jsonl.gz", FRESH | {"id": "c"}), "logs/c.jsonl.gz")
        archive.writestr("__MACOSX/._a.json", b"\0\5")
        archive.writestr("readme.txt", "x")
    file = TranscriptFile(tmp_path / "t.zip")
    assert [transcript.id for transcript in file] == ["a", "2", "semicolon", "c"]
    assert file.remarks.other_files == ["readme.txt"]


def test_answers_that_several_files_of_a_folder_repeat_are_read_once(tmp_path: Path) -> None:
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    longer_turns = [*turns, {"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}]
    write(tmp_path / "a.jsonl", {"messages": turns})
    write(tmp_path / "b.jsonl", {"messages": longer_turns})
    file = TranscriptFile(tmp_path, chat=by_letter)
    assert [chr(transcript.output[0]) for transcript in file] == ["b", "d"]
    assert file.remarks.repeated == 1


def test_a_copy_of_a_file_counts_once(tmp_path: Path) -> None:
    lines = [FRESH | {"id": number} for number in range(2000)]
    data = write(tmp_path / "b.jsonl", *lines).read_bytes()
    write(tmp_path / "a.jsonl", *lines[:-1], COPYING)
    pack(tmp_path / "b.jsonl.xz", data)
    pack(tmp_path / "c.zip", data)
    for name in ("empty.jsonl", "empty-too.jsonl"):
        (tmp_path / name).touch()
    sources, others = find_sources(tmp_path)
    assert [source.name.name for source in sources] == ["a.jsonl", "b.jsonl", "empty-too.jsonl", "empty.jsonl"]
    assert others == ["b.jsonl.xz, a copy of b.jsonl", "c.zip/log.jsonl, a copy of b.jsonl"]


def test_answers_that_a_later_file_repeats_count_once(tmp_path: Path) -> None:
    rows = [{"prompt": "a", "output": "b"}, {"prompt": "a", "output": "b"}, {"prompt": "c", "output": "d"}]
    write(tmp_path / "all.jsonl", *rows)
    (tmp_path / "all.csv").write_text("prompt,output\na,b\na,b\n")
    (tmp_path / "more.csv").write_text("prompt,output\na,b\na,b\na,b\na,e\n")
    file = TranscriptFile(tmp_path, tokenize=lambda text: list(text.encode()))
    assert len(list(file)) == len(rows) + 2  # of the third file, the third "a,b", and "a,e"
    assert file.remarks.repeated == 4
    assert len(list(file)) == len(rows) + 2


def test_a_later_file_may_repeat_a_whole_conversation(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    write(tmp_path / "a.jsonl", {"messages": messages})
    (tmp_path / "b.json").write_text(json.dumps([{"messages": messages}], indent=1))
    file = TranscriptFile(tmp_path, chat=by_letter)
    assert len(list(file)) == 1 and file.remarks.repeated == 1


def test_equal_answers_with_other_ids_are_no_copies(tmp_path: Path) -> None:
    for name in "ab":
        write(tmp_path / f"{name}.jsonl", {"id": name, "prompt_ids": [1], "output_ids": [2]})
    assert ids(tmp_path) == ["a", "b"]


@pytest.mark.parametrize(
    ("commit", "is_read"), [({"add": {"path": "a.jsonl"}}, True), ({"remove": {"path": "a.jsonl"}}, False)]
)
def test_a_delta_table_is_read_only_if_it_has_all_files_of_its_folder(
    tmp_path: Path, commit: dict[str, object], is_read: bool
) -> None:
    write(tmp_path / "a.jsonl", FRESH)
    (tmp_path / "_delta_log").mkdir()
    write(tmp_path / "_delta_log" / "0.json", {"commitInfo": {}}, commit)
    if is_read:
        assert len(ids(tmp_path)) == 1
        write(tmp_path / "_delta_log" / "_last_checkpoint", {"version": 10})
    with pytest.raises(InputError, match="is a Delta table, whose folder also keeps rows"):
        ids(tmp_path)


def test_what_datasets_cached_beside_its_data_is_not_read(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", FRESH)
    (tmp_path / "cache-1f.arrow").write_bytes(b"ARROW1")
    assert [source.name.name for source in find_sources(tmp_path)[0]] == ["a.jsonl", "cache-1f.arrow"]
    write(tmp_path / "state.json", {"_data_files": [{"filename": "a.jsonl"}]})
    sources, others = find_sources(tmp_path)
    assert "cache-1f.arrow" not in [source.name.name for source in sources] and "cache-1f.arrow" in others


def test_a_batch_in_a_folder_is_read_as_its_two_files(tmp_path: Path) -> None:
    (tmp_path / "batch").mkdir()
    requests, responses = batch_pair(tmp_path / "batch")
    expected = list(TranscriptFile(responses, requests=requests, chat=by_letter))
    assert expected and list(TranscriptFile(tmp_path / "batch", chat=by_letter)) == expected
    with zipfile.ZipFile(tmp_path / "t.zip", "w") as archive:
        for path in (requests, responses):
            archive.write(path, path.name)
    assert list(TranscriptFile(tmp_path / "t.zip", chat=by_letter)) == expected


def test_requests_and_responses_are_paired_by_their_ids(tmp_path: Path) -> None:
    def pair(name: str, ending: str = "") -> tuple[Path, Path]:
        body = {"custom_id": f"{name}-1", "body": {"messages": [{"role": "user", "content": name}]}}
        answer = {"custom_id": f"{name}-1", "response": {"body": {"choices": []}}}
        requests = write(tmp_path / f"{name}-in.jsonl", body)
        if ending:
            requests = pack(tmp_path / f"{name}-in.jsonl{ending}", requests.read_bytes())
        return requests, write(tmp_path / f"{name}-out.jsonl", answer)

    (in_a, out_a), (in_b, out_b) = pair("a"), pair("b", ".zst")
    plain_log, unpaired = write(tmp_path / "other.jsonl", FRESH), pair("c")[1]
    missing = tmp_path / "missing"
    files = [out_b, plain_log, in_a, unpaired, missing, in_b, out_a]
    assert pair_files(files) == [(out_b, in_b), (plain_log, None), (unpaired, None), (missing, None), (out_a, in_a)]
    assert pair_files([in_a]) == [(in_a, None)]


def test_a_pipe_is_not_opened_to_find_its_kind_because_closing_it_ends_its_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe, log = tmp_path / "pipe", write(tmp_path / "t.jsonl", FRESH)
    os.mkfifo(pipe)
    opened: list[Path] = []
    open_regular = sources.open_regular

    def record_open(path: Path, **how: bool) -> io.BufferedReader:
        opened.append(path)
        return open_regular(path, **how)

    monkeypatch.setattr(sources, "open_regular", record_open)
    assert pair_files([pipe, log]) == [(pipe, None), (log, None)]
    assert find_sources(pipe) == ([Source(pipe)], [])
    assert pipe not in opened


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are opened, in order."""
    names: list[str] = []
    open_regular = sources.open_regular

    def record_open(path: Path, **how: bool) -> io.BufferedReader:
        names.append(path.name)
        return open_regular(path, **how)

    monkeypatch.setattr(sources, "open_regular", record_open)
    return names


@pytest.mark.parametrize("name", ["t.jsonl", "t.jsonl.gz", "t.csv", "t.parquet", "t.arrow", "t.parquet.zst", "t.zip"])
def test_a_log_is_opened_once(tmp_path: Path, opened: list[str], name: str) -> None:
    path = tmp_path / name
    rows = [{"id": str(number), "prompt_ids": [1], "output_ids": [number]} for number in range(600)]
    table = pyarrow.Table.from_pylist(rows)
    if name == "t.csv":
        path.write_text("id,prompt_ids,output_ids\n" + "".join(f"{n},[1],[{n}]\n" for n in range(600)))
    elif name == "t.arrow":
        with pyarrow.OSFile(str(path), "wb") as file, pyarrow.ipc.new_stream(file, table.schema) as stream:
            stream.write_table(table)
    elif "parquet" in name:
        write_table(table, tmp_path / "table", row_group_size=200)
        if name.endswith(".zst"):
            pack(path, (tmp_path / "table").read_bytes())
        else:
            (tmp_path / "table").rename(path)
    elif name == "t.zip":
        with zipfile.ZipFile(path, "w") as archive:
            for row in rows:
                archive.writestr(f"{row['id']:>03}.jsonl", json.dumps(row))
    else:
        lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
        if name.endswith(".gz"):
            pack(path, lines)
        else:
            path.write_bytes(lines)
    file = TranscriptFile(path)
    assert [transcript.id for transcript in file] == [str(number) for number in range(600)]
    assert opened == [name]
    assert name == "t.zip" or 0 < file.bytes_read <= path.stat().st_size
    # A second reading opens the file again, because the first one closed it.
    assert len(list(file)) == 600 and opened == [name, name]


def test_the_two_files_of_a_batch_are_opened_once_each_and_the_requests_once_more_for_their_index(
    tmp_path: Path, opened: list[str]
) -> None:
    requests, responses = batch_pair(tmp_path)
    opened.clear()
    assert list(TranscriptFile(requests, requests=responses, chat=by_letter))
    assert sorted(opened) == sorted([requests.name, requests.name, responses.name])


def test_no_file_stays_open_after_a_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    handles = []
    open_regular = sources.open_regular

    def open_and_keep(path: Path, **how: bool) -> io.BufferedReader:
        handles.append(open_regular(path, **how))
        return handles[-1]

    monkeypatch.setattr(sources, "open_regular", open_and_keep)
    folder = tmp_path / "logs"
    folder.mkdir()
    batch_pair(folder)
    write(folder / "other.jsonl", COPYING, FRESH)
    with zipfile.ZipFile(folder / "t.zip", "w") as archive:
        archive.writestr("a.jsonl", json.dumps(FRESH))
    unfinished = iter(TranscriptFile(folder, chat=by_letter))
    next(unfinished)
    unfinished.close()  # type: ignore[attr-defined]
    assert handles and all(handle.closed for handle in handles)
    list(TranscriptFile(folder, chat=by_letter))
    assert all(handle.closed for handle in handles)


def test_one_of_many_files_that_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", FRESH)
    (tmp_path / "b.jsonl.gz").write_text(json.dumps(FRESH))
    write(tmp_path / "c.jsonl", {"input_length": 1, "output_length": 2, "hash_ids": [1]}, FRESH)
    write(tmp_path / "d.jsonl", COPYING)
    with pytest.raises(InputError, match=r"b\.jsonl\.gz, line 1: this is not gzip"):
        ids(tmp_path)
    file = TranscriptFile(tmp_path, skip_bad=True)
    assert [transcript.id for transcript in file] == ["2", "a"]
    assert dict(file.faults) == {"a file that cannot be read": 2}
    assert "is not gzip" in file.reasons[0] and "is a trace of lengths" in file.reasons[1]
    sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert sizes["a.jsonl"] + sizes["d.jsonl"] <= file.bytes_read <= sum(sizes.values())
    assert len(list(file)) == 2 and file.bytes_read <= sum(sizes.values())
