//! Takes a tenant from one database to another while it is in use.
//!
//! The catalogue's row says how far a move is, so that whoever is asked to move the tenant there again goes on where
//! another one died:
//!
//! | phase | what is done in it |
//! |---|---|
//! | `copying` | both databases refuse writes for the tenant; what was under way ends; its rows are copied in one transaction, and compared |
//! | `arrived` | the catalogue names the other database; once no process believes the old row any more, that takes writes |
//! | `erasing` | the rows that were left behind are removed |
//!
//! Writes wait from the begin of the first phase to the end of the second. Reads do not: they go to where the rows are
//! complete, which is the same in both.
//!
//! A mover may be stopped at any point, and go on when others have ended the move, or given it up. What it closes then is
//! where the tenant is: it looks at the row again behind each such step, and opens that database. One that dies in between
//! leaves this to whoever is asked next to move the tenant to where it is.

use std::collections::BTreeMap;
use std::time::Duration;

use mainspring_shared::id::TenantId;
use mainspring_shared::store::placements::{
    BELIEVED, BELIEVED_MOVING, ChangePlacement, Elsewhere, HOME, Phase, Placement, Placements as _,
};
use mainspring_shared::store::{self, Tenants as _};
use mainspring_shared::tenant::Tenant;
use mainspring_shared::time::Timestamp;
use mainspring_store_postgres::{Copied, PostgresStore};
use tokio::time::Instant;

/// Rows of a table that one transaction removes.
const ERASED_AT_ONCE: u32 = 2_000;

/// How long transactions that were under way may take to end: more than the server lets a statement of a step take.
const DRAINS_IN: Duration = Duration::from_secs(20);

/// What a process relies on is as old as this at most, with a margin for one that has just asked.
const KNOWN_IN: Duration = BELIEVED.saturating_mul(2);

/// The same for one that knows that the tenant moves.
const KNOWN_IN_MOVING: Duration = BELIEVED_MOVING.saturating_mul(3);

/// Moves tenants between the databases of an installation.
#[derive(Debug)]
pub struct Mover {
    places: BTreeMap<String, PostgresStore>,
}

/// Something that a move has done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The catalogue says that the tenant moves.
    Begun,
    /// Both databases refuse writes for it.
    Frozen,
    /// No earlier write is under way.
    Drained,
    /// Its rows are copied.
    Copied(Copied),
    /// The catalogue names the other database.
    Arrived,
    /// That takes writes for it.
    Thawed,
    /// What it left behind is removed: so many rows.
    Erased(u64),
    /// The catalogue says that it is there, and that is all.
    Settled,
}

/// What a move came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moved {
    /// Where the tenant is now.
    pub placement: Placement,
    /// Rows that were copied by this call.
    pub rows: u64,
    /// Bytes that these had.
    pub bytes: u64,
    /// How long writes waited in this call.
    pub frozen: Duration,
}

/// Why a tenant does not move.
#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    /// There is no such tenant.
    #[error("{0} is unknown or deleted")]
    UnknownTenant(TenantId),
    /// There is no such database.
    #[error("the configuration has no database {0}; it has {1}")]
    UnknownPlace(String, String),
    /// It is on its way to another one.
    #[error("the tenant is on its way to {0}: move it there first, or back with --abort")]
    OnItsWay(String),
    /// It is there already, so that there is nothing to go back on.
    #[error("the move has come too far to be given up: it can only be finished")]
    TooLate,
    /// There is no move to give up.
    #[error("no move of the tenant is under way: it is on {0}")]
    NotMoving(String),
    /// It is being erased.
    #[error("{0} is being erased")]
    Erasing(TenantId),
    /// A transaction on the old database did not end in time. The tenant takes writes again where it was.
    #[error("a transaction on {0} did not end within 20 s; the tenant stays where it was")]
    Busy(String),
    /// Someone else moves it at the same time.
    #[error("someone else moves the tenant, too")]
    Contended,
    /// The caller does not want it to go on.
    #[error("the move was stopped")]
    Stopped,
    /// A database failed.
    #[error(transparent)]
    Store(#[from] store::Error),
}

/// Hears what was done, and says whether to go on.
type Watch<'w> = &'w mut (dyn FnMut(&Step) -> bool + Send);

impl Mover {
    /// Between these databases, by their names; [`HOME`] is one of them.
    pub fn new(places: BTreeMap<String, PostgresStore>) -> Self {
        Self { places }
    }

    /// Where a tenant is, and how far its move is.
    pub async fn placement(&self, tenant: TenantId) -> Result<Option<Placement>, MoveError> {
        Ok(self.home()?.placement_of(tenant).await?)
    }

