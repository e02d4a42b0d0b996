//! Which database a tenant is on, in an installation with several.
//!
//! One of them is the home: it has the catalogue, with a row for each tenant that is, or was,
//! somewhere else. A tenant without a row is at home. Nothing else has to be agreed on: each
//! database itself records which tenants are not there and refuses writes for them, so that a
//! process with an outdated catalogue changes nothing.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

use super::{Error, Result, TenantPatch, UpdateTenantOutcome};
use crate::id::{BootId, TenantId};
use crate::time::Timestamp;

/// The place of the database that has the catalogue.
pub const HOME: &str = "home";

/// How long a process relies on its copy of the catalogue while no move is in progress.
pub const CATALOGUE_TTL: Duration = Duration::from_secs(1);

/// How long a process relies on its copy of the catalogue while a tenant is being moved.
pub const CATALOGUE_TTL_MOVING: Duration = Duration::from_millis(100);

/// The tenant is not on this database, or is about to leave it; nothing was written. The source of
/// an [`Error::Unavailable`], since a retry a moment later finds the tenant where it is by then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the tenant is on another database, or on its way there")]
pub struct Elsewhere;

impl Elsewhere {
    /// Whether a store's error has this cause.
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

/// The phase of a tenant's move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// No move is in progress.
    Settled,
    /// The tenant is still at the source; writes for it are refused while its rows are copied.
    Copying,
    /// The tenant is at the target; writes for it are still refused.
    Arrived,
    /// The tenant is at the target and may be written to; its rows at the source are being removed.
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

    /// Whether writes for the tenant are refused everywhere.
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
    /// The other database of a move in progress: its target, or, once it has arrived, its source.
    pub other: Option<String>,
    /// How far the move is.
    pub phase: Phase,
    /// Counts changes of the catalogue, so that readers can ask for changes only.
    pub version: i64,
    /// The version with which the last move began; identifies the move in the databases.
    pub began: i64,
    /// When it was changed, by the home's clock.
    pub changed_at: Timestamp,
}

impl Placement {
    /// The database that a move leaves; the tenant's database if no move is in progress.
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

/// A change of a row, if it has not changed since it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangePlacement {
    /// The tenant.
    pub tenant: TenantId,
    /// The version of the row to change; `None` if there is no row yet.
    pub from: Option<i64>,
    /// As in [`Placement`].
    pub place: String,
    /// As in [`Placement`].
    pub other: Option<String>,
    /// As in [`Placement`].
    pub phase: Phase,
}

/// What an installation of several databases needs of each, besides the steps of
/// [`Store`](super::Store).
#[async_trait]
pub trait Placements: fmt::Debug + Send + Sync {
    /// The rows of the catalogue that changed after a version, ordered by version.
    async fn placements(&self, after: i64) -> Result<Vec<Placement>>;

    /// Changes a row if it still has the version `from`; `None` if not. A repeat finds its change made.
    async fn change_placement(&self, change: ChangePlacement) -> Result<Option<Placement>>;

    /// The tenants that are not on this database, or not yet: writes for them are refused here.
    async fn tenants_away(&self) -> Result<Vec<TenantId>>;

    /// Changes the home's record of a tenant that is on another database, without the effects this
    /// has there.
    async fn update_tenant_at_home(
        &self,
        id: TenantId,
        patch: TenantPatch,
    ) -> Result<UpdateTenantOutcome>;

    /// Revives a boot that was declared dead because this database was unavailable for longer than
    /// its lease. Everything it owned here is released first, so that no earlier grant stays valid.
    /// False if it is unknown.
    async fn revive_boot(&self, boot: BootId, ttl: Duration) -> Result<bool>;
}
