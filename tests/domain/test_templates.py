"""Placeholders in documents and URLs: what becomes of them, what is refused, and that an error always names its place."""

import copy
import json
import time
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from activity_core.domain.json_values import canonical_json
from activity_core.domain.templates import (
    MAX_OUTPUT_BYTES,
    MAX_PLACEHOLDERS,
    TemplateError,
    compile_template,
    compile_url,
)

SCOPE: dict[str, Any] = {
    "event": {
        "id": "a/b?c=d&e#f %",
        "n": 3,
        "half": 0.5,
        "whole": 1.0,
        "paid": True,
        "none": None,
        "empty": "",
        "list": [1, None],
        "customer": {"name": "Zoë"},
        "dots": "..",
        "brace": "}",
    },
    "window": {"start": datetime(2026, 3, 1, 9, tzinfo=UTC)},
}


@pytest.mark.parametrize(
    ("template", "rendered"),
    [
        ("plain", "plain"),
        ("", ""),
        ("${ event.n }", 3),
        ("${event.paid}", True),
        ("${ event.none }", None),
        ("${ event.list }", [1, None]),
        ("${ event.customer }", {"name": "Zoë"}),
        ("${ event.empty }", ""),
        ("${ window.start }", "2026-03-01T09:00:00Z"),
        ("${ event.missing == 1 || true }", True),
        (" ${ event.n }", " 3"),
        ("${ event.n }${ event.n }", "33"),
        (
            "n=${ event.n }, paid=${ event.paid }, half=${ event.half }, whole=${event.whole}",
            "n=3, paid=true, half=0.5, whole=1.0",
        ),
        ("since ${ window.start }", "since 2026-03-01T09:00:00Z"),
        ("${ event.?missing.orValue('none') }!", "none!"),
        ("x${ event.empty }y", "xy"),
        ("$${ event.n }", "${ event.n }"),
        ("$$${ event.n }", "$${ event.n }"),
        ("$${ ${ event.n }", "${ 3"),
        ("${ '$${' }", "$${"),
        ("costs 5$, or $ {x}", "costs 5$, or $ {x}"),
        ("${ '$' }${ event.n }", "$3"),
        ('${ {"a": {"b": event.n}}.a.b } }', "3 }"),
        ("${ '}' }", "}"),
        ('${ "}" == event.brace ? "a}" : "}b" }', "a}"),
        (r"${ '\'}' }", "'}"),
        (r"${ r'}\d' }-", "}\\d-"),
        ("${ '''it's } \"''' }", "it's } \""),
        ("${ event.n // }\n }", 3),
        (
            {"a": ["${ event.n }", {"b": "x${ event.n }"}], "${ event.n }": 1},
            {"a": [3, {"b": "x3"}], "${ event.n }": 1},
        ),
        ([None, True, 1, 1.5, "x", {}, []], [None, True, 1, 1.5, "x", {}, []]),
    ],
)
def test_rendering(template: Any, rendered: object) -> None:
    found = compile_template(template).render(SCOPE)
    assert (type(found), found) == (type(rendered), rendered)


def test_has_placeholder() -> None:
    assert compile_template({"a": ["${ event.n }"]}).has_placeholder
    assert not compile_template({"a": ["$${ event.n }", 1]}).has_placeholder
    assert not compile_template({"${ event.n }": "x"}).has_placeholder


def faults_of_compiling(template: Any) -> list[tuple[str, str]]:
    with pytest.raises(TemplateError) as refused:
        compile_template(template)
    return refused.value.faults


def test_all_faults_come_at_once_each_with_its_pointer() -> None:
    template = {
        "to": "${ evnt.owner }",
        "a/b": {"~": ["ok ${ event.n }", "${ event.n + 1 }", "${ event.n"]},
        "key": "${ secret.TOKEN }",
        "empty": "${}",
        "two": "${ foo } and ${ bar }",
    }
    faults = faults_of_compiling(template)
    assert [pointer for pointer, _ in faults] == ["/to", "/a~1b/~0/1", "/a~1b/~0/2", "/key", "/empty", "/two", "/two"]
    words = [
        "did you mean `event`",
        "`+` is not available",
        "is not closed",
        "secrets are not available",
        "ends too early",
    ]
    for (_, message), word in zip(faults, words, strict=False):
        assert word in message
    assert "`${ foo }`: there is no `foo`" in faults[5][1]


