import json
import os
import stat

import pytest

from rolecraft._files import bundled, read_mapping, read_records, read_text, write_atomic
from rolecraft.errors import RoleError, UserError


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", b'{\n "x": }', r"a\.json:2:7: not valid JSON: Expecting value"),
        ("a.json", b'{"x": NaN}', r"a\.json: NaN is not valid JSON; leave the field out"),
        ("a.json", b'{"x": 1, "y": {"z": 1, "z": 2}}', r"a\.json: the key 'z' stands twice"),
        ("a.yaml", b"x: [1,\ny: 2", r"a\.yaml:\d:\d: not valid YAML"),
        ("a.yaml", b"x: 1\ny: 2\nx: 3\n", r"a\.yaml:3:1: not valid YAML: the key 'x' stands twice"),
        ("a.yaml", b"x: !!python/object/apply:os.getcwd []", "could not determine a constructor"),
        ("a.yaml", b"x: \xff", r"a\.yaml: not UTF-8 text \(byte 3\); save the file as UTF-8"),
    ],
)
def test_a_document_that_cannot_be_parsed_names_the_place(name, content, message, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message):
        read_mapping(tmp_path / name)


def test_what_cannot_be_opened_is_named(tmp_path):
    with pytest.raises(UserError, match=r"none\.yaml: cannot be read: No such file"):
        read_text(tmp_path / "none.yaml")
    with pytest.raises(UserError, match="cannot be read: Is a directory"):
        read_text(tmp_path)


def test_a_byte_order_mark_is_passed_over(tmp_path):
    for name in ("a.yaml", "a.json"):
        (tmp_path / name).write_bytes(b'\xef\xbb\xbf{"x": 1}')
        assert read_mapping(tmp_path / name) == {"x": 1}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.yaml", "version: '3'\nitems:\n  - {id: p, text: 'a,b'}\n  - {id: q, text: c}\n"),
        ("a.json", '{"version": "3", "items": [{"id": "p", "text": "a,b"}, {"id": "q", "text": "c"}]}'),
        ("a.jsonl", '{"id": "p", "text": "a,b"}\n\n{"id": "q", "text": "c"}\n'),
        ("a.csv", 'id,text\np,"a,b"\nq,c\n'),
    ],
)
def test_every_format_gives_the_same_records(name, content, tmp_path):
    (tmp_path / name).write_text(content)
    records = list(read_records(tmp_path / name, "items"))
    assert [record.data for record in records] == [{"id": "p", "text": "a,b"}, {"id": "q", "text": "c"}]
    assert [record.cells for record in records] == [name == "a.csv"] * 2
    wanted = {"version": "3"} if name in ("a.yaml", "a.json") else {}
    assert all(record.header == wanted for record in records)


def test_records_say_where_they_stand(tmp_path):
    (tmp_path / "a.yaml").write_text("- {id: p}\n- {name: Q}\n- 3\n")
    (tmp_path / "b.jsonl").write_text('\n{"id": "r"}\n')
    (tmp_path / "c.csv").write_text('id,text\ns,"two\nlines"\nt,x\n')
    places = [record.where.removeprefix(f"{tmp_path}/") for record in read_records(tmp_path, "items")]
    assert places == [
        "a.yaml: items[0] (p)", "a.yaml: items[1] (Q)", "a.yaml: items[2]", "b.jsonl:2", "c.csv:2", "c.csv:4",
    ]  # fmt: skip


def test_a_line_of_jsonl_may_hold_other_line_separators(tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps({"x": "a\u2028b\x85c"}, ensure_ascii=False) + "\r\n", encoding="utf-8")
    assert [record.data for record in read_records(tmp_path / "a.jsonl", "x")] == [{"x": "a\u2028b\x85c"}]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b'{"x": 1}\n{"x": \n', r"a\.jsonl:2:7: not valid JSON"),
        ("a.jsonl", b'{"x": 1, "x": 2}\n', r"a\.jsonl:1: the key 'x' stands twice"),
        ("a.jsonl", b"\xff", "not UTF-8"),
        ("a.csv", b"a,b\n1,2,3\n", r"a\.csv:2: the row has more cells than the header"),
        ("a.csv", b"a,b,a\n1,2,3\n", r"a\.csv:1: the column 'a' stands twice"),
        ("a.csv", b'a,b\n1,"2\n', r"a\.csv:\d: not valid CSV: unexpected end of data"),
        ("a.csv", b"a\n\xff\n", "not UTF-8"),
        ("a.yaml", b"items: 3\n", "expected a list of items, got int"),
        ("a.yaml", b"itmes: []\n", "expected the key 'items', got 'itmes'"),
        ("a.txt", b"", r"expected one of \.yaml, .*, got '\.txt'"),
    ],
)
def test_records_that_cannot_be_read_name_the_place(name, content, message, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message):
        list(read_records(tmp_path / name, "items"))


def test_an_empty_folder_is_said(tmp_path):
    with pytest.raises(UserError, match=r"the folder holds no \.yaml"):
        list(read_records(tmp_path, "items"))


def test_bundled_names_are_found_and_listed(tmp_path):
    assert bundled("roles", "core-v1").is_dir()
    assert bundled("roles", "questions-v1").suffix == ".yaml"
    assert bundled("roles", tmp_path) == tmp_path
    with pytest.raises(RoleError, match=r"Did you mean 'core-v1'\? Bundled: .*core-v1, questions-v1\."):
        bundled("roles", "core-v2")
    with pytest.raises(RoleError, match=r"no such file or folder"):
        bundled("roles", tmp_path / "core-v1")


def test_writing_leaves_the_old_file_or_the_new(tmp_path, monkeypatch):
    path = tmp_path / "deep" / "a.txt"
    write_atomic(path, "old — text")
    assert path.read_text(encoding="utf-8") == "old — text"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_atomic(path, b"new")
    assert path.read_text(encoding="utf-8") == "old — text"
    assert list(path.parent.iterdir()) == [path], "nothing is left lying about"
