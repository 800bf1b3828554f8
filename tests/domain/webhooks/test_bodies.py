"""Bodies by content type: JSON, forms, nothing, and what gets a clear refusal."""

import gzip
import tracemalloc
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from activity_core.domain.webhooks.bodies import Body, decompress, read_body
from activity_core.domain.webhooks.outcomes import Refused
from tests.domain.webhooks.support import CAP, request

FORM = "application/x-www-form-urlencoded"


def read(content_type: str | None, body: bytes, *, document_field: str | None = None) -> Body | Refused:
    headers = [] if content_type is None else [("content-type", content_type)]
    return read_body(request(headers, body), cap=CAP, document_field=document_field)


def reason(content_type: str | None, body: bytes, *, document_field: str | None = None) -> str:
    refused = read(content_type, body, document_field=document_field)
    assert isinstance(refused, Refused)
    return refused.reason_code


@pytest.mark.parametrize(
    "content_type",
    [
        None,
        "",
        "application/json",
        "Application/JSON;charset=UTF-8",
        'application/json; charset="utf-8"; x=y',
        "application/json ; charset=utf8",
        "application/json;",
        "application/json; x=1;",
        "text/plain; charset=UTF-8",
        "text/json",
        "application/vnd.github+json",
        "Application/CloudEvents+JSON; charset=utf-8",
        "application/cloudevents+json",
    ],
)
def test_json_is_read_from_every_type_it_is_sent_as(content_type: str | None) -> None:
    assert read(content_type, b' {"k": 1} ') == Body({"k": 1}, "json")
    assert read(content_type, b"") == Body(None, "empty")


@pytest.mark.parametrize(
    ("content_type", "expected"),
    [
        ("multipart/form-data; boundary=x", "unsupported_media_type"),
        ("application/octet-stream", "unsupported_media_type"),
        ("application/xml", "unsupported_media_type"),
        ("json", "unsupported_media_type"),
        ("application/json charset=utf-8", "unsupported_media_type"),
        ('application/json; charset="utf-8', "unsupported_media_type"),
        ("application/json; charset=latin-1", "unsupported_charset"),
        ("application/json; CHARSET=UTF-16", "unsupported_charset"),
        ("application/json; charset=utf-8; charset=utf-16", "unsupported_charset"),
        ("application/json; charset=", "unsupported_media_type"),
        (f"{FORM}; charset=windows-1252", "unsupported_charset"),
        ("application/json, text/plain", "unsupported_media_type"),
    ],
)
def test_other_types_and_charsets_are_refused(content_type: str, expected: str) -> None:
    assert reason(content_type, b"{}") == expected


def test_two_content_types_are_refused() -> None:
    headers = [("Content-Type", "application/json"), ("content-type", FORM)]
    refused = read_body(request(headers, b"{}"), cap=CAP)
    assert isinstance(refused, Refused) and refused.reason_code == "doubled_header"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"{", "not_json"),
        (b" ", "not_json"),
        (b"hello", "not_json"),
        (b'\xef\xbb\xbf{"a":1}', "not_json"),
        ('{"a":1}'.encode("utf-16"), "not_json"),
        (b"\x80\x81\x82\xff\x00PNG", "not_json"),
        (b'{"x":NaN}', "not_json"),
        (b'{"x":-Infinity}', "not_json"),
        (b'{"x":"\\ud800"}', "unstorable_character"),
        (b'{"x":"\\u0000"}', "unstorable_character"),
        (b'{"x":1e999}', "number_out_of_range"),
        (b'{"a":1,"a":2}', "duplicate_key"),
        (b"[" * 65 + b"]" * 65, "too_deep"),
        (b"[" * 100_000, "too_deep"),
    ],
)
def test_d09_what_cannot_be_kept_is_refused_by_name(body: bytes, expected: str) -> None:
    for content_type in (None, "application/json", "text/plain"):
        assert reason(content_type, body) == expected


def test_forms() -> None:
    assert read(FORM, b"a=1&b=x+y%26%C3%A9&c=&d") == Body({"a": "1", "b": "x y&é", "c": "", "d": ""}, "form")
    assert read(FORM, b"a=1&b=2&a=3") == Body({"a": ["1", "3"], "b": "2"}, "form")
    assert read(FORM, "a=é".encode()) == Body({"a": "é"}, "form")
    assert read(FORM, b"") == Body(None, "empty")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"a=%ff", "malformed_form"),
        (b"a=\xff", "malformed_form"),
        (b"a=%00", "unstorable_character"),
        (b"%00=a", "unstorable_character"),
        (b"&".join([b"a=1"] * 1_001), "malformed_form"),
    ],
)
def test_forms_that_cannot_be_kept(body: bytes, expected: str) -> None:
    assert reason(FORM, body) == expected


def test_the_document_in_a_form_stands_alone_or_the_form_is_taken_whole() -> None:
    assert read(FORM, b"payload=%7B%22a%22%3A1%7D", document_field="payload") == Body({"a": 1}, "json")
    assert read(FORM, b"payload=%7B%7D") == Body({"payload": "{}"}, "form")
    assert read(FORM, b"payload=%7B%7D&x=1", document_field="payload") == Body({"payload": "{}", "x": "1"}, "form")
    assert reason(FORM, b"payload=nope", document_field="payload") == "not_json"
    assert reason(FORM, b"payload=", document_field="payload") == "not_json"


def test_the_cap_is_exact_and_holds_for_every_encoding() -> None:
    exact, over = b'"' + b"x" * 98 + b'"', b'"' + b"x" * 99 + b'"'
    for headers, change in (([], bytes), ([("Content-Encoding", "GZIP")], gzip.compress)):
        assert isinstance(read_body(request(headers, change(exact)), cap=100), Body)
        refused = read_body(request(headers, change(over)), cap=100)
        assert isinstance(refused, Refused) and refused.reason_code == "too_large"


def test_a_bomb_costs_no_more_memory_than_the_cap() -> None:
    bomb = gzip.compress(bytes(100_000_000))
    tracemalloc.start()
    try:
        refused = decompress(bomb, 1_000_000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert isinstance(refused, Refused) and peak < 4_000_000


@given(st.binary(max_size=2_000), st.integers(0, 3_000))
@settings(deadline=None)
def test_decompress_gives_back_what_was_compressed_up_to_the_cap(data: bytes, cap: int) -> None:
    result = decompress(gzip.compress(data), cap)
    assert result == data if len(data) <= cap else isinstance(result, Refused)


@given(st.binary(max_size=300), st.integers(0, 400))
@settings(deadline=None)
def test_decompress_never_raises(data: bytes, cut: int) -> None:
    for raw in (data, gzip.compress(data)[:cut], zlib.compress(data)):
        result = decompress(raw, 1_000)
        assert isinstance(result, Refused) or len(result) <= 1_000