    /// The rows of the catalogue, in the order of their changes.
    pub async fn placements(&self) -> Result<Vec<Placement>, MoveError> {
        Ok(self.home()?.placements(0).await?)
    }

    /// The tenant with this name.
    pub async fn named(&self, name: String) -> Result<Option<TenantId>, MoveError> {
        Ok(self.home()?.named_tenant(name).await?)
    }

    /// Moves a tenant to a database, from wherever an earlier call has left it. One that is there is written for
    /// afterwards, whatever a mover has left behind.
    pub async fn take(
        &self,
        tenant: TenantId,
        to: &str,
        watch: Watch<'_>,
    ) -> Result<Moved, MoveError> {
        // It is large: whoever awaits it does not grow by it.
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

    /// Gives up a move whose tenant is still where it was, which takes writes again.
    pub async fn abort(&self, tenant: TenantId) -> Result<Placement, MoveError> {
        let Some(row) = self.placement(tenant).await? else {
            self.known(tenant).await?;
            return Err(MoveError::NotMoving(HOME.to_owned()));
        };
        match row.phase {
            Phase::Copying => self.give_up(&row).await,
            Phase::Arrived | Phase::Erasing => Err(MoveError::TooLate),
            Phase::Settled => {
                // Whoever gave it up may have died then.
                self.complete(&row).await?;
                Err(MoveError::NotMoving(row.place))
            }
        }
    }

    /// Gives up the move that this row is of.
    async fn give_up(&self, row: &Placement) -> Result<Placement, MoveError> {
        // Known before anything changes. The other one may be gone for good.
        self.database(&row.place)?;
        let place = row.place.clone();
        let settled = self.change(row, place, None, Phase::Settled).await?;
        self.complete(&settled).await?;
        Ok(settled)
    }

    /// Does what may be left to do of a move that is settled: has the tenant's database take writes, and removes what was
    /// copied to another one for nothing. There nothing is written, and nobody reads it.
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

    /// Fails unless the row is what the catalogue says. Whoever has just closed a database may have done so for a tenant
    /// that has come to it, or has stayed there, since the row was read: the one that it is on takes writes again.
    async fn confirm(&self, row: &Placement) -> Result<(), MoveError> {
        let now = self.placement(row.tenant).await?;
        let now = now.ok_or(MoveError::Contended)?;
        if now.version == row.version {
            return Ok(());
        }
        match now.phase {
            // A later move, which closes them itself: whoever ends it or gives it up opens what was closed before, too.
            Phase::Copying => return Err(MoveError::Contended),
            // As the move itself does.
            Phase::Arrived => tokio::time::sleep_until(Instant::now() + KNOWN_IN_MOVING).await,
            Phase::Settled | Phase::Erasing => {}
        }
        let database = self.database(&now.place)?;
        database.arrive(now.tenant, now.began).await?;
        Err(MoveError::Contended)
    }

    /// What the home knows of a tenant.
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

/// What the catalogue would say of a tenant that has always been at home.
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

/// A move under way.
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

    /// Enters the move into the catalogue. Until it is frozen, nobody notices.
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

    /// From wherever an earlier attempt has come to: everything is done anew, as rows may have been written in between
    /// where it had not frozen them.
    async fn copy(&mut self, row: Placement) -> Result<Placement, MoveError> {
        let (tenant, version) = (row.tenant, row.began);
        let to = row.target().unwrap_or(HOME).to_owned();
        let home = self.mover.home()?;
        let source = self.mover.database(&row.place)?;
        let target = self.mover.database(&to)?;
        let frozen_at = Instant::now();
        self.frozen_since = Some(frozen_at);
        // First there: what is half copied is never taken for the tenant.
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
                // The same again, however often: its writes do not wait for that.
                if error.is_of_data() {
                    self.mover.give_up(&row).await?;
                }
                return Err(error.into());
            }
        };
        self.rows = copied.rows();
        self.bytes = copied.bytes;
        self.tell(&Step::Copied(copied))?;
        // Every process knows by then that the tenant moves, and looks again in short intervals.
        tokio::time::sleep_until(frozen_at + KNOWN_IN).await;
        let from = Some(row.place.clone());
        let arrived = self.mover.change(&row, to, from, Phase::Arrived).await?;
        self.tell(&Step::Arrived)?;
        Ok(arrived)
    }

    /// Nobody reads where the tenant was once it is written for where it is.
    async fn thaw(&mut self, row: Placement) -> Result<Placement, MoveError> {
        tokio::time::sleep_until(Instant::now() + KNOWN_IN_MOVING).await;
        let target = self.mover.database(&row.place)?;
        // However late: what a later move has closed stays so.
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