@pytest.mark.parametrize(
    "text", ["x ${ event.n", "x ${ 'a }", r"x ${ r'\' + '}", "x ${ { }", "x ${ a // }", 'x ${ """a"" }']
)
def test_an_unclosed_placeholder_says_how_to_write_a_literal(text: str) -> None:
    assert faults_of_compiling(text) == [
        ("", "the placeholder at character 3 is not closed; end it with `}`, or write `$${` for a literal `${`")
    ]


@pytest.mark.parametrize(
    ("template", "pointer", "words"),
    [
        ("${ event.missing }", "", "`${ event.missing }`: `event.missing` is missing"),
        ({"a": ["x ${ event.missing }"]}, "/a/0", "`event.missing` is missing"),
        ("x ${ event.none }", "", "null can't stand in a text"),
        ("x ${ event.list }", "", "a list can't stand in a text; make the placeholder the whole string"),
        ("${ event.customer } ", "", "an object can't stand in a text"),
        ("${ item.id }", "", "`item` is not there in this run"),
        ("${ 1.0 / 0.0 }", "", "not a finite number"),
    ],
)
def test_what_is_missing_or_can_not_be_written_is_an_error(template: Any, pointer: str, words: str) -> None:
    with pytest.raises(TemplateError) as refused:
        compile_template(template).render(SCOPE)
    assert [found for found, _ in refused.value.faults] == [pointer]
    assert words in refused.value.faults[0][1]
    assert str(refused.value).startswith(f"{pointer}: " if pointer else "`")


def test_every_placeholder_that_fails_is_named() -> None:
    template = compile_template({"a": "${ event.x }", "b": "${ event.n }", "c": ["${ event.y } ${ event.z }"]})
    with pytest.raises(TemplateError) as refused:
        template.render(SCOPE)
    assert [pointer for pointer, _ in refused.value.faults] == ["/a", "/c/0", "/c/0"]


def test_at_most_64_placeholders_in_a_document() -> None:
    assert compile_template(["${ event.n }"] * MAX_PLACEHOLDERS).render(SCOPE) == [3] * 64
    faults = faults_of_compiling([["${ event.n }"] * MAX_PLACEHOLDERS, "${ event.n } ${ event.n }"])
    assert faults == [("/1", "at most 64 placeholders may be in one document")]


def test_at_most_256_kib_come_out() -> None:
    scope = {"event": {"text": "x" * 100_000}}
    assert len(canonical_json(compile_template(["${ event.text }"] * 2).render(scope))) > 200_000
    templates: list[Any] = [["${ event.text }"] * 3, ["${ event.text }-"] * 3, ["${ event }"] * 64]
    for template in templates:
        with pytest.raises(TemplateError, match=f"larger than {MAX_OUTPUT_BYTES}"):
            compile_template(template).render(scope)
    with pytest.raises(TemplateError, match="larger"):
        compile_template(["x" * MAX_OUTPUT_BYTES, "${ event }"]).render({"event": 1})


def test_a_document_that_would_get_too_deep_is_refused() -> None:
    deep: Any = 1
    for _ in range(60):
        deep = [deep]
    assert compile_template([[["${ event }"]]]).render({"event": deep})
    with pytest.raises(TemplateError, match="deeper than 64"):
        compile_template([[[[["${ event }"]]]]]).render({"event": deep})
    with pytest.raises(TemplateError, match="deeper than 64"):
        compile_template("${ event }").render({"event": [[[[[deep]]]]]})


@pytest.mark.parametrize("value", [float("nan"), {"a": b"x"}, "\ud800", {"a": "\x00"}, 2**64, {1: 2}])
def test_what_is_not_json_is_no_template(value: Any) -> None:
    with pytest.raises(TemplateError):
        compile_template(value)


