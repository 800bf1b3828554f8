"""What the reader takes and refuses, that its fast way and its exact way agree, and the one canonical form."""

import json
import math
import time
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from activity_core.domain import json_values
from activity_core.domain.json_values import MAX_DEPTH, JsonError, JsonValue, canonical_json, faults_of, parse_json

EVENT = {
    "event_id": "evt_0001",
    "type": "order.paid",
    "source": "shop-1",
    "time": "2026-03-01T09:00:00Z",
    "data": {
        "order": {
            "id": 17,
            "amount": 120.5,
            "paid": True,
            "note": None,
            "customer": {"name": "Zoë", "url": "https://x"},
        },
        "items": [{"sku": f"s-{number}", "n": number, "price": number * 1.5} for number in range(12)],
    },
}


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b"null", None),
        (b' [1, -0, 1.5, true, false, null, ""] ', [1, 0, 1.5, True, False, None, ""]),
        (b"9223372036854775807", 2**63 - 1),
        (b"-9223372036854775807", -(2**63 - 1)),
        (b"1e-400", 0.0),
        (b"1234567890123456789012.5", 1234567890123456789012.5),
        (b'"12345678901234567890"', "12345678901234567890"),
        (b'"\\ud83d\\ude00"', "😀"),
        (b'"\\u003a\\/\\n\\u007f"', ":/\n\x7f"),
        ('{"Zoë": "日本"}'.encode(), {"Zoë": "日本"}),
        (b'{"a": {"a": 1}, "b": [{"a": 1}, {"a": 1}]}', {"a": {"a": 1}, "b": [{"a": 1}, {"a": 1}]}),
        (b"[" * 64 + b"]" * 64, json.loads("[" * 64 + "]" * 64)),
        (b"[" + b"[]," * 100 + b"1]", [[]] * 100 + [1]),
    ],
)
def test_json_is_read(raw: bytes, value: object) -> None:
    assert parse_json(raw) == value


@pytest.mark.parametrize(
    ("raw", "code", "pointer"),
    [
        (b"", "malformed", ""),
        (b"  \n", "malformed", ""),
        (b"{", "malformed", ""),
        (b"[1,]", "malformed", ""),
        (b"{'a': 1}", "malformed", ""),
        (b"1 2", "malformed", ""),
        (b"{} x", "malformed", ""),
        (b"01", "malformed", ""),
        (b"NaN", "malformed", ""),
        (b'{"x":-Infinity}', "malformed", ""),
        (b'"\x01"', "malformed", ""),
        (b'"\\x41"', "malformed", ""),
        (b"\xef\xbb\xbf{}", "malformed", ""),
        ('{"a": 1}'.encode("utf-16"), "malformed", ""),
        (b'{"a":"\xff"}', "malformed", ""),
        (b'"\xed\xa0\x80"', "malformed", ""),
        (b"\x00", "malformed", ""),
        (b'{"a":["x","\\u0000"]}', "unstorable_character", "/a/1"),
        (b'{"a/b":{"\\u0000":1}}', "unstorable_character", "/a~1b"),
        (b'{"x":"\\ud800"}', "unstorable_character", "/x"),
        (b'["\\udc00\\ud800"]', "unstorable_character", "/0"),
        (b'{"n":9223372036854775808}', "number_out_of_range", "/n"),
        (b"[-9223372036854775808]", "number_out_of_range", "/0"),
        (b'{"n":18446744073709551616}', "number_out_of_range", "/n"),
        (b"9" * 5000, "number_out_of_range", ""),
        (b'{"x":1e999}', "number_out_of_range", "/x"),
        (b"[[-1e400]]", "number_out_of_range", "/0/0"),
        (b"[" * 65 + b"]" * 65, "too_deep", ""),
        (b'{"a":' * 65 + b"1" + b"}" * 65, "too_deep", ""),
        (b"[" * 100_000, "too_deep", ""),
        (b'{"a":1,"a":2}', "duplicate_key", "/a"),
        (b'{"a":1,"b":2,"a":1}', "duplicate_key", "/a"),
        (b'[{"~x":":","~x":":"}]', "duplicate_key", "/0/~0x"),
        (b'{"a":1,"a":"\\u003a"}', "duplicate_key", "/a"),
        (b'{"a":1,"\\u0061":2}', "duplicate_key", "/a"),
    ],
)
def test_what_can_not_be_kept_is_refused_with_code_and_pointer(raw: bytes, code: str, pointer: str) -> None:
    with pytest.raises(JsonError) as refused:
        parse_json(raw)
    assert (refused.value.code, refused.value.pointer) == (code, pointer)
    assert refused.value.message


def outcome(read: Any, raw: bytes) -> tuple[str, object]:
    try:
        value = read(raw)
    except JsonError as error:
        return error.code, error.pointer
    return "ok", repr(value)


