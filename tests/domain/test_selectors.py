"""Selectors: what each condition asks for, what is refused with which advice, and that spelling does not matter."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activity_core.domain.reading import read_activity
from activity_core.domain.selectors import (
    MAX_CONDITIONS,
    MAX_SELECTOR_CHARACTERS,
    Op,
    Requirement,
    Selector,
    SelectorError,
    parse_selector,
)
from activity_core.errors import InvalidInputError

OPS: tuple[Op, ...] = ("=", "!=", "exists", "absent")

keys = st.sampled_from(["team", "env", "tier", "0", "a.b/c_d-e"]) | st.from_regex(
    r"[a-z0-9][a-z0-9._/-]{0,62}", fullmatch=True
)
values = st.sampled_from(["ops", "dev", ""]) | st.from_regex(r"[A-Za-z0-9._-]{0,63}", fullmatch=True)
requirements = st.builds(
    lambda key, op, value: Requirement(key, op, value if op in ("=", "!=") else ""), keys, st.sampled_from(OPS), values
)
conditions = st.lists(requirements, min_size=1, max_size=6)
labels = st.dictionaries(keys, values, max_size=6)


def asks(requirement: Requirement, given_labels: dict[str, str]) -> bool:
    """Said once more, by the set of labels with that key and value."""
    with_key = {value for key, value in given_labels.items() if key == requirement.key}
    return {
        "=": with_key == {requirement.value},
        "!=": requirement.value not in with_key,
        "exists": bool(with_key),
        "absent": not with_key,
    }[requirement.op]


@pytest.mark.parametrize(
    ("text", "matching", "other"),
    [
        ("team=ops", [{"team": "ops"}, {"team": "ops", "env": "dev"}], [{}, {"team": "dev"}, {"team": "OPS"}]),
        ("team==ops", [{"team": "ops"}], [{}, {"team": "dev"}]),
        ("env!=dev", [{}, {"env": "prod"}, {"env": ""}], [{"env": "dev"}]),
        ("tier", [{"tier": ""}, {"tier": "1"}], [{}, {"tiers": "1"}]),
        ("!legacy", [{}, {"tier": "1"}], [{"legacy": ""}, {"legacy": "no"}]),
        ("team=", [{"team": ""}], [{}, {"team": "ops"}]),
        ("team!=", [{}, {"team": "ops"}], [{"team": ""}]),
        (
            "team=ops,env!=dev,tier,!legacy",
            [{"team": "ops", "tier": "1"}, {"team": "ops", "tier": "", "env": "prod"}],
            [{"team": "ops"}, {"team": "ops", "tier": "1", "env": "dev"}, {"team": "ops", "tier": "1", "legacy": ""}],
        ),
        ("team=a,team=b", [], [{}, {"team": "a"}, {"team": "b"}]),
        ("team!=a,team!=b", [{}, {"team": "c"}], [{"team": "a"}, {"team": "b"}]),
    ],
)
def test_all_conditions_must_hold(text: str, matching: list[dict[str, str]], other: list[dict[str, str]]) -> None:
    selector = parse_selector(text)
    assert all(selector.matches(given_labels) for given_labels in matching)
    assert not any(selector.matches(given_labels) for given_labels in other)


def test_spaces_order_repeats_and_double_equals_do_not_matter() -> None:
    canonical = parse_selector("!legacy,env!=dev,team=ops,tier")
    assert canonical.text == "env!=dev,!legacy,team=ops,tier"
    for parts in permutations([" team == ops ", "env != dev", "tier", "! legacy", "team=ops"]):
        assert parse_selector(",".join(parts)) == canonical


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("", "write at least one condition"),
        (" \t", "write at least one condition"),
        ("team=ops,", "missing beside a comma"),
        (",", "missing beside a comma"),
        ("team in (ops, dev)", "write 'key=value', or 'key!=value' for each value"),
        ("team notin(ops)", "write 'key=value', or 'key!=value' for each value"),
        ("=ops", "is no condition; write 'key=value'"),
        ("team=ops=dev", "is no condition"),
        ("!team=ops", "is no condition"),
        ("!", "is no condition"),
        ("!!team", "is no condition"),
        ("team ops", "is no condition"),
        ("team=ops dev", "is no condition"),
        ("team>1", "'team>1' is no label key"),
        ("Team=ops", "'Team' is no label key; it begins with a-z or 0-9"),
        ("-team", "is no label key"),
        ("k" * 64, "63 characters at most"),
        ("team=é", "'é' is no value of a label"),
        ("team=" + "v" * 64, "63 characters at most"),
        ("team='ops'", "is no value of a label"),
        ("team=ops\n,\x00", "is no label key"),
        (",".join(f"k{n}" for n in range(MAX_CONDITIONS + 1)), "50 conditions at most"),
        ("k," * MAX_SELECTOR_CHARACTERS, "8,000 characters at most"),
    ],
)
def test_what_is_no_selector_is_refused_with_what_to_write(text: str, advice: str) -> None:
    with pytest.raises(SelectorError) as refusal:
        parse_selector(text)
    assert advice in str(refusal.value)
    assert len(str(refusal.value)) < 300


@given(conditions)
def test_canonical_text_reads_as_the_same_selector(given_conditions: list[Requirement]) -> None:
    selector = parse_selector(" , ".join(requirement.text for requirement in given_conditions))
    assert set(selector.requirements) == set(given_conditions)
    assert selector.requirements == tuple(sorted(set(given_conditions)))
    assert parse_selector(selector.text) == selector
    assert parse_selector(selector.text).text == selector.text


@given(conditions, labels)
def test_a_selector_is_the_conjunction_of_its_conditions(
    given_conditions: list[Requirement], given_labels: dict[str, str]
) -> None:
    selector = parse_selector(",".join(requirement.text for requirement in given_conditions))
    assert selector.matches(given_labels) == all(asks(requirement, given_labels) for requirement in given_conditions)
    alone = [Selector((requirement,)).matches(given_labels) for requirement in given_conditions]
    assert selector.matches(given_labels) == all(alone)


@given(keys, values, labels)
def test_each_condition_has_its_opposite(key: str, value: str, given_labels: dict[str, str]) -> None:
    assert parse_selector(f"{key}={value}").matches(given_labels) != parse_selector(f"{key}!={value}").matches(
        given_labels
    )
    assert parse_selector(key).matches(given_labels) != parse_selector(f"!{key}").matches(given_labels)


@given(st.text(max_size=40))
def test_any_text_is_a_selector_or_is_refused_as_one(text: str) -> None:
    try:
        selector = parse_selector(text)
    except SelectorError as error:
        assert str(error)
    else:
        assert parse_selector(selector.text) == selector


def is_label(key: str, value: str) -> bool:
    try:
        read_activity({"slug": "labelled", "trigger": {"type": "manual"}, "labels": {key: value}})
    except InvalidInputError:
        return False
    return True


@given(keys | st.text(alphabet="aZ0._/-é!", max_size=66), values | st.text(alphabet="aZ0._/-é", max_size=66))
def test_what_a_document_may_have_as_label_a_selector_can_ask_for_and_nothing_else(key: str, value: str) -> None:
    try:
        (requirement,) = parse_selector(f"{key}={value}").requirements
    except SelectorError:
        assert not is_label(key, value)
    else:
        assert requirement == Requirement(key, "=", value)
        assert is_label(key, value)
