"""Warnings: each expression that means something else than it looks has one, and no common one has any."""

from datetime import UTC, datetime

import pytest
from hypothesis import assume, given, settings

from activity_core.domain import zones
from activity_core.domain.cron import between, parse_cron
from activity_core.domain.cron_lint import clock_warnings, warnings

from .cron_reference import PHASES, Written, expressions

LAST_DAY = "For the last day of each month write `28-31` and a rule on `local.last_day`."
BOTH = "For days that are both, write `*` in one field and a rule on `local.day` or `local.weekday`."
NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)

COMMON = """
* * * * *           | */1 * * * *      | */2 * * * *       | */5 * * * *           | */10 * * * *
*/15 * * * *        | */20 * * * *     | */30 * * * *      | 0,30 * * * *          | 5,20,35,50 * * * *
0 * * * *           | 7 * * * *        | @hourly           | 0 */2 * * *           | 0 */3 * * *
15 */4 * * *        | 0 */6 * * *      | 0 */8 * * *       | 0 */12 * * *          | 0 0,12 * * *
0 0 * * *           | @daily           | 30 2 * * *        | 0 3 * * *             | 59 23 * * *
0 9 * * MON-FRI     | 30 8 * * 1-5     | 0 17 * * FRI      | 0 9,17 * * 1-5        | 0 8-18 * * 1-5
*/15 9-17 * * 1-5   | * 9-17 * * 1-5   | */5 8-20 * * *    | 0 22-23 * * *         | 0 0-6/2 * * *
0 0 * * 0           | @weekly          | 0 0 * * 7         | 0 10 * * SAT,SUN      | 0 10 * * 6,0
0 6 * * MON,WED,FRI | 0 6 * * 1,3,5    | 0 6 * * TUE-SAT   | 0 4 * * 2             | 0 0 * * 1-7
0 0 1 * *           | @monthly         | 0 9 15 * *        | 0 0 1,15 * *          | 0 6 28 * *
0 0 28-31 * *       | 0 0 1-7 * *      | 0 9 25-31 * *     | 0 12 1 */2 *          | 0 0 1 */3 *
0 0 1 1,4,7,10 *    | 0 0 1 */6 *      | 0 0 1 1 *         | @yearly               | 0 0 31 12 *
0 0 31 1,3,5,7,8 *  | 0 0 30 6 *       | 0 9 24-26 12 *    | 0 2 * 6-8 *           | 0 6 * JAN-MAR MON
*/7 9 * * *         | 0 */5 * * MON    | 0 1-23/2 * * *    | 0 0 30 4,6,9,11 *     | 10 4 1-15 * *
"""
SURPRISING = [
    (
        "0 9 25-31 * MON-FRI",
        "Either day field is enough: it is due on days 25 to 31 of the month, and also on Monday to Friday whatever the "
        f"date. {BOTH}",
    ),
    (
        "0 0 13 * 5",
        f"Either day field is enough: it is due on day 13 of the month, and also on Friday whatever the date. {BOTH}",
    ),
    (
        "0 9 1-31 * 1",
        "Either day field is enough, and `1-31` holds every day: it is due every day. "
        "Write `*` for day-of-month to let the other field decide.",
    ),
    (
        "0 9 1 * 0-6",
        "Either day field is enough, and `0-6` holds every day: it is due every day. "
        "Write `*` for day-of-week to let the other field decide.",
    ),
    ("30 6 31 2 1", "February never has day 31: the weekdays alone decide."),
    (
        "0 0 */2 * 1",
        "Both day fields must match, because `*/2` begins with `*`: it is due on days 1, 3, 5 … 31 of the month if it is "
        "Monday.",
    ),
    (
        "0 0 1-7 * */2",
        "Both day fields must match, because `*/2` begins with `*`: it is due on days 1 to 7 of the month if it is "
        "Tuesday, Thursday, Saturday and Sunday.",
    ),
    (
        "*/7 * * * *",
        "`*/7` starts again each hour: 4 minutes after minute 56. "
        "For even spacing use a trigger of type `interval` with `every_seconds: 420`.",
    ),
    ("0-59/7 9-17 * * *", "`0-59/7` starts again each hour: 4 minutes after minute 56."),
    (
        "0 */5 * * *",
        "`*/5` starts again each day: 4 hours after hour 20. "
        "For even spacing use a trigger of type `interval` with `every_seconds: 18000`.",
    ),
    ("30,45 */7 * * 1-5", "`*/7` starts again each day: 3 hours after hour 21."),
    ("0 0 */2 * *", "`*/2` starts again on the 1st of each month, which may be 1 day after the time before."),
    ("0 0 */10 * *", "`*/10` starts again on the 1st of each month, which may be 1 day after the time before."),
    ("0 0 1 */5 *", "`*/5` starts again each year: 2 months after November."),
    ("0 0 * * */2", "`*/2` starts again each week: 1 day after Saturday."),
    ("0 0 31 * *", f"February, April, June, September and November have no day 31: it is left out there. {LAST_DAY}"),
    ("0 0 30 * *", f"February has no day 30: it is left out there. {LAST_DAY}"),
    ("0 0 15,30 * *", f"February has no day 30: it is left out there. {LAST_DAY}"),
    ("0 0 29 * *", f"February has day 29 in leap years only: in others it is left out. {LAST_DAY}"),
    ("0 9 29 2 *", "29 February comes only in leap years: every four years, and not in 2100."),
    ("* 9 * * *", "It is due at every minute of hour 9. For once in the hour write `0 9 * * *`."),
    ("* */2 * * *", "It is due at every minute of each of its hours. For once in the hour write `0 */2 * * *`."),
    ("0 9 * * 2-6", "`2-6` means Tuesday to Saturday, as 0 is Sunday here. For Monday to Friday write `1-5`."),
    ("0 9 * * 1,7", "`1,7` means Monday and Sunday, as 0 is Sunday here. For Saturday and Sunday write `0,6`."),
]


