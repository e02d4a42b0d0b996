//! Advancing runs: one transaction for several of them.

mod report;

use std::collections::BTreeSet;

use mainspring_shared::id::{BootId, RunKey, SendId, SessionKey, TenantId};
use mainspring_shared::session::Lifecycle;
use mainspring_shared::store::{
    AcceptOutcome, AcceptSend, AdvanceOutcome, AdvanceRun, ReadySession, Result, Target,
    WebhookNews, passes_bound,
};
use mainspring_shared::time::Timestamp;
use sqlx::{Connection, PgConnection};

use super::{Live, run_columns};
use crate::accept::Accept;
use crate::columns::{json, text};
use crate::fault::Fault;
use crate::group::Group;
use crate::ledger::{Hot, locked_out, now};
use crate::retry::{Attempts, Pool, Verdict, sql};
use crate::rows::{Fields, key_columns, send_columns};
use crate::webhooks;

pub(crate) async fn advance(
    pool: &Pool,
    at: Option<Timestamp>,
    boot: BootId,
    items: &[AdvanceRun],
) -> Result<Vec<AdvanceOutcome>> {
    let mut attempts = Attempts::default();
    let mut locked = BTreeSet::new();
    loop {
        let was_lost = attempts.any_lost();
        let advance = Advance {
            at,
            boot,
            items,
            locked: &locked,
            waits: attempts.conflicts() == 0 || was_lost,
        };
        let advanced = attempts.on(pool, async |connection| {
            advance.once(connection, was_lost).await
        });
        match advanced.await {
            Ok(outcomes) => return Ok(outcomes),
            Err(fault) => match attempts.weigh(fault)? {
                // Retry without the items whose sessions another transaction has locked.
                Verdict::Again if !was_lost => {
                    let every: Vec<SessionKey> = items.iter().flat_map(sessions).collect();
                    let look = async |connection: &mut PgConnection| {
                        locked_out(connection, every.clone()).await
                    };
                    if let Ok(found) = attempts.on(pool, look).await {
                        locked = found;
                    }
                }
                Verdict::Again | Verdict::Lost => {}
                Verdict::BadData(error) => return Err(error),
            },
        }
    }
}

/// The sessions that an item continues in or reports to.
fn sessions(item: &AdvanceRun) -> impl Iterator<Item = SessionKey> + Clone {
    let told = item.report.iter().map(|report| report.session);
    told.chain(existing(item))
}

/// Whether an item is subject to its tenant's limit of leaves.
fn is_bounded(item: &AdvanceRun) -> bool {
    item.leaves_max.is_some() && !item.start.is_empty()
}

/// The existing sessions in which leaves of an item continue.
fn existing(item: &AdvanceRun) -> impl Iterator<Item = SessionKey> + Clone {
    item.start.iter().filter_map(|send| match &send.target {
        Target::Existing(key) => Some(*key),
        Target::New(_) => None,
    })
}

struct Advance<'a> {
    at: Option<Timestamp>,
    boot: BootId,
    items: &'a [AdvanceRun],
    /// Sessions whose locks an earlier attempt could not get.
    locked: &'a BTreeSet<SessionKey>,
    /// Whether to wait for the locks of tenants' limits: not after an attempt that waited in vain.
    waits: bool,
}

type Indexes = Vec<usize>;

