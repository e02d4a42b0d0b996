use proptest::prelude::*;

use super::*;

fn time(text: &str) -> Timestamp {
    serde_json::from_value(serde_json::Value::from(text)).expect(text)
}

fn cron(expression: &str, timezone: &str) -> Schedule {
    Schedule::Cron {
        expression: expression.to_owned(),
        timezone: timezone.to_owned(),
    }
}

fn following(schedule: &Schedule, from: &str, count: usize) -> Vec<String> {
    let course = schedule.course(time(from)).expect("can be followed");
    let mut at = course.first();
    let mut found = Vec::new();
    while let Some(due) = at.filter(|_| found.len() < count) {
        found.push(due.to_string().replace(".000Z", "Z"));
        at = course.next(due);
    }
    found
}

/// An expression, its time zone, the starting time, and the first three instants. In Berlin the
/// hour from two is skipped on 2026-03-29 and repeated on 2026-10-25.
#[rustfmt::skip]
const CALENDARS: &[(&str, &str, &str, [&str; 3])] = &[
    // A fixed time in the gap: the first instant after the gap, on that day only.
    ("30 2 * * *", "Europe/Berlin", "2026-03-28T00:00:00Z",
     ["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]),
    // A fixed time that occurs twice: only the earlier one.
    ("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z",
     ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z", "2026-10-27T01:30:00Z"]),
    // Steps over the minutes of a fixed hour in the gap: none on that day.
    ("*/30 2 * * *", "Europe/Berlin", "2026-03-28T01:15:00Z",
     ["2026-03-28T01:30:00Z", "2026-03-30T00:00:00Z", "2026-03-30T00:30:00Z"]),
    // Every half hour continues across the gap without a hole in real time.
    ("*/30 * * * *", "Europe/Berlin", "2026-03-29T00:15:00Z",
     ["2026-03-29T00:30:00Z", "2026-03-29T01:00:00Z", "2026-03-29T01:30:00Z"]),
    // A repeated hour runs twice if the expression has a step.
    ("*/30 2 * * *", "Europe/Berlin", "2026-10-25T00:15:00Z",
     ["2026-10-25T00:30:00Z", "2026-10-25T01:00:00Z", "2026-10-25T01:30:00Z"]),
    // A daily job at another hour keeps its wall-clock time: 23 and 25 hours apart.
    ("0 9 * * *", "Europe/Berlin", "2026-03-28T00:00:00Z",
     ["2026-03-28T08:00:00Z", "2026-03-29T07:00:00Z", "2026-03-30T07:00:00Z"]),
    ("0 9 * * *", "Europe/Berlin", "2026-10-24T00:00:00Z",
     ["2026-10-24T07:00:00Z", "2026-10-25T08:00:00Z", "2026-10-26T08:00:00Z"]),
    // New York, a half-hour shift in the southern hemisphere, and a zone without shifts.
    ("30 2 * * *", "America/New_York", "2026-03-08T00:00:00Z",
     ["2026-03-08T07:00:00Z", "2026-03-09T06:30:00Z", "2026-03-10T06:30:00Z"]),
    ("15 2 * * *", "Australia/Lord_Howe", "2026-10-02T20:00:00Z",
     ["2026-10-03T15:30:00Z", "2026-10-04T15:15:00Z", "2026-10-05T15:15:00Z"]),
    ("30 2 * * *", "UTC", "2026-03-28T12:00:00Z",
     ["2026-03-29T02:30:00Z", "2026-03-30T02:30:00Z", "2026-03-31T02:30:00Z"]),
    // With seconds, the last day of a month, a leap day, and working days.
    ("15 0 0 L * *", "UTC", "2026-01-15T00:00:00Z",
     ["2026-01-31T00:00:15Z", "2026-02-28T00:00:15Z", "2026-03-31T00:00:15Z"]),
    ("0 0 29 2 *", "UTC", "2026-01-01T00:00:00Z",
     ["2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z", "2036-02-29T00:00:00Z"]),
    ("0 8 * * MON-FRI", "UTC", "2026-11-20T09:00:00Z",
     ["2026-11-23T08:00:00Z", "2026-11-24T08:00:00Z", "2026-11-25T08:00:00Z"]),
];

#[test]
fn what_a_calendar_means_where_clocks_change() {
    for (expression, timezone, from, expected) in CALENDARS {
        let schedule = cron(expression, timezone);
        assert_eq!(
            following(&schedule, from, 3),
            expected,
            "{expression} in {timezone}"
        );
    }
}

#[test]
fn once_is_once() {
    let at = Schedule::At(time("2026-11-22T06:00:00Z"));
    for from in ["2026-11-22T05:00:00Z", "2026-11-22T07:00:00Z"] {
        assert_eq!(following(&at, from, 3), ["2026-11-22T06:00:00Z"]);
    }
    let after = Schedule::After(Span(Duration::from_secs(90)));
    assert_eq!(
        following(&after, "2026-11-22T06:00:00Z", 3),
        ["2026-11-22T06:01:30Z"]
    );
    assert!(!at.is_recurring() && !after.is_recurring());
}

#[test]
fn a_fixed_rate_begins_where_it_is_told_to() {
    let every = Span(Duration::from_mins(10));
    let from = "2026-11-22T06:00:00Z";
    for (first, expected) in [
        (None, ["2026-11-22T06:10:00Z", "2026-11-22T06:20:00Z"]),
        (
            Some(First::After(Span(Duration::from_secs(5)))),
            ["2026-11-22T06:00:05Z", "2026-11-22T06:10:05Z"],
        ),
        (
            Some(First::At(time("2026-11-22T05:59:00Z"))),
            ["2026-11-22T05:59:00Z", "2026-11-22T06:09:00Z"],
        ),
    ] {
        let schedule = Schedule::Every { every, first };
        assert_eq!(following(&schedule, from, 2), expected);
    }
}

#[test]
fn what_cannot_be_followed_says_why() {
    let now = Timestamp(0);
    let every = |ms| Schedule::Every {
        every: Span(Duration::from_millis(ms)),
        first: None,
    };
    assert_eq!(every(999).course(now).err(), Some(ScheduleFault::TooOften));
    assert!(every(1_000).course(now).is_ok());
    assert_eq!(
        cron("0 0 * * *", "Mars/Base").course(now).err(),
        Some(ScheduleFault::Timezone { near: None })
    );
    for (name, near) in [
        ("Berlin", "Europe/Berlin"),
        ("Europe/Berln", "Europe/Berlin"),
        ("new york", "America/New_York"),
    ] {
        let fault = cron("0 0 * * *", name).course(now).expect_err(name);
        let told = format!("is not a known time zone; did you mean {near}?");
        assert_eq!(fault.to_string(), told);
    }
    for (expression, told) in [
        ("61 * * * *", "the minute \"61\" is not 0 to 59"),
        ("* * * * mond", "the day of the week \"mond\" is not 0 to 7"),
        (
            "0 0 12 40 * *",
            "the day of the month \"40\" is not 1 to 31",
        ),
        ("* * * *", "it has 4 fields; there are five"),
    ] {
        let fault = cron(expression, "UTC")
            .course(now)
            .expect_err(expression)
            .to_string();
        assert!(fault.contains(told), "{fault}");
    }
    for expression in ["", "61 * * * *", "* * * *", "@reboot", "a b c d e"] {
        let fault = cron(expression, "UTC").course(now).err();
        assert!(
            matches!(fault, Some(ScheduleFault::Expression { .. })),
            "{expression}"
        );
    }
    // A year in the past, and an instant beyond the end of time.
    let course = cron("0 0 0 1 1 * 1971", "UTC").course(time("2026-01-01T00:00:00Z"));
    assert_eq!(course.expect("parses").first(), None);
    let last = Schedule::After(Span(Duration::from_hours(24 * 365 * 9_000)));
    assert_eq!(last.course(now).expect("is one").first(), None);
}

/// What has no day, by every way to say so.
const NEVER: &[&str] = &[
    "0 0 31 2 *",
    "0 0 30 2 *",
    "0 0 31 4,6,9,11 *",
    "0 0 0 31 2 * 2027-4999",
    "0 0 0 29 2 * 2101",
    "0 0 0 29 2 * 2027,2029,2031",
    "0 0 0 29 2 * 2101-4999/2",
    // The last working day is no Sunday, and the last day not in the first week.
    "0 0 LW * +SUN",
    "0 0 L * +MON#1",
    "0 0 15W * +SAT",
    "0 0 1 * +TUE#2",
];

#[test]
fn what_is_never_due_is_refused_before_anything_is_searched_for() {
    let now = time("2026-11-22T06:00:00Z");
    for expression in NEVER {
        let fault = cron(expression, "Europe/Berlin").course(now).err();
        assert_eq!(fault, Some(ScheduleFault::Never), "{expression}");
    }
    // Seldom is not never.
    for (expression, first) in [
        ("0 0 29 2 +MON", "2044-02-29T00:00:00Z"),
        ("0 0 0 29 2 * 2096-2104", "2096-02-29T00:00:00Z"),
        ("0 0 0 1 1 * 4999", "4999-01-01T00:00:00Z"),
        ("0 0 31 * +MON#5", "2027-05-31T00:00:00Z"),
        ("0 0 L 2 +SUN", "2027-02-28T00:00:00Z"),
    ] {
        let found = following(&cron(expression, "UTC"), "2026-11-22T06:00:00Z", 1);
        assert_eq!(found, [first], "{expression}");
    }
}

#[test]
fn the_latest_instant_is_one_of_the_schedule() {
    let daily = cron("30 2 * * *", "Europe/Berlin");
    let course = daily.course(time("2026-03-01T00:00:00Z")).expect("parses");
    for (upto, expected) in [
        ("2026-03-29T00:59:59Z", "2026-03-28T01:30:00Z"),
        ("2026-03-29T01:00:00.001Z", "2026-03-29T01:00:00Z"),
        ("2026-03-30T00:29:59.999Z", "2026-03-29T01:00:00Z"),
        ("2026-03-30T00:30:00Z", "2026-03-30T00:30:00Z"),
    ] {
        assert_eq!(course.latest(time(upto)), Some(time(expected)), "{upto}");
    }
    // Nothing was due before the timer was created.
    assert_eq!(course.latest(time("2026-03-01T01:29:00Z")), None);
}

fn schedules() -> impl Strategy<Value = Schedule> {
    let expressions = prop::sample::select(vec![
        "* * * * *",
        "*/7 * * * * *",
        "30 2 * * *",
        "*/20 1-3 * * *",
        "0 0 1 * *",
        "0 0 L * SUN",
    ]);
    let zones = prop::sample::select(vec![
        "UTC",
        "Europe/Berlin",
        "America/New_York",
        "Australia/Lord_Howe",
        "Asia/Kathmandu",
    ]);
    prop_oneof![
        (0i64..4_000_000_000_000).prop_map(|ms| Schedule::At(Timestamp(ms))),
        (1_000u64..100_000_000).prop_map(|ms| Schedule::Every {
            every: Span(Duration::from_millis(ms)),
            first: None,
        }),
        (expressions, zones).prop_map(|(expression, zone)| cron(expression, zone)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn instants_follow_each_other(
        schedule in schedules(), made in 1_700_000_000_000i64..1_900_000_000_000,
        later in 0i64..100_000_000,
    ) {
        let course = schedule.course(Timestamp(made)).expect("can be followed");
        let after = Timestamp(made + later);
        if let Some(next) = course.next(after) {
            prop_assert!(next > after);
            // There is nothing in between, and searching backwards finds the same instants.
            prop_assert_eq!(course.latest(next), Some(next));
            let before = course.latest(Timestamp(next.0 - 1));
            prop_assert!(before.is_none_or(|before| before <= after));
            if let Some(before) = before {
                prop_assert_eq!(course.next(before), Some(next));
            }
        }
    }

    #[test]
    fn a_schedule_is_read_as_it_was_written(schedule in schedules()) {
        let text = serde_json::to_string(&schedule).expect("serializes");
        let back: Schedule = serde_json::from_str(&text).expect("parses");
        prop_assert_eq!(back, schedule);
    }
}

#[test]
fn days_that_no_month_has_are_refused_without_a_search() {
    let course = |expression| cron(expression, "UTC").course(time("2026-01-01T00:00:00Z"));
    for never in [
        "0 0 30 2 *",
        "0 0 0 30 2 *",
        "0 0 31 2,4,6,9,11 *",
        "* * 31 4 *",
        "0 0 30-31 2 *",
    ] {
        assert_eq!(course(never).err(), Some(ScheduleFault::Never), "{never}");
    }
    for due in ["0 0 29 2 *", "0 0 31 2,3 *", "0 0 L 2 *", "0 0 30 2 MON"] {
        assert!(
            course(due).is_ok_and(|course| course.first().is_some()),
            "{due}"
        );
    }
}