KEYS = st.sampled_from(["a", "b", ":", 'q"', "\x00", "é", "a/b"])
TEXTS = st.text(max_size=6) | st.sampled_from(
    [":", '"a":', "\\u003a", "\x00", "\ud800", "{[", "2026-03-01T09:00:00Z", "1" * 19]
)
NUMBERS = (
    st.integers()
    | st.integers(min_value=2**63 - 2, max_value=2**64 + 2)
    | st.floats(allow_nan=False, allow_infinity=False)
)
SCALARS = st.none() | st.booleans() | NUMBERS | TEXTS


@st.composite
def written_json(draw: st.DrawFn) -> bytes:
    """JSON texts as a sender might write them: repeated keys, needless escapes, spaces, nesting around the limit."""

    def write(depth: int) -> str:
        kind = draw(st.sampled_from(["scalar", "scalar", "list", "object"] if depth < 4 else ["scalar"]))
        space = draw(st.sampled_from(["", " "]))
        if kind == "list":
            return "[" + ("," + space).join(write(depth + 1) for _ in range(draw(st.integers(0, 3)))) + "]"
        if kind == "object":
            pairs = [(draw(KEYS), write(depth + 1)) for _ in range(draw(st.integers(0, 3)))]
            return "{" + ",".join(f"{text(key)}{space}:{value}" for key, value in pairs) + "}"
        scalar = draw(SCALARS)
        return text(scalar) if isinstance(scalar, str) else json.dumps(scalar)

    def text(value: str) -> str:
        if draw(st.booleans()):
            return json.dumps(value)
        return '"' + "".join(f"\\u{ord(c):04x}" if ord(c) < 0x10000 else c for c in value) + '"'

    nested = draw(st.sampled_from([0, 0, 0, MAX_DEPTH - 4, MAX_DEPTH - 1, MAX_DEPTH, MAX_DEPTH + 1]))
    return ("[" * nested + write(0) + "]" * nested).encode(errors="surrogatepass")


@settings(max_examples=400, deadline=None)
@given(written_json())
def test_the_fast_way_and_the_exact_way_agree(raw: bytes) -> None:
    assert outcome(parse_json, raw) == outcome(json_values._parse_exactly, raw)


@settings(max_examples=400, deadline=None)
@given(st.binary(max_size=60) | st.text(alphabet='[]{}",:\\u0d8e+-.1 \x00é', max_size=60).map(str.encode))
@example(b"[" * 3000 + b"1" + b"]" * 3000)
@example(b'{"a":' * 3000)
@example(b'"' + b"\\" * 1001)
def test_arbitrary_bytes_raise_nothing_but_json_error(raw: bytes) -> None:
    assert outcome(parse_json, raw) == outcome(json_values._parse_exactly, raw)


STORABLE_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=8)
JSON_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63) + 1, 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | STORABLE_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(STORABLE_TEXT, inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=300, deadline=None)
@given(JSON_VALUES)
def test_round_trip(value: JsonValue) -> None:
    text = canonical_json(value)
    assert repr(parse_json(text)) == repr(parse_json(json.dumps(value, sort_keys=True).encode()))
    assert canonical_json(parse_json(text)) == text
    assert list(faults_of(value)) == []


def test_canonical_form_never_changes() -> None:
    value: JsonValue = {
        "b": [1, 1.0, -0.0, 1e16, 1e-7, None, True],
        "a": {"é": '/"\n\x7f😀', "z": [], "A": {}},
        "": 2**63 - 1,
    }
    assert canonical_json(value) == (
        '{"":9223372036854775807,"a":{"A":{},"z":[],"é":"/\\"\\n\x7f😀"},"b":[1,1.0,-0.0,1e+16,1e-7,null,true]}'.encode()
    )


def test_canonical_form_ignores_the_order_of_keys_and_tells_numbers_apart() -> None:
    assert canonical_json({"a": 1, "b": 2}) == canonical_json({"b": 2, "a": 1})
    assert canonical_json(1) != canonical_json(1.0)


@pytest.mark.parametrize(
    ("value", "code", "pointer"),
    [
        (math.nan, "number_out_of_range", ""),
        ({"a": [None, math.inf]}, "number_out_of_range", "/a/1"),
        ("\ud800", "unstorable_character", ""),
        (2**70, "number_out_of_range", ""),
        ([b"x"], "malformed", "/0"),
        ({1: 2}, "malformed", ""),
    ],
)
def test_no_canonical_form_of_what_is_not_json(value: Any, code: str, pointer: str) -> None:
    with pytest.raises(JsonError) as refused:
        canonical_json(value)
    assert (refused.value.code, refused.value.pointer) == (code, pointer)


def test_no_canonical_form_of_endless_nesting() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(JsonError) as refused:
        canonical_json(endless)
    assert refused.value.code == "too_deep"


def test_an_ordinary_event_is_read_in_well_under_a_tenth_of_a_millisecond() -> None:
    raw = canonical_json(EVENT)  # type: ignore[arg-type]  # a plain dict, whose values mypy joins to object
    assert 550 < len(raw) < 750
    rounds = 200
    best = math.inf
    for _ in range(10):
        began = time.thread_time()
        for _ in range(rounds):
            parse_json(raw)
        best = min(best, time.thread_time() - began)
    assert best / rounds < 100e-6
