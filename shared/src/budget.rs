//! Spending limits: what is allowed, what was spent, what is reserved, and what is left.
//!
//! A send's cap applies to everything that the send causes: its own model calls and the children
//! that it creates. Each child gets a slice of what is left and keeps within it on its own; until
//! the child has reported, its slice counts as spent. The cap of a session's agent applies to all
//! its sends together in the same way. So no cap is exceeded, however many children race, without
//! any shared counter.
//!
//! A call's worst case is the likely token count of its input, with a margin, plus the maximum
//! tokens of its answer. It is compared with what is left before each call, and the answer's limit
//! is lowered to fit. A call that was in flight when its worker died is counted at its worst case
//! by the worker that takes over.

mod price;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use self::price::nano_tokens;
pub use self::price::{LongPrice, Price};
use crate::session::shown::Shown;
use crate::stored::Dropped;
use crate::time::Span;
use crate::usage::Usage;

/// The smallest useful answer limit: a call is not made if fewer tokens are left for its answer.
pub const ANSWER_TOKENS_MIN: u64 = 16;

/// Spending limits, as users write them. Absent members are unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(from = "StoredBudget")]
pub struct Budget {
    /// Tokens, read and written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// US dollars, by the price table of the workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usd: Option<f64>,
    /// Model calls, including those of children.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounds: Option<u32>,
    /// From the start of a send, including waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub wall: Option<Span>,
}

/// A budget as deserialized. Unknown fields of a stored budget are dropped.
#[derive(Deserialize)]
struct StoredBudget {
    tokens: Option<u64>,
    usd: Option<f64>,
    rounds: Option<u32>,
    wall: Option<Span>,
    #[serde(flatten)]
    _dropped: Dropped,
}

impl From<StoredBudget> for Budget {
    fn from(stored: StoredBudget) -> Self {
        Self {
            tokens: stored.tokens,
            usd: stored.usd,
            rounds: stored.rounds,
            wall: stored.wall,
        }
    }
}

impl Budget {
    /// The tighter of both budgets.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        fn tighter<T: PartialOrd>(a: Option<T>, b: Option<T>) -> Option<T> {
            match (a, b) {
                (Some(a), Some(b)) => Some(if b < a { b } else { a }),
                (a, b) => a.or(b),
            }
        }
        Self {
            tokens: tighter(self.tokens, other.tokens),
            usd: tighter(self.usd, other.usd),
            rounds: tighter(self.rounds, other.rounds),
            wall: tighter(self.wall, other.wall),
        }
    }

    /// What is wrong with it: members, each with the reason.
    pub fn faults(&self) -> Vec<(&'static str, &'static str)> {
        let mut faults = Vec::new();
        if self.tokens == Some(0) {
            faults.push(("tokens", "must be at least 1"));
        }
        if self.usd.is_some_and(|usd| !(usd > 0.0 && usd <= 1e9)) {
            faults.push(("usd", "must be more than 0 and at most 1000000000"));
        }
        if self.rounds == Some(0) {
            faults.push(("rounds", "must be at least 1"));
        }
        if self.wall.is_some_and(|wall| wall.0.is_zero()) {
            faults.push(("wall", "must be longer than zero"));
        }
        if *self == Self::default() {
            faults.push(("", "names none of tokens, usd, rounds and wall"));
        }
        faults
    }

    /// What must be reserved so that all of it can be used.
    pub fn slice(&self) -> Spent {
        let caps = self.caps();
        Spent {
            tokens: caps.tokens.unwrap_or(0),
            nano_usd: caps.nano_usd.unwrap_or(0),
            rounds: caps.rounds.unwrap_or(0),
        }
    }

    /// The countable limits.
    pub fn caps(&self) -> Caps {
        Caps {
            tokens: self.tokens,
            nano_usd: self.usd.map(nano_usd),
            rounds: self.rounds.map(u64::from),
        }
    }
}

/// Converts to billionths of a dollar, rounded up: sums of integers are exact.
fn nano_usd(usd: f64) -> u64 {
    (usd.max(0.0) * 1e9).ceil() as u64
}