def test_an_endless_document_is_no_template() -> None:
    endless: list[Any] = []
    endless.append(endless)
    assert "deeper" in faults_of_compiling(endless)[0][1]


def test_only_the_names_of_its_place_are_in_scope() -> None:
    with pytest.raises(TemplateError, match=r"no `window` here \(in scope: event\)"):
        compile_template("${ window.start }", variables=frozenset({"event"}))


def test_the_result_shares_nothing_with_template_or_scope() -> None:
    document: Any = {"constant": [1], "value": "${ event.list }"}
    template = compile_template(document)
    scope = copy.deepcopy(SCOPE)
    first: Any = template.render(scope)
    first["constant"].append(2)
    first["value"].append(2)
    document["constant"].append(3)
    assert template.render(scope) == {"constant": [1], "value": [1, None]}
    assert scope == SCOPE


@pytest.mark.parametrize(
    ("url", "rendered"),
    [
        ("https://example.org", "https://example.org"),
        ("https://example.org/a?b=c#d", "https://example.org/a?b=c#d"),
        ("https://example.org/${ event.n }", "https://example.org/3"),
        ("https://example.org:8443/x/${ event.id }/y", "https://example.org:8443/x/a%2Fb%3Fc%3Dd%26e%23f%20%25/y"),
        ("https://example.org?since=${ window.start }", "https://example.org?since=2026-03-01T09%3A00%3A00Z"),
        ("https://example.org/?q=${ event.customer.name }&p=${ event.paid }", "https://example.org/?q=Zo%C3%AB&p=true"),
        ("https://example.org/a${ event.dots }", "https://example.org/a.."),
        ("https://example.org/?q=${ event.dots }", "https://example.org/?q=.."),
        ("https://example.org/%7Ea/${ '-._~' }", "https://example.org/%7Ea/-._~"),
    ],
)
def test_url(url: str, rendered: str) -> None:
    template = compile_url(url)
    assert template.render(SCOPE) == rendered
    assert template.has_placeholder is ("${" in url)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("${ event.url }", "begins with its scheme and host written out"),
        ("${ event.scheme }://example.org/", "scheme and host"),
        ("https://${ event.host }/", "scheme and host"),
        ("https://api.${ event.host }/", "scheme and host"),
        ("https://example.org${ event.n }", "scheme and host"),
        ("https://example.org:${ event.n }/", "scheme and host"),
        ("https:///${ event.n }", "scheme and host"),
        ("/relative/${ event.n }", "scheme and host"),
        ("", "scheme and host"),
        ("https://user:secret@example.org/${ event.n }", "user name or password"),
        ("https://example.org\\${ event.n }", "scheme and host"),
        ("https://example.org/a b/${ event.n }", "percent-encode"),
        ("https://example.org/\\${ event.n }", "percent-encode"),
        ("https://example.org/é", "percent-encode"),
        ("https://example.org/$${x}", "percent-encode"),
        ("https://example.org/%${ event.n }", "percent-encode"),
        ("https://example.org/%2${ event.n }", "percent-encode"),
        ("https://example.org/../${ event.n }", "would lead elsewhere"),
        ("https://example.org/%2e./${ event.n }", "would lead elsewhere"),
        ("https://example.org/" + "x" * 8_192, "longer than 8192"),
        ("https://example.org/${ secret.TOKEN }", "secrets are not available"),
        ("https://example.org/${ event.n", "not closed"),
    ],
)
def test_url_that_is_refused(url: str, words: str) -> None:
    with pytest.raises(TemplateError) as refused:
        compile_url(url)
    assert [pointer for pointer, _ in refused.value.faults] == [""]
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("https://example.org/${ event.dots }/x", "would lead elsewhere"),
        ("https://example.org/.${ '.' }", "would lead elsewhere"),
        ("https://example.org/${ event.missing }", "is missing"),
        ("https://example.org/${ event.none }", "null can't stand in a text"),
        ("https://example.org/${ event.list }", "a list can't stand in a text"),
    ],
)
def test_url_that_can_not_be_rendered(url: str, words: str) -> None:
    template = compile_url(url)
    with pytest.raises(TemplateError) as refused:
        template.render(SCOPE)
    assert words in str(refused.value)


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=12)


