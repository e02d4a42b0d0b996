//! How tokens and money are counted: simply, and the same for everybody who counts.

use serde_json::Value;

use crate::rules::Price;

/// What one answer took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tokens {
    /// The whole prompt, what came from a cache included.
    pub prompt: u64,
    pub cached: u64,
    pub written: u64,
    /// The whole answer, thinking included.
    pub output: u64,
    pub thinking: u64,
}

/// A picture counts as so many tokens, whatever its size.
const PICTURE: u64 = 1_000;

/// Tokens of a text: one for each four characters, the last ones rounded up.
pub fn text(text: &str) -> u64 {
    (text.chars().count() as u64).div_ceil(4)
}

/// Tokens of a value: those of its JSON, with data in place counted as a picture.
pub fn value(value: &Value) -> u64 {
    match value {
        Value::String(data) if data.starts_with("data:") || data.len() > 200_000 => PICTURE,
        Value::String(words) => text(words) + 1,
        Value::Array(list) => 1 + list.iter().map(self::value).sum::<u64>(),
        Value::Object(object) if object.get("type") == Some(&"base64".into()) => PICTURE,
        Value::Object(object) => object
            .iter()
            .filter(|(name, _)| *name != "cache_control")
            .map(|(name, value)| text(name) + self::value(value))
            .sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 1,
    }
}

/// Millionths of a millionth of a dollar: prices for a million tokens come out whole.
pub fn money(tokens: Tokens, price: Price) -> u128 {
    let pico = |count: u64, dollars: f64| u128::from(count) * (dollars * 1e6).round() as u128;
    let fresh = tokens.prompt.saturating_sub(tokens.cached + tokens.written);
    pico(fresh, price.input)
        + pico(tokens.cached, price.read.unwrap_or(price.input))
        + pico(tokens.written, price.write.unwrap_or(price.input))
        + pico(tokens.output, price.output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_exact_for_prices_with_four_decimals() {
        let tokens = Tokens {
            prompt: 1_000,
            cached: 600,
            written: 300,
            output: 10,
            thinking: 4,
        };
        let price = Price {
            input: 0.14,
            read: Some(0.0028),
            write: None,
            output: 0.28,
        };
        assert_eq!(
            money(tokens, price),
            400 * 140_000 + 600 * 2_800 + 10 * 280_000
        );
    }
}