def common() -> list[str]:
    return [text.strip() for line in COMMON.strip().splitlines() for text in line.split("|")]


@pytest.mark.parametrize("text", common())
def test_a_common_expression_has_no_warning(text: str) -> None:
    assert warnings(parse_cron(text)) == []


@pytest.mark.parametrize(("text", "warning"), SURPRISING)
def test_a_surprising_expression_has_one_warning(text: str, warning: str) -> None:
    assert warnings(parse_cron(text)) == [warning]


def test_several_surprises_are_several_warnings() -> None:
    assert warnings(parse_cron("*/7 * 31 * *")) == [
        "`*/7` starts again each hour: 4 minutes after minute 56.",
        f"February, April, June, September and November have no day 31: it is left out there. {LAST_DAY}",
    ]


@settings(max_examples=300, deadline=None, derandomize=True, phases=PHASES)
@given(written=expressions())
def test_warnings_are_short_sentences_and_whether_day_fields_are_alternatives_is_always_said(written: Written) -> None:
    assume(written.possible)
    found = warnings(parse_cron(written.text))
    assert all(w.endswith(".") and len(w) < 400 and w.isprintable() for w in found)
    assert len(set(found)) == len(found)
    assert written.either == any(w.startswith("Either day field") or "weekdays alone" in w for w in found)


@settings(max_examples=150, deadline=None, derandomize=True, phases=PHASES)
@given(written=expressions())
def test_what_a_warning_says_to_write_is_read(written: Written) -> None:
    assume(written.possible)
    for warning in warnings(parse_cron(written.text)):
        for quoted in warning.split("`")[1::2]:
            if len(quoted.split()) == 5:
                assert parse_cron(quoted)


# Clocks


@pytest.mark.parametrize(
    ("text", "zone", "warning"),
    [
        (
            "30 2 * * *",
            "Europe/Berlin",
            "Clocks in Europe/Berlin go forward on 2027-03-28 and skip 02:30: on such a day it is due at 03:00.",
        ),
        (
            "0,30 2 * * *",
            "America/New_York",
            "Clocks in America/New_York go forward on 2027-03-14 and skip 02:00 to 02:30: "
            "on such a day it is due at 03:00, all of them as one time.",
        ),
        (
            "0 0 * * *",
            "Africa/Cairo",
            "Clocks in Africa/Cairo go forward on 2027-04-30 and skip 00:00: on such a day it is due at 01:00.",
        ),
        (
            "15 2 * * *",
            "Australia/Lord_Howe",
            "Clocks in Australia/Lord_Howe go forward on 2026-10-04 and skip 02:15: on such a day it is due at 02:30.",
        ),
    ],
)
def test_a_time_that_the_clock_skips_has_a_warning_that_tells_when_it_is_due(
    text: str, zone: str, warning: str
) -> None:
    cron, tz = parse_cron(text), zones.load(zone)
    assert clock_warnings(cron, tz, NOW) == [warning]
    day, due = warning.split(" on ")[1][:10], warning.split("due at ")[1][:5]
    found = [t.astimezone(tz) for t in between(cron, tz, NOW, NOW.replace(year=2027, month=6))]
    assert f"{day} {due}" in {t.strftime("%Y-%m-%d %H:%M") for t in found}


@pytest.mark.parametrize(
    ("text", "zone"),
    [
        ("0 9 * * *", "Europe/Berlin"),
        ("0 3 * * *", "Europe/Berlin"),
        ("59 1 * * *", "Europe/Berlin"),
        ("30 * * * *", "Europe/Berlin"),
        ("30 */2 * * *", "Europe/Berlin"),
        ("30 2 * * *", "UTC"),
        ("30 2 * * *", "Asia/Kolkata"),
        ("30 2 * * *", "Africa/Casablanca"),
    ],
)
def test_a_time_that_no_clock_skips_has_no_warning(text: str, zone: str) -> None:
    assert clock_warnings(parse_cron(text), zones.load(zone), NOW) == []
