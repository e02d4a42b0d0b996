//! Parameters of reserving and spending money and tokens for calls of tenants and their agents.

use std::collections::BTreeMap;

use async_trait::async_trait;
use uuid::Uuid;

use super::Result;
use crate::agent::AgentName;
use crate::id::{BootId, TenantId};
use crate::tenant::{Amount, LedgerRequest, LedgerRoom, LedgerSpent, MoneySpan, Payer};

/// The ledger of tenants that have limits on the cost or tokens of their calls per day or month, or
/// on their cost per minute. If either money or tokens are limited, both are tracked; "money" below
/// means both.
///
/// A published agent with such a limit has its own account, whether or not its tenant has one; its
/// calls count in both. Everything happens under the lock of the tenant's row, and days and minutes
/// are those of the database's clock. Spending is kept by day, from the first call under a limit
/// on. The part of a tenant's month before that is taken from the usage of its sends; an agent's
/// month starts at zero. When the last limit of an account is removed, its spending and
/// reservations are forgotten.
#[async_trait]
pub trait Money: Send + Sync {
    /// Reserves money for calls that are about to be made, each as if the ones before it were in flight.
    ///
    /// A repeat gets the first one's reservation, as long as that is not settled. If this fails,
    /// some of it may be reserved: a caller that then makes no call must settle it.
    async fn reserve_money(&self, items: Vec<ReserveMoney>) -> Result<Vec<ReserveMoneyOutcome>>;

    /// Records the cost of calls on the days and in the minute of their reservations, in all
    /// accounts in which these were made, and releases the reservations. Settled calls are
    /// unchanged, so that a repeat changes nothing.
    async fn settle_money(&self, items: Vec<SettleMoney>) -> Result<()>;

    /// Counts reservations as spent whose boot has no lease any more, or that are older than
    /// [`MONEY_ASIDE_MS`](crate::tenant::MONEY_ASIDE_MS): their calls may have been made. At most
    /// `limit` reservations; returns how many.
    async fn sweep_money(&self, limit: u32) -> Result<u32>;

    /// What counts against the limits of a tenant, or of one of its agents, now; `None` if nothing
    /// was reserved under them this month.
    async fn spent_money(
        &self,
        tenant: TenantId,
        agent: Option<AgentName>,
    ) -> Result<Option<LedgerSpent>>;

    /// Tenants with a limit of money or tokens, of their own or of an agent; may include others.
    async fn money_tenants(&self) -> Result<Vec<TenantId>>;
}

/// The methods of [`Money`], as passed on by [`store_methods`](crate::store_methods).
#[doc(hidden)]
#[macro_export]
macro_rules! money_methods {
    ($apply:ident) => {
        $apply! { Money:
            write reserve_money(
                items: Vec<$crate::store::ReserveMoney>
            ) -> Vec<$crate::store::ReserveMoneyOutcome>;
            write settle_money(items: Vec<$crate::store::SettleMoney>) -> ();
            write sweep_money(limit: u32) -> u32;
            read spent_money(
                tenant: $crate::id::TenantId,
                agent: Option<$crate::agent::AgentName>
            ) -> Option<$crate::tenant::LedgerSpent>;
            read money_tenants() -> Vec<$crate::id::TenantId>;
        }
    };
}

/// The indexes of items by tenant, in the order in which tenants' rows are locked.
pub fn places_by_tenant<T>(
    items: &[T],
    of: impl Fn(&T) -> TenantId,
) -> BTreeMap<TenantId, Vec<usize>> {
    let mut places: BTreeMap<TenantId, Vec<usize>> = BTreeMap::new();
    for (place, item) in items.iter().enumerate() {
        places.entry(of(item)).or_default().push(place);
    }
    places
}

/// Money to reserve for a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReserveMoney {
    /// Who pays.
    pub tenant: TenantId,
    /// The published agent that makes the call, in any version; `None` if no agent makes it, or one
    /// that was defined inline.
    pub agent: Option<AgentName>,
    /// The call.
    pub call: Uuid,
    /// The process that makes it.
    pub boot: BootId,
    /// The most it can cost.
    pub most: Amount,
    /// The least that makes the call worthwhile; at most `most`.
    pub least: Amount,
    /// An additional amount wanted for calls that follow soon. The reservation covers both, or at
    /// most `most`. See [`check_ledger`](crate::tenant::check_ledger).
    pub ahead: Amount,
}

impl ReserveMoney {
    /// The amounts it requests from its accounts.
    pub const fn ledger_request(&self) -> LedgerRequest {
        LedgerRequest {
            most: self.most,
            least: self.least,
            ahead: self.ahead,
        }
    }
}

/// The outcome of reserving money.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReserveMoneyOutcome {
    /// This much is reserved: the requested amount, with or without the amount ahead, or whatever
    /// is left, which is at least `least`.
    Granted(Amount),
    /// Neither the tenant nor the agent has a limit any more; nothing is reserved.
    Unlimited,
    /// Nothing is reserved: other calls' reservations leave no room.
    Busy,
    /// Nothing is reserved: too little is left of this payer's money limit for this span, in
    /// billionths of a dollar.
    Spent(Payer, MoneySpan, u64),
    /// Nothing is reserved: too little is left of this payer's token limit for this span.
    TokensSpent(Payer, MoneySpan, u64),
}

impl From<LedgerRoom> for ReserveMoneyOutcome {
    fn from(room: LedgerRoom) -> Self {
        match room {
            LedgerRoom::Granted(amount) => Self::Granted(amount),
            LedgerRoom::Busy => Self::Busy,
            LedgerRoom::Spent(of, span, limit) => Self::Spent(of, span, limit),
            LedgerRoom::TokensSpent(of, span, limit) => Self::TokensSpent(of, span, limit),
        }
    }
}

/// The cost of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SettleMoney {
    /// Who pays.
    pub tenant: TenantId,
    /// The call.
    pub call: Uuid,
    /// The cost; the whole reservation if it is unknown.
    pub cost: Option<Amount>,
}
