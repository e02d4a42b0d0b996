//! Moves a tenant from one database to another while it is in use.
//!
//! The tenant's row in the catalogue records the phase of the move, so that a repeated request
//! continues where an earlier one died:
//!
//! | phase | what happens |
//! |---|---|
//! | `copying` | both refuse its writes; once none is in flight, its rows are copied in one transaction, and compared |
//! | `arrived` | the catalogue names the new database, which accepts writes once the old row is out of use |
//! | `erasing` | the old rows are removed |
//!
//! Writes wait from the start of the first phase to the end of the second. Reads do not: they go to
//! a database with all rows, which in these phases both have.
//!
//! A mover may be suspended at any point, and resume after others have finished or aborted the
//! move. It may then close the database that the tenant is on: so it rereads the row after each
//! closing, and reopens that database if necessary. If it dies in between, the next request to move
//! the tenant to where it is reopens it.

use std::collections::BTreeMap;
use std::time::Duration;

use mainspring_shared::id::TenantId;
use mainspring_shared::store::placements::{
    CATALOGUE_TTL, CATALOGUE_TTL_MOVING, ChangePlacement, Elsewhere, HOME, Phase, Placement,
    Placements as _,
};
use mainspring_shared::store::{self, Tenants as _};
use mainspring_shared::tenant::Tenant;
use mainspring_shared::time::Timestamp;
use mainspring_store_postgres::{Copied, PostgresStore};
use tokio::time::Instant;

/// Rows of a table that one transaction deletes.
const ERASED_AT_ONCE: u32 = 2_000;

/// How long to wait for transactions in flight to end: longer than the statement timeout of steps.
const DRAINS_IN: Duration = Duration::from_secs(20);

/// The maximum age of a catalogue row that a process relies on, with a margin for a read in flight.
const KNOWN_IN: Duration = CATALOGUE_TTL.saturating_mul(2);

/// The same for a process that knows that a tenant is moving.
const KNOWN_IN_MOVING: Duration = CATALOGUE_TTL_MOVING.saturating_mul(3);

/// Moves tenants between the databases of an installation.
#[derive(Debug)]
pub struct Mover {
    places: BTreeMap<String, PostgresStore>,
}

/// A completed step of a move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The move is recorded in the catalogue.
    Begun,
    /// Both databases refuse the tenant's writes.
    Frozen,
    /// No earlier write is in flight.
    Drained,
    /// Its rows are copied.
    Copied(Copied),
    /// The catalogue names the new database.
    Arrived,
    /// The new database accepts the tenant's writes.
    Thawed,
    /// The old rows are removed; this is their number.
    Erased(u64),
    /// The move is complete in the catalogue.
    Settled,
}

/// The result of a move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moved {
    /// Where the tenant is now.
    pub placement: Placement,
    /// The number of rows copied by this call.
    pub rows: u64,
    /// Their size in bytes.
    pub bytes: u64,
    /// How long writes waited in this call.
    pub frozen: Duration,
}

/// Why a tenant was not moved.
#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    /// There is no such tenant.
    #[error("{0} is unknown or deleted")]
    UnknownTenant(TenantId),
    /// There is no such database.
    #[error("the configuration has no database {0}; it has {1}")]
    UnknownPlace(String, String),
    /// It is being moved to another database.
    #[error("the tenant is on its way to {0}: move it there first, or back with --abort")]
    OnItsWay(String),
    /// The tenant has already arrived, so the move cannot be aborted.
    #[error("the move has come too far to be given up: it can only be finished")]
    TooLate,
    /// There is no move to abort.
    #[error("no move of the tenant is under way: it is on {0}")]
    NotMoving(String),
    /// It is being erased.
    #[error("{0} is being erased")]
    Erasing(TenantId),
    /// A transaction did not end in time. The tenant stays where it was, and its writes are
    /// accepted there again.
    #[error("a transaction on {0} did not end within 20 s; the tenant stays where it was")]
    Busy(String),
    /// Another process is moving it at the same time.
    #[error("someone else moves the tenant, too")]
    Contended,
    /// The caller stopped the move.
    #[error("the move was stopped")]
    Stopped,
    /// A database failed.
    #[error(transparent)]
    Store(#[from] store::Error),
}

