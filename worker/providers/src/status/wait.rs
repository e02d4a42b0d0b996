//! How long a refusal asks to wait, where its headers do not say so.

use std::time::Duration;

use mainspring_shared::time::Timestamp;

/// The longest wait that is believed.
const WAIT_MAX: Duration = Duration::from_hours(7 * 24);

/// A limit that is only reset at some time of the day is asked again this often.
pub(super) const DAILY: Duration = Duration::from_mins(15);

/// A wait up to this is one for a limit of a minute.
pub(super) const OF_MINUTE: Duration = Duration::from_mins(1);

/// What comes before a wait in a sentence.
const MARKS: [&str; 11] = [
    "try again in ",
    "try again after ",
    "retry in ",
    "retry after ",
    "retry your request after ",
    "retry the request after ",
    "available in ",
    "reset after ",
    "reset in ",
    "resets in ",
    "please wait ",
];

/// A wait in words, in lower case: `try again in 9m38.016s`, `retry after 20 seconds`.
pub(super) fn in_words(lower: &str) -> Option<Duration> {
    MARKS.iter().find_map(|mark| {
        let (_, rest) = lower.split_once(mark)?;
        span(rest)
    })
}

/// A length of time at the start of a text, in any of the usual forms: `38s`, `9m38.016s`,
/// `1 hour, 2 minutes`, `850ms`. A plain number is none.
pub(super) fn span(text: &str) -> Option<Duration> {
    let mut total = 0.0;
    let mut found = false;
    let mut rest = text.trim_start();
    loop {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let Ok(number) = rest[..digits].trim_end_matches('.').parse::<f64>() else {
            break;
        };
        let behind = rest[digits..].trim_start_matches(' ');
        let letters = behind
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(behind.len());
        let factor = match &behind[..letters] {
            "ms" | "millis" | "milliseconds" => 0.001,
            "s" | "sec" | "secs" | "second" | "seconds" => 1.0,
            "m" | "min" | "mins" | "minute" | "minutes" => 60.0,
            "h" | "hr" | "hrs" | "hour" | "hours" => 3_600.0,
            "d" | "day" | "days" => 86_400.0,
            _ => break,
        };
        total += number * factor;
        found = true;
        let next = behind[letters..].trim_start_matches([' ', ',']);
        rest = next.strip_prefix("and ").unwrap_or(next);
    }
    found.then(|| seconds(total)).flatten()
}

/// A number of seconds.
pub(super) fn seconds(seconds: f64) -> Option<Duration> {
    let wait = Duration::try_from_secs_f64(seconds).ok()?;
    Some(wait.min(WAIT_MAX))
}

/// The time until a moment, in milliseconds or seconds since 1970; smaller numbers are seconds from
/// now.
pub(super) fn until(text: &str, now: Timestamp) -> Option<Duration> {
    let at: f64 = text.trim().parse().ok()?;
    let millis = if at >= 1e11 {
        at
    } else if at >= 1e9 {
        at * 1_000.0
    } else {
        return seconds(at);
    };
    Some(Timestamp(millis as i64).since(now).min(WAIT_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_read_in_all_their_forms() {
        for (text, millis) in [
            ("please try again in 9m38.016s. need more?", Some(578_016)),
            ("please retry in 38.539845511s.", Some(38_539)),
            ("please retry after 45 seconds.", Some(45_000)),
            ("please try again in 850ms", Some(850)),
            (
                "try again in 1 hour, 2 minutes and 3 seconds",
                Some(3_723_000),
            ),
            (
                "request was throttled. expected available in 12 seconds.",
                Some(12_000),
            ),
            ("please try again in 1h2m", Some(3_720_000)),
            ("please try again in a moment", None),
            ("try again in 7", None),
            ("retry after 1e99 seconds", None),
        ] {
            let wait = in_words(text).map(|wait| wait.as_millis());
            assert_eq!(wait, millis, "{text}");
        }
        let now = Timestamp(1_764_000_000_000);
        assert_eq!(until("1764000030000", now), Some(Duration::from_secs(30)));
        assert_eq!(until("1764000030", now), Some(Duration::from_secs(30)));
        assert_eq!(until("30", now), Some(Duration::from_secs(30)));
        assert_eq!(until("soon", now), None);
    }
}
