//! What workers learned about token counts of providers.

use mainspring_shared::model::Calibration;
use mainspring_shared::store::{CalibrationRecord, Inspect};

use super::prelude::*;

/// A calibration for a model of the provider `p`.
pub fn learned(model: &str, millionths: i64, counts: u32) -> CalibrationRecord {
    CalibrationRecord {
        provider: "p".to_owned(),
        model: model.to_owned(),
        calibration: Calibration::stored(millionths, counts),
    }
}

async fn save(store: &dyn Inspect, ms: i64, records: &[CalibrationRecord]) {
    let saved = store.at(time(ms)).save_calibrations(records.to_vec()).await;
    saved.expect("the store answers");
}

async fn list(store: &dyn Inspect, limit: u32) -> Vec<CalibrationRecord> {
    let listed = store.list_calibrations(limit).await;
    listed.expect("the store answers")
}

pub async fn what_was_learned_last_is_listed_first(store: &dyn Inspect) {
    assert_eq!(list(store, 9).await, []);
    let (a, b) = (learned("a", 1_234_567, 3), learned("b/b", 800_000, 1));
    save(store, 10, &[a.clone(), b.clone()]).await;
    let c = learned("c", 2_000_000, u32::MAX);
    save(store, 20, std::slice::from_ref(&c)).await;
    assert_eq!(list(store, 9).await, [c.clone(), a.clone(), b]);
    assert_eq!(list(store, 2).await, [c, a]);
}

pub async fn names_that_differ_in_case_are_two(store: &dyn Inspect) {
    save(
        store,
        10,
        &[learned("M", 1_000_000, 1), learned("m", 2_000_000, 1)],
    )
    .await;
    assert_eq!(list(store, 9).await.len(), 2);
}

pub async fn a_higher_ratio_holds_at_once_and_a_lower_one_by_half(store: &dyn Inspect) {
    let steps = [
        (learned("m", 1_200_000, 5), learned("m", 1_200_000, 5)),
        (learned("m", 1_600_001, 3), learned("m", 1_600_001, 5)),
        (learned("m", 1_000_000, 9), learned("m", 1_300_001, 9)),
        (learned("m", 1_300_001, 9), learned("m", 1_300_001, 9)),
        (learned("m", 1_000_000, 9), learned("m", 1_150_001, 9)),
    ];
    let mut known: Option<Calibration> = None;
    for (ms, (new, stored)) in (10..).zip(steps) {
        save(store, ms, std::slice::from_ref(&new)).await;
        assert_eq!(list(store, 9).await, std::slice::from_ref(&stored));
        let joined = known.map_or(new.calibration, |known| known.joined(new.calibration));
        assert_eq!(joined, stored.calibration, "the rule says the same");
        known = Some(joined);
    }
}
