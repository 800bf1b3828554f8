"""Schemas of event types: what can be one, what it says of data, and that neither can hold up the door."""

import time
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from activity_core.domain.event_schema import MAX_FAULTS, MAX_WORK_TOLD, EventSchema, compile_schema
from activity_core.domain.json_values import MAX_DEPTH
from activity_core.domain.schema_cost import MAX_CHAIN, SchemaError, costs

Json = dict[str, Any]
ORDER: Json = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$id": "https://example.org/order",
    "type": "object",
    "required": ["order", "lines"],
    "properties": {
        "order": {"type": "integer"},
        "note": {"type": "string", "maxLength": 5},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
        "a/b~c": {"const": 1},
    },
    "$defs": {"line": {"properties": {"sku": {"pattern": "^[a-z]+$"}}, "additionalProperties": False}},
}
TREE: Json = {"properties": {"value": {"type": "integer"}, "children": {"items": {"$ref": "#"}}}}


def nested(levels: int, value: Any = 1) -> Any:
    for _ in range(levels):
        value = [value]
    return value


def doubling(keyword: str, levels: int, last: Json) -> Json:
    """2^levels evaluations of `last`."""
    parts = {f"a{i}": {keyword: [{"$ref": f"#/$defs/a{i + 1}"}] * 2} for i in range(levels)}
    return {"$ref": "#/$defs/a0", "$defs": {**parts, f"a{levels}": last}}


def chain(length: int, last: Json, **more: Any) -> Json:
    parts = {f"a{i}": {"$ref": f"#/$defs/a{i + 1}", **more} for i in range(length)}
    return {"$ref": "#/$defs/a0", "$defs": {**parts, f"a{length}": last}}


@pytest.mark.parametrize(
    ("data", "pointers"),
    [
        ({"order": 1, "lines": []}, []),
        ({"order": 1, "lines": [{"sku": "abc"}], "note": "short", "a/b~c": 1}, []),
        (None, [""]),
        ({}, ["", ""]),
        ({"order": "1", "lines": {}}, ["/lines", "/order"]),
        ({"order": 1, "lines": [{}, {"sku": "A"}, {"kus": "a"}]}, ["/lines/1/sku", "/lines/2"]),
        ({"order": 1, "lines": [], "a/b~c": 2, "note": "too long"}, ["/a~1b~0c", "/note"]),
    ],
    ids=str,
)
def test_every_fault_is_told_with_its_place(data: Any, pointers: list[str]) -> None:
    assert sorted(pointer for pointer, _ in compile_schema(ORDER).faults(data)) == pointers


def test_values_of_the_data_are_not_quoted() -> None:
    faults = compile_schema(ORDER).faults({"order": "hush", "lines": [{"sku": "SECRET"}], "note": "confidential"})
    assert len(faults) == 3 and not any(word in str(faults) for word in ("hush", "SECRET", "confidential"))


def test_sentences_and_their_number_are_bounded() -> None:
    schema = compile_schema({"items": {"enum": ["x" * 1_000]}, "additionalProperties": False})
    faults = schema.faults(["y"] * 50)
    assert len(faults) == MAX_FAULTS and max(len(text) for _, text in faults) < 400


