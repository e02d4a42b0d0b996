//! Operations on whole trees of sessions, one store step at a time.

use super::{
    CancelOutcome, DeleteOutcome, Erased, ListRuns, ListSends, PruneOutcome, PruneSession, PruneTo,
    Result, Store,
};
use crate::id::{BootId, SendId, SessionKey};
use crate::workflow::run::{RunAsk, RunStatus};

/// Maximum number of open sends of one session that are processed.
const SENDS_MAX: u32 = 200;

/// Maximum number of live runs of one session and status that are processed.
const RUNS_MAX: u32 = 200;

/// Cancels everything that works below a session for one of its sends: its children, the runs that
/// it waits for, and what works for those. Works from the top down, so that ended work cannot start
/// anything new below it. A repeat cancels again, which is needed if a session was locked.
pub async fn cancel_below(
    store: &dyn Store,
    boot: BootId,
    key: SessionKey,
    send: SendId,
) -> Result<Vec<CancelOutcome>> {
    let mut outcomes = Vec::new();
    let mut asking = vec![(key, Some(send))];
    while let Some((parent, only)) = asking.pop() {
        cancel_runs(store, parent, only).await?;
        for child in store.list_children(parent).await? {
            let mut open = Vec::new();
            let query = ListSends {
                tenant: child.tenant,
                session: Some(child.session),
                status: None,
                before: None,
                limit: SENDS_MAX,
            };
            for record in store.list_sends(query).await?.data {
                let calls = only.map(|send| format!("call_{}_", send.0.simple()));
                let concerned = match (&calls, &record.reports_to) {
                    (None, _) => true,
                    (Some(prefix), Some(call)) => call.starts_with(prefix.as_str()),
                    (Some(_), None) => false,
                };
                if concerned && !record.status.is_final() {
                    open.push((child.tenant, record.id));
                }
            }
            if !open.is_empty() {
                // A child that cannot be read does not keep its siblings running.
                let cancelled = one_by_one(&open, |open| store.cancel_sends(boot, open));
                outcomes.extend(cancelled.await?.into_iter().flatten());
                asking.push((child, None));
            }
        }
    }
    Ok(outcomes)
}

/// Processes items in one group; if the data of one of them is at fault, each on its own. The outcome
/// of an item whose data is at fault is `None`.
pub async fn one_by_one<T, R, F>(items: &[T], step: impl Fn(Vec<T>) -> F) -> Result<Vec<Option<R>>>
where
    T: Clone,
    F: Future<Output = Result<Vec<R>>>,
{
    match step(items.to_vec()).await {
        Ok(outcomes) => return Ok(outcomes.into_iter().map(Some).collect()),
        Err(error) if error.is_of_data() => {}
        Err(error) => return Err(error),
    }
    let mut outcomes = Vec::with_capacity(items.len());
    for item in items {
        match step(vec![item.clone()]).await {
            Ok(outcome) => outcomes.extend(outcome.into_iter().map(Some)),
            Err(error) if error.is_of_data() => outcomes.push(None),
            Err(error) => return Err(error),
        }
    }
    Ok(outcomes)
}

/// Cancels the runs that this send of the session waits for, or that any of its sends does.
async fn cancel_runs(store: &dyn Store, key: SessionKey, only: Option<SendId>) -> Result<()> {
    let prefix = only.map(|send| format!("call_{}_", send.0.simple()));
    let ask = RunAsk::Cancel {
        reason: Some("who waits for it has ended".to_owned()),
    };
    let mut asks = Vec::new();
    // Skip final runs: a session may have had thousands.
    for status in RunStatus::ALL.iter().filter(|status| !status.is_final()) {
        let query = ListRuns {
            tenant: key.tenant,
            status: Some(*status),
            session: Some(key.session),
            before: None,
            limit: RUNS_MAX,
        };
        let runs = store.list_runs(query).await?.data.into_iter();
        let waited_for = runs.filter(|run| {
            let call = run.reports_to.as_deref();
            let of_send = |call: &str| prefix.as_deref().is_none_or(|of| call.starts_with(of));
            call.is_some_and(of_send)
        });
        asks.extend(waited_for.map(|run| (run.key, ask.clone())));
    }
    if !asks.is_empty() {
        store.ask_runs(asks).await?;
    }
    Ok(())
}

