"""Where the id and the type of an event come from, and what is taken for one (R23)."""

from typing import Any

import pytest

from activity_core.domain.webhooks.identity import (
    Identity,
    Origin,
    from_header,
    from_pointer,
    from_template,
    identify,
)
from activity_core.domain.webhooks.outcomes import Refused
from activity_core.domain.webhooks.presets import PRESETS
from activity_core.domain.webhooks.schemes import SchemeError
from tests.domain.webhooks.support import Headers, request

TYPE = (from_template("demo"),)
BODY: Any = {"id": "b-1", "n": 7, "a/b": {"~c": ["x", "y"]}, "f": 1.5, "t": True, "z": None, "e": "", "o": {}}


def judged(ids: tuple[Origin, ...], headers: Headers = [], data: Any = BODY, **more: Any) -> Identity | Refused:  # noqa: B006
    return identify(request(headers, b"", **more), data, ids, TYPE)


def test_r23_the_configured_place_then_the_idempotency_key_then_a_fresh_one() -> None:
    key = ("Idempotency-Key", "key-1")
    places = (from_header("X-Id"), from_pointer("/nothing"))
    assert judged(places, [("x-id", "h-1"), key]) == Identity("h-1", "source", "demo")
    assert judged((*places, from_pointer("/id")), [key]) == Identity("b-1", "source", "demo")
    assert judged(places, [key]) == Identity("key-1", "idempotency_key", "demo")
    assert judged(places) == Identity(None, "fresh", "demo")


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        ("{/id}", "b-1"),
        ("{/n}", "7"),
        ("{/a~1b/~0c/1}", "y"),
        ("{query:q}", "quoted"),
        ("{header:X-H}-{/n}", "naïve-7"),
        ("constant", "constant"),
    ],
)
def test_r23_ids_are_taken_exactly_as_they_are(origin: str, expected: str) -> None:
    header = "naïve".encode().decode("latin-1")
    outcome = judged((from_template(origin),), [("X-H", header)], query=(("q", "quoted"),))
    assert outcome == Identity(expected, "source", "demo")


@pytest.mark.parametrize("pointer", ["/x", "/id/x", "/a~1b/~0c/2", "/a~1b/~0c/-", "/a~1b/~0c/01", "/z", "/a~1b/~0c/-1"])
def test_a_pointer_to_nothing_or_null_gives_no_id(pointer: str) -> None:
    assert judged((from_pointer(pointer),)) == Identity(None, "fresh", "demo")


@pytest.mark.parametrize(
    ("origin", "headers", "says"),
    [
        ("{/e}", [], "empty"),
        ("{/f}", [], "neither a string nor an integer"),
        ("{/t}", [], "neither a string nor an integer"),
        ("{/o}", [], "neither a string nor an integer"),
        ("{header:X-Id}", [("X-Id", "")], "empty"),
        ("{header:X-Id}", [("X-Id", "a\tb")], "control characters"),
        ("{header:X-Id}", [("X-Id", "x" * 1025)], "1025"),
        ("{header:X-Id}", [("X-Id", "\xe9")], "not UTF-8"),
        ("{/nothing}", [("Idempotency-Key", "")], "empty"),
        ("{query:q}", [], "2 times"),
    ],
)
def test_r9_an_id_that_cannot_be_kept_is_refused_with_its_reason(origin: str, headers: Headers, says: str) -> None:
    refused = judged((from_template(origin),), headers, query=(("q", "1"), ("q", "2")))
    assert isinstance(refused, Refused) and refused.reason_code == "bad_id" and says in refused.message


def test_a_doubled_header_is_no_id() -> None:
    for name in ("X-Id", "Idempotency-Key"):
        refused = judged((from_header("X-Id"),), [(name, "a"), (name.lower(), "a")])
        assert isinstance(refused, Refused) and refused.reason_code == "doubled_header"


def typed(*texts: str, headers: Headers = [], data: Any = BODY) -> str:  # noqa: B006
    outcome = identify(request(headers, b""), data, (), [from_template(text) for text in texts])
    return outcome.type if isinstance(outcome, Identity) else outcome.reason_code


def test_the_first_type_whose_parts_are_all_there_is_taken() -> None:
    event = [("X-GitHub-Event", "push")]
    first, second = "github.{header:X-GitHub-Event}.{/action}", "github.{header:X-GitHub-Event}"
    assert typed(first, second, headers=event, data={"action": "opened"}) == "github.push.opened"
    nothing: list[Any] = [None, "", {}, [], True, "...", 1.5]
    for action in nothing:
        assert typed(first, second, headers=event, data={"action": action}) == "github.push"
    assert typed(first, second, headers=event, data=None) == "github.push"
    assert typed(first, second) == "missing_type"
    assert typed(first, headers=[*event, *event]) == "doubled_header"
    assert typed() == "missing_type"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("incident.triggered", "x.incident.triggered"),
        ("run tests!", "x.run_tests_"),
        ("a..b.", "x.a.b"),
        ("Zoë*", "x.Zo_"),
        (7, "x.7"),
        ("y" * 300, "bad_type"),
        ("orders/create", "x.orders/create"),
    ],
)
def test_odd_characters_do_not_lose_an_event(value: Any, expected: str) -> None:
    """`repository_dispatch` of GitHub, for one, has an action of the user's choice."""
    assert typed("x.{/v}", data={"v": value}) == expected


@pytest.mark.parametrize(
    ("change", "value", "expected"),
    [
        ("dots", "orders/create", "orders.create"),
        ("dots", "/deploy", "deploy"),
        ("dots", "//", "missing_type"),
        ("tail", "arn:aws:sns:eu-west-1:000000000000:orders", "orders"),
        ("tail", "plain", "plain"),
        ("tail", "a/", "missing_type"),
    ],
)
def test_changes(change: str, value: str, expected: str) -> None:
    assert typed(f"{{/v|{change}}}", data={"v": value}) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "a}",
        "{}",
        "{id}",
        "{header:}",
        "{header:A B}",
        "{query:}",
        "{/a|upper}",
        "{/~2}",
        "x" * 513,
        "{/a}" * 9,
        "{{/a}}",
    ],
)
def test_origins_that_mean_nothing_are_refused(text: str) -> None:
    with pytest.raises(SchemeError):
        from_template(text)


def test_every_preset_says_where_types_are() -> None:
    for name, preset in PRESETS.items():
        assert preset.types, name
