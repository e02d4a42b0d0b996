//! Steps that involve seats.

use proptest::option;
use proptest::prelude::*;

/// One step that involves seats.
#[derive(Debug, Clone)]
pub(in super::super) enum SeatOp {
    /// Sets how many sends, and how many leaves, of the tenant may be in flight.
    Limit(Option<u8>, Option<u8>),
    /// Sets how many sends of a published agent may be in flight.
    Agent(u8, Option<u8>),
    /// Calls waiting sessions, as a sweep or as a worker does.
    Call(bool),
}

/// Any step that involves seats.
pub(super) fn any() -> impl Strategy<Value = SeatOp> {
    let limit = || option::weighted(0.6, 1_u8..4);
    prop_oneof![
        1 => (limit(), limit()).prop_map(|(sends, leaves)| SeatOp::Limit(sends, leaves)),
        2 => (published(), limit()).prop_map(|(agent, limit)| SeatOp::Agent(agent, limit)),
        4 => proptest::bool::ANY.prop_map(SeatOp::Call),
    ]
}

/// One of a few published agents.
pub(super) fn published() -> impl Strategy<Value = u8> {
    0_u8..2
}
