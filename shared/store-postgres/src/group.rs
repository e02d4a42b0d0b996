//! Groups: items of different sessions share a statement and a commit; each has its own outcome.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use mainspring_shared::id::SessionKey;
use mainspring_shared::store::{
    AcceptOutcome, AppendOutcome, CancelOutcome, ClaimOutcome, CompleteOutcome, CreateOutcome,
    DeliverOutcome, Error, ParkOutcome, PostOutcome, Result,
};
use sqlx::PgConnection;

use crate::fault::Fault;
use crate::ledger::locked_out;
use crate::retry::{Attempts, Pool, Verdict};

/// Passes that a group may take beyond two per item.
const PASSES_SPARE: usize = 8;

/// Conflicts after which a batch that waits for a lock other than a session's is split.
const WAITS_MAX: u32 = 3;

/// A step that runs a group of items.
pub(crate) trait Group: Sync {
    /// One request.
    type Item: Sync;
    /// The result of one request.
    type Outcome: Send + Effect;

    /// State about the items that already share a statement.
    type Seen: Default;

    /// Whether an item must not share a statement with those recorded in `seen`. If it may, it is
    /// added to `seen`.
    fn conflicts_with(&self, item: &Self::Item, seen: &mut Self::Seen) -> bool;

    /// Runs a group in one transaction. An item without an outcome had no effect and must be run
    /// again.
    async fn run(
        &self,
        connection: &mut PgConnection,
        items: &[&Self::Item],
    ) -> std::result::Result<Vec<Option<Self::Outcome>>, Fault>;

    /// Determines which items took effect in a transaction whose outcome is unknown. An item
    /// without an outcome had no effect and must be run again.
    async fn read_back(
        &self,
        connection: &mut PgConnection,
        items: &[&Self::Item],
    ) -> std::result::Result<Vec<Option<Self::Outcome>>, Fault>;

    /// The outcome of an item that all passes left unsettled.
    fn unsettled(&self, item: &Self::Item) -> Result<Self::Outcome>;

    /// The existing session that an item locks, if any.
    fn session(&self, _item: &Self::Item) -> Option<SessionKey> {
        None
    }

    /// The outcome of an item that could not get a lock. Nothing of it was written.
    fn locked(&self, _item: &Self::Item) -> Result<Self::Outcome> {
        Err(Error::Unavailable {
            source: "someone else has locked what it needs".into(),
        })
    }
}

/// What an outcome says about the effect of its step.
pub(crate) trait Effect {
    /// Whether this call made the step take effect.
    fn took_effect(&self) -> bool;
}

impl Effect for AcceptOutcome {
    fn took_effect(&self) -> bool {
        matches!(self, Self::Accepted(_))
    }
}

impl Effect for AppendOutcome {
    fn took_effect(&self) -> bool {
        matches!(self, Self::Appended { .. })
    }
}

impl Effect for CancelOutcome {
    fn took_effect(&self) -> bool {
        matches!(self, Self::Cancelled { .. } | Self::Signalled { .. })
    }
}

impl Effect for ClaimOutcome {
    fn took_effect(&self) -> bool {
        matches!(self, Self::Claimed(_))
    }
}

impl Effect for CompleteOutcome {
    fn took_effect(&self) -> bool {
        matches!(self, Self::Completed(_))
    }
}

impl Effect for CreateOutcome {
    fn took_effect(&self) -> bool {
        matches!(self, Self::Created(_))
    }
}

impl Effect for DeliverOutcome {
    fn took_effect(&self) -> bool {
        matches!(self, Self::Accepted { .. } | Self::Kept(_))
    }
}

impl Effect for ParkOutcome {
    fn took_effect(&self) -> bool {
        !matches!(self, Self::LeaseLost | Self::Locked)
    }
}

impl Effect for PostOutcome {
    fn took_effect(&self) -> bool {
        matches!(self, Self::Accepted { .. })
    }
}

/// Whether an earlier transaction of a call may have committed although its response was lost.
/// Steps that recognize their own effects are not read back: they run again and consult this flag.
#[derive(Debug, Default)]
pub(crate) struct LostResponse(AtomicBool);

