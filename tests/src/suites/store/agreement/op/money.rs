//! Steps that involve money.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

/// The agents, by number. The last one is never published.
pub(in super::super) const AGENTS: std::ops::Range<u8> = 0..3;

/// One step that involves money. There are few calls, so that they are repeated.
#[derive(Debug, Clone)]
pub(in super::super) enum MoneyOp {
    /// Sets the tenant's limits per minute, day and month.
    Limit(Option<u8>, Option<u8>, Option<u8>),
    /// Sets the limits of an agent.
    LimitAgent(u8, [Option<u8>; 3]),
    /// Reserves for calls: the call, its boot, its highest and lowest cost, and its agent.
    Reserve(Vec<(u8, u8, u8, u8, Option<u8>)>),
    /// Settles calls: the call and what it cost.
    Settle(Vec<(u8, Option<u8>)>),
    Sweep,
}

/// Any step that involves money.
pub(super) fn any() -> impl Strategy<Value = MoneyOp> {
    let byte = || proptest::num::u8::ANY;
    let limit = || option::weighted(0.7, byte());
    let call = || 0_u8..6;
    let agent = option::weighted(0.7, AGENTS);
    let reserve = (call(), byte(), 0_u8..80, 0_u8..20, agent);
    let settle = (call(), option::weighted(0.7, 0_u8..80));
    prop_oneof![
        2 => (limit(), limit(), limit())
            .prop_map(|(minute, day, month)| MoneyOp::Limit(minute, day, month)),
        2 => (AGENTS, [limit(), limit(), limit()])
            .prop_map(|(agent, limits)| MoneyOp::LimitAgent(agent, limits)),
        6 => vec(reserve, 1..4).prop_map(MoneyOp::Reserve),
        4 => vec(settle, 1..4).prop_map(MoneyOp::Settle),
        2 => Just(MoneyOp::Sweep),
    ]
}
