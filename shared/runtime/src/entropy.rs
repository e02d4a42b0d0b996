//! The system's source of randomness.

use mainspring_shared::entropy::Entropy;
use uuid::Uuid;

/// The operating system's randomness.
#[derive(Debug, Clone, Copy, Default)]
pub struct OsEntropy;

impl Entropy for OsEntropy {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one source of ordered ids"
    )]
    fn ordered_id(&self) -> Uuid {
        Uuid::now_v7()
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one source of random ids"
    )]
    fn random_id(&self) -> Uuid {
        Uuid::new_v4()
    }

    fn fraction(&self) -> f64 {
        rand::random()
    }
}
