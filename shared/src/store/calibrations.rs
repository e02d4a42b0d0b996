//! How far providers' counts are from the estimates: parameters and results.

use async_trait::async_trait;

use super::Result;
use crate::model::Calibration;

/// The longest name of a provider or a model whose calibration is stored, in bytes.
pub const CALIBRATION_NAME_MAX: usize = 255;

/// What workers learned of providers' counts. It belongs to no tenant: a model counts for all of them
/// alike.
#[async_trait]
pub trait Calibrations: Send + Sync {
    /// Stores what a worker has learned, joined with what is stored ([`Calibration::joined`]): a higher
    /// ratio holds at once, a lower one goes half of the way. A repeat may go half of the way again. Each
    /// model is named once, in the order of the names.
    async fn save_calibrations(&self, learned: Vec<CalibrationRecord>) -> Result<()>;

    /// What was stored last, at most `limit`; the latest first, and those of one moment by name.
    async fn list_calibrations(&self, limit: u32) -> Result<Vec<CalibrationRecord>>;
}

/// The methods of [`Calibrations`] as [`store_methods`](crate::store_methods) hands them over.
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

/// What is known of a provider's model.
#[derive(Debug, Clone, PartialEq)]
pub struct CalibrationRecord {
    /// The provider's configured name.
    pub provider: String,
    /// The model's name as the provider knows it.
    pub model: String,
    /// What it counted.
    pub calibration: Calibration,
}
