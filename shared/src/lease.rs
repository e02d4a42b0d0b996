//! The right to write to one session.

use crate::id::{BootId, LeaseToken};

/// One grant of a session to one boot. The random token is the fence in every write; the epoch
/// orders grants and is stored on what they wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// The process that holds it.
    pub boot: BootId,
    /// Drawn afresh for each grant, so a grant lost with an unflushed commit is never repeated.
    pub token: LeaseToken,
    /// Counts grants of this session; never goes back.
    pub epoch: i64,
    /// The number of the next write under this grant, from 0. Each write that changes anything
    /// raises it, so that none takes effect twice: who repeats one repeats its number.
    pub write: i64,
}
