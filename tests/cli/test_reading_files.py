"""YAML 1.2 and JSON as JSON values, each fault with its line."""

import json
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from ruamel.yaml import YAML
from ruamel.yaml.compat import StringIO
from ruamel.yaml.error import YAMLError

from activity_core.commands.json_text import read_json
from activity_core.commands.located import TextError
from activity_core.commands.yaml_text import read_yaml


def _faults(read: Any, text: str) -> list[tuple[int, str]]:
    with pytest.raises(TextError) as caught:
        read(text)
    return [(fault.line, fault.message) for fault in caught.value.faults]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("on", "on"),
        ("yes", "yes"),
        ("No", "No"),
        ("2026-03-01", "2026-03-01"),
        ("2026-03-01T09:00:00Z", "2026-03-01T09:00:00Z"),
        ("12:30:45", "12:30:45"),
        ("1_000", "1_000"),
        ("0b11", "0b11"),
        ("true", True),
        ("~", None),
        ("", None),
        ("012", 12),
        ("0o17", 15),
        ("0x1F", 31),
        ("-3", -3),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("'12'", "12"),
        ('"\\u263a"', "☺"),
        ("!!str 12", "12"),
        ("{a: [1, b]}", {"a": [1, "b"]}),
        ("|\n  one\n  two", "one\ntwo\n"),
        ('"* * * * *"', "* * * * *"),
    ],
)
def test_yaml_scalars_are_those_of_the_core_schema(written: str, meant: Any) -> None:
    [document] = read_yaml(f"key: {written}\n")
    assert document.value == {"key": meant}
    assert type(document.value["key"]) is type(meant)


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    # YAML's printable characters; the others have to be escaped in it. And no '?' in front: the other writer leaves it
    # unquoted there, where YAML reads the key of a mapping
    | st.text(
        st.characters(exclude_categories=("Cs", "Cc", "Cn", "Co"), exclude_characters="\ufeff\u2028\u2029")
    ).filter(lambda text: not text.startswith("?")),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text("abkeyon~/. -1", max_size=6), inner, max_size=4)
    ),
    max_leaves=15,
)


@given(JSON_VALUES)
def test_json_reader_agrees_with_pythons(value: Any) -> None:
    for text in (json.dumps([value]), json.dumps([value], indent="\t", ensure_ascii=False)):
        [document] = read_json(text)
        assert json.dumps(document.value) == json.dumps(value)


def _can_read(text: str) -> bool:
    """That writer writes what its own reader, which is ours too, takes for a fault: `{'': :0}`."""
    try:
        YAML(typ="safe", pure=True).load(text)
    except YAMLError:
        return False
    return True


@example({"": ":0"})
@given(JSON_VALUES.filter(lambda value: value is not None))
def test_yaml_reader_reads_back_what_another_writer_wrote(value: Any) -> None:
    text = StringIO()
    YAML(typ="safe", pure=True).dump({"value": value}, text)
    assume(_can_read(text.getvalue()))
    [document] = read_yaml(text.getvalue())
    # that writer sorts keys
    assert json.dumps(document.value, sort_keys=True) == json.dumps({"value": value}, sort_keys=True)


def test_every_part_has_its_line() -> None:
    text = "# first\na: 1\nlist:\n  - x: 1\n    y: |\n      text\n  - z\nlast/one: {k: v}\n---\nb: 2\n"
    first, second = read_yaml(text)
    assert first.lines == {
        "": 2,
        "/a": 2,
        "/list": 3,
        "/list/0": 4,
        "/list/0/x": 4,
        "/list/0/y": 5,
        "/list/1": 7,
        "/last~1one": 8,
        "/last~1one/k": 8,
    }
    assert second.lines == {"": 10, "/b": 10}
    [document] = read_json('{\n "a": [\n  1,\n\n  {"b": 2}]}')
    assert document.lines == {"": 1, "/a": 2, "/a/0": 3, "/a/1": 5, "/a/1/b": 5}
    assert document.line_of("/a/1/missing/deeper") == 5
    assert document.line_of("/nothing") == 1


def test_empty_documents_are_left_out() -> None:
    assert [document.value for document in read_yaml("---\n---\na: 1\n---\n# nothing\n")] == [{"a": 1}]
    assert read_yaml("") == []
    assert read_json("[]") == []


def test_array_of_json_documents_is_several() -> None:
    assert [document.value for document in read_json('[{"a": 1},\n {"b": 2}]')] == [{"a": 1}, {"b": 2}]


def test_aliases_stand_for_their_value() -> None:
    [document] = read_yaml("a: &x {k: [1]}\nb: *x\n")
    assert document.value == {"a": {"k": [1]}, "b": {"k": [1]}}
    assert document.line_of("/b/k/0") == 2


def test_all_faults_of_a_yaml_file_are_named_at_once() -> None:
    text = "a: 1\na: 2\nb: !secret x\n1: c\nd: .nan\n---\ne: *nobody\nf: &x [*x]\n? [g]\n: 1\n"
    assert _faults(read_yaml, text) == [
        (2, "the key 'a' is there already"),
        (3, "the tag !secret is not taken: write the value as JSON has it"),
        (4, "the key 1 is not text: write it in quotes"),
        (5, ".nan is no JSON number"),
        (7, "no '&nobody' ends above this '*nobody'"),
        (8, "no '&x' ends above this '*x'"),
        (9, "a key must be text"),
    ]


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("a: 1\nb: c: d\n", 2, "not YAML: mapping values are not allowed here"),
        ("a: 1\n\tb: 2\n", 2, "not YAML: found character '\\t' that cannot start any token"),
        ("a: 1\nb: \x07\n", 2, "not YAML: special characters are not allowed"),
        ("%YAML 1.1\n---\na: on\n", 2, "YAML 1.2 is read: leave the %YAML line out"),
        ("a: 1\nb: 1e999\n", 2, "1e999 is no JSON number"),
        ("[" * 200, 1, "nested deeper than 100 levels"),
    ],
)
def test_yaml_that_cannot_be_read_names_its_line(text: str, line: int, message: str) -> None:
    assert _faults(read_yaml, text) == [(line, message)]


def test_aliases_that_stand_for_millions_of_values_are_refused() -> None:
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    bomb += "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9))
    assert _faults(read_yaml, bomb) == [(6, "more than 1000000 values in one document")]


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ('{"a": 1,\n "a": 2}', 2, "the key 'a' is there already"),
        ('{"a":\n NaN}', 2, "not JSON: NaN is no JSON number"),
        ('{"a":\n 1e999}', 2, "not JSON: 1e999 is no JSON number"),
        ('{"a": 1,\n}', 2, "not JSON: a key in double quotes is expected"),
        ('{"a" 1}', 1, "not JSON: ':' is expected after a key"),
        ('{"a": 1}\n{"b": 2}', 2, "not JSON: something follows after the end"),
        ("[1, 2", 1, "not JSON: ',' or ']' is expected"),
        ("", 1, "not JSON: Expecting value"),
        ("[" * 200, 1, "not JSON: nested deeper than 100 levels"),
    ],
)
def test_json_that_cannot_be_read_names_its_line(text: str, line: int, message: str) -> None:
    assert _faults(read_json, text) == [(line, message)]
