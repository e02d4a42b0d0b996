//! What workers learned about providers' token counts.

use std::cmp::Reverse;

use async_trait::async_trait;
use mainspring_shared::model::Calibration;
use mainspring_shared::store::{CalibrationRecord, Calibrations, Result};
use mainspring_shared::time::Timestamp;

use crate::memory::ModelStore;

/// The calibration of a model.
#[derive(Debug)]
pub(crate) struct Known {
    calibration: Calibration,
    updated_at: Timestamp,
}

#[async_trait]
impl Calibrations for ModelStore {
    async fn save_calibrations(&self, learned: Vec<CalibrationRecord>) -> Result<()> {
        let (mut state, now) = self.begin();
        for record in learned {
            let key = (record.provider, record.model);
            let known = state.processes.calibrations.get(&key);
            // In the precision in which a column stores it.
            let new = record.calibration;
            let new = Calibration::stored(new.millionths(), new.counts());
            let calibration = known.map_or(new, |known| known.calibration.joined(new));
            let known = Known {
                calibration,
                updated_at: now,
            };
            state.processes.calibrations.insert(key, known);
        }
        Ok(())
    }

    async fn list_calibrations(&self, limit: u32) -> Result<Vec<CalibrationRecord>> {
        let (state, _) = self.begin();
        let mut all: Vec<_> = state.processes.calibrations.iter().collect();
        all.sort_by_key(|(key, known)| (Reverse(known.updated_at), *key));
        let latest = all.into_iter().take(limit as usize);
        let records = latest.map(|((provider, model), known)| CalibrationRecord {
            provider: provider.clone(),
            model: model.clone(),
            calibration: known.calibration,
        });
        Ok(records.collect())
    }
}