def test_format_is_a_comment() -> None:
    assert compile_schema({"format": "date-time"}).faults("tomorrow") == []


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        (True, ""),
        ([], ""),
        ({"type": "objekt"}, "/type"),
        ({"properties": {"a": {"required": "b"}}}, "/properties/a/required"),
        ({"items": [{}]}, "/items"),
        ({"$schema": "http://json-schema.org/draft-07/schema#"}, "/$schema"),
        ({"$ref": "https://example.org/x"}, "/$ref"),
        ({"$defs": {"unused": {"$ref": "other.json"}}}, "/$defs/unused/$ref"),
        ({"$dynamicRef": "https://example.org/x#y"}, "/$dynamicRef"),
        ({"items": {"$ref": "#/$defs/none"}}, "/items/$ref"),
        ({"items": {"$ref": "#none"}}, "/items/$ref"),
        ({"properties": {"a": {"$id": "urn:x"}}}, "/properties/a/$id"),
        ({"$ref": "#"}, ""),
        ({"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"not": {"$ref": "#"}}}}, "/$defs/a/not"),
        ({"pattern": "("}, "/pattern"),
        ({"pattern": r"(a)\1"}, "/pattern"),
        ({"pattern": "(?=a)b"}, "/pattern"),
        ({"pattern": "(a{900}){900}"}, ""),
        ({"pattern": "a" * 1_001}, "/pattern"),
        ({"patternProperties": {"a/(": {}}}, "/patternProperties/a~1("),
        ({"enum": ["a" * 70_000]}, ""),
        ({"const": nested(40)}, ""),
        ({"allOf": [{"pattern": f"^.{{200,{250 + i}}}$"} for i in range(100)]}, None),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_is_no_schema_is_refused_at_its_place(schema: Any, pointer: str | None) -> None:
    with pytest.raises(SchemaError) as caught:
        compile_schema(schema)
    assert pointer is None or caught.value.pointer == pointer
    assert len(caught.value.message) > 10


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"$ref": {"type": "string"}, "$id": {"type": "string"}, "pattern": {"type": "string"}}},
        {"const": {"$ref": "https://example.org/"}},
        {"items": {"$ref": "#"}},
        {"$ref": "#/$defs/a%20b~1", "$defs": {"a b/": {"type": "integer"}}},
        {"$ref": "#here", "$defs": {"a": {"$anchor": "here"}}},
        {"$dynamicAnchor": "node", "items": {"$dynamicRef": "#node"}},
        TREE,
    ],
    ids=str,
)
def test_references_within_and_names_that_look_like_keywords_are_fine(schema: Json) -> None:
    compile_schema(schema)


@pytest.mark.parametrize(
    "schema",
    [
        doubling("anyOf", 40, {"type": "boolean"}),
        doubling("allOf", 40, {"type": "object"}),
        {"properties": {"a": doubling("oneOf", 40, {})["$defs"]["a0"]}, "$defs": doubling("oneOf", 40, {})["$defs"]},
        chain(20, {"properties": {"a": {}}}, unevaluatedProperties=False),
        {"items": {"anyOf": [{"$ref": "#"}] * 20}},
        {"$defs": {"a": {"items": {"allOf": [{"$ref": "#/$defs/a"}] * 20}}}, "$ref": "#/$defs/a"},
    ],
    ids=["anyOf", "allOf", "below", "unevaluated", "recursive", "recursive reference"],
)
def test_a_schema_whose_check_could_take_for_ever_is_refused(schema: Json) -> None:
    with pytest.raises(SchemaError, match="so many ways"):
        compile_schema(schema)


def test_a_chain_of_references_that_would_overflow_the_stack_is_refused() -> None:
    """Of the process, not only of Python: 1,500 references and 62 levels of data end it with a segmentation fault."""
    into = {"type": ["array", "integer"], "items": {"$ref": "#/$defs/a0"}}
    with pytest.raises(SchemaError, match="follow one another"):
        compile_schema(chain(1_500, into))
    assert compile_schema(chain(MAX_CHAIN - 10, into)).faults(nested(62)) == []


def test_a_schema_that_branches_while_it_recurs_takes_data_of_some_levels() -> None:
    """Each level doubles the work: what would take too long is refused, what would not is checked."""
    expression: Json = {
        "oneOf": [
            {"type": "integer"},
            {"type": "object", "properties": {"and": {"items": {"$ref": "#"}}}, "required": ["and"]},
            {"type": "object", "properties": {"and": {"items": {"$ref": "#"}}}, "required": ["or"]},
        ]
    }
    schema = compile_schema(expression)

    def nesting(levels: int) -> Any:
        return {"and": [nesting(levels - 1)]} if levels else 1

    assert schema.faults(nesting(5)) == []
    began = time.monotonic()
    assert [text for _, text in schema.faults(nesting(31))] == [
        "is too large, or too deep, to be checked by the schema of its type"
    ]
    assert time.monotonic() - began < 1


