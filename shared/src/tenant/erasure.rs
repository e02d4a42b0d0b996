//! The progress of a tenant's erasure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::id::TenantId;
use crate::stored::Extra;
use crate::time::Timestamp;

/// The erasure of a tenant. It contains none of the erased data, and is kept as proof.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantErasure {
    /// The tenant.
    pub tenant: TenantId,
    /// When it began.
    pub begun_at: Timestamp,
    /// When it was complete.
    pub ended_at: Option<Timestamp>,
    /// What was removed, and what is left.
    pub progress: ErasureProgress,
}

/// The progress of an erasure, as stored.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ErasureProgress {
    /// Rows removed, by table.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub removed: BTreeMap<String, u64>,
    /// Blobs whose bytes still exist.
    #[serde(default)]
    pub blobs_left: u64,
    /// Since when nothing more was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quiet_since: Option<Timestamp>,
    /// What could not be removed at the last attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// Fields that this release does not know.
    #[serde(flatten, skip_serializing_if = "Extra::is_empty")]
    pub extra: Extra,
}

impl ErasureProgress {
    /// Records the result of a step. True if nothing was found for so long that no more rows can appear.
    pub fn step(
        &mut self,
        removed: impl IntoIterator<Item = (String, u64)>,
        blobs_left: u64,
        now: Timestamp,
        quiet_ms: i64,
    ) -> bool {
        let mut any = blobs_left > 0;
        for (table, count) in removed {
            if count > 0 {
                any = true;
                *self.removed.entry(table).or_default() += count;
            }
        }
        self.blobs_left = blobs_left;
        if any {
            self.quiet_since = None;
            return false;
        }
        let since = *self.quiet_since.get_or_insert(now);
        now.0 - since.0 >= quiet_ms
    }

    /// Total number of rows removed.
    pub fn rows(&self) -> u64 {
        self.removed.values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_erasure_ends_once_nothing_was_found_for_long_enough() {
        let mut progress = ErasureProgress::default();
        let some = |count| [("sends".to_owned(), count)];
        assert!(!progress.step(some(3), 0, Timestamp(10), 100));
        assert!(!progress.step(some(0), 1, Timestamp(20), 100));
        assert!(!progress.step(some(0), 0, Timestamp(30), 100));
        assert!(!progress.step(some(0), 0, Timestamp(129), 100));
        // A late row was found: the quiet time starts again.
        assert!(!progress.step(some(1), 0, Timestamp(129), 100));
        assert!(!progress.step(some(0), 0, Timestamp(130), 100));
        assert!(progress.step(some(0), 0, Timestamp(230), 100));
        assert_eq!(progress.rows(), 4);
    }
}
