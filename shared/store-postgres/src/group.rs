//! Groups: items of different sessions that share a statement and a commit, each with an outcome of
//! its own.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use mainspring_shared::id::SessionKey;
use mainspring_shared::store::{
    AcceptOutcome, AppendOutcome, CancelOutcome, ClaimOutcome, CompleteOutcome, CreateOutcome,
    DeliverOutcome, Error, ParkOutcome, PostOutcome, Result,
};
use sqlx::PgConnection;

use crate::ledger::locked_out;
use crate::retry::{Attempts, Fault, Pool, Verdict};

/// Statements for one group, beyond those that settle an item each.
const PASSES_SPARE: usize = 8;

/// Attempts at one item that waits for a lock which is not its session's.
const WAITS_MAX: u32 = 3;

/// A step that takes a group.
pub(crate) trait Group: Sync {
    /// What is asked for.
    type Item: Sync;
    /// What became of it.
    type Outcome: Send + Effect;

    /// What is remembered of the items that share a statement.
    type Seen: Default;

    /// Whether an item must not share a statement with those before it, of which `seen` tells;
    /// otherwise it joins them.
    fn clashes(&self, item: &Self::Item, seen: &mut Self::Seen) -> bool;

    /// Runs a group in one transaction. An item without an outcome left nothing behind and has to
    /// be run again.
    async fn run(
        &self,
        connection: &mut PgConnection,
        items: &[&Self::Item],
    ) -> std::result::Result<Vec<Option<Self::Outcome>>, Fault>;

    /// Finds out which items took effect, after a transaction whose end is unknown. An item without
    /// an outcome did not and has to be run again.
    async fn read_back(
        &self,
        connection: &mut PgConnection,
        items: &[&Self::Item],
    ) -> std::result::Result<Vec<Option<Self::Outcome>>, Fault>;

    /// What becomes of an item that no number of attempts settled.
    fn unsettled(&self, item: &Self::Item) -> Result<Self::Outcome>;

    /// The session that an item finds there and needs.
    fn session(&self, _item: &Self::Item) -> Option<SessionKey> {
        None
    }

    /// What becomes of an item that waited for a lock in vain. Nothing of it was written.
    fn locked(&self, _item: &Self::Item) -> Result<Self::Outcome> {
        Err(Error::Unavailable {
            source: "someone else has locked what it needs".into(),
        })
    }
}

/// What an outcome says of its step.
pub(crate) trait Effect {
    /// Whether the step took effect by this very call.
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

/// Whether an earlier transaction of a call may have been committed although its answer was lost.
/// Steps that recognize their own effects are not read back: they run again, and are told so.
#[derive(Debug, Default)]
pub(crate) struct Unheard(AtomicBool);

impl Unheard {
    pub(crate) fn note(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(crate) fn any(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Whether a call has tried the statement yet that only knows the common case. It is tried once: what it leaves
/// takes the one that knows all cases, and so does everything once an answer was lost.
#[derive(Debug, Default)]
pub(crate) struct Slim(AtomicBool);

impl Slim {
    /// True the first time.
    pub(crate) fn first(&self) -> bool {
        !self.0.swap(true, Ordering::Relaxed)
    }
}

/// Runs items in as few transactions as possible, in order, and returns an outcome for each. One
/// whose session is locked for long keeps the others waiting once at most. On an item's bad data
/// nothing is written, unless some of the items could not share a statement: then those before it
/// are, and are told so when they are sent again.
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
        drive.pass(batch).await?;
    }
    if let Some(error) = drive.bad_data {
        return Err(error);
    }
    let settled = drive.outcomes.into_iter().flatten().collect::<Vec<_>>();
    debug_assert_eq!(settled.len(), items.len(), "every item was settled");
    Ok(settled)
}

/// Where the items of a call stand.
struct Drive<'a, G: Group> {
    pool: &'a Pool,
    group: &'a G,
    items: &'a [G::Item],
    outcomes: Vec<Option<G::Outcome>>,
    /// Indexes of items that share a statement; the next ones stand last.
    batches: Vec<Vec<usize>>,
    attempts: Attempts,
    bad_data: Option<Error>,
}

impl<G: Group> Drive<'_, G> {
    fn pick(&self, batch: &[usize]) -> Vec<&G::Item> {
        batch.iter().map(|index| &self.items[*index]).collect()
    }

    /// Runs a batch once. What is not settled by that stands among the batches again.
    async fn pass(&mut self, batch: Vec<usize>) -> Result<()> {
        let (pool, group) = (self.pool, self.group);
        let items = self.items;
        let picked: Vec<&G::Item> = batch.iter().map(|index| &items[*index]).collect();
        let known = match run(pool, &self.attempts, group, &picked).await {
            Ok(known) => confirmed(pool, &mut self.attempts, group, &picked, known).await?,
            Err(fault) => match self.attempts.weigh(fault)? {
                // What holds the locks may be an earlier attempt that still goes on.
                Verdict::Again if self.attempts.any_lost() => {
                    self.batches.push(batch);
                    return Ok(());
                }
                Verdict::Again => return self.part(batch).await,
                Verdict::Lost => read_back(pool, &mut self.attempts, group, &picked).await?,
                Verdict::BadData(error) => {
                    // What is in the way may be what an earlier attempt, or a call before this one,
                    // has stored by now.
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

    /// One item's data is bad. While nothing of this call is stored, all of it is given up.
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

    /// A batch waited for a lock in vain, and nothing of it was written. Those whose sessions are
    /// locked are settled as that, the others go on without them.
    async fn part(&mut self, mut batch: Vec<usize>) -> Result<()> {
        let keys = self.keys(&batch);
        if self.set_aside(&mut batch, keys).await? || batch.is_empty() {
            if !batch.is_empty() {
                self.batches.push(batch);
            }
            return Ok(());
        }
        // The lock was let go meanwhile, or it is another row's: what it keeps waiting is halved.
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

    /// Settles the items of a batch whose sessions, among these, are locked right now. Returns
    /// whether there were any.
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

    /// Nobody waits again for what was found locked and is locked still.
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

/// The items in batches that may share a statement; the first batch stands last.
fn split<G: Group>(group: &G, items: &[G::Item]) -> Vec<Vec<usize>> {
    let mut batches = Vec::new();
    let mut batch = Vec::new();
    let mut seen = G::Seen::default();
    for (index, item) in items.iter().enumerate() {
        if group.clashes(item, &mut seen) {
            batches.push(std::mem::take(&mut batch));
            seen = G::Seen::default();
            group.clashes(item, &mut seen);
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

/// Looks for effects of earlier attempts behind outcomes that tell of none. A statement whose
/// connection broke may go on in the server: when it was read back it had stored nothing, then it
/// came first, and the next attempt found its work done or its sessions taken, by itself.
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
