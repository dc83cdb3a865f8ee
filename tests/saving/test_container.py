"""The file: complete, checked, and refused when it is not what was written."""

import json
from hashlib import sha256

import pytest
import torch
from safetensors.torch import save_file

from lazyknife.saving import SCHEMA, Container, read_container, write_container

TENSORS = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.tensor(2, dtype=torch.int64)}


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "model.lk"
    write_container(file, Container({"class": "Any", "name": "ä"}, dict(TENSORS)))
    return file


def rewrite(path, tensors=TENSORS, text=None, **changed):
    """A file with hashes that fit, but for what is changed."""
    text = json.dumps({"hashes": {}}) if text is None else text
    own = {"format": "lazyknife model", "schema": str(SCHEMA), "document": text}
    own["sha256"] = sha256(text.encode()).hexdigest()
    save_file(dict(tensors), path, own | changed)


def test_what_is_written_is_read(path):
    document, tensors = read_container(path)
    assert (document["class"], document["name"]) == ("Any", "ä")
    assert document["lazyknife"]
    assert tensors.keys() == TENSORS.keys() == document["hashes"].keys()
    assert all(torch.equal(tensors[name], TENSORS[name]) for name in TENSORS)
    assert [file.name for file in path.parent.iterdir()] == ["model.lk"]


def test_every_truncated_file_is_refused(path):
    whole = path.read_bytes()
    for size in range(0, len(whole), 7):
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match=r"model\.lk is damaged|model\.lk is not a saved"):
            read_container(path)


def test_no_changed_byte_is_taken(path):
    whole = path.read_bytes()
    before = read_container(path)
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        try:
            document, tensors = read_container(path)
        except ValueError:
            continue
        # What can change unnoticed is not read: the padding of the header.
        assert document == before.document, place
        assert all(torch.equal(tensors[name], TENSORS[name]) for name in TENSORS), place


def test_a_newer_schema_is_named(path):
    rewrite(path, schema=str(SCHEMA + 1))
    with pytest.raises(
        ValueError, match=rf"schema '{SCHEMA + 1}'.*up to {SCHEMA}: install a newer"
    ):
        read_container(path)
    rewrite(path, schema="new")
    with pytest.raises(ValueError, match="schema 'new'"):
        read_container(path)


def test_other_files_are_refused(path):
    save_file(dict(TENSORS), path)
    with pytest.raises(ValueError, match="not a saved model"):
        read_container(path)
    path.write_text("y,x\n1,2\n" * 10)
    with pytest.raises(ValueError, match="damaged"):
        read_container(path)
    with pytest.raises(FileNotFoundError):
        read_container(path.with_name("none.lk"))
    with pytest.raises((ValueError, OSError)):
        read_container(path.parent)


@pytest.mark.parametrize(
    "text", ["[]", "{", "[" * 100_000 + "]" * 100_000, '{"hashes": 3}', "{}", "1" * 5000]
)
def test_odd_documents_are_refused(path, text):
    rewrite(path, text=text)
    with pytest.raises(ValueError, match="damaged"):
        read_container(path)


def test_tensors_must_be_those_of_the_document(path):
    hashes = read_container(path).document["hashes"]
    rewrite(path, text=json.dumps({"hashes": hashes}))
    read_container(path)
    other = TENSORS | {"a": TENSORS["a"] + 1}
    rewrite(path, tensors=other, text=json.dumps({"hashes": hashes}))
    with pytest.raises(ValueError, match="tensor 'a' differs"):
        read_container(path)
    rewrite(path, tensors=TENSORS | {"c": torch.ones(1)}, text=json.dumps({"hashes": hashes}))
    with pytest.raises(ValueError, match="other tensors"):
        read_container(path)


def test_a_failed_write_leaves_the_old_file(path):
    before = path.read_bytes()
    with pytest.raises(ValueError, match="JSON"):
        write_container(path, Container({"x": float("nan")}, {}))
    with pytest.raises(ValueError, match="contiguous"):
        write_container(path, Container({}, {"z": torch.ones(2, 3).T}))
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["model.lk"]
