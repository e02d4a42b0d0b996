//! How far providers' token counts are from the estimates: parameters and results.

use async_trait::async_trait;

use super::Result;
use crate::model::Calibration;

/// The longest name of a provider or a model whose calibration is stored, in bytes.
pub const CALIBRATION_NAME_MAX: usize = 255;

/// What workers learned about providers' token counts. It belongs to no tenant, since a model
/// counts alike for all of them.
#[async_trait]
pub trait Calibrations: Send + Sync {
    /// Stores what a worker has learned, merged with what is stored ([`Calibration::joined`]): a
    /// higher ratio takes effect at once, a lower one moves halfway. A repeat may move halfway
    /// again. `learned` must be sorted by name, without duplicates.
    async fn save_calibrations(&self, learned: Vec<CalibrationRecord>) -> Result<()>;

    /// The most recently stored calibrations, at most `limit`; latest first, ties by name.
    async fn list_calibrations(&self, limit: u32) -> Result<Vec<CalibrationRecord>>;
}

/// The methods of [`Calibrations`], as passed on by [`store_methods`](crate::store_methods).
#[doc(hidden)]
#[macro_export]
macro_rules! calibrations_methods {
    ($apply:ident) => {
        $apply! { Calibrations:
            read save_calibrations(learned: Vec<$crate::store::CalibrationRecord>) -> ();
            read list_calibrations(limit: u32) -> Vec<$crate::store::CalibrationRecord>;
        }
    };
}

/// The calibration of a provider's model.
#[derive(Debug, Clone, PartialEq)]
pub struct CalibrationRecord {
    /// The provider's configured name.
    pub provider: String,
    /// The model's name as the provider knows it.
    pub model: String,
    /// The calibration.
    pub calibration: Calibration,
}