/// An amount spent or reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Spent {
    /// Tokens, input and output.
    pub tokens: u64,
    /// Billionths of a US dollar.
    pub nano_usd: u64,
    /// Rounds.
    pub rounds: u64,
}

impl Spent {
    /// The amount for this usage.
    pub fn of(usage: &Usage, rounds: u64) -> Self {
        Self {
            tokens: usage.input_tokens.saturating_add(usage.output_tokens),
            nano_usd: usage.cost_usd.map_or(0, nano_usd),
            rounds,
        }
    }

    /// The sum.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.saturating_add(other.tokens),
            nano_usd: self.nano_usd.saturating_add(other.nano_usd),
            rounds: self.rounds.saturating_add(other.rounds),
        }
    }

    /// Whether it is zero.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// The difference, not below zero.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.saturating_sub(other.tokens),
            nano_usd: self.nano_usd.saturating_sub(other.nano_usd),
            rounds: self.rounds.saturating_sub(other.rounds),
        }
    }
}

/// What was used of a slice.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Used {
    /// The usage of model calls, including children's.
    pub usage: Usage,
    /// What else was used: rounds, and slices still held when it ended.
    pub kept: Spent,
}

/// Slices held for children, by the call that created the child.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Held(pub BTreeMap<String, Spent>);

impl Held {
    /// Whether no slices are held.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The sum of all slices.
    pub fn sum(&self) -> Spent {
        self.0.values().copied().fold(Spent::default(), Spent::plus)
    }
}

/// A send's totals, as stored in one column.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Spending {
    /// The usage of its model calls and its finished children.
    #[serde(flatten)]
    pub usage: Usage,
    /// Slices of children that have not reported yet.
    #[serde(default, skip_serializing_if = "Held::is_empty")]
    pub held: Held,
    /// Model calls started in the current round that are included in `usage`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub counted: i32,
    /// Model calls started in the current round that neither failed nor gave a whole answer.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub not_failed: i32,
    /// What its rounds are shown besides the transcript.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown: Option<Shown>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(n: &i32) -> bool {
    *n == 0
}

/// Limits, or what is left of them; absent ones are unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Caps {
    /// Tokens.
    pub tokens: Option<u64>,
    /// Billionths of a US dollar.
    pub nano_usd: Option<u64>,
    /// Rounds.
    pub rounds: Option<u64>,
}

impl Caps {
    /// Whether nothing is limited.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// What is left after spending this.
    #[must_use]
    pub fn less(self, spent: Spent) -> Self {
        Self {
            tokens: self.tokens.map(|cap| cap.saturating_sub(spent.tokens)),
            nano_usd: self.nano_usd.map(|cap| cap.saturating_sub(spent.nano_usd)),
            rounds: self.rounds.map(|cap| cap.saturating_sub(spent.rounds)),
        }
    }

    /// One of `parts` equal parts, but at least `least`, or all if less is left.
    #[must_use]
    pub fn part(self, parts: u64, least: Spent) -> Self {
        let part =
            |cap: Option<u64>, least: u64| cap.map(|cap| (cap / parts.max(1)).max(least.min(cap)));
        Self {
            tokens: part(self.tokens, least.tokens),
            nano_usd: part(self.nano_usd, least.nano_usd),
            rounds: part(self.rounds, least.rounds),
        }
    }

    /// Whether each limit has at least this much left.
    pub fn has(&self, least: Spent) -> bool {
        let has = |cap: Option<u64>, least| cap.is_none_or(|cap| cap >= least);
        has(self.tokens, least.tokens)
            && has(self.nano_usd, least.nano_usd)
            && has(self.rounds, least.rounds)
    }

    /// Converts to a budget.
    pub fn budget(&self) -> Budget {
        Budget {
            tokens: self.tokens,
            usd: self.nano_usd.map(|nano| nano as f64 / 1e9),
            rounds: self
                .rounds
                .map(|rounds| u32::try_from(rounds).unwrap_or(u32::MAX)),
            wall: None,
        }
    }

