"""Where the id and the type of an event come from, and what is taken for one (R23)."""

from typing import Any

import pytest

from activity_core.domain.webhooks.identity import (
    Identity,
    IdFrom,
    from_cel,
    from_header,
    from_pointer,
    from_template,
    hiding,
    identify,
)
from activity_core.domain.webhooks.outcomes import Refused
from activity_core.domain.webhooks.presets import PRESETS
from activity_core.domain.webhooks.schemes import SchemeError
from tests.domain.webhooks.support import Headers, request

TYPE = (from_template("demo"),)
BODY: Any = {"id": "b-1", "n": 7, "a/b": {"~c": ["x", "y"]}, "f": 1.5, "t": True, "z": None, "e": "", "o": {}}


def judged(ids: tuple[IdFrom, ...], headers: Headers = [], data: Any = BODY, **more: Any) -> Identity | Refused:  # noqa: B006
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


CEL_HEADERS: Headers = [
    ("X-Id", "h-1"),
    ("X-Twice", "1"),
    ("x-twice", "2"),
    ("X-Odd", "\xff"),
    ("X-Name", "naïve".encode().decode("latin-1")),
    ("Authorization", "Bearer hidden"),
]


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("${ header['x-id'] }", "h-1"),
        ("${ data.n }", "7"),
        ("${ data.n }-${ query.q }-${ header['x-name'] }", "7-quoted-naïve"),
        ("${ has(data.z) && data.z != null ? data.z : data.id }", "b-1"),
        ("$${ data.id }", "${ data.id }"),
    ],
)
def test_r23_an_id_may_be_written_with_cel(template: str, expected: str) -> None:
    outcome = judged((from_cel(template),), CEL_HEADERS, query=(("q", "quoted"), ("r", "1"), ("r", "2")))
    assert outcome == Identity(expected, "source", "demo")


@pytest.mark.parametrize(
    "template",
    [
        *("${ data.nothing }", "a-${ data.nothing }", "${ data.z }", "a-${ data.z }", "${ data.o }", "a-${ data.o }"),
        *("${ data.f }", "${ data.t }", "${ header['X-Id'] }", "${ header['x-twice'] }", "${ header['x-odd'] }"),
        *("${ query.r }", "${ query.none }", "${ data.id / 0 }", "${ header.authorization }", "${ header }"),
    ],
)
def test_a_template_without_a_value_counts_as_missing(template: str) -> None:
    key = [*CEL_HEADERS, ("Idempotency-Key", "key-1")]
    outcome = judged((from_cel(template), from_pointer("/id")), key, query=(("r", "1"), ("r", "2")))
    assert outcome == Identity("b-1", "source", "demo")
    assert judged((from_cel(template),), key, query=(("r", "1"), ("r", "2"))) == Identity(
        "key-1", "idempotency_key", "demo"
    )


def test_a_type_may_be_written_with_cel_and_becomes_one_that_may_be() -> None:
    types = (from_cel("${ data.kind }"), from_cel("shop.${ data.what }"), from_template("shop.other"))

    def typed(data: Any) -> Any:
        outcome = identify(request([], b""), data, (), types)
        return outcome.type if isinstance(outcome, Identity) else outcome.reason_code

    assert typed({"kind": "order.paid"}) == "order.paid"
    assert typed({"what": "große Bestellung..neu"}) == "shop.gro_e_Bestellung.neu"
    assert typed({"what": None}) == typed([]) == typed(None) == typed("x") == "shop.other"
    assert typed({"kind": "x" * 300}) == "bad_type"


def test_a_template_id_is_checked_as_any_other() -> None:
    refused = judged((from_cel("${ data.e }"),))
    assert isinstance(refused, Refused) and refused.reason_code == "bad_id"


@pytest.mark.parametrize(
    ("template", "told"),
    [
        ("", "1 to 512"),
        ("x" * 513, "1 to 512"),
        ("${ event.id }", "there is no `event` here"),
        ("${ data.id", "not closed"),
        ("${ }", "ends too early"),
    ],
)
def test_a_template_that_can_not_work_is_refused(template: str, told: str) -> None:
    with pytest.raises(SchemeError, match=told):
        from_cel(template)


def test_i12_a_header_that_holds_the_secret_is_no_place_of_an_id() -> None:
    assert hiding(from_header("X-Id"), "X-Token") == from_header("X-Id")
    for name in ("x-TOKEN", "Authorization", "Cookie"):
        with pytest.raises(SchemeError, match="holds a secret"):
            hiding(from_header(name), "X-Token")
    origin = hiding(from_cel("${ header['x-token'] }"), "X-Token")
    assert judged((origin,), [("X-Token", "hidden")]) == Identity(None, "fresh", "demo")
