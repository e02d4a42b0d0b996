//! Groups: items of different sessions that share a statement and a commit, each with an outcome of
//! its own.

use mainspring_shared::store::{
    AcceptOutcome, AppendOutcome, ClaimOutcome, CompleteOutcome, CreateOutcome, Error, ParkOutcome,
    Result,
};
use sqlx::PgConnection;

use crate::retry::{Attempts, Fault, Pool, Verdict};

/// Statements for one group, beyond those that settle an item each.
const PASSES_SPARE: usize = 8;

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

impl Effect for ParkOutcome {
    fn took_effect(&self) -> bool {
        !matches!(self, Self::LeaseLost)
    }
}

/// Runs items in as few transactions as possible, in order, and returns an outcome for each. An
/// item's bad data fails the call only after its neighbours have been served.
pub(crate) async fn drive<G: Group>(
    pool: &Pool,
    group: &G,
    items: &[G::Item],
) -> Result<Vec<G::Outcome>> {
    let mut outcomes: Vec<Option<G::Outcome>> = items.iter().map(|_| None).collect();
    let mut batches = split(group, items);
    let mut attempts = Attempts::default();
    let mut bad_data: Option<Error> = None;
    let mut passes_left = 2 * items.len() + PASSES_SPARE;
    while let Some(batch) = batches.pop() {
        let picked: Vec<&G::Item> = batch.iter().map(|index| &items[*index]).collect();
        if passes_left == 0 {
            for (index, item) in batch.iter().zip(picked) {
                outcomes[*index] = Some(group.unsettled(item)?);
            }
            continue;
        }
        passes_left -= 1;
        let known = match run(pool, &attempts, group, &picked).await {
            Ok(known) => confirmed(pool, &mut attempts, group, &picked, known).await?,
            Err(fault) => match attempts.weigh(fault)? {
                Verdict::Again => {
                    batches.push(batch);
                    continue;
                }
                Verdict::Lost => read_back(pool, &mut attempts, group, &picked).await?,
                Verdict::BadData(error) => {
                    // What is in the way may be what an earlier attempt has stored by now.
                    let unknown = picked.iter().map(|_| None).collect();
                    let known = confirmed(pool, &mut attempts, group, &picked, unknown).await?;
                    if known.iter().all(Option::is_none) {
                        if batch.len() == 1 {
                            bad_data.get_or_insert(error);
                        } else {
                            batches.extend(batch.into_iter().rev().map(|index| vec![index]));
                        }
                        continue;
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
            outcomes[index] = outcome;
        }
        if !left.is_empty() {
            batches.push(left);
        }
    }
    if let Some(error) = bad_data {
        return Err(error);
    }
    let settled = outcomes.into_iter().flatten().collect::<Vec<_>>();
    debug_assert_eq!(settled.len(), items.len(), "every item was settled");
    Ok(settled)
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