impl LostResponse {
    pub(crate) fn note(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(crate) fn any(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Whether a call has already tried the cheaper statement that handles only the common case. It is
/// tried once: the items that it leaves unsettled, and everything after a lost response, use the
/// general statement.
#[derive(Debug, Default)]
pub(crate) struct FastPath(AtomicBool);

impl FastPath {
    /// True on the first call only.
    pub(crate) fn first(&self) -> bool {
        !self.0.swap(true, Ordering::Relaxed)
    }
}

/// Runs items in as few transactions as possible, in order, and returns an outcome for each. An
/// item whose session stays locked delays the others at most once. If an item's data is bad, the
/// call fails and writes nothing, unless the items needed several statements: then earlier ones may
/// be stored, and get their outcomes when they are sent again. If the database fails after some of
/// the items took effect, these have their outcomes, and the others are answered as locked.
pub(crate) async fn drive<G: Group>(
    pool: &Pool,
    group: &G,
    items: &[G::Item],
) -> Result<Vec<G::Outcome>> {
    let mut drive = Drive {
        pool,
        group,
        items,
        outcomes: items.iter().map(|_| None).collect(),
        batches: split(group, items),
        attempts: Attempts::shared(),
        bad_data: None,
    };
    drive.set_aside_contended().await?;
    let mut passes_left = 2 * items.len() + PASSES_SPARE;
    while let Some(batch) = drive.batches.pop() {
        if passes_left == 0 {
            for index in batch {
                drive.outcomes[index] = Some(group.unsettled(&items[index])?);
            }
            continue;
        }
        passes_left -= 1;
        if let Err(error) = drive.pass(batch).await {
            return drive.given_up(error);
        }
    }
    if let Some(error) = drive.bad_data {
        return Err(error);
    }
    let settled = drive.outcomes.into_iter().flatten().collect::<Vec<_>>();
    debug_assert_eq!(settled.len(), items.len(), "every item was settled");
    Ok(settled)
}

/// The progress of a call's items.
struct Drive<'a, G: Group> {
    pool: &'a Pool,
    group: &'a G,
    items: &'a [G::Item],
    outcomes: Vec<Option<G::Outcome>>,
    /// Indexes of items that share a statement; the next batch is last.
    batches: Vec<Vec<usize>>,
    attempts: Attempts,
    bad_data: Option<Error>,
}

impl<G: Group> Drive<'_, G> {
    fn pick(&self, batch: &[usize]) -> Vec<&G::Item> {
        batch.iter().map(|index| &self.items[*index]).collect()
    }

    /// Runs a batch once. Items that it leaves unsettled go back to the batches.
    async fn pass(&mut self, batch: Vec<usize>) -> Result<()> {
        let (pool, group) = (self.pool, self.group);
        let items = self.items;
        let picked: Vec<&G::Item> = batch.iter().map(|index| &items[*index]).collect();
        let known = match run(pool, &self.attempts, group, &picked).await {
            Ok(known) => confirmed(pool, &mut self.attempts, group, &picked, known).await?,
            Err(fault) => match self.attempts.weigh(fault)? {
                // The locks may be held by an earlier attempt that is still running in the server.
                Verdict::Again if self.attempts.any_lost() => {
                    self.batches.push(batch);
                    return Ok(());
                }
                Verdict::Again => return self.part(batch).await,
                Verdict::Lost => read_back(pool, &mut self.attempts, group, &picked).await?,
                Verdict::BadData(error) => {
                    // The conflicting rows may be what an earlier attempt, or an earlier call, has
                    // stored meanwhile.
                    let known = read_back(pool, &mut self.attempts, group, &picked).await?;
                    if !known.iter().flatten().any(Effect::took_effect) {
                        return self.refuse(batch, error);
                    }
                    known
                }
            },
        };
        let mut left = Vec::new();
        for (index, outcome) in batch.into_iter().zip(known) {
            if outcome.is_none() {
                left.push(index);
            }
            self.outcomes[index] = outcome;
        }
        if !left.is_empty() {
            self.batches.push(left);
        }
        Ok(())
    }

    /// The outcomes of a call that ends because of this error. What has taken effect has to be told:
    /// a client that is told of a failure repeats it. Whoever repeats what is answered as locked
    /// repeats it under its id or its number, as after this error.
    fn given_up(self, error: Error) -> Result<Vec<G::Outcome>> {
        if !self.outcomes.iter().flatten().any(Effect::took_effect) {
            return Err(error);
        }
        tracing::debug!(%error, "the database failed after a part of a group");
        let outcomes = self.items.iter().zip(self.outcomes);
        let outcomes =
            outcomes.map(|(item, outcome)| outcome.map_or_else(|| self.group.locked(item), Ok));
        let outcomes: Result<Vec<_>> = outcomes.collect();
        outcomes.map_err(|_| error)
    }

    /// Handles bad data in a batch. If nothing of this call is stored, the whole call fails;
    /// otherwise the items are run one by one to isolate the bad one.
    fn refuse(&mut self, batch: Vec<usize>, error: Error) -> Result<()> {
        let served = self.outcomes.iter().flatten().any(Effect::took_effect);
        if !served {
            return Err(error);
        }
        if batch.len() == 1 {
            self.bad_data.get_or_insert(error);
        } else {
            let each = batch.into_iter().rev().map(|index| vec![index]);
            self.batches.extend(each);
        }
        Ok(())
    }

    /// Splits a batch that timed out on a lock, of which nothing was written. Items whose sessions
    /// are locked are settled as locked; the others continue without them.
    async fn part(&mut self, mut batch: Vec<usize>) -> Result<()> {
        let keys = self.keys(&batch);
        if self.set_aside(&mut batch, keys).await? || batch.is_empty() {
            if !batch.is_empty() {
                self.batches.push(batch);
            }
            return Ok(());
        }
        // The lock was released meanwhile, or is on another row: after some conflicts, halve the
        // batch to isolate the items that need it.
        let waits = self.attempts.conflicts();
        if waits < WAITS_MAX {
            self.batches.push(batch);
        } else if batch.len() > 1 {
            let behind = batch.split_off(batch.len() / 2);
            self.batches.extend([behind, batch]);
        } else {
            for index in batch {
                self.outcomes[index] = Some(self.group.locked(&self.items[index])?);
            }
        }
        Ok(())
    }

    fn keys(&self, batch: &[usize]) -> BTreeSet<SessionKey> {
        let picked = self.pick(batch).into_iter();
        picked.filter_map(|item| self.group.session(item)).collect()
    }

    /// Settles the items whose sessions, out of `keys`, are locked right now. Returns whether there
    /// were any.
    async fn set_aside(
        &mut self,
        batch: &mut Vec<usize>,
        keys: BTreeSet<SessionKey>,
    ) -> Result<bool> {
        let locked = loop {
            let look =
                async |connection: &mut PgConnection| locked_out(connection, keys.clone()).await;
            match self.attempts.on(self.pool, look).await {
                Ok(locked) => break locked,
                Err(fault) => match self.attempts.weigh(fault)? {
                    Verdict::Again | Verdict::Lost => {}
                    Verdict::BadData(error) => return Err(error),
                },
            }
        };
        let contended = &self.pool.contended;
        contended.free(keys.into_iter().filter(|key| !locked.contains(key)));
        contended.note(&locked);
        let mut kept = Vec::with_capacity(batch.len());
        for index in std::mem::take(batch) {
            let item = &self.items[index];
            let session = self.group.session(item);
            if session.is_some_and(|session| locked.contains(&session)) {
                self.outcomes[index] = Some(self.group.locked(item)?);
            } else {
                kept.push(index);
            }
        }
        *batch = kept;
        Ok(!locked.is_empty())
    }

    /// Sets aside items whose sessions were found locked before and still are, so that no statement
    /// waits for them again.
    async fn set_aside_contended(&mut self) -> Result<()> {
        let every = self.items.iter();
        let every = every.filter_map(|item| self.group.session(item));
        let known = self.pool.contended.among(every);
        if known.is_empty() {
            return Ok(());
        }
        for mut batch in std::mem::take(&mut self.batches) {
            let among = self.keys(&batch);
            let among: BTreeSet<SessionKey> = among.intersection(&known).copied().collect();
            if !among.is_empty() {
                self.set_aside(&mut batch, among).await?;
            }
            if !batch.is_empty() {
                self.batches.push(batch);
            }
        }
        Ok(())
    }
}

/// Splits items into batches that may share a statement; the first batch is last.
fn split<G: Group>(group: &G, items: &[G::Item]) -> Vec<Vec<usize>> {
    let mut batches = Vec::new();
    let mut batch = Vec::new();
    let mut seen = G::Seen::default();
    for (index, item) in items.iter().enumerate() {
        if group.conflicts_with(item, &mut seen) {
            batches.push(std::mem::take(&mut batch));
            seen = G::Seen::default();
            group.conflicts_with(item, &mut seen);
        }
        batch.push(index);
    }
    batches.push(batch);
    batches.retain(|batch| !batch.is_empty());
    batches.reverse();
    batches
}

async fn run<G: Group>(
    pool: &Pool,
    attempts: &Attempts,
    group: &G,
    items: &[&G::Item],
) -> std::result::Result<Vec<Option<G::Outcome>>, Fault> {
    let run = async |connection: &mut PgConnection| group.run(connection, items).await;
    attempts.on(pool, run).await
}

/// Checks whether items that report no effect took effect in an earlier attempt. A statement whose
/// connection broke may still be running in the server: the read-back found nothing stored, then
/// the statement committed before the next attempt, which found its own work done or its sessions
/// taken.
async fn confirmed<G: Group>(
    pool: &Pool,
    attempts: &mut Attempts,
    group: &G,
    items: &[&G::Item],
    mut known: Vec<Option<G::Outcome>>,
) -> Result<Vec<Option<G::Outcome>>> {
    if !attempts.any_lost() {
        return Ok(known);
    }
    let none = |outcome: &Option<G::Outcome>| !outcome.as_ref().is_some_and(Effect::took_effect);
    let doubtful: Vec<usize> = (0..items.len())
        .filter(|index| none(&known[*index]))
        .collect();
    if doubtful.is_empty() {
        return Ok(known);
    }
    let picked: Vec<&G::Item> = doubtful.iter().map(|index| items[*index]).collect();
    let found = read_back(pool, attempts, group, &picked).await?;
    for (index, outcome) in doubtful.into_iter().zip(found) {
        if outcome.is_some() {
            known[index] = outcome;
        }
    }
    Ok(known)
}

async fn read_back<G: Group>(
    pool: &Pool,
    attempts: &mut Attempts,
    group: &G,
    items: &[&G::Item],
) -> Result<Vec<Option<G::Outcome>>> {
    loop {
        let read = async |connection: &mut PgConnection| group.read_back(connection, items).await;
        match attempts.on(pool, read).await {
            Ok(known) => return Ok(known),
            Err(fault) => match attempts.weigh(fault)? {
                Verdict::Again | Verdict::Lost => {}
                Verdict::BadData(error) => return Err(error),
            },
        }
    }
}