@pytest.mark.parametrize(
    ("schema", "data", "pointer"),
    [
        ({"items": {"type": "integer"}}, ["a"] * 60_000, "/0"),
        ({"items": {"anyOf": [{"type": "integer"}, {"type": "boolean"}]}}, ["a"] * 60_000, ""),
        ({"anyOf": [{"items": {"type": "integer"}}, {"items": {"type": "boolean"}}]}, ["a"] * 60_000, ""),
        ({"unevaluatedProperties": False}, {f"name{i}": 1 for i in range(20_000)}, ""),
    ],
    ids=["plain", "inside", "outside", "unevaluated"],
)
def test_i9_large_data_that_is_all_wrong_is_told_at_once(schema: Json, data: Any, pointer: str) -> None:
    compiled = compile_schema(schema)
    began = time.monotonic()
    faults = compiled.faults(data)
    assert [where for where, _ in faults] == [pointer]
    assert time.monotonic() - began < 0.7  # all of it took 2 to 12 s


def test_small_data_is_told_in_full_below_any_of() -> None:
    schema = compile_schema({"items": {"anyOf": [{"type": "integer"}, {"type": "boolean"}]}})
    assert len(schema.faults(["a"] * 10)) == 10
    assert MAX_WORK_TOLD > 10 * 3


def test_costs_count_what_is_said_of_one_value_in_all_levels_above_it() -> None:
    assert costs({"type": "string"})[:3] == [1, 1, 1]
    assert costs({"properties": {"a": {}, "b": {"allOf": [{}, {}]}}})[:3] == [1, 1 + 3, 1 + 3]
    assert costs({"patternProperties": {"a": {}, "b": {"allOf": [{}, {}]}}})[:3] == [1, 1 + 1 + 3, 1 + 1 + 3]
    assert costs({"if": {}, "then": {"allOf": [{}]}, "else": {}})[0] == 1 + 1 + 2
    assert costs({"items": {"$ref": "#"}}) == list(range(1, 2 * MAX_DEPTH + 2, 2))
    assert costs({"items": {"anyOf": [{"$ref": "#"}] * 2}})[:4] == [1, 6, 16, 36]
    assert costs({"allOf": [{}], "unevaluatedProperties": False})[:2] == [1 + 4, 1 + 4 + 1]


values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["a", "b", "ab"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
leaves: st.SearchStrategy[Json] = st.one_of(
    st.fixed_dictionaries({"type": st.sampled_from(["null", "boolean", "integer", "string", "array", "object"])}),
    st.fixed_dictionaries({"enum": st.lists(values, min_size=1, max_size=3)}),
    st.fixed_dictionaries({"pattern": st.sampled_from(["^a", "b$", "^[ab]{2}$"])}),
    st.fixed_dictionaries({"required": st.lists(st.sampled_from("abc"), max_size=2, unique=True)}),
    st.just({"items": {"$ref": "#"}}),
)
schemas: st.SearchStrategy[Json] = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.fixed_dictionaries({"properties": st.dictionaries(st.sampled_from("abc"), inner, max_size=3)}),
        st.fixed_dictionaries({"items": inner}),
        st.fixed_dictionaries({"additionalProperties": inner}),
        st.fixed_dictionaries({"not": inner}),
        st.fixed_dictionaries({"if": inner, "then": inner, "else": inner}),
        st.sampled_from(["allOf", "anyOf", "oneOf"]).flatmap(
            lambda keyword: st.fixed_dictionaries({keyword: st.lists(inner, min_size=1, max_size=2)})
        ),
    ),
    max_leaves=6,
)


@given(schemas, values)
def test_the_answer_is_the_library_s(schema: Json, data: Any) -> None:
    compiled: EventSchema = compile_schema(schema)
    errors = list(jsonschema_rs.Draft202012Validator(schema).iter_errors(data))
    faults = compiled.faults(data)
    assert len(faults) == min(len(errors), MAX_FAULTS)
    assert {pointer.count("/") for pointer, _ in faults} == {len(error.instance_path) for error in errors[:MAX_FAULTS]}
    assert compiled._costs[MAX_DEPTH] >= compiled._costs[0] >= 1
