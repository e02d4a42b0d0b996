//! How far a provider's counts are from the estimates, by model.

/// How much a new count weighs: the last twenty or so decide.
const WEIGHT: f64 = 0.1;

/// Requests shorter than this say little: what a provider adds around them decides.
const TOKENS_MIN: u64 = 200;

/// Bounds of a ratio that can be believed. A provider that counts further off counts something else,
/// such as pictures.
const RATIO_MIN: f64 = 0.3;
const RATIO_MAX: f64 = 4.0;

/// What a ratio is multiplied with where it is stored.
const MILLION: f64 = 1_000_000.0;

/// What providers counted for each token that was expected.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Calibration {
    ratio: f64,
    counts: u32,
}

impl Calibration {
    /// Nothing counted yet; `tokens` is what the model's facts say.
    pub fn new(tokens: f64) -> Self {
        Self {
            ratio: tokens.clamp(RATIO_MIN, RATIO_MAX),
            counts: 0,
        }
    }

    /// What was stored: millionths of a token counted for each one expected, by so many counts.
    pub fn stored(millionths: i64, counts: u32) -> Self {
        Self {
            counts,
            ..Self::new(millionths as f64 / MILLION)
        }
    }

    /// Takes note of what a provider counted for a request of this expected size.
    pub fn observe(&mut self, expected: u64, counted: u64) {
        if expected < TOKENS_MIN {
            return;
        }
        let ratio = counted as f64 / expected as f64;
        let ratio = ratio.clamp(RATIO_MIN, RATIO_MAX);
        // The first counts replace what was assumed, the later ones move it.
        let weight = (1.0 / f64::from(self.counts + 1)).max(WEIGHT);
        self.ratio += (ratio - self.ratio) * weight;
        self.counts = self.counts.saturating_add(1);
    }

    /// Tokens counted for each one expected.
    pub fn ratio(&self) -> f64 {
        self.ratio
    }

    /// How many counts it rests on.
    pub fn counts(&self) -> u32 {
        self.counts
    }

    /// The ratio as it is stored.
    pub fn millionths(&self) -> i64 {
        (self.ratio * MILLION).round() as i64
    }

    /// What is stored once another process has learned this. A higher ratio holds at once, since a request
    /// that was estimated too low is refused; a lower one goes half of the way, as what others ask may
    /// still be counted high. The stores' statements say the same.
    #[must_use]
    pub fn joined(self, learned: Self) -> Self {
        let (known, new) = (self.millionths(), learned.millionths());
        let down = (known - new).max(0) / 2;
        Self::stored(known.max(new) - down, self.counts.max(learned.counts))
    }

    /// What is expected to be counted: never less than the estimate itself, as what was counted so far
    /// may have been of another kind than what comes.
    pub fn of(&self, expected: u64) -> u64 {
        let counted = (expected as f64 * self.ratio).ceil();
        expected.max(counted as u64)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn counts_replace_what_was_assumed() {
        let mut calibration = Calibration::new(1.3);
        assert_eq!(calibration.of(1_000), 1_300);
        calibration.observe(1_000, 1_500);
        assert_eq!(calibration.of(1_000), 1_500);
        for _ in 0..100 {
            calibration.observe(1_000, 1_100);
        }
        assert!((1_100..1_102).contains(&calibration.of(1_000)));
        assert_eq!(calibration.counts(), 101);
    }

    #[test]
    fn one_odd_count_does_not_turn_it() {
        let mut calibration = Calibration::new(1.0);
        for _ in 0..30 {
            calibration.observe(1_000, 1_200);
        }
        calibration.observe(1_000, 1_000_000);
        assert!(calibration.ratio() < 1.5);
        calibration.observe(3, 900);
        assert!(calibration.ratio() < 1.5, "short ones do not count");
    }

    #[test]
    fn what_others_learned_raises_it_at_once_and_lowers_it_by_halves() {
        let known = Calibration::stored(1_200_000, 5);
        let raised = known.joined(Calibration::stored(1_600_001, 3));
        assert_eq!((raised.millionths(), raised.counts()), (1_600_001, 5));
        let lowered = raised.joined(Calibration::stored(1_000_000, 9));
        assert_eq!((lowered.millionths(), lowered.counts()), (1_300_001, 9));
    }

    proptest! {
        #[test]
        fn it_never_promises_less_than_the_estimate(
            counts in proptest::collection::vec((0u64..100_000, 0u64..1_000_000), 0..20),
            expected in 0u64..10_000_000,
        ) {
            let mut calibration = Calibration::new(1.0);
            for (expected, counted) in counts {
                calibration.observe(expected, counted);
            }
            prop_assert!(calibration.of(expected) >= expected);
            prop_assert!((RATIO_MIN..=RATIO_MAX).contains(&calibration.ratio()));
            let stored = Calibration::stored(calibration.millionths(), calibration.counts());
            prop_assert_eq!(stored.millionths(), calibration.millionths());
            prop_assert!(stored.joined(calibration).millionths() == stored.millionths());
        }
    }
}
