//! Which database a tenant is on, where an installation has several.
//!
//! One of them is the home: it has the catalogue, with a row for each tenant that is, or was, somewhere else. A tenant
//! without a row is at home. Nobody has to agree on anything but that row: each database notes itself which tenants are not
//! there, and refuses whatever is written for them, so that a process that knows an old catalogue changes nothing.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

use super::{Error, Result, TenantPatch, UpdateTenantOutcome};
use crate::id::{BootId, TenantId};
use crate::time::Timestamp;

/// The place of the database that has the catalogue.
pub const HOME: &str = "home";

/// How long a process relies on what it has read of the catalogue while nothing is under way.
pub const CATALOGUE_TTL: Duration = Duration::from_secs(1);

/// How long it does while a tenant moves.
pub const CATALOGUE_TTL_MOVING: Duration = Duration::from_millis(100);

/// The tenant is not on this database, or is about to leave it: nothing was written. The source of an
/// [`Error::Unavailable`], since whoever comes again in a moment finds it where it is then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the tenant is on another database, or on its way there")]
pub struct Elsewhere;

impl Elsewhere {
    /// Whether this is what a store said.
    pub fn is_cause_of(error: &Error) -> bool {
        matches!(error, Error::Unavailable { source } if source.is::<Self>())
    }
}

impl From<Elsewhere> for Error {
    fn from(elsewhere: Elsewhere) -> Self {
        Self::Unavailable {
            source: Box::new(elsewhere),
        }
    }
}

/// How far a tenant's move is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// None is under way.
    Settled,
    /// It is where it was, nothing is written for it, and its rows are copied.
    Copying,
    /// It is where it goes, and nothing is written for it yet.
    Arrived,
    /// It is where it goes; what it had before is removed.
    Erasing,
}

impl Phase {
    /// Every phase, in order.
    pub const ALL: [Self; 4] = [Self::Settled, Self::Copying, Self::Arrived, Self::Erasing];

    /// The name in the database.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Settled => "settled",
            Self::Copying => "copying",
            Self::Arrived => "arrived",
            Self::Erasing => "erasing",
        }
    }

    /// The phase with this name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|phase| phase.as_str() == text)
    }

    /// Whether nothing is written for the tenant, wherever it is.
    pub const fn is_frozen(self) -> bool {
        matches!(self, Self::Copying | Self::Arrived)
    }
}

/// A row of the catalogue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// The tenant.
    pub tenant: TenantId,
    /// The database that it is on: [`HOME`], or its name in the configuration.
    pub place: String,
    /// Where it goes to, or came from; none where no move is under way.
    pub other: Option<String>,
    /// How far the move is.
    pub phase: Phase,
    /// Counts the changes of the catalogue, so that whoever has read some asks for what is new.
    pub version: i64,
    /// The version under which the last move began: what the databases know it by.
    pub began: i64,
    /// When it was changed, by the clock of the home.
    pub changed_at: Timestamp,
}

impl Placement {
    /// The database that a move leaves; where the tenant is while none is under way.
    pub fn source(&self) -> &str {
        match (self.phase, &self.other) {
            (Phase::Arrived | Phase::Erasing, Some(other)) => other,
            _ => &self.place,
        }
    }

    /// The database that a move goes to.
    pub fn target(&self) -> Option<&str> {
        match self.phase {
            Phase::Settled => None,
            Phase::Copying => self.other.as_deref(),
            Phase::Arrived | Phase::Erasing => Some(&self.place),
        }
    }
}

/// A change of a row that is as it was last read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangePlacement {
    /// The tenant.
    pub tenant: TenantId,
    /// The version of the row that is changed; none where there is no row yet.
    pub from: Option<i64>,
    /// As in [`Placement`].
    pub place: String,
    /// As in [`Placement`].
    pub other: Option<String>,
    /// As in [`Placement`].
    pub phase: Phase,
}

/// What an installation of several databases asks of one of them besides the steps of [`Store`](super::Store).
#[async_trait]
pub trait Placements: fmt::Debug + Send + Sync {
    /// The rows of the catalogue that were changed after a version, in the order of their versions.
    async fn placements(&self, after: i64) -> Result<Vec<Placement>>;

    /// Changes a row if it is as the change says; none where it is not. A repeat of a change that was made finds it made.
    async fn change_placement(&self, change: ChangePlacement) -> Result<Option<Placement>>;

    /// The tenants that are not on this database, or not yet: for these nothing is written here.
    async fn tenants_away(&self) -> Result<Vec<TenantId>>;

    /// Changes what the home knows of a tenant that is on another database, and nothing of what follows from it there.
    async fn update_tenant_at_home(
        &self,
        id: TenantId,
        patch: TenantPatch,
    ) -> Result<UpdateTenantOutcome>;

    /// Has a boot live again that was declared dead, because this database was away for longer than its lease. What it
    /// held here is given back before, so that no grant of its earlier life is any good. False where it is unknown.
    async fn revive_boot(&self, boot: BootId, ttl: Duration) -> Result<bool>;
}