/// Called after each step; returns whether to continue.
type Watch<'w> = &'w mut (dyn FnMut(&Step) -> bool + Send);

impl Mover {
    /// Creates a mover for these databases, by name; one of them must be [`HOME`].
    pub fn new(places: BTreeMap<String, PostgresStore>) -> Self {
        Self { places }
    }

    /// Where a tenant is, and the phase of its move. `None` if the catalogue has no row for it.
    pub async fn placement(&self, tenant: TenantId) -> Result<Option<Placement>, MoveError> {
        Ok(self.home()?.placement_of(tenant).await?)
    }

    /// All rows of the catalogue, least recently changed first.
    pub async fn placements(&self) -> Result<Vec<Placement>, MoveError> {
        Ok(self.home()?.placements(0).await?)
    }

    /// The tenant with this name.
    pub async fn named(&self, name: String) -> Result<Option<TenantId>, MoveError> {
        Ok(self.home()?.named_tenant(name).await?)
    }

    /// Moves a tenant to a database, resuming an interrupted move. If the tenant is already there,
    /// makes sure that its writes are accepted, whatever an earlier mover has left behind.
    pub async fn take(
        &self,
        tenant: TenantId,
        to: &str,
        watch: Watch<'_>,
    ) -> Result<Moved, MoveError> {
        // Boxed, because the future is large.
        Box::pin(self.go_on(tenant, to, watch)).await
    }

    async fn go_on(
        &self,
        tenant: TenantId,
        to: &str,
        watch: Watch<'_>,
    ) -> Result<Moved, MoveError> {
        self.database(to)?;
        let mut moving = Moving {
            mover: self,
            watch,
            rows: 0,
            bytes: 0,
            frozen_since: None,
            frozen: Duration::ZERO,
        };
        let mut row = match self.placement(tenant).await? {
            Some(row) if row.phase == Phase::Settled && row.place == to => {
                self.complete(&row).await?;
                row
            }
            None if to == HOME => {
                self.known(tenant).await?;
                return Ok(moving.done(never_moved(tenant)));
            }
            Some(row) if row.phase != Phase::Settled => {
                if let Some(target) = row.target().filter(|target| *target != to) {
                    return Err(MoveError::OnItsWay(target.to_owned()));
                }
                row
            }
            found => moving.begin(tenant, found, to).await?,
        };
        loop {
            row = match row.phase {
                Phase::Settled => return Ok(moving.done(row)),
                Phase::Copying => moving.copy(row).await?,
                Phase::Arrived => moving.thaw(row).await?,
                Phase::Erasing => moving.erase(row).await?,
            };
        }
    }

    /// Aborts a move whose tenant has not arrived yet: its writes are accepted again where it was.
    pub async fn abort(&self, tenant: TenantId) -> Result<Placement, MoveError> {
        let Some(row) = self.placement(tenant).await? else {
            self.known(tenant).await?;
            return Err(MoveError::NotMoving(HOME.to_owned()));
        };
        match row.phase {
            Phase::Copying => self.give_up(&row).await,
            Phase::Arrived | Phase::Erasing => Err(MoveError::TooLate),
            Phase::Settled => {
                // An earlier abort may have died before it was complete.
                self.complete(&row).await?;
                Err(MoveError::NotMoving(row.place))
            }
        }
    }

    /// Aborts the move of this row.
    async fn give_up(&self, row: &Placement) -> Result<Placement, MoveError> {
        // Fail before anything changes if this database is unknown. The target may be gone for
        // good.
        self.database(&row.place)?;
        let place = row.place.clone();
        let settled = self.change(row, place, None, Phase::Settled).await?;
        self.complete(&settled).await?;
        Ok(settled)
    }

