"""Patterns of event types, and the index keys that find them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activity_core.domain.event_types import EventTypeError, check_pattern, check_type, matching_patterns


@pytest.mark.parametrize("pattern", ["order.paid", "order", "invoice.*", "shop.**", "*", "**", "a.b-c_d.e/f:g@h+i"])
def test_patterns_that_are_taken(pattern: str) -> None:
    assert check_pattern(pattern) == pattern


@pytest.mark.parametrize("pattern", ["", ".", "order.", "*.paid", "order.*.paid", "ord*", "a..b", "a b", "**.a", "***"])
def test_other_patterns_are_refused(pattern: str) -> None:
    with pytest.raises(EventTypeError):
        check_pattern(pattern)


@pytest.mark.parametrize(
    ("event_type", "matches", "others"),
    [
        ("order.paid", ["order.paid", "order.*", "order.**", "**"], ["*", "order", "order.paid.*", "order.paid.**"]),
        ("order.eu.paid", ["order.eu.*", "order.**", "order.eu.**", "**"], ["order.*", "order.paid"]),
        ("order", ["order", "*", "**"], ["order.*", "order.**"]),
    ],
)
def test_a_type_matches_the_patterns_it_should(event_type: str, matches: list[str], others: list[str]) -> None:
    found = matching_patterns(event_type)
    assert set(matches) <= set(found)
    assert not set(others) & set(found)


segments = st.lists(st.text("abc1", min_size=1, max_size=3), min_size=1, max_size=5)


def reference(pattern: str, event_type: str) -> bool:
    """Segment by segment, the slow way."""
    want, have = pattern.split("."), event_type.split(".")
    if want[-1] == "**":
        return len(have) >= len(want) and have[: len(want) - 1] == want[:-1]
    return len(want) == len(have) and all(w in ("*", h) for w, h in zip(want, have, strict=True))


@given(segments, segments, st.sampled_from(["", "*", "**"]))
def test_index_keys_agree_with_matching_segment_by_segment(one: list[str], other: list[str], wildcard: str) -> None:
    event_type = check_type(".".join(one))
    for base in (one, other, one[:-1]):
        pattern = ".".join([*base, wildcard] if wildcard else base)
        if pattern:
            assert (check_pattern(pattern) in matching_patterns(event_type)) == reference(pattern, event_type)
