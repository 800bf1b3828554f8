"""The dialect: what is read, what is refused and with which advice, and real bug reports of other schedulers."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from itertools import islice

import pytest

from activity_core.domain import zones
from activity_core.domain.cron import (
    MAX_LENGTH,
    CronError,
    between,
    check_zone,
    describe,
    iterate,
    next_after,
    parse_cron,
    previous_at_or_before,
    previous_before,
)

SECOND = timedelta(seconds=1)
EVERY_DAY = tuple(range(1, 32))


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def due_in(cron: str, zone: str, start: str, end: str) -> list[str]:
    """Due times in [start, end), as text in UTC."""
    found = between(parse_cron(cron), check_zone(zone), at(start) - SECOND, at(end) - SECOND)
    return [t.strftime("%Y-%m-%dT%H:%MZ") for t in found]


def refused(text: str) -> CronError:
    with pytest.raises(CronError) as caught:
        parse_cron(text)
    return caught.value


# Cases from the issue trackers of other schedulers; the reference is repository#issue.

WINDOWS = [
    pytest.param(  # Steve-Mcl/node-red-contrib-cron-plus#108: the repeated hour stayed silent
        "*/30 * * * *",
        "Europe/London",
        "2025-10-26T00:30+01:00",
        "2025-10-26T02:30+00:00",
        ["2025-10-25T23:30Z", *(f"2025-10-26T{t}Z" for t in ("00:00", "00:30", "01:00", "01:30", "02:00"))],
        id="A04 every half hour through the repeated hour",
    ),
    pytest.param(  # pallets-eco/croniter#258: clocks that change by half an hour
        "0 * * * *",
        "Australia/Lord_Howe",
        "2026-10-04T00:00+10:30",
        "2026-10-04T05:00+11:00",
        ["2026-10-03T13:30Z", "2026-10-03T14:30Z", "2026-10-03T16:00Z", "2026-10-03T17:00Z"],
        id="A07 hourly over a half-hour gap keeps minute 0",
    ),
    pytest.param(
        "0 2 * * *",
        "Australia/Lord_Howe",
        "2026-10-03T00:00+10:30",
        "2026-10-06T00:00+11:00",
        ["2026-10-02T15:30Z", "2026-10-03T15:30Z", "2026-10-04T15:00Z"],
        id="A07 daily inside a half-hour gap moves to its end",
    ),
    pytest.param(  # taichino/croniter#55, taichino/croniter#131, getsentry/sentry#71663
        "0 9 29 2 *",
        "UTC",
        "2026-03-01T00:00+00:00",
        "2037-01-01T00:00+00:00",
        ["2028-02-29T09:00Z", "2032-02-29T09:00Z", "2036-02-29T09:00Z"],
        id="A08 leap days",
    ),
    pytest.param(
        "0 9 29 2 *",
        "UTC",
        "2096-03-01T00:00+00:00",
        "2105-01-01T00:00+00:00",
        ["2104-02-29T09:00Z"],
        id="A08 eight years without a leap day",
    ),
    pytest.param(  # pallets-eco/croniter#243, harrisiirak/cron-parser#410
        "30 6 31 2 1",
        "UTC",
        "2026-01-01T00:00+00:00",
        "2027-01-01T00:00+00:00",
        ["2026-02-02T06:30Z", "2026-02-09T06:30Z", "2026-02-16T06:30Z", "2026-02-23T06:30Z"],
        id="A10 an impossible date beside a weekday",
    ),
    pytest.param(  # inngest/inngest#2631
        "0 0 13 * 5",
        "UTC",
        "2026-02-01T00:00+00:00",
        "2026-03-01T00:00+00:00",
        ["2026-02-06T00:00Z", "2026-02-13T00:00Z", "2026-02-20T00:00Z", "2026-02-27T00:00Z"],
        id="A11 either day field",
    ),
    pytest.param(  # pallets-eco/croniter#41, QwenLM/qwen-code#7452
        "0 0 */2 * 1",
        "UTC",
        "2025-01-01T00:00+00:00",
        "2025-02-01T00:00+00:00",
        ["2025-01-13T00:00Z", "2025-01-27T00:00Z"],
        id="A12 both day fields when one begins with a star",
    ),
    pytest.param(  # PrefectHQ/prefect#3340: EST is five hours behind in summer too
        "0 9 * * 1",
        "EST",
        "2026-07-01T00:00-05:00",
        "2026-07-14T00:00-05:00",
        ["2026-07-06T14:00Z", "2026-07-13T14:00Z"],
        id="A18 a zone without summer time",
    ),
    pytest.param(
        "0 9 * * 1",
        "America/New_York",
        "2026-07-01T00:00-04:00",
        "2026-07-14T00:00-04:00",
        ["2026-07-06T13:00Z", "2026-07-13T13:00Z"],
        id="A18 the place in summer",
    ),
    pytest.param(  # moment/luxon#1497, stub42/pytz#97, apache/cloudberry#1674: stale zone data says 14:00Z
        "0 9 * * *",
        "America/Mexico_City",
        "2023-06-30T00:00-06:00",
        "2023-07-03T00:00-06:00",
        ["2023-06-30T15:00Z", "2023-07-01T15:00Z", "2023-07-02T15:00Z"],
        id="A19 Mexico has no summer time since 2022",
    ),
    pytest.param(  # celery/django-celery-beat#537
        "0 * * * *",
        "UTC",
        "2026-01-01T00:55+00:00",
        "2026-01-01T01:58+00:00",
        ["2026-01-01T01:00Z"],
        id="B05 one time in the outage",
    ),
    pytest.param(  # quartznet/quartznet#1109, quartz-scheduler/quartz#239, agronholm/apscheduler#296
        "* * * * *",
        "UTC",
        "2026-01-01T10:01:30+00:00",
        "2026-01-01T10:05:21+00:00",
        [f"2026-01-01T10:0{m}Z" for m in (2, 3, 4, 5)],
        id="B06 four times in the outage",
    ),
]


@pytest.mark.parametrize(("cron", "zone", "start", "end", "expected"), WINDOWS)
def test_case_window(cron: str, zone: str, start: str, end: str, expected: list[str]) -> None:
    assert due_in(cron, zone, start, end) == expected


def test_case_b02_a_pause_over_one_time_leaves_the_next_a_week_later() -> None:
    # apache/airflow#57488, apache/airflow#39867, apache/airflow#38168
    cron, moscow = parse_cron("45 20 * * 5"), check_zone("Europe/Moscow")
    paused, resumed = at("2025-02-21T14:00:00Z"), at("2025-02-24T09:00:00Z")
    assert between(cron, moscow, paused, resumed) == [at("2025-02-21T17:45:00Z")]
    assert next_after(cron, moscow, resumed) == at("2025-02-28T17:45:00Z")


def test_case_b04_a_new_expression_is_first_due_after_the_edit() -> None:
    # kubernetes/kubernetes#63371, kubernetes/kubernetes#130838, kubernetes/kubernetes#65457
    edited = at("2026-05-04T12:00:00Z")
    assert next_after(parse_cron("0 5 * * *"), check_zone("UTC"), edited) == at("2026-05-05T05:00:00Z")
    assert due_in("0 5 * * *", "UTC", "2026-05-04T12:00+00:00", "2026-05-05T05:00+00:00") == []


def test_case_b08_the_last_time_before_a_restart_is_found_in_the_zone_of_the_schedule() -> None:
    # argoproj/argo-workflows#2328, argoproj/argo-workflows#13786; Etc/GMT-1 is UTC+01:00
    cron, zone, restarted = parse_cron("35 5 * * *"), check_zone("Etc/GMT-1"), at("2020-02-28T05:39:00Z")
    assert previous_at_or_before(cron, zone, restarted) == at("2020-02-28T04:35:00Z")
    assert next_after(cron, zone, restarted) == at("2020-02-29T04:35:00Z")


# What is read


def test_fields_are_values_with_sunday_as_zero() -> None:
    cron = parse_cron("*/20 1-5/2,22 1,15 JAN,jun-AUG MON-FRI,7")
    assert cron.minutes == (0, 20, 40)
    assert cron.hours == (1, 3, 5, 22)
    assert cron.days_of_month == (1, 15)
    assert cron.months == (1, 6, 7, 8)
    assert cron.days_of_week == (0, 1, 2, 3, 4, 5)
    assert cron.either_day
    assert not cron.wildcard_hour


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("7", (0,)),
        ("SUN", (0,)),
        ("0-7", (0, 1, 2, 3, 4, 5, 6)),
        ("1-7", (0, 1, 2, 3, 4, 5, 6)),  # Temporal loses Sunday
        ("5-7", (0, 5, 6)),
        ("7-7", (0,)),  # croniter: every day
        ("3-7/2", (0, 3, 5)),
        ("*/2", (0, 2, 4, 6)),
        ("sat,Sun", (0, 6)),
        ("*", (0, 1, 2, 3, 4, 5, 6)),
    ],
)
def test_days_of_week(text: str, values: tuple[int, ...]) -> None:
    assert parse_cron(f"0 9 * * {text}").days_of_week == values


@pytest.mark.parametrize(("text", "minutes"), [("10-10", (10,)), ("10-10/2", (10,)), ("05", (5,)), ("10-20/15", (10,))])
def test_a_range_of_one_is_that_one(text: str, minutes: tuple[int, ...]) -> None:
    assert parse_cron(f"{text} * * * *").minutes == minutes


@pytest.mark.parametrize(
    ("dates", "weekdays", "either"),
    [
        ("*", "*", False),
        ("13", "*", False),
        ("*", "5", False),
        ("13", "5", True),
        ("*/2", "1", False),
        ("13", "*/2", False),
        ("1-31", "5", True),  # restricted as written, if not in effect
        ("13", "0-6", True),
    ],
)
def test_day_fields_are_alternatives_only_if_neither_begins_with_a_star(
    dates: str, weekdays: str, either: bool
) -> None:
    assert parse_cron(f"0 0 {dates} * {weekdays}").either_day is either


@pytest.mark.parametrize(
    ("hour", "wildcard"), [("*", True), ("*/2", True), ("*/1", True), ("0-23", False), ("9", False)]
)
def test_a_job_follows_elapsed_time_only_if_its_hour_begins_with_a_star(hour: str, wildcard: bool) -> None:
    assert parse_cron(f"0 {hour} * * *").wildcard_hour is wildcard


@pytest.mark.parametrize(
    ("macro", "fields"),
    [
        ("@hourly", "0 * * * *"),
        ("@daily", "0 0 * * *"),
        ("@weekly", "0 0 * * 0"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 1 *"),
    ],
)
def test_macros_are_their_fields(macro: str, fields: str) -> None:
    assert parse_cron(macro) == parse_cron(fields)
    assert parse_cron(macro).expression == fields


def test_blanks_around_and_between_the_fields_do_not_matter() -> None:
    assert parse_cron("  0\t9  * * MON \n") == parse_cron("0 9 * * 1")
    assert parse_cron(" 0   9 * * MON").expression == "0 9 * * MON"


def test_every_value_written_out_is_read() -> None:
    fields = [range(60), range(24), range(1, 32), range(1, 13), range(7)]
    text = " ".join(",".join(map(str, values)) for values in fields)
    assert len(text) < MAX_LENGTH
    assert parse_cron(text).days_of_month == EVERY_DAY


# What is refused

FIVE = "cron takes five fields (minute hour day-of-month month day-of-week)"
MACROS = "@hourly, @daily, @weekly, @monthly, @yearly"
REFUSALS = [
    # Six and seven fields: taichino/croniter#122, taichino/croniter#176 (A15)
    ("0 0 12 * * ?", f"{FIVE}, this has 6; leave out the seconds; write `0 12 * * *`"),
    ("0 0 12 * * *", f"{FIVE}, this has 6; leave out the seconds; write `0 12 * * *`"),
    ("0 6 2 2 * 2018", f"{FIVE}, this has 6; for a year use the bounds `start_at` and `end_at`; write `0 6 2 2 *`"),
    ("0 0 12 ? * 2-6", f"{FIVE}, this has 6; leave out the seconds; write `0 12 * * 1-5`"),  # Quartz: 1 is Sunday
    ("0 0 12 ? * MON 2030", f"{FIVE}, this has 7; leave out the seconds and the year; write `0 12 * * MON`"),
    ("*/10 * * * * *", f"{FIVE}, this has 6; for seconds use a trigger of type `interval` with `every_seconds: 10`"),
    ("* * * * * *", f"{FIVE}, this has 6; for seconds use a trigger of type `interval` with `every_seconds: 1`"),
    ("0 9 * * * /bin/true", f"{FIVE}, this has 6; a command does not belong here; write `0 9 * * *`"),
    ("0 9 * * 1 run it now", f"{FIVE}, this has 8; a command does not belong here; write `0 9 * * 1`"),
    ("* * * * * * * *", f"{FIVE}, this has 8"),
    ("0 9 * *", f"{FIVE}, this has 4; write `*` for each that is missing, for example `0 9 * * *`"),
    ("", f"cron is empty; write {FIVE[11:]}, for example `0 9 * * MON-FRI`"),
    (" \n", f"cron is empty; write {FIVE[11:]}, for example `0 9 * * MON-FRI`"),
    ("0 9 * * *\n0 8 * * *", "cron has more than one line; write one activity for each expression"),
    # Characters
    (
        "０ ９ * * *",
        "cron holds U+FF10 (FULLWIDTH DIGIT ZERO) at position 1; only plain ASCII is read; write `0 9 * * *`",
    ),
    ("0\u00a09 * * *", "cron holds U+00A0 (NO-BREAK SPACE) at position 2; only plain ASCII is read; write `0 9 * * *`"),
    (
        "0 9 * * *\u200b",
        "cron holds U+200B (ZERO WIDTH SPACE) at position 10; only plain ASCII is read; write `0 9 * * *`",
    ),
    ("0 9–17 * * *", "cron holds U+2013 (EN DASH) at position 4; only plain ASCII is read; write `0 9-17 * * *`"),
    (
        "０ 0 12 * * ？",
        "cron holds U+FF10 (FULLWIDTH DIGIT ZERO) at position 1; only plain ASCII is read; write `0 12 * * *`",
    ),
    ("0 9 * * \x00", "cron holds U+0000 (not a printable character) at position 9; only plain ASCII is read"),
    ("\ud800 9 * * *", "cron holds U+D800 (not a printable character) at position 1; only plain ASCII is read"),
    # Zones and macros
    (
        "CRON_TZ=Asia/Tokyo 0 9 * * *",
        "cron can't carry a time zone; set `timezone: Asia/Tokyo` beside it; write `0 9 * * *`",
    ),
    ("TZ=UTC 0 9 * * ?", "cron can't carry a time zone; set `timezone: UTC` beside it; write `0 9 * * *`"),
    ("@reboot", "cron `@reboot` names no time; use a trigger of type `once`, `event` or `manual`"),
    ("@every 1h30m", "cron has no `@every`; use a trigger of type `interval` with `every_seconds: 5400`"),
    ("@every soon", "cron has no `@every`; use a trigger of type `interval`"),
    ("@midnight", f"cron `@midnight` is not one of {MACROS}; write `@daily`"),
    ("@annually", f"cron `@annually` is not one of {MACROS}; write `@yearly`"),
    ("@Daily", f"cron `@Daily` is not one of {MACROS}; write `@daily`"),
    ("@montly", f"cron `@montly` is not one of {MACROS}; write `@monthly`"),
    ("@noon", f"cron `@noon` is not one of {MACROS}"),
    # Words of other dialects
    ("0 12 ? * MON", "day-of-month: `?` is not used here; write `0 12 * * MON`"),
    ("0 12 ? * ?", "day-of-month: `?` is not used here; write `0 12 * * *`"),
    (
        "0 9 L * *",
        "day-of-month: `L` is not in this dialect; write `1` (the day after), or `28-31` and a rule that keeps the last",
    ),
    (
        "0 9 15W * *",
        "day-of-month: `15W` is not in this dialect; write `15`, or several days and a rule that keeps one",
    ),
    (
        "0 9 LW * *",
        "day-of-month: `LW` is not in this dialect; write `28-31`, or several days and a rule that keeps one",
    ),
    ("0 9 * * 5L", "day-of-week: `5L` is not in this dialect; write `5` and a rule that keeps the last of the month"),
    (
        "0 9 * * 1#2",
        "day-of-week: `1#2` is not in this dialect; write `1` and a rule that keeps the second of the month",
    ),
    ("H/15 * * * *", "minute: `H/15` asks for a random value; write the number you want"),
    ("0 9 * * Monday", "day-of-week: `Monday` is too long a name; write `0 9 * * MON`"),
    ("0 9 * * Mon-Thurs", "day-of-week: `Mon-Thurs` is too long a name; write `0 9 * * Mon-THU`"),
    ("0 9 1 Sept *", "month: `Sept` is too long a name; write `0 9 1 SEP *`"),
    ("0 9 MON * *", "day-of-month: `MON` belongs to the field day-of-week"),
    ("0 9 * * JAN", "day-of-week: `JAN` belongs to the field month"),
    # Ranges and steps
    ("0 22-6 * * *", "hour: `22-6` ends before it starts; write `0 22-23,0-6 * * *`"),
    ("0 22-6/2 * * *", "hour: `22-6` ends before it starts; write `0 0,2,4,6,22 * * *`"),
    ("0 23-0 * * *", "hour: `23-0` ends before it starts; write `0 23,0 * * *`"),
    ("0 0 20-10 * *", "day-of-month: `20-10` ends before it starts; write `0 0 20-31,1-10 * *`"),
    ("0 0 * * FRI-MON", "day-of-week: `FRI-MON` ends before it starts; write `0 0 * * FRI-SAT,SUN-MON`"),
    ("0 0 * * FRI-SUN", "day-of-week: `FRI-SUN` ends before it starts; write `0 0 * * FRI-SAT,SUN`"),
    ("0 0 * * 7-2", "day-of-week: `7-2` ends before it starts; write `0 0 * * 0-2`"),
    ("0 0 1 NOV-FEB *", "month: `NOV-FEB` ends before it starts; write `0 0 1 NOV-DEC,JAN-FEB *`"),
    ("5/15 * * * *", "minute: `5/15` has a step without a range; write `5-59/15 * * * *`"),
    ("0 0 * * MON/2", "day-of-week: `MON/2` has a step without a range; write `0 0 * * MON-6/2`"),
    ("*/0 * * * *", "minute: `*/0` has a step of 0; write `* * * * *`"),
    ("*/90 * * * *", "minute: the step of `*/90` is longer than the field, which leaves 0 alone; write `0 * * * *`"),
    ("0 */24 * * *", "hour: the step of `*/24` is longer than the field, which leaves 0 alone; write `0 0 * * *`"),
    (
        "0 0 */31 * *",
        "day-of-month: the step of `*/31` is longer than the field, which leaves 1 alone; write `0 0 1 * *`",
    ),
    ("1,,2 * * * *", "minute: has an empty item; remove the extra comma; write `1,2 * * * *`"),
    ("1/2,50-10 */30 ? * *", "minute: `1/2` has a step without a range; write `1-59/2,50-59,0-10 0 * * *`"),
    (", * * * *", "minute: has an empty item; remove the extra comma"),
    # Values: F04 (g0di/fastapi-problem-details#5, nbramia/LifeOS#1036)
    ("61 * * * *", "minute: `61` is out of range; minute runs from 0 to 59"),
    ("0 24 * * *", "hour: `24` is out of range; hour runs from 0 to 23, midnight is 0"),
    ("* * 0 * *", "day-of-month: `0` is out of range; day-of-month runs from 1 to 31"),
    ("0 0 1 13 *", "month: `13` is out of range; month runs from 1 to 12"),
    (
        "* * * * 8",
        "day-of-week: `8` is out of range; day-of-week runs from 0 to 7, both 0 and 7 are Sunday, or SUN to SAT",
    ),
    ("50-70 * * * *", "minute: `50-70` is out of range; minute runs from 0 to 59"),
    ("+5 * * * *", "minute: `+5` is not a value, a range `a-b`, `*` or `*/n`"),
    ("-5 * * * *", "minute: `-5` is not a value, a range `a-b`, `*` or `*/n`"),
    ("1.5 * * * *", "minute: `1.5` is not a value, a range `a-b`, `*` or `*/n`"),
    # Dates that never come: pallets-eco/croniter#141, dagster-io/dagster#26238 (A09)
    (
        "0 0 31 2 *",
        "day-of-month can never match, February has no day 31; the last that always comes is 28; write `0 0 28 2 *`",
    ),
    (
        "0 0 30 2 *",
        "day-of-month can never match, February has no day 30; the last that always comes is 28; write `0 0 28 2 *`",
    ),
    ("0 0 31 4,6,9,11 *", None),
    ("0 0 30-31 2 */2", None),
]


@pytest.mark.parametrize(("text", "message"), [(text, message) for text, message in REFUSALS if message])
def test_refusal_says_what_to_write_instead(text: str, message: str) -> None:
    assert str(refused(text)) == message


@pytest.mark.parametrize("text", [text for text, _ in REFUSALS])
def test_what_a_refusal_proposes_is_read(text: str) -> None:
    proposal = refused(text).instead
    assert proposal is None or parse_cron(proposal)


@pytest.mark.parametrize(
    ("text", "field"),
    [("61 * * * *", "minute"), ("0 0 31 2 *", "day-of-month"), ("0 0 * * 9", "day-of-week"), ("@noon", None)],
)
def test_a_refusal_names_the_field(text: str, field: str | None) -> None:
    assert refused(text).field == field


def test_impossible_dates_are_refused_with_the_last_day_that_comes() -> None:
    assert refused("0 0 31 4,6,9,11 *").instead == "0 0 30 4,6,9,11 *"
    assert refused("0 0 30-31 2 */2").instead == "0 0 28 2 */2"  # a star makes it AND: no weekday saves it
    assert "days 30 to 31" in str(refused("0 0 30-31 2 *"))


def test_text_that_is_too_long_is_refused_unread() -> None:
    assert str(refused("0," * 300 + "0 * * * *")) == f"cron has 609 characters; at most {MAX_LENGTH} are read"


def test_a_refusal_can_be_stored_and_sent_whatever_was_typed() -> None:
    for text in ("\ud800 * * * *", "\x00", "\u202e0 9 * * *", "0 9 * * \x1b[31m"):
        assert str(refused(text)).encode("utf-8").isascii()


# Zones


@pytest.mark.parametrize(
    "name", ["Europe/Berlin", "UTC", "EST", "Etc/GMT-2", "America/Argentina/Buenos_Aires", "Asia/Calcutta"]
)
def test_iana_names_are_zones(name: str) -> None:
    assert check_zone(name).key == name


def test_every_listed_zone_loads() -> None:
    assert len(zones.names()) > 500
    assert all(zones.load(name).key == name for name in zones.names())


@pytest.mark.parametrize(
    ("name", "message"),
    [  # A18 names PST, CEST, UTC+2, Europe/Berln and the empty text
        ("PST", "`PST` is not a known time zone; write `America/Los_Angeles`"),
        ("CEST", "`CEST` is not a known time zone; write `Europe/Berlin`"),
        (
            "UTC+2",
            "`UTC+2` is an offset, not a time zone; write the name of a place, such as `Europe/Berlin`, "
            "or `Etc/GMT-2` for that offset (its sign is inverted)",
        ),
        (
            "+05:30",
            "`+05:30` is an offset, not a time zone; write the IANA name of a place that has it, such as `Asia/Kolkata`",
        ),
        ("UTC+0", "`UTC+0` is an offset, not a time zone; write `UTC`"),
        ("Europe/Berln", "`Europe/Berln` is not a known time zone; write `Europe/Berlin` or `Europe/Dublin`"),
        ("", "a time zone is required; write an IANA name such as `Europe/Berlin`, or `UTC`"),
        (" ", "a time zone is required; write an IANA name such as `Europe/Berlin`, or `UTC`"),
        ("europe/berlin", "`europe/berlin` is not a known time zone; write `Europe/Berlin`"),
        ("utc", "`utc` is not a known time zone; write `UTC`"),
        ("Z", "`Z` is not a known time zone; write `UTC`"),
        ("New York", "`New York` is not a known time zone; write `America/New_York`"),
        ("Local", "`Local` means another zone on every machine; write an IANA name such as `Europe/Berlin`, or `UTC`"),
        (
            "CET-1CEST,M3.5.0,M10.5.0/3",
            "`CET-1CEST,M3.5.0,M10.5.0/3` looks like a POSIX rule, not a name; write an IANA name such as `America/New_York`",
        ),
        ("Mars/Base", "`Mars/Base` is not a known time zone; write an IANA name such as `Europe/Berlin`, or `UTC`"),
        (
            "../../etc/passwd",
            "`../../etc/passwd` is not a known time zone; write an IANA name such as `Europe/Berlin`, or `UTC`",
        ),
        ("Factory", "`Factory` is not a known time zone; write an IANA name such as `Europe/Berlin`, or `UTC`"),
        ("\ud800\x00", "`\\ud800\\x00` is not a known time zone; write an IANA name such as `Europe/Berlin`, or `UTC`"),
    ],
)
def test_unknown_zones_are_refused_with_the_nearest_name(name: str, message: str) -> None:
    with pytest.raises(CronError) as caught:
        check_zone(name)
    assert str(caught.value) == message
    assert caught.value.field == "timezone"


# Words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("* * * * *", "every minute"),
        ("*/15 * * * *", "every 15 minutes"),
        ("*/45 * * * *", "at minutes 0 and 45 of every hour"),
        ("@hourly", "at minute 0 of every hour"),
        ("0 */2 * * *", "at minute 0 of every 2nd hour"),
        ("@daily", "at 00:00 every day"),
        ("0 9,17 * * MON-FRI", "at 09:00 and 17:00 on Monday to Friday"),
        ("*/15 9-17 * * 1-5", "every 15 minutes from 09:00 to 17:45 on Monday to Friday"),
        ("*/15 9,17 * * *", "every 15 minutes of hours 9 and 17"),
        ("25-31 * * * MON-FRI", "at minutes 25 to 31 of every hour on Monday to Friday"),
        ("0 0 * * 0,6", "at 00:00 on Saturday and Sunday"),
        ("@monthly", "at 00:00 on day 1 of the month"),
        ("@yearly", "at 00:00 in January on day 1"),
        ("0 0 13 * 5", "at 00:00 on day 13 of the month or on Friday"),
        ("0 0 */2 * 1", "at 00:00 on days 1, 3, 5 … 31 of the month if it is Monday"),
        ("30 6 31 2 1", "at 06:30 in February on day 31 or on Monday"),
        ("0 9 1-31 * 1", "at 09:00 every day"),
    ],
)
def test_description(text: str, words: str) -> None:
    assert describe(parse_cron(text)) == words


# Bounded work, and the edges of the calendar


def test_r4_instants_are_utc_with_whole_seconds_whatever_goes_in() -> None:
    asked = datetime(2026, 3, 1, 9, 59, 59, 999_999, tzinfo=timezone(timedelta(hours=1)))
    due = next_after(parse_cron("0 9 * * *"), check_zone("UTC"), asked)
    assert due is not None
    assert due.isoformat() == "2026-03-01T09:00:00+00:00"
    assert due.tzinfo is UTC


def test_a_fraction_of_a_second_is_before_or_after_and_never_lost() -> None:
    cron, utc, nine = parse_cron("0 9 * * *"), check_zone("UTC"), at("2026-03-01T09:00:00Z")
    tick = timedelta(microseconds=1)
    assert next_after(cron, utc, nine - tick) == nine == previous_before(cron, utc, nine + tick)
    assert next_after(cron, utc, nine) == nine + timedelta(days=1) == next_after(cron, utc, nine + tick)
    assert previous_before(cron, utc, nine) == nine - timedelta(days=1) == previous_at_or_before(cron, utc, nine - tick)
    assert between(cron, utc, nine - tick, nine) == [nine] == between(cron, utc, nine - SECOND, nine + tick)
    assert between(cron, utc, nine, nine) == between(cron, utc, nine, nine - SECOND) == []


def test_a_naive_instant_is_an_error() -> None:
    with pytest.raises(TypeError):
        next_after(parse_cron("* * * * *"), check_zone("UTC"), datetime(2026, 1, 1))  # noqa: DTZ001


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_a_year_of_minutes_is_a_matter_of_a_second(zone: str) -> None:
    started = time.process_time()
    due = between(parse_cron("* * * * *"), check_zone(zone), at("2026-01-01T00:00Z"), at("2027-01-01T00:00Z"))
    assert len(due) == 525_600
    assert time.process_time() - started < 3


def test_an_endless_window_is_made_only_as_far_as_it_is_read() -> None:
    started = time.process_time()
    minutes = iterate(
        parse_cron("* * * * *"), check_zone("Europe/Berlin"), at("2026-01-01T00:00Z"), at("9999-12-31T23:59Z")
    )
    assert len(list(islice(minutes, 1_000))) == 1_000
    assert time.process_time() - started < 1


@pytest.mark.parametrize("weekdays", ["*/6", "*/5", "*/4", "*/3", "*/2"])
def test_the_rarest_dates_are_found_from_any_year(weekdays: str) -> None:
    cron, cairo = parse_cron(f"0 0 29 2 {weekdays}"), check_zone("Africa/Cairo")
    for year in range(1970, 2400):
        start = datetime(year, 3, 1, tzinfo=UTC)
        due = next_after(cron, cairo, start)
        assert due is not None
        local = due.astimezone(cairo)
        assert (local.month, local.day, local.isoweekday() % 7 in cron.days_of_week) == (2, 29, True)
        assert previous_before(cron, cairo, due + SECOND) == due
        assert between(cron, cairo, start, due) == [due]


@pytest.mark.parametrize(
    ("cron", "zone", "due"),
    [
        ("0 1 1 1 */6", "Asia/Kolkata", "2027-12-31T19:30:00Z"),  # 1 January 2028, a Saturday; that of 2027 is a Friday
        ("0 23 31 12 */6", "America/New_York", "2029-01-01T04:00:00Z"),  # a Sunday; 31 December 2029 is a Monday
    ],
)
def test_a_rare_date_is_found_where_utc_is_in_another_year(cron: str, zone: str, due: str) -> None:
    rare, tz, half_a_year = parse_cron(cron), check_zone(zone), timedelta(days=183)
    assert next_after(rare, tz, at(due) - half_a_year) == at(due) == previous_before(rare, tz, at(due) + half_a_year)
    assert between(rare, tz, at(due) - half_a_year, at(due) + half_a_year) == [at(due)]


def test_the_calendar_ends_without_an_error() -> None:
    cron, utc = parse_cron("0 0 29 2 *"), check_zone("UTC")
    assert next_after(cron, utc, datetime(9999, 12, 31, tzinfo=UTC)) is None
    assert next_after(cron, utc, datetime(9897, 1, 1, tzinfo=UTC)) is None
    assert previous_before(cron, utc, datetime(9999, 12, 31, tzinfo=UTC)) == at("9896-02-29T00:00Z")
    assert next_after(cron, utc, datetime(1, 1, 1, tzinfo=UTC)) == at("1972-02-29T00:00Z")
    assert previous_before(cron, utc, at("1972-02-29T00:00Z")) is None
    assert previous_before(cron, utc, datetime(1, 1, 1, tzinfo=UTC)) is None


@pytest.mark.parametrize("search", [next_after, previous_before])
def test_one_search_is_cheap(search: Callable[..., datetime | None]) -> None:
    zone, start = check_zone("Europe/Berlin"), at("2026-07-03T12:07:09Z")
    crons = [parse_cron(t) for t in ("* * * * *", "0 9 * * MON-FRI", "0 0 1 1 *", "0 9 29 2 *")]
    started = time.process_time()
    for minute in range(500):
        for cron in crons:
            assert search(cron, zone, start + timedelta(minutes=minute))
    assert (time.process_time() - started) / 2_000 < 0.000_5  # some 10 µs each; the bound allows a slow machine
