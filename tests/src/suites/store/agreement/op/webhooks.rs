//! Steps that involve webhooks.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::{moment, request};

/// One step that involves webhooks.
#[derive(Debug, Clone)]
pub(in super::super) enum HookOp {
    /// Creates an endpoint with one of several sets of filters.
    Create(u8, Option<(u8, u8)>),
    Change(u8, u8),
    Delete(u8),
    /// Turns pending events into deliveries.
    FanOut,
    Take(Take),
    /// Fans out, claims deliveries, and ends these attempts.
    Turn(Take, Vec<Ending>),
    /// Ends the latest attempts.
    Settle(Vec<(u8, Ending)>),
    Redeliver(u8),
    Retire(i64),
}

/// A claim of deliveries.
#[derive(Debug, Clone)]
pub(in super::super) struct Take {
    pub(in super::super) lease: i64,
    pub(in super::super) each: u32,
    pub(in super::super) limit: u32,
    pub(in super::super) busy: Option<u8>,
}

/// How an attempt ends.
#[derive(Debug, Clone, Copy)]
pub(in super::super) enum Ending {
    Delivered,
    Again(i64),
    Dead,
}

/// The webhook at the start of every sequence: an endpoint that receives everything.
pub(in super::super) fn opening() -> HookOp {
    HookOp::Create(0, None)
}

/// Any step that involves webhooks.
pub(super) fn any() -> impl Strategy<Value = HookOp> {
    let byte = || proptest::num::u8::ANY;
    let turn = (take(), vec(ending(), 1..3));
    prop_oneof![
        2 => (byte(), request()).prop_map(|(events, request)| HookOp::Create(events, request)),
        1 => (byte(), byte()).prop_map(|(hook, change)| HookOp::Change(hook, change)),
        1 => byte().prop_map(HookOp::Delete),
        2 => Just(HookOp::FanOut),
        2 => take().prop_map(HookOp::Take),
        8 => turn.prop_map(|(take, endings)| HookOp::Turn(take, endings)),
        2 => vec((byte(), ending()), 1..4).prop_map(HookOp::Settle),
        2 => byte().prop_map(HookOp::Redeliver),
        1 => moment().prop_map(HookOp::Retire),
    ]
}

fn take() -> impl Strategy<Value = Take> {
    let fields = (
        moment(),
        1u32..4,
        1u32..6,
        option::weighted(0.2, proptest::num::u8::ANY),
    );
    fields.prop_map(|(lease, each, limit, busy)| Take {
        lease,
        each,
        limit,
        busy,
    })
}

fn ending() -> impl Strategy<Value = Ending> {
    prop_oneof![
        3 => Just(Ending::Delivered),
        2 => moment().prop_map(Ending::Again),
        1 => Just(Ending::Dead),
    ]
}
