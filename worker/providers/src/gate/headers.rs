//! Parses the rate limits in the headers of providers' responses.

use std::time::Duration;

use mainspring_shared::time::Timestamp;
use reqwest::header::HeaderMap;

use super::rate::{Window, Windows};

/// The limits in the headers. Of several token limits the one on input counts, since only input is
/// known before a call.
pub(super) fn windows(headers: &HeaderMap, now: Timestamp) -> Windows {
    let openai = |what: &str| {
        let of = |part: &str| format!("x-ratelimit-{part}-{what}");
        window(headers, &of, span)
    };
    let anthropic = |what: &str| {
        let of = |part: &str| format!("anthropic-ratelimit-{what}-{part}");
        window(headers, &of, |text| until(text, now))
    };
    Windows {
        requests: openai("requests").or_else(|| anthropic("requests")),
        tokens: openai("tokens")
            .or_else(|| anthropic("input-tokens"))
            .or_else(|| anthropic("tokens")),
    }
}

fn window(
    headers: &HeaderMap,
    name: &dyn Fn(&str) -> String,
    reset: impl Fn(&str) -> Option<Duration>,
) -> Option<Window> {
    let text = |part: &str| headers.get(name(part))?.to_str().ok().map(str::trim);
    let count = |part: &str| text(part)?.parse().ok().filter(|count: &f64| *count >= 0.0);
    Some(Window {
        limit: count("limit").filter(|limit| *limit > 0.0),
        remaining: count("remaining")?,
        reset: reset(text("reset")?)?,
    })
}

/// A duration like `6m0s`, `1.5s` or `120ms`; a plain number is in seconds.
fn span(text: &str) -> Option<Duration> {
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let mut total = 0.0;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, behind) = rest.split_at(digits);
        let unit = behind
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(unit);
        let factor = match unit {
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3_600.0,
            "d" => 86_400.0,
            _ => return None,
        };
        total += number.parse::<f64>().ok()? * factor;
        rest = behind;
    }
    Duration::try_from_secs_f64(total).ok()
}

/// The time until an RFC 3339 timestamp.
fn until(text: &str, now: Timestamp) -> Option<Duration> {
    let at: jiff::Timestamp = text.parse().ok()?;
    Some(Timestamp(at.as_millisecond()).since(now))
}

#[cfg(test)]
mod tests {
    use reqwest::header::{HeaderName, HeaderValue};

    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pairs = pairs.iter().map(|(name, value)| {
            let name = HeaderName::from_static(name);
            (name, HeaderValue::from_static(value))
        });
        pairs.collect()
    }

    #[test]
    fn both_vendors_headers_are_read() {
        let openai = headers(&[
            ("x-ratelimit-limit-requests", "60"),
            ("x-ratelimit-remaining-requests", "59"),
            ("x-ratelimit-reset-requests", "1s"),
            ("x-ratelimit-limit-tokens", "150000"),
            ("x-ratelimit-remaining-tokens", "149984"),
            ("x-ratelimit-reset-tokens", "6m0s"),
        ]);
        let read = windows(&openai, Timestamp(0));
        let requests = read.requests.expect("they are stated");
        assert_eq!((requests.limit, requests.remaining), (Some(60.0), 59.0));
        assert_eq!(requests.reset, Duration::from_secs(1));
        let tokens = read.tokens.expect("they are stated");
        assert_eq!(tokens.reset, Duration::from_mins(6));
        let anthropic = headers(&[
            ("anthropic-ratelimit-requests-remaining", "0"),
            ("anthropic-ratelimit-requests-reset", "1970-01-01T00:00:30Z"),
            ("anthropic-ratelimit-tokens-remaining", "7"),
            ("anthropic-ratelimit-tokens-reset", "1970-01-01T00:00:30Z"),
            ("anthropic-ratelimit-input-tokens-remaining", "5"),
            (
                "anthropic-ratelimit-input-tokens-reset",
                "1970-01-01T00:01:00Z",
            ),
        ]);
        let read = windows(&anthropic, Timestamp(10_000));
        let requests = read.requests.expect("they are stated");
        assert_eq!(requests.reset, Duration::from_secs(20));
        assert_eq!(read.tokens.map(|tokens| tokens.remaining), Some(5.0));
    }

    #[test]
    fn what_is_no_limit_is_none() {
        for reset in ["", "soon", "5 minutes", "s", "-1"] {
            assert_eq!(span(reset).filter(|_| !reset.is_empty()), None, "{reset}");
        }
        assert_eq!(span("120ms"), Some(Duration::from_millis(120)));
        assert_eq!(span("1m30.5s"), Some(Duration::from_millis(90_500)));
        assert!(windows(&HeaderMap::new(), Timestamp(0)).is_empty());
    }
}