@settings(max_examples=200, deadline=None)
@given(TEXTS, TEXTS)
def test_a_value_stays_inside_its_place_of_the_url(segment: str, value: str) -> None:
    template = compile_url("https://example.org/a/${ event.segment }/b?v=${ event.value }&w=1#f")
    scope = {"event": {"segment": segment, "value": value}}
    if segment in (".", ".."):
        with pytest.raises(TemplateError):
            template.render(scope)
        return
    url = urlsplit(template.render(scope))
    assert (url.scheme, url.netloc, url.fragment) == ("https", "example.org", "f")
    first, a, found, b = url.path.split("/")
    assert (first, a, unquote(found), b) == ("", "a", segment, "b")
    assert parse_qs(url.query, keep_blank_values=True, encoding="utf-8") == {"v": [value], "w": ["1"]}


@settings(max_examples=200, deadline=None)
@given(TEXTS)
def test_any_text_is_kept_when_escaped(text: str) -> None:
    """A `$` before a placeholder is written `${ "$" }`, as in the docs, so none precedes the escape here."""
    escaped = text.replace("${", "$${")
    if "$$${" not in escaped:
        assert compile_template(escaped).render({}) == text
    assert compile_template({"a": ["${ event }", "-${ event }-"]}).render({"event": text}) == {"a": [text, f"-{text}-"]}


PIECES = st.sampled_from(
    ["${", "$${", "}", "{", "'", '"', "event.a", "event", " ", "1", "$", "//", "\n", "x", "'}'", "r'", "é"]
)
DOCUMENTS: st.SearchStrategy[Any] = st.recursive(
    st.lists(PIECES, max_size=7).map("".join) | st.none() | st.integers() | st.floats() | st.just("\ud800"),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b/~", "${x}"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=400, deadline=None)
@given(DOCUMENTS, st.recursive(st.none() | st.integers() | st.text(max_size=3), st.lists, max_leaves=3))
def test_any_document_renders_to_json_or_raises_the_declared_error(document: Any, value: Any) -> None:
    before = copy.deepcopy(document)
    try:
        canonical_json(compile_template(document).render({"event": {"a": value}}))
    except TemplateError as error:
        assert error.faults and all(pointer == "" or pointer.startswith("/") for pointer, _ in error.faults)
    assert repr(document) == repr(before)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(PIECES | st.sampled_from(["https://", "example.org", "/", "?", "@", "%", ".."]), max_size=10).map("".join)
)
def test_any_url_renders_or_raises_the_declared_error(url: str) -> None:
    try:
        rendered = compile_url(url).render({"event": {"a": "../@x"}})
    except TemplateError:
        return
    assert urlsplit(rendered).netloc == urlsplit(url.split("${", maxsplit=1)[0]).netloc


@pytest.mark.parametrize(
    "text",
    [
        "${" * 8_000,
        "$" * 16_001 + "{ 1 } ${",
        "${ '" * 4_000,
        "${ {" * 4_000 + "}" * 4_000,
        "${ r'''" * 2_000,
        "${ " + "{" * 500 + "}" * 500 + " }",
        "${ event }" * 1_600,
    ],
    ids=lambda text: text[:12],
)
def test_hostile_templates_are_refused_in_less_than_a_tenth_of_a_second(text: str) -> None:
    spent = []
    for _ in range(3):
        began = time.thread_time()
        with pytest.raises(TemplateError):
            compile_template(text).render({"event": {}})
        spent.append(time.thread_time() - began)
    assert min(spent) < 0.1


def test_rendering_costs_microseconds() -> None:
    template = compile_template(
        json.loads('{"to": "${ item.owner }", "subject": "Digest ${ local.date }", "n": [1, 2, 3]}')
    )
    scope = {"item": {"owner": "ops"}, "local": {"date": "2026-03-01"}, "context": {"big": [{}] * 10_000}}
    best = 1.0
    for _ in range(10):
        began = time.thread_time()
        for _ in range(100):
            template.render(scope)
        best = min(best, (time.thread_time() - began) / 100)
    assert best < 200e-6