    /// Finishes what a settled move may have left undone: makes the tenant's database accept its
    /// writes, and removes rows that an aborted move copied to another one. Those are neither
    /// written nor read there.
    async fn complete(&self, settled: &Placement) -> Result<(), MoveError> {
        let (home, tenant, version) = (self.home()?, settled.tenant, settled.began);
        let database = self.database(&settled.place)?;
        database.arrive(tenant, version).await?;
        for (name, other) in &self.places {
            if *name == settled.place {
                continue;
            }
            let mut removed = 1;
            while removed > 0 {
                let page = other.erase_moved(home, tenant, version, ERASED_AT_ONCE);
                removed = page.await?;
            }
        }
        Ok(())
    }

    /// Fails unless the row is still the one in the catalogue. If it is not, the caller may just
    /// have closed the database to which the tenant has moved, or on which it has stayed, since the
    /// row was read: then that database is reopened.
    async fn confirm(&self, row: &Placement) -> Result<(), MoveError> {
        let now = self.placement(row.tenant).await?;
        let now = now.ok_or(MoveError::Contended)?;
        if now.version == row.version {
            return Ok(());
        }
        match now.phase {
            // A later move, which closes both databases itself: finishing or aborting it also
            // reopens what was closed before.
            Phase::Copying => return Err(MoveError::Contended),
            // Wait as the move itself does in `thaw`.
            Phase::Arrived => tokio::time::sleep_until(Instant::now() + KNOWN_IN_MOVING).await,
            Phase::Settled | Phase::Erasing => {}
        }
        let database = self.database(&now.place)?;
        database.arrive(now.tenant, now.began).await?;
        Err(MoveError::Contended)
    }

    /// The home's record of a tenant.
    async fn known(&self, tenant: TenantId) -> Result<Tenant, MoveError> {
        let known = self.home()?.get_tenant(tenant).await?;
        known.ok_or(MoveError::UnknownTenant(tenant))
    }

    fn home(&self) -> Result<&PostgresStore, MoveError> {
        self.database(HOME)
    }

    fn database(&self, name: &str) -> Result<&PostgresStore, MoveError> {
        let known = || self.places.keys().cloned().collect::<Vec<_>>().join(", ");
        let found = self.places.get(name);
        found.ok_or_else(|| MoveError::UnknownPlace(name.to_owned(), known()))
    }

    async fn change(
        &self,
        row: &Placement,
        place: String,
        other: Option<String>,
        phase: Phase,
    ) -> Result<Placement, MoveError> {
        let change = ChangePlacement {
            tenant: row.tenant,
            from: Some(row.version),
            place,
            other,
            phase,
        };
        let changed = self.home()?.change_placement(change).await?;
        changed.ok_or(MoveError::Contended)
    }
}

/// The placement of a tenant that has always been at home.
fn never_moved(tenant: TenantId) -> Placement {
    Placement {
        tenant,
        place: HOME.to_owned(),
        other: None,
        phase: Phase::Settled,
        version: 0,
        began: 0,
        changed_at: Timestamp(0),
    }
}

/// A move in progress.
struct Moving<'m, 'w> {
    mover: &'m Mover,
    watch: Watch<'w>,
    rows: u64,
    bytes: u64,
    frozen_since: Option<Instant>,
    frozen: Duration,
}

impl Moving<'_, '_> {
    fn done(&self, placement: Placement) -> Moved {
        Moved {
            placement,
            rows: self.rows,
            bytes: self.bytes,
            frozen: self.frozen,
        }
    }

    fn tell(&mut self, step: &Step) -> Result<(), MoveError> {
        if (self.watch)(step) {
            Ok(())
        } else {
            Err(MoveError::Stopped)
        }
    }