impl Advance<'_> {
    async fn once(
        &self,
        connection: &mut PgConnection,
        was_lost: bool,
    ) -> std::result::Result<Vec<AdvanceOutcome>, Fault> {
        let mut tx = connection.begin().await?;
        let now = now(&mut tx, self.at).await?;
        let mut outcomes: Vec<AdvanceOutcome> =
            self.items.iter().map(|_| AdvanceOutcome::Lost).collect();
        let mut left = Indexes::new();
        if was_lost {
            left = self.stored_before(&mut tx).await?;
            for index in &left {
                outcomes[*index] = self.heard(&mut tx, *index).await?;
            }
        }
        for (index, why) in self.lock(&mut tx, &left).await? {
            outcomes[index] = why;
            left.push(index);
        }
        for (index, why) in self.without_room(&mut tx, &left).await? {
            outcomes[index] = why;
            left.push(index);
        }
        let held = self.write_runs(&mut tx, &left).await?;
        if held.is_empty() {
            tx.rollback().await?;
            return Ok(outcomes);
        }
        self.write_nodes(&mut tx, &held).await?;
        self.note(&mut tx, now, &held).await?;
        let Some(started) = self.start(&mut tx, now, &held).await? else {
            tx.rollback().await?;
            return Ok(outcomes);
        };
        for (index, enqueue) in held.iter().zip(started) {
            outcomes[*index] = AdvanceOutcome::Advanced {
                step: self.items[*index].step + 1,
                enqueue,
                notify: None,
            };
        }
        for index in held {
            if let Some(report) = &self.items[index].report {
                let heard = self.tell(&mut tx, now, report).await?;
                if let AdvanceOutcome::Advanced {
                    enqueue, notify, ..
                } = &mut outcomes[index]
                {
                    enqueue.extend(heard.ready);
                    *notify = heard.owner.map(|owner| (report.session, owner));
                }
            }
        }
        tx.commit().await?;
        Ok(outcomes)
    }

    /// Locks all sessions that the items, except those at `left`, continue in or report to, in key
    /// order; later statements find them locked. Returns the items that cannot be advanced: for
    /// now, because of a lock, or because a session in which a leaf was to continue accepts no more
    /// sends, so that the caller has to reread the run.
    async fn lock(
        &self,
        connection: &mut PgConnection,
        left: &[usize],
    ) -> std::result::Result<Vec<(usize, AdvanceOutcome)>, Fault> {
        let asked = (0..self.items.len()).filter(|n| !left.contains(n));
        let (locked, taken): (Indexes, Indexes) =
            asked.partition(|n| sessions(&self.items[*n]).any(|key| self.locked.contains(&key)));
        let locked = locked.into_iter().map(|n| (n, AdvanceOutcome::Locked));
        let mut nothing: Vec<_> = locked.collect();
        let keys = taken.iter().flat_map(|n| sessions(&self.items[*n]));
        let (tenants, sessions) = key_columns(keys);
        if tenants.is_empty() {
            return Ok(nothing);
        }
        let rows = sql!("ledger/lock")
            .bind(tenants)
            .bind(sessions)
            .fetch_all(connection)
            .await?;
        let hot = rows
            .iter()
            .map(|row| Hot::read(&mut Fields::new(row, "session_hot")));
        let hot: Vec<Hot> = hot.collect::<Result<_>>()?;
        let open = hot
            .iter()
            .filter(|hot| hot.row.lifecycle == Lifecycle::Open);
        let open: BTreeSet<SessionKey> = open.map(|hot| hot.row.key).collect();
        let is_gone = |n: &usize| existing(&self.items[*n]).any(|key| !open.contains(&key));
        let gone = taken.into_iter().filter(is_gone);
        nothing.extend(gone.map(|n| (n, AdvanceOutcome::Lost)));
        Ok(nothing)
    }

    /// The items that would exceed their tenants' limits of leaves, or whose tenants' limits
    /// another transaction has locked. Locks the limits of the items' tenants until the transaction
    /// ends.
    async fn without_room(
        &self,
        connection: &mut PgConnection,
        left: &[usize],
    ) -> std::result::Result<Vec<(usize, AdvanceOutcome)>, Fault> {
        let asked = self.items.iter().enumerate();
        let asked = asked.filter(|(n, _)| !left.contains(n));
        let tenants = asked.clone().filter(|(_, item)| is_bounded(item));
        let tenants: BTreeSet<i32> = tenants.map(|(_, item)| item.run.key.tenant.0).collect();
        // All items of such a tenant are judged: the leaves that one starts and ends count for the
        // ones after it.
        let judged = asked.filter(|(_, item)| tenants.contains(&item.run.key.tenant.0));
        let judged: Vec<usize> = judged.map(|(n, _)| n).collect();
        if tenants.is_empty() {
            return Ok(Vec::new());
        }
        let tenants: Vec<i32> = tenants.into_iter().collect();
        let query = if self.waits {
            sql!("runs/lock_bound")
        } else {
            sql!("runs/try_bound")
        };
        let held = query.bind(tenants).fetch_all(&mut *connection).await?;
        let held = held
            .iter()
            .map(|row| Fields::new(row, "runs").take("tenant"));
        let held: BTreeSet<i32> = held.collect::<Result<_>>()?;
        // A separate statement, so that it sees what the previous holder of the lock stored.
        let keys = judged.iter().map(|n| self.items[*n].run.key);
        let live = Live::read(connection, keys).await?;
        let full = self.full(&judged, &held, live.clone(), None);
        if full.iter().all(|(_, why)| *why != AdvanceOutcome::NoRoom) {
            return Ok(full);
        }
        // An item whose run is lost anyway takes no room, and must not be reported as without room.
        let owned = self.owned(connection).await?;
        Ok(self.full(&judged, &held, live, Some(&owned)))
    }

    /// The outcomes of the `judged` items that cannot be advanced: those that are not `owned`, and
    /// those without room after the ones before them. If `owned` is unknown, no item is assumed to
    /// free room, so an item that has room then has it in any case.
    fn full(
        &self,
        judged: &[usize],
        held: &BTreeSet<i32>,
        mut live: Live,
        owned: Option<&BTreeSet<usize>>,
    ) -> Vec<(usize, AdvanceOutcome)> {
        let mut full = Vec::new();
        for index in judged {
            let item = &self.items[*index];
            let key = item.run.key;
            let (all, own) = live.of(key);
            // Leaves of a run that has ended do not count.
            let live_then = u64::from(item.run.counts.live);
            let then = live_then * u64::from(!item.run.status.is_final());
            if is_bounded(item) && !held.contains(&key.tenant.0) {
                full.push((*index, AdvanceOutcome::Locked));
            } else if owned.is_some_and(|owned| !owned.contains(index)) {
                full.push((*index, AdvanceOutcome::Lost));
            } else if passes_bound(item, all, own) {
                full.push((*index, AdvanceOutcome::NoRoom));
            } else {
                live.set(key, owned.map_or(then.max(own), |_| then));
            }
        }
        full
    }

    /// The items whose runs belong to the boot and are at the items' steps.
    async fn owned(
        &self,
        connection: &mut PgConnection,
    ) -> std::result::Result<BTreeSet<usize>, Fault> {
        let keys: Vec<RunKey> = self.items.iter().map(|item| item.run.key).collect();
        let (tenants, runs) = run_columns(&keys);
        let rows = sql!("runs/owned")
            .bind(self.boot.0)
            .bind(tenants)
            .bind(runs)
            .bind(self.items.iter().map(|i| i.step).collect::<Vec<_>>())
            .fetch_all(connection)
            .await?;
        let found = rows.iter().map(|row| Fields::new(row, "runs").ord());
        Ok(found.collect::<Result<_>>()?)
    }

    /// Writes the runs that belong to the boot and are at the items' steps, except those at `left`.
    /// Returns the indexes of the written ones.
    async fn write_runs(
        &self,
        connection: &mut PgConnection,
        left: &[usize],
    ) -> std::result::Result<Indexes, Fault> {
        // No run is at this step.
        const NEVER: i64 = -1;
        let steps = self.items.iter().enumerate();
        let steps = steps.map(|(n, item)| if left.contains(&n) { NEVER } else { item.step });
        let rows = || self.items.iter().map(|item| &item.run);
        let (tenants, runs) = run_columns(&rows().map(|run| run.key).collect::<Vec<_>>());
        let keeps = self
            .items
            .iter()
            .map(|item| !item.release && !item.run.status.is_final());
        let found = sql!("runs/advance")
            .bind(self.boot.0)
            .bind(tenants)
            .bind(runs)
            .bind(steps.collect::<Vec<_>>())
            .bind(rows().map(|r| r.status.as_str()).collect::<Vec<_>>())
            .bind(rows().map(|r| r.attempt).collect::<Vec<_>>())
            .bind(rows().map(|r| json(&r.options)).collect::<Vec<_>>())
            .bind(
                rows()
                    .map(|r| r.result.as_ref().map(json))
                    .collect::<Vec<_>>(),
            )
            .bind(
                rows()
                    .map(|r| r.error.as_ref().map(json))
                    .collect::<Vec<_>>(),
            )
            .bind(rows().map(|r| json(&r.usage)).collect::<Vec<_>>())
            .bind(rows().map(|r| json(&r.counts)).collect::<Vec<_>>())
            .bind(rows().map(|r| r.alarm_at.map(|t| t.0)).collect::<Vec<_>>())
            .bind(
                rows()
                    .map(|r| r.started_at.map(|t| t.0))
                    .collect::<Vec<_>>(),
            )
            .bind(
                rows()
                    .map(|r| r.finished_at.map(|t| t.0))
                    .collect::<Vec<_>>(),
            )
            .bind(keeps.collect::<Vec<_>>())
            .fetch_all(connection)
            .await?;
        let held = found.iter().map(|row| Fields::new(row, "runs").ord());
        let mut held = held.collect::<Result<Indexes>>()?;
        held.sort_unstable();
        Ok(held)
    }

    async fn write_nodes(
        &self,
        connection: &mut PgConnection,
        held: &[usize],
    ) -> std::result::Result<(), Fault> {
        let items = held.iter().map(|index| &self.items[*index]);
        let nodes = items.flat_map(|item| item.nodes.iter().map(|node| (item.run.key, node)));
        let nodes: Vec<_> = nodes.collect();
        if nodes.is_empty() {
            return Ok(());
        }
        let rows = || nodes.iter().map(|(_, node)| *node);
        let (tenants, runs) = run_columns(&nodes.iter().map(|(key, _)| *key).collect::<Vec<_>>());
        sql!("runs/write_nodes")
            .bind(tenants)
            .bind(runs)
            .bind(
                rows()
                    .map(|node| text(&node.path).into_owned())
                    .collect::<Vec<_>>(),
            )
            .bind(rows().map(|node| node.n).collect::<Vec<_>>())
            .bind(rows().map(|node| node.state.as_str()).collect::<Vec<_>>())
            .bind(rows().map(json).collect::<Vec<_>>())
            .execute(connection)
            .await?;
        Ok(())
    }

    /// Records what the advances consumed, and writes their rows.
    async fn note(
        &self,
        connection: &mut PgConnection,
        now: Timestamp,
        held: &[usize],
    ) -> std::result::Result<(), Fault> {
        let items = || held.iter().map(|index| &self.items[*index]);
        let ends = items().flat_map(|item| {
            let tenant = item.run.key.tenant;
            item.ends.iter().map(move |end| (tenant, *end))
        });
        let ends: Vec<(TenantId, SendId)> = ends.collect();
        if !ends.is_empty() {
            let (tenants, ids) = send_columns(ends);
            sql!("sends/report")
                .bind(now.0)
                .bind(tenants)
                .bind(ids)
                .execute(&mut *connection)
                .await?;
        }
        let asks = items().flat_map(|item| item.asks.iter().map(|ask| (item.run.key, *ask)));
        let asks: Vec<(RunKey, i64)> = asks.collect();
        if !asks.is_empty() {
            let (tenants, runs) = run_columns(&asks.iter().map(|(k, _)| *k).collect::<Vec<_>>());
            sql!("runs/drop_asks")
                .bind(tenants)
                .bind(runs)
                .bind(asks.iter().map(|(_, ask)| *ask).collect::<Vec<_>>())
                .execute(&mut *connection)
                .await?;
        }
        let (tenants, runs) = run_columns(&items().map(|i| i.run.key).collect::<Vec<_>>());
        sql!("runs/write_steps")
            .bind(now.0)
            .bind(self.boot.0)
            .bind(tenants)
            .bind(runs)
            .bind(items().map(|item| item.step + 1).collect::<Vec<_>>())
            .bind(items().map(|item| json(&item.changes)).collect::<Vec<_>>())
            .execute(&mut *connection)
            .await?;
        let news = items().filter_map(|item| WebhookNews::of_advance(item, now));
        webhooks::note(connection, news.collect()).await
    }

    /// Accepts the leaves; returns the sessions to enqueue, per advance. `None` if one is not
    /// accepted: the caller has to reread the run.
    async fn start(
        &self,
        connection: &mut PgConnection,
        now: Timestamp,
        held: &[usize],
    ) -> std::result::Result<Option<Vec<Vec<ReadySession>>>, Fault> {
        let sends: Vec<&AcceptSend> = held
            .iter()
            .flat_map(|index| &self.items[*index].start)
            .collect();
        let mut enqueue: Vec<Vec<ReadySession>> = held.iter().map(|_| Vec::new()).collect();
        if sends.is_empty() {
            return Ok(Some(enqueue));
        }
        let outcomes = self.accept(connection, now, &sends).await?;
        let is_accepted = |outcome: &_| matches!(outcome, Some(AcceptOutcome::Accepted(_)));
        if !outcomes.iter().all(is_accepted) {
            return Ok(None);
        }
        let mut accepted = outcomes.into_iter().map(ready_of);
        for (index, enqueue) in held.iter().zip(&mut enqueue) {
            let mine = accepted.by_ref().take(self.items[*index].start.len());
            enqueue.extend(mine.flatten());
        }
        Ok(Some(enqueue))
    }

    /// Accepts sends with the same statements as any others.
    async fn accept(
        &self,
        connection: &mut PgConnection,
        now: Timestamp,
        sends: &[&AcceptSend],
    ) -> std::result::Result<Vec<Option<AcceptOutcome>>, Fault> {
        let accept = Accept {
            at: Some(now),
            boot: self.boot,
        };
        accept.run(connection, sends).await
    }

    /// The items that an earlier attempt with a lost response stored.
    async fn stored_before(
        &self,
        connection: &mut PgConnection,
    ) -> std::result::Result<Indexes, Fault> {
        let keys: Vec<RunKey> = self.items.iter().map(|item| item.run.key).collect();
        let (tenants, runs) = run_columns(&keys);
        let rows = sql!("runs/advanced")
            .bind(self.boot.0)
            .bind(tenants)
            .bind(runs)
            .bind(self.items.iter().map(|i| i.step).collect::<Vec<_>>())
            .fetch_all(connection)
            .await?;
        let found = rows.iter().map(|row| Fields::new(row, "run_steps").ord());
        Ok(found.collect::<Result<_>>()?)
    }

    /// The outcome of an item that was stored before: its leaves are still to be enqueued. The
    /// sweep finds the session that waits for the run.
    async fn heard(
        &self,
        connection: &mut PgConnection,
        index: usize,
    ) -> std::result::Result<AdvanceOutcome, Fault> {
        let item = &self.items[index];
        let sends: Vec<&AcceptSend> = item.start.iter().collect();
        let accept = Accept {
            at: self.at,
            boot: self.boot,
        };
        let found = accept.read_back(connection, &sends).await?;
        let enqueue = found.into_iter().filter_map(|outcome| match outcome {
            Some(AcceptOutcome::Accepted(accepted)) => accepted.enqueue,
            Some(
                AcceptOutcome::Replayed(_)
                | AcceptOutcome::Mismatch
                | AcceptOutcome::Refused(_)
                | AcceptOutcome::Locked,
            )
            | None => None,
        });
        Ok(AdvanceOutcome::Advanced {
            step: item.step + 1,
            enqueue: enqueue.collect(),
            notify: None,
        })
    }
}

fn ready_of(outcome: Option<AcceptOutcome>) -> Option<ReadySession> {
    match outcome {
        Some(AcceptOutcome::Accepted(accepted)) => accepted.enqueue,
        Some(
            AcceptOutcome::Replayed(_)
            | AcceptOutcome::Mismatch
            | AcceptOutcome::Refused(_)
            | AcceptOutcome::Locked,
        )
        | None => None,
    }
}