    /// The tighter of both limits.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let tighter = |a: Option<u64>, b: Option<u64>| [a, b].into_iter().flatten().min();
        Self {
            tokens: tighter(self.tokens, other.tokens),
            nano_usd: tighter(self.nano_usd, other.nano_usd),
            rounds: tighter(self.rounds, other.rounds),
        }
    }

    /// One of `parts` equal shares, as a child's budget and as the amount to reserve for it. `None`
    /// if a share is too small to be useful.
    pub fn share(&self, parts: u64) -> Option<(Budget, Spent)> {
        let part = |cap: Option<u64>| cap.map(|cap| cap / parts.max(1));
        let (tokens, nano_usd, rounds) =
            (part(self.tokens), part(self.nano_usd), part(self.rounds));
        if tokens.is_some_and(|tokens| tokens < ANSWER_TOKENS_MIN)
            || nano_usd == Some(0)
            || rounds == Some(0)
        {
            return None;
        }
        let budget = Budget {
            tokens,
            usd: nano_usd.map(|nano| nano as f64 / 1e9),
            rounds: rounds.map(|rounds| u32::try_from(rounds).unwrap_or(u32::MAX)),
            wall: None,
        };
        let held = Spent {
            tokens: tokens.unwrap_or(0),
            // Reserve exactly what the child computes from its budget.
            nano_usd: budget.usd.map_or(0, crate::budget::nano_usd),
            rounds: rounds.unwrap_or(0),
        };
        Some((budget, held))
    }

    /// How many tokens the answer to a request of `input` tokens may have: `wanted`, or as many as
    /// are left. An error says what is short.
    pub fn answer(&self, input: u64, wanted: u64, price: Option<&Price>) -> Result<u64, Short> {
        if self.rounds == Some(0) {
            return Err(Short::Rounds);
        }
        let mut allowed = wanted;
        if let Some(left) = self.tokens {
            allowed = allowed.min(left.saturating_sub(input));
        }
        let least = ANSWER_TOKENS_MIN.min(wanted);
        if allowed < least {
            return Err(Short::Tokens);
        }
        if let Some(left) = self.nano_usd {
            let price = price.ok_or(Short::Price)?.for_input(input);
            let left = left.saturating_sub(nano_tokens(input, price.dearest_input()));
            let bought = if price.output > 0.0 {
                (left as f64 / (price.output * 1e3)).floor() as u64
            } else {
                allowed
            };
            allowed = allowed.min(bought);
            if allowed < least {
                return Err(Short::Money);
            }
        }
        Ok(allowed)
    }
}

/// Why another model call is not allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Short {
    /// Too few tokens are left.
    #[error("too few tokens are left for another model call")]
    Tokens,
    /// Too little money is left.
    #[error("too little money is left for another model call")]
    Money,
    /// No rounds are left.
    #[error("no rounds are left")]
    Rounds,
    /// The time limit has passed.
    #[error("the time is up")]
    Wall,
    /// The answer was truncated at the remaining tokens.
    #[error("the response was truncated at the remaining token budget")]
    Cut,
    /// Money is limited, and the model's price is unknown.
    #[error("the budget is in dollars, and the price of the model is not known")]
    Price,
}