    /// Records the move in the catalogue. It has no effect on clients until the tenant is frozen.
    async fn begin(
        &mut self,
        tenant: TenantId,
        found: Option<Placement>,
        to: &str,
    ) -> Result<Placement, MoveError> {
        let known = self.mover.known(tenant).await?;
        if known.erasing_at.is_some() {
            return Err(MoveError::Erasing(tenant));
        }
        let place = found.as_ref().map_or(HOME, |row| &row.place).to_owned();
        self.mover.database(&place)?;
        let change = ChangePlacement {
            tenant,
            from: found.map(|row| row.version),
            place,
            other: Some(to.to_owned()),
            phase: Phase::Copying,
        };
        let row = self.mover.home()?.change_placement(change).await?;
        let row = row.ok_or(MoveError::Contended)?;
        self.tell(&Step::Begun)?;
        Ok(row)
    }

    /// Freezes the tenant and copies its rows. Repeats everything after an interrupted attempt,
    /// since rows may have been written meanwhile if it had not frozen them.
    async fn copy(&mut self, row: Placement) -> Result<Placement, MoveError> {
        let (tenant, version) = (row.tenant, row.began);
        let to = row.target().unwrap_or(HOME).to_owned();
        let home = self.mover.home()?;
        let source = self.mover.database(&row.place)?;
        let target = self.mover.database(&to)?;
        let frozen_at = Instant::now();
        self.frozen_since = Some(frozen_at);
        // Close the target first: a partial copy must never pass for the tenant.
        target.leave(tenant, version, true).await?;
        self.mover.confirm(&row).await?;
        source.leave(tenant, version, false).await?;
        self.mover.confirm(&row).await?;
        self.tell(&Step::Frozen)?;
        if !source.drained(DRAINS_IN).await? || !target.drained(DRAINS_IN).await? {
            self.mover.give_up(&row).await?;
            return Err(MoveError::Busy(row.place));
        }
        self.tell(&Step::Drained)?;
        if to != HOME && !target.put_tenant(home, tenant).await? {
            self.mover.give_up(&row).await?;
            return Err(MoveError::UnknownTenant(tenant));
        }
        let copied = match target.copy_tenant(source, home, tenant, version).await {
            Ok(copied) => copied,
            Err(error) if Elsewhere::is_cause_of(&error) => return Err(MoveError::Contended),
            Err(error) => {
                // A retry would fail in the same way, so abort instead of blocking the tenant's
                // writes.
                if error.is_of_data() {
                    self.mover.give_up(&row).await?;
                }
                return Err(error.into());
            }
        };
        self.rows = copied.rows();
        self.bytes = copied.bytes;
        self.tell(&Step::Copied(copied))?;
        // By then every process knows that the tenant is moving, and rereads the catalogue at short
        // intervals.
        tokio::time::sleep_until(frozen_at + KNOWN_IN).await;
        let from = Some(row.place.clone());
        let arrived = self.mover.change(&row, to, from, Phase::Arrived).await?;
        self.tell(&Step::Arrived)?;
        Ok(arrived)
    }

    /// Accepts writes on the new database, once no process reads from the old one any more.
    async fn thaw(&mut self, row: Placement) -> Result<Placement, MoveError> {
        tokio::time::sleep_until(Instant::now() + KNOWN_IN_MOVING).await;
        let target = self.mover.database(&row.place)?;
        // Safe however late it runs: what a later move has closed stays closed.
        target.arrive(row.tenant, row.began).await?;
        if let Some(since) = self.frozen_since.take() {
            self.frozen = since.elapsed();
        }
        self.tell(&Step::Thawed)?;
        let (place, other) = (row.place.clone(), row.other.clone());
        self.mover.change(&row, place, other, Phase::Erasing).await
    }

    async fn erase(&mut self, row: Placement) -> Result<Placement, MoveError> {
        let home = self.mover.home()?;
        let source = self.mover.database(row.source())?;
        let mut removed = 0;
        loop {
            let page = source.erase_moved(home, row.tenant, row.began, ERASED_AT_ONCE);
            let page = page.await?;
            removed += page;
            if page == 0 {
                break;
            }
        }
        self.tell(&Step::Erased(removed))?;
        let place = row.place.clone();
        let settled = self.mover.change(&row, place, None, Phase::Settled).await?;
        self.tell(&Step::Settled)?;
        Ok(settled)
    }
}
