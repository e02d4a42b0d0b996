//! Parameters of the money and the tokens that calls of tenants and of their agents set aside and spend.

use std::collections::BTreeMap;

use async_trait::async_trait;
use uuid::Uuid;

use super::Result;
use crate::agent::AgentName;
use crate::id::{BootId, TenantId};
use crate::tenant::{Amount, LedgerRoom, LedgerSpent, LedgerWish, MoneySpan, Payer};

/// The money and the tokens of tenants with a limit of what their calls may cost or take in a day or a month, or cost
/// in a minute. Where one of the two is limited both are kept, and "money" below is both.
///
/// A published agent with such a limit has an account besides its tenant's, whether that has one or not: its calls count
/// in both. All of it happens under the lock of the tenant's row, and days and minutes are those of the database's clock.
/// What is spent is kept by day, from the first call under a limit on; of a tenant's month until then it is what the usage
/// of sends says, and an agent's begins with nothing. Where no limit of an account is left, what was spent and what is set
/// aside in it is forgotten.
#[async_trait]
pub trait Money: Send + Sync {
    /// Sets money aside for calls that are about to be made, each as if the ones before it were under way. A
    /// repeat gets what the first one got, as long as that is not settled. Where it fails some of it may be set
    /// aside: whoever makes no call settles it.
    async fn reserve_money(&self, items: Vec<ReserveMoney>) -> Result<Vec<ReserveMoneyOutcome>>;

    /// Enters what calls cost on the days and in the minute in which their money was set aside, in all accounts in which
    /// it was, and gives that back. What is settled already stays as it is, so that a repeat changes nothing.
    async fn settle_money(&self, items: Vec<SettleMoney>) -> Result<()>;

    /// Counts as spent what was set aside by boots that have no lease any more, or longer ago than
    /// [`MONEY_ASIDE_MS`](crate::tenant::MONEY_ASIDE_MS): their calls may have been made. At most `limit`
    /// reservations; returns how many.
    async fn sweep_money(&self, limit: u32) -> Result<u32>;

    /// What counts against the limits of a tenant now, or against those of one of its agents; none where nothing was set
    /// aside under them in this month.
    async fn spent_money(
        &self,
        tenant: TenantId,
        agent: Option<AgentName>,
    ) -> Result<Option<LedgerSpent>>;

    /// Tenants whose money or whose tokens are limited, or those of any of their agents, and maybe others.
    async fn money_tenants(&self) -> Result<Vec<TenantId>>;
}

/// The methods of [`Money`] as [`store_methods`](crate::store_methods) hands them over.
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

/// The places of items by their tenants, in the order in which rows of tenants are locked.
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

/// Money to set aside for a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReserveMoney {
    /// Who pays.
    pub tenant: TenantId,
    /// The published agent whose call it is, in whatever version; none where it is nobody's, or that of an agent which was
    /// defined inline.
    pub agent: Option<AgentName>,
    /// The call.
    pub call: Uuid,
    /// The process that makes it.
    pub boot: BootId,
    /// What it costs at most.
    pub most: Amount,
    /// What it needs at least to be of any use; not more than `most`.
    pub least: Amount,
    /// What is wished besides, for calls that are made soon: the reservation is of both, or of no more than `most`. See
    /// [`ledger_room`](crate::tenant::ledger_room).
    pub ahead: Amount,
}

impl ReserveMoney {
    /// What it asks of the accounts that it counts in.
    pub const fn wish(&self) -> LedgerWish {
        LedgerWish {
            most: self.most,
            least: self.least,
            ahead: self.ahead,
        }
    }
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReserveMoneyOutcome {
    /// So much is set aside: as much as was asked for, with what was wished ahead or without, or all that is left, and at
    /// least what it needs.
    Granted(Amount),
    /// Nothing limits the money of the tenant and of the agent any more, and nothing is set aside.
    Unlimited,
    /// Nothing is set aside: what other calls have set aside leaves no room.
    Busy,
    /// Nothing is set aside: too little is left of this one's limit of this span, so many billionths of a dollar.
    Spent(Payer, MoneySpan, u64),
    /// Nothing is set aside: too little is left of this one's limit of tokens of this span, so many.
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

/// What a call cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SettleMoney {
    /// Who pays.
    pub tenant: TenantId,
    /// The call.
    pub call: Uuid,
    /// All that was set aside where nobody knows.
    pub cost: Option<Amount>,
}
