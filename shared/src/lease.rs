//! The right to write to one session.

use crate::id::{BootId, LeaseToken};

/// A grant of a session to a boot. Every write is fenced by the random token; the epoch orders
/// grants and is stored on what they wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// The process that holds it.
    pub boot: BootId,
    /// The fencing token. Drawn for each grant, so that a grant lost with an unflushed commit never recurs.
    pub token: LeaseToken,
    /// Counts grants of this session; never decreases.
    pub epoch: i64,
    /// The number of the next write under this grant, from 0. Each write that changes anything
    /// increments it, so that none takes effect twice: a repeat carries the same number.
    pub write: i64,
}
