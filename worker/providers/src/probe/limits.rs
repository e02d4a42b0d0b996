//! Parses the limits that a provider names when it refuses a request that is too large.

/// The limits named in a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Limits {
    /// Maximum tokens of a request and its answer together.
    pub(super) window: Option<u64>,
    /// Maximum tokens of an answer.
    pub(super) output_max: Option<u64>,
}

/// Smaller numbers are not limits but codes, versions or prices.
const LEAST: u64 = 512;

/// Parses a refusal. It may repeat the refused number `asked`; anything larger is the sum of that
/// and the request.
pub(super) fn read(message: &str, asked: u64) -> Limits {
    let text = message.to_ascii_lowercase();
    let limit = numbers(&text).filter(|n| (LEAST..asked).contains(n)).max();
    if text.contains("context") {
        return Limits {
            window: limit,
            output_max: None,
        };
    }
    let of_output = ["output", "completion", "max_tokens", "max tokens"];
    Limits {
        window: None,
        output_max: limit.filter(|_| of_output.iter().any(|word| text.contains(word))),
    }
}

/// The integers in a text, with or without thousands separators.
fn numbers(text: &str) -> impl Iterator<Item = u64> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || ",_".contains(c)));
    words.filter_map(|word| {
        let digits: String = word.chars().filter(|c| !",_".contains(*c)).collect();
        digits.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_providers_say_of_their_limits_is_read() {
        let output = |max| Limits {
            output_max: Some(max),
            ..Limits::default()
        };
        let window = |max| Limits {
            window: Some(max),
            ..Limits::default()
        };
        for (message, limits) in [
            (
                "max_tokens is too large: 900000000. This model supports at most 16384 completion \
                 tokens, whereas you provided 900000000.",
                output(16_384),
            ),
            (
                "max_tokens: 900000000 > 64000, which is the maximum allowed number of output tokens \
                 for claude-sonnet-4-5",
                output(64_000),
            ),
            (
                "This model's maximum context length is 32768 tokens. However, you requested \
                 900000016 tokens (16 in the messages, 900000000 in the completion).",
                window(32_768),
            ),
            (
                "the context window of 8,192 tokens is too small",
                window(8_192),
            ),
            ("error 404: try again", Limits::default()),
            ("must be less than 4096", Limits::default()),
        ] {
            assert_eq!(read(message, 900_000_000), limits, "{message}");
        }
    }
}