/// What is said of a model without a price, named as `PROVIDER/MODEL`, whose calls are to be held to
/// a limit in dollars.
pub fn no_price(model: &str) -> String {
    format!(
        "the budget is in dollars, and the price of {model:?} is not known: give it one in \
         [models.\"{model}\"] of the workers' configuration, name another model, or limit tokens"
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn caps(tokens: Option<u64>, usd: Option<f64>, rounds: Option<u32>) -> Caps {
        Budget {
            tokens,
            usd,
            rounds,
            wall: None,
        }
        .caps()
    }

    #[test]
    fn an_answer_gets_what_is_left_or_nothing() {
        let price = Price {
            input: 1.0,
            output: 10.0,
            ..Price::default()
        };
        for (caps, input, expected) in [
            (caps(None, None, None), 1_000, Ok(100)),
            (caps(Some(1_000), None, None), 100, Ok(100)),
            (caps(Some(150), None, None), 100, Ok(50)),
            (caps(Some(110), None, None), 100, Err(Short::Tokens)),
            (caps(Some(90), None, None), 100, Err(Short::Tokens)),
            // 100 tokens in cost 0.0001 $, one out costs 0.00001 $.
            (caps(None, Some(0.0006), None), 100, Ok(50)),
            (caps(None, Some(0.0002), None), 100, Err(Short::Money)),
            (caps(None, None, Some(1)), 100, Ok(100)),
            (caps(None, None, None).less(Spent::default()), 100, Ok(100)),
        ] {
            assert_eq!(caps.answer(input, 100, Some(&price)), expected, "{caps:?}");
        }
        let spent = Spent {
            rounds: 1,
            ..Spent::default()
        };
        let none = caps(None, None, Some(1)).less(spent);
        assert_eq!(none.answer(1, 100, None), Err(Short::Rounds));
        let unknown = caps(None, Some(1.0), None);
        assert_eq!(unknown.answer(1, 100, None), Err(Short::Price));
    }

    #[test]
    fn a_budget_that_limits_nothing_or_everything_is_refused() {
        assert_eq!(Budget::default().faults().len(), 1);
        let nothing = Budget {
            tokens: Some(0),
            usd: Some(f64::NAN),
            rounds: Some(0),
            wall: Some(Span(std::time::Duration::ZERO)),
        };
        let members: Vec<_> = nothing.faults().into_iter().map(|(m, _)| m).collect();
        assert_eq!(members, ["tokens", "usd", "rounds", "wall"]);
    }

    #[test]
    fn a_price_is_read_as_it_is_written() {
        let (model, price) = Price::parse_entry("vendor/gpt-4.1 = 2/8.5/0.5").expect("valid");
        assert_eq!((model.as_str(), price.output), ("vendor/gpt-4.1", 8.5));
        assert_eq!((price.cache_read, price.cache_write), (Some(0.5), None));
        let (_, price) = Price::parse_entry("m=3/15/0.3/3.75").expect("valid");
        assert_eq!(
            (price.cache_read, price.cache_write),
            (Some(0.3), Some(3.75))
        );
        for wrong in [
            "",
            "m",
            "m=1",
            "=1/2",
            "m=1/2/3/4/5",
            "m=a/2",
            "m=-1/2",
            "m=inf/2",
        ] {
            assert_eq!(Price::parse_entry(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_cached_token_costs_what_the_cache_costs() {
        let price = Price {
            input: 2.0,
            output: 8.0,
            cache_read: Some(0.5),
            ..Price::default()
        };
        let usage = Usage {
            input_tokens: 1_000_000,
            cache_read_tokens: 400_000,
            output_tokens: 500_000,
            ..Usage::default()
        };
        assert!((price.of(&usage) - (1.2 + 0.2 + 4.0)).abs() < 1e-9);
        assert!(price.at_most(&usage) >= price.of(&usage));
    }

    proptest! {
        /// Whatever is asked and however it is shared: shares and answers fit into the cap.
        #[test]
        fn shares_and_answers_never_pass_a_cap(
            cap in 0_u64..10_000, input in 0_u64..5_000, wanted in 1_u64..5_000, parts in 1_u64..9,
        ) {
            let caps = caps(Some(cap), Some(cap as f64 / 1e6), Some(cap as u32));
            let price = Price { input: 1.0, output: 3.0, ..Price::default() };
            if let Ok(allowed) = caps.answer(input, wanted, Some(&price)) {
                let worst = Usage {
                    input_tokens: input,
                    output_tokens: allowed,
                    cost_usd: Some(price.of(&Usage {
                        input_tokens: input, output_tokens: allowed, ..Usage::default()
                    })),
                    ..Usage::default()
                };
                let spent = Spent::of(&worst, 1);
                prop_assert!(spent.tokens <= cap);
                // Rounding up costs a nanodollar at most.
                prop_assert!(spent.nano_usd <= caps.nano_usd.expect("set") + 1);
            }
            if let Some((budget, held)) = caps.share(parts) {
                let all = (0..parts).map(|_| held).fold(Spent::default(), Spent::plus);
                prop_assert!(all.tokens <= cap && all.rounds <= cap);
                prop_assert!(all.nano_usd <= caps.nano_usd.expect("set") + parts);
                prop_assert_eq!(budget.caps().tokens, Some(held.tokens));
                prop_assert_eq!(budget.caps().nano_usd, Some(held.nano_usd));
            }
        }
    }
}