/// The result of one step of removing a deleted session.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ErasedStep {
    /// The sessions directly below it, which were deleted, too, and itself if its deletion had been
    /// interrupted, with the outcome of each transaction.
    pub deleted: Vec<(SessionKey, DeleteOutcome)>,
    /// The page that was removed.
    pub page: Erased,
}

/// Deletes a session, in as many transactions as its open sends require; returns the outcome of
/// each, or nothing if there is no such session. After a crash between two of them, the sweep
/// finishes the rest.
pub async fn delete_whole(
    store: &dyn Store,
    boot: BootId,
    key: SessionKey,
) -> Result<Vec<DeleteOutcome>> {
    let mut outcomes = Vec::new();
    loop {
        match store.delete_session(key, boot).await? {
            ending @ DeleteOutcome::Ending { .. } => outcomes.push(ending),
            DeleteOutcome::NotFound => return Ok(outcomes),
            deleted @ DeleteOutcome::Deleted { .. } => {
                outcomes.push(deleted);
                return Ok(outcomes);
            }
        }
    }
}

/// Advances the removal of a deleted session by one step: deletes the sessions below it, then
/// removes a page of its rows. Each is a transaction of its own: after a crash between two of them,
/// the next step finds the rest.
pub async fn erase_step(
    store: &dyn Store,
    boot: BootId,
    key: SessionKey,
    limit: u32,
) -> Result<ErasedStep> {
    let mut deleted = Vec::new();
    let mut going = store.list_children(key).await?;
    if store.get_session(key).await?.is_some() {
        // Its deletion was interrupted before all of its sends had ended.
        going.insert(0, key);
    }
    for session in going {
        let outcomes = delete_whole(store, boot, session).await?;
        deleted.extend(outcomes.into_iter().map(|outcome| (session, outcome)));
    }
    let page = store.erase_session(key, limit).await?;
    Ok(ErasedStep { deleted, page })
}

/// Prunes a session page by page, with the result of doing it at once.
pub async fn prune_all(store: &dyn Store, item: PruneSession) -> Result<PruneOutcome> {
    let mut outcome = store.prune_session(item).await?;
    while let PruneOutcome::Pruned {
        removed,
        first_seq,
        until,
    } = outcome
        && first_seq < until
    {
        // Do not repeat the original request: the session may have grown in the meantime.
        let to = PruneTo::Before(until);
        match store.prune_session(PruneSession { to, ..item }).await? {
            PruneOutcome::Pruned {
                removed: more,
                first_seq,
                ..
            } if more > 0 => {
                outcome = PruneOutcome::Pruned {
                    removed: removed + more,
                    first_seq,
                    until,
                };
            }
            // It was deleted, or someone else has pruned it further.
            PruneOutcome::Pruned { .. } | PruneOutcome::NotFound => break,
        }
    }
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Error;

    async fn step(items: Vec<i32>) -> Result<Vec<i32>> {
        if items.contains(&2) {
            return Err(Error::Refused {
                source: "no twos".into(),
            });
        }
        if items.contains(&3) {
            return Err(Error::Unavailable {
                source: "away".into(),
            });
        }
        Ok(items.into_iter().map(|n| n * 10).collect())
    }

    #[test]
    fn an_item_whose_data_is_at_fault_is_left_out_and_an_outage_is_an_error() {
        use futures::FutureExt as _;

        let done = |items: &[i32]| {
            one_by_one(items, step)
                .now_or_never()
                .expect("nothing waits")
        };
        assert_eq!(done(&[1, 4]).unwrap(), [Some(10), Some(40)]);
        assert_eq!(done(&[1, 2, 4]).unwrap(), [Some(10), None, Some(40)]);
        assert!(matches!(done(&[1, 3]), Err(Error::Unavailable { .. })));
        assert!(matches!(done(&[2, 3]), Err(Error::Unavailable { .. })));
    }
}
