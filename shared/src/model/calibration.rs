//! How far providers' token counts are from the estimates, by model.

/// The weight of a new count: about the last twenty dominate.
const WEIGHT: f64 = 0.1;

/// Requests with fewer tokens than this say little, since the provider's own overhead dominates.
const TOKENS_MIN: u64 = 200;

/// Bounds of a plausible ratio. A provider whose counts are further off counts something else, such
/// as images.
const RATIO_MIN: f64 = 0.3;
const RATIO_MAX: f64 = 4.0;

/// The factor by which a ratio is multiplied for storage.
const MILLION: f64 = 1_000_000.0;

/// The number of tokens that a provider counts per expected token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Calibration {
    ratio: f64,
    counts: u32,
}

impl Calibration {
    /// No counts yet; `tokens` is the ratio in the model's facts.
    pub fn new(tokens: f64) -> Self {
        Self {
            ratio: tokens.clamp(RATIO_MIN, RATIO_MAX),
            counts: 0,
        }
    }

    /// A stored calibration: millionths of a token counted per expected token, and the number of counts.
    pub fn stored(millionths: i64, counts: u32) -> Self {
        Self {
            counts,
            ..Self::new(millionths as f64 / MILLION)
        }
    }

    /// Records a provider's count for a request of this expected size.
    pub fn observe(&mut self, expected: u64, counted: u64) {
        if expected < TOKENS_MIN {
            return;
        }
        let ratio = counted as f64 / expected as f64;
        let ratio = ratio.clamp(RATIO_MIN, RATIO_MAX);
        // The first counts replace the assumed ratio, later ones adjust it.
        let weight = (1.0 / f64::from(self.counts + 1)).max(WEIGHT);
        self.ratio += (ratio - self.ratio) * weight;
        self.counts = self.counts.saturating_add(1);
    }

    /// Tokens counted per expected token.
    pub fn ratio(&self) -> f64 {
        self.ratio
    }

    /// The number of counts that it is based on.
    pub fn counts(&self) -> u32 {
        self.counts
    }

    /// The stored form of the ratio.
    pub fn millionths(&self) -> i64 {
        (self.ratio * MILLION).round() as i64
    }

    /// Merges what another process has learned. A higher ratio takes effect at once, since an
    /// underestimated request is refused; a lower one moves halfway, since other processes'
    /// requests may still be counted higher. The stores' SQL statements must compute the same.
    #[must_use]
    pub fn joined(self, learned: Self) -> Self {
        let (known, new) = (self.millionths(), learned.millionths());
        let down = (known - new).max(0) / 2;
        Self::stored(known.max(new) - down, self.counts.max(learned.counts))
    }

    /// The expected count. Never less than the estimate itself, since requests so far may have been
    /// of another kind.
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
