//! Calibrations of token estimates by what providers counted, per model.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use mainspring_shared::model::{Calibration, ModelFacts};
use mainspring_shared::store::{CALIBRATION_NAME_MAX, CalibrationRecord};

/// How many models are kept; more than a process asks in practice.
pub(crate) const MODELS_MAX: usize = 1_000;

/// A model's calibration.
#[derive(Debug)]
struct Known {
    calibration: Calibration,
    /// Whether it changed since it was stored.
    changed: bool,
    /// What was expected and counted for the request for which this process has seen the most counted.
    most: Option<(u64, u64)>,
}

/// The calibrations of all models: from counts in this process, and from what others stored.
#[derive(Debug, Default)]
pub struct Calibrations {
    by_model: Mutex<BTreeMap<(String, String), Known>>,
}

impl Calibrations {
    /// Records what a provider counted for a request of this expected size.
    pub fn observe(&self, model: (&str, &str), facts: &ModelFacts, expected: u64, counted: u64) {
        let mut all = self.lock();
        let key = (model.0.to_owned(), model.1.to_owned());
        if all.len() >= MODELS_MAX && !all.contains_key(&key) {
            return;
        }
        let known = all.entry(key).or_insert_with(|| Known {
            calibration: Calibration::new(facts.tokens),
            changed: false,
            most: None,
        });
        let before = known.calibration;
        known.calibration.observe(expected, counted);
        known.changed |= known.calibration != before;
        let is_more =
            |(smaller, most): (u64, u64)| counted > most || (counted == most && expected < smaller);
        if known.most.is_none_or(is_more) {
            known.most = Some((expected, counted));
        }
    }

    /// What was expected and counted for the request for which this process has seen the most counted.
    pub(crate) fn most(&self, model: (&str, &str)) -> Option<(u64, u64)> {
        let key = (model.0.to_owned(), model.1.to_owned());
        self.lock().get(&key)?.most
    }

    /// The calibration of a provider's model.
    pub fn of(&self, model: (&str, &str), facts: &ModelFacts) -> Calibration {
        let key = (model.0.to_owned(), model.1.to_owned());
        let known = self.lock().get(&key).map(|known| known.calibration);
        known.unwrap_or_else(|| Calibration::new(facts.tokens))
    }

    /// The calibrations that changed since they were last stored.
    pub(crate) fn changed(&self) -> Vec<CalibrationRecord> {
        let all = self.lock();
        let changed = all.iter().filter(|(key, known)| {
            known.changed && key.0.len().max(key.1.len()) <= CALIBRATION_NAME_MAX
        });
        let records = changed.map(|((provider, model), known)| CalibrationRecord {
            provider: provider.clone(),
            model: model.clone(),
            calibration: known.calibration,
        });
        records.collect()
    }

    /// Marks these as stored. Those that changed meanwhile are stored the next time.
    pub(crate) fn stored(&self, records: Vec<CalibrationRecord>) {
        let mut all = self.lock();
        for record in records {
            let known = all.get_mut(&(record.provider, record.model));
            if let Some(known) = known.filter(|known| known.calibration == record.calibration) {
                known.changed = false;
            }
        }
    }

    /// Merges stored calibrations. A local one with unstored changes is only replaced by a higher
    /// one.
    pub(crate) fn learn(&self, records: Vec<CalibrationRecord>) {
        let mut all = self.lock();
        for record in records {
            let stored = record.calibration;
            let key = (record.provider, record.model);
            if let Some(known) = all.get_mut(&key) {
                if !known.changed || stored.ratio() > known.calibration.ratio() {
                    known.calibration = stored;
                }
            } else if all.len() < MODELS_MAX {
                let known = Known {
                    calibration: stored,
                    changed: false,
                    most: None,
                };
                all.insert(key, known);
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<(String, String), Known>> {
        self.by_model.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODEL: (&str, &str) = ("p", "m");

    fn of(calibrations: &Calibrations) -> i64 {
        let facts = ModelFacts::unknown();
        calibrations.of(MODEL, &facts).millionths()
    }

    fn observed(counted: u64) -> Calibrations {
        let calibrations = Calibrations::default();
        calibrations.observe(MODEL, &ModelFacts::unknown(), 1_000, counted);
        calibrations
    }

    fn stored(millionths: i64) -> Vec<CalibrationRecord> {
        vec![CalibrationRecord {
            provider: MODEL.0.to_owned(),
            model: MODEL.1.to_owned(),
            calibration: Calibration::stored(millionths, 7),
        }]
    }

    #[test]
    fn what_changed_is_told_until_it_is_stored() {
        let calibrations = observed(1_500);
        let changed = calibrations.changed();
        assert_eq!(changed.len(), 1);
        assert_eq!(changed[0].calibration.millionths(), 1_500_000);
        assert_eq!(calibrations.changed(), changed);
        calibrations.observe(MODEL, &ModelFacts::unknown(), 1_000, 1_700);
        calibrations.stored(changed);
        let changed = calibrations.changed();
        assert_eq!(changed.len(), 1, "it was counted meanwhile");
        calibrations.stored(changed);
        assert_eq!(calibrations.changed(), []);
    }

    #[test]
    fn what_is_stored_replaces_what_was_known_unless_that_was_counted_meanwhile_and_is_higher() {
        let calibrations = Calibrations::default();
        calibrations.learn(stored(1_200_000));
        assert_eq!(of(&calibrations), 1_200_000);
        calibrations.learn(stored(1_100_000));
        assert_eq!(of(&calibrations), 1_100_000);
        let calibrations = observed(1_500);
        calibrations.learn(stored(1_200_000));
        assert_eq!(of(&calibrations), 1_500_000);
        calibrations.learn(stored(1_600_000));
        assert_eq!(of(&calibrations), 1_600_000);
    }

    #[test]
    fn names_that_no_database_takes_are_kept_here_only() {
        let calibrations = Calibrations::default();
        let long = "m".repeat(CALIBRATION_NAME_MAX + 1);
        calibrations.observe(("p", &long), &ModelFacts::unknown(), 1_000, 1_500);
        assert_eq!(calibrations.changed(), []);
    }
}
