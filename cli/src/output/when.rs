//! Formats points in time as people say them.

use std::time::Duration;

use mainspring_shared::time::Timestamp;
use serde_json::Value;

/// Units from the largest, with the number of units from which each is used: two minutes are `2m`,
/// one is `60s`.
const UNITS: [(&str, u64, u64); 4] = [("d", 86_400, 2), ("h", 3_600, 2), ("m", 60, 2), ("s", 1, 1)];

/// Whether a member with this name is a point in time.
pub(super) fn is_time(name: &str) -> bool {
    name.ends_with("_at") || name.ends_with("_until")
}

/// How far a time is from now: `in 5m`, `3h ago`. `None` if the value is not a time.
pub(super) fn relative(time: &Value, now: Timestamp) -> Option<String> {
    let at = serde_json::from_value::<Timestamp>(time.clone()).ok()?;
    Some(if at > now {
        let left = rough(at.since(now));
        left.map_or_else(|| "now".to_owned(), |left| format!("in {left}"))
    } else {
        let gone = rough(now.since(at));
        gone.map_or_else(|| "now".to_owned(), |gone| format!("{gone} ago"))
    })
}

/// A duration, rounded in the largest unit that is precise enough.
fn rough(length: Duration) -> Option<String> {
    let seconds = (length.as_millis() as u64 + 500) / 1_000;
    let fitting = UNITS
        .into_iter()
        .find(|(_, unit, from)| seconds >= unit * from);
    fitting.map(|(name, unit, _)| format!("{}{name}", (seconds + unit / 2) / unit))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_time_is_said_from_now_on() {
        let now = Timestamp(1_700_000_000_000);
        let said = |ms: i64| relative(&json!(Timestamp(now.0 + ms)), now).expect("a time");
        for (ms, text) in [
            (0, "now"),
            (-400, "now"),
            (499, "now"),
            (-600, "1s ago"),
            (29_900, "in 30s"),
            (-119_000, "119s ago"),
            (-120_000, "2m ago"),
            (299_900, "in 5m"),
            (-3_600_000, "60m ago"),
            (7_200_000, "in 2h"),
            (-36 * 3_600_000, "36h ago"),
            (-72 * 3_600_000, "3d ago"),
            (400 * 86_400_000, "in 400d"),
        ] {
            assert_eq!(said(ms), text, "{ms}");
        }
        for other in [json!("soon"), json!(7), Value::Null] {
            assert_eq!(relative(&other, now), None, "{other}");
        }
    }

    #[test]
    fn times_are_known_by_their_names() {
        assert!(
            ["created_at", "lease_until", "requested_at"]
                .into_iter()
                .all(is_time)
        );
        assert!(!["status", "at_most", "until"].into_iter().any(is_time));
    }
}
