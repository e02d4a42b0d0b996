//! What providers counted for what was expected, by model, in this process.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use mainspring_shared::model::{Calibration, ModelFacts};

/// Models that are kept; more than a process asks in practice.
const MODELS_MAX: usize = 1_000;

/// The calibrations of all models that this process has asked. They begin anew with each process: a few
/// answers are enough to have them again.
#[derive(Debug, Default)]
pub struct Calibrations {
    by_model: Mutex<BTreeMap<(String, String), Calibration>>,
}

impl Calibrations {
    /// Takes note of what a provider counted for a request of this expected size.
    pub fn observe(&self, model: (&str, &str), facts: &ModelFacts, expected: u64, counted: u64) {
        let mut all = self.lock();
        let key = (model.0.to_owned(), model.1.to_owned());
        if all.len() >= MODELS_MAX && !all.contains_key(&key) {
            return;
        }
        let calibration = all.entry(key);
        let calibration = calibration.or_insert_with(|| Calibration::new(facts.tokens));
        calibration.observe(expected, counted);
    }

    /// The calibration of a provider's model.
    pub fn of(&self, model: (&str, &str), facts: &ModelFacts) -> Calibration {
        let key = (model.0.to_owned(), model.1.to_owned());
        let known = self.lock().get(&key).copied();
        known.unwrap_or_else(|| Calibration::new(facts.tokens))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<(String, String), Calibration>> {
        self.by_model.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
