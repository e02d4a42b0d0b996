//! Accepting sends.

use std::collections::BTreeSet;

use mainspring_shared::agent::OnBusy;
use mainspring_shared::id::{BootId, SendId, SessionKey, TenantId};
use mainspring_shared::store::{
    AcceptOutcome, AcceptSend, Accepted, Counters, Error, GrantedSend, IdempotencyKey, KeyOutcome,
    ReadySession, RefuseReason, Result, Target,
};
use mainspring_shared::time::{Span, Timestamp};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::columns::{KeyColumns, LeafColumns, ParentColumns, json, maybe_text, metadata, text};
use crate::group::{Group, drive};
use crate::retry::{Fault, PgQuery, Pool, fetch, repeatable, sql};
use crate::rows::{Fields, priority_number};

pub(crate) async fn accept(
    pool: &Pool,
    at: Option<Timestamp>,
    boot: BootId,
    items: Vec<AcceptSend>,
) -> Result<Vec<AcceptOutcome>> {
    drive(pool, &Accept { at, boot }, &items).await
}

/// Accepts sends to sessions that exist, without idempotency keys, inside a transaction of the
/// caller's.
pub(crate) async fn accept_within(
    connection: &mut PgConnection,
    now: Timestamp,
    boot: BootId,
    items: &[AcceptSend],
) -> std::result::Result<Vec<AcceptOutcome>, Fault> {
    if items.is_empty() {
        return Ok(Vec::new());
    }
    let group = Accept {
        at: Some(now),
        boot,
    };
    let said = group
        .store(connection, &items.iter().collect::<Vec<_>>())
        .await?;
    let outcomes = said.into_iter().map(|said| match said {
        Verdict::Stored(accepted) => AcceptOutcome::Accepted(accepted),
        Verdict::Refused(reason) => AcceptOutcome::Refused(reason),
        Verdict::Known => AcceptOutcome::Mismatch,
    });
    Ok(outcomes.collect())
}

pub(crate) struct Accept {
    pub(crate) at: Option<Timestamp>,
    pub(crate) boot: BootId,
}

/// The sessions of the sends that share a statement.
#[derive(Default)]
pub(crate) struct Seen {
    /// Those that it creates.
    created: BTreeSet<SessionKey>,
    /// Those with sends that may be repeats.
    keyed: BTreeSet<SessionKey>,
    /// The idempotency keys of those sends: owner, route and key.
    requests: BTreeSet<(TenantId, String, String)>,
}

/// What the statement said of an item.
enum Verdict {
    Stored(Accepted),
    Refused(RefuseReason),
    /// It met its idempotency key.
    Known,
}

impl Group for Accept {
    type Item = AcceptSend;
    type Outcome = AcceptOutcome;
    type Seen = Seen;

    /// Sends to a session that the same statement creates would not find it; one that wants no
    /// other beside it would take a repeat, which is not stored again, for another; and of two with
    /// one key the first, where it has to be looked at again, would find the second before it.
    fn clashes(&self, item: &AcceptSend, seen: &mut Seen) -> bool {
        let key = item.target.key();
        let alone = item.options.on_busy == OnBusy::Reject;
        let request = item.idempotency.as_ref();
        let request = request.map(|key| (key.tenant, key.route.clone(), key.key.clone()));
        let parent = item.parent();
        if seen.created.contains(&key)
            || parent.is_some_and(|parent| seen.created.contains(&parent))
            || (alone && seen.keyed.contains(&key))
            || request.as_ref().is_some_and(|r| seen.requests.contains(r))
        {
            return true;
        }
        if let Target::New(_) = item.target {
            seen.created.insert(key);
        }
        if let Some(request) = request {
            seen.keyed.insert(key);
            seen.requests.insert(request);
        }
        false
    }

    async fn run(
        &self,
        connection: &mut PgConnection,
        items: &[&AcceptSend],
    ) -> std::result::Result<Vec<Option<AcceptOutcome>>, Fault> {
        let said = self.store(connection, items).await?;
        let doubtful: Vec<usize> = (0..items.len())
            .filter(|index| !matches!(said[*index], Verdict::Stored(_)))
            .collect();
        let replays = find_keys(connection, items, &doubtful).await?;
        let mut known_sessions = BTreeSet::new();
        let outcomes = said.into_iter().zip(items).zip(replays);
        let outcomes = outcomes.map(|((said, item), replay)| {
            let key = item.target.key();
            if replay.is_some() || matches!(said, Verdict::Known) {
                known_sessions.insert(key);
            }
            match (replay, said) {
                (Some(replay), _) => Some(replay),
                (None, Verdict::Stored(accepted)) => Some(AcceptOutcome::Accepted(accepted)),
                // Its key was taken and is free again: whoever took it was rolled back.
                (None, Verdict::Known) => None,
                // The refusal counted an earlier item in that was not stored after all.
                (None, Verdict::Refused(RefuseReason::Busy | RefuseReason::QueueFull))
                    if known_sessions.contains(&key) =>
                {
                    None
                }
                (None, Verdict::Refused(reason)) => Some(AcceptOutcome::Refused(reason)),
            }
        });
        Ok(outcomes.collect())
    }

    async fn read_back(
        &self,
        connection: &mut PgConnection,
        items: &[&AcceptSend],
    ) -> std::result::Result<Vec<Option<AcceptOutcome>>, Fault> {
        let (tenants, ids): (Vec<i32>, Vec<Uuid>) = items
            .iter()
            .map(|item| (item.target.key().tenant.0, item.id.0))
            .unzip();
        let rows = sql!("sends/accepted")
            .bind(tenants)
            .bind(ids)
            .fetch_all(connection)
            .await?;
        let mut found: Vec<_> = items.iter().map(|_| None).collect();
        for row in &rows {
            let mut fields = Fields::new(row, "sends");
            let ord = fields.ord()?;
            let ready = fields.ready_session(items[ord].target.key())?;
            let (enqueue, granted) = granted(&mut fields, ready)?;
            let accepted = Accepted {
                position: fields.take("position")?,
                step: fields.take("first_step")?,
                created_at: fields.time("created_at")?,
                enqueue,
                granted,
            };
            found[ord] = Some(AcceptOutcome::Accepted(accepted));
        }
        Ok(found)
    }

    fn unsettled(&self, _: &AcceptSend) -> Result<AcceptOutcome> {
        Err(Error::Unavailable {
            source: "an idempotency key was taken and freed again and again".into(),
        })
    }

    fn session(&self, item: &Self::Item) -> Option<SessionKey> {
        item.parent().or(Some(item.target.key()))
    }

    fn locked(&self, _: &Self::Item) -> Result<Self::Outcome> {
        Ok(AcceptOutcome::Locked)
    }
}

impl Accept {
    fn begin(&self, query: PgQuery) -> PgQuery {
        query.bind(self.at.map(|at| at.0)).bind(self.boot.0)
    }

    async fn store(
        &self,
        connection: &mut PgConnection,
        items: &[&AcceptSend],
    ) -> std::result::Result<Vec<Verdict>, Fault> {
        let query = if items.iter().all(|item| is_plain(item)) {
            bind_plain(self.begin(sql!("sends/accept_plain")), items)
        } else {
            bind(self.begin(sql!("sends/accept")), items)
        };
        let rows = query.fetch_all(connection).await?;
        let mut said: Vec<Verdict> = items.iter().map(|_| Verdict::Known).collect();
        for row in &rows {
            let mut fields = Fields::new(row, "sends");
            let ord = fields.ord()?;
            let code: i32 = fields.take("code")?;
            said[ord] = match code {
                0 => Verdict::Stored(accepted(&mut fields, items[ord])?),
                1 => Verdict::Refused(RefuseReason::SessionNotFound),
                2 => Verdict::Refused(RefuseReason::SessionClosed),
                3 => Verdict::Refused(RefuseReason::Busy),
                _ => Verdict::Refused(RefuseReason::QueueFull),
            };
        }
        Ok(said)
    }
}

fn accepted(fields: &mut Fields<'_>, item: &AcceptSend) -> Result<Accepted> {
    let position = fields.take("position")?;
    let step = fields.take("n")?;
    let created_at = fields.time("now")?;
    let rings: bool = fields.take("rings")?;
    let pool: &str = fields.take("pool")?;
    let ready = rings.then(|| ReadySession {
        key: item.target.key(),
        pool: pool.to_owned(),
        priority: item.options.priority,
        ready_since: created_at,
    });
    let (enqueue, granted) = granted(fields, ready)?;
    Ok(Accepted {
        position,
        step,
        created_at,
        enqueue,
        granted,
    })
}

/// Whether a session that became ready has to be enqueued, or was granted to the send's keeper: without an epoch,
/// it was not.
fn granted(
    fields: &mut Fields<'_>,
    ready: Option<ReadySession>,
) -> Result<(Option<ReadySession>, Option<Box<GrantedSend>>)> {
    let epoch: Option<i64> = fields.take("epoch")?;
    let (Some(epoch), Some(ready)) = (epoch, ready.clone()) else {
        return Ok((ready, None));
    };
    let granted = GrantedSend {
        ready,
        epoch,
        counters: Counters {
            next_seq: fields.take("next_seq")?,
            // Sends behind it in the same group count as accepted later.
            pending: 0,
            signals: fields.take("signals")?,
            context_version: fields.take("context_version")?,
        },
        spent: fields.maybe_json("spent")?,
        agent_version: fields.take("agent_version")?,
    };
    Ok((None, Some(Box::new(granted))))
}

/// Whether an item has nothing of what only the general statement knows. Most have not, and the general one
/// costs the server half as much again: what it costs to run is by the number of its parameters and parts.
fn is_plain(item: &AcceptSend) -> bool {
    matches!(item.target, Target::Existing(_))
        && item.idempotency.is_none()
        && item.reports_to.is_none()
        && item.run.is_none()
        && item.options.delay.is_none()
        && item.options.on_busy != OnBusy::Reject
}

/// The arguments of the statement for plain ones.
fn bind_plain(query: PgQuery, items: &[&AcceptSend]) -> PgQuery {
    bind_sends(query, items)
        .bind(deadlines(items))
        .bind(keepers(items))
}

fn keepers(items: &[&AcceptSend]) -> Vec<Option<Uuid>> {
    let each = items.iter();
    each.map(|item| item.keeper.map(|boot| boot.0)).collect()
}

/// What every send has.
fn bind_sends(query: PgQuery, items: &[&AcceptSend]) -> PgQuery {
    let (tenants, sessions) = crate::rows::key_columns(items.iter().map(|i| i.target.key()));
    query
        .bind(tenants)
        .bind(sessions)
        .bind(items.iter().map(|item| item.id.0).collect::<Vec<_>>())
        .bind(
            items
                .iter()
                .map(|item| json(&item.input))
                .collect::<Vec<_>>(),
        )
        .bind(
            items
                .iter()
                .map(|item| json(&item.options))
                .collect::<Vec<_>>(),
        )
        .bind(items.iter().map(|item| item.queued_max).collect::<Vec<_>>())
        .bind(
            items
                .iter()
                .map(|item| priority_number(item.options.priority))
                .collect::<Vec<_>>(),
        )
}

fn deadlines(items: &[&AcceptSend]) -> Vec<Option<i64>> {
    let each = items.iter();
    each.map(|i| i.options.deadline.as_ref().map(millis))
        .collect()
}

fn millis(span: &Span) -> i64 {
    span.0.as_millis() as i64
}

fn bind(query: PgQuery, items: &[&AcceptSend]) -> PgQuery {
    let delays = items.iter().map(|i| i.options.delay.as_ref().map(millis));
    let rejects = items.iter().map(|i| i.options.on_busy == OnBusy::Reject);
    let query = bind_sends(query, items)
        .bind(delays.collect::<Vec<_>>())
        .bind(deadlines(items))
        .bind(rejects.collect::<Vec<_>>());
    let mut keys = KeyColumns::default();
    for item in items {
        keys.push(item.idempotency.as_ref());
    }
    bind_new(keys.bind(query), items)
}

/// The columns of parents, and of the sessions that are created with their sends.
fn bind_new(query: PgQuery, items: &[&AcceptSend]) -> PgQuery {
    let mut agents: Vec<Option<String>> = Vec::new();
    let mut names: Vec<Option<String>> = Vec::new();
    let mut data: Vec<Option<String>> = Vec::new();
    let mut pools: Vec<Option<String>> = Vec::new();
    let mut reports: Vec<Option<String>> = Vec::new();
    let mut parents = ParentColumns::default();
    for item in items {
        let new = match &item.target {
            Target::New(new) => Some(new),
            Target::Existing(_) => None,
        };
        agents.push(new.map(|new| json(&new.agent)));
        names.push(new.and_then(|new| maybe_text(new.agent.name.as_deref())));
        data.push(new.map(|new| metadata(&new.metadata)));
        pools.push(new.map(|new| text(new.agent.pool()).into_owned()));
        reports.push(maybe_text(item.reports_to.as_deref()));
        parents.push(new.and_then(|new| new.parent.as_ref()));
    }
    let query = query.bind(agents).bind(names).bind(data).bind(pools);
    let mut leaves = LeafColumns::default();
    for item in items {
        leaves.push(item.run.as_ref());
    }
    leaves
        .bind(parents.bind(query.bind(reports)))
        .bind(keepers(items))
}

/// Looks up what the idempotency keys of some items stand for.
async fn find_keys(
    connection: &mut PgConnection,
    items: &[&AcceptSend],
    wanted: &[usize],
) -> std::result::Result<Vec<Option<AcceptOutcome>>, Fault> {
    let wanted = wanted
        .iter()
        .filter_map(|index| Some((*index, items[*index].idempotency.as_ref()?)));
    let found = lookup(connection, wanted.collect()).await?;
    let mut outcomes: Vec<_> = items.iter().map(|_| None).collect();
    for (index, known) in found {
        let id = SendId(known.resource);
        outcomes[index] = Some(if known.same_request {
            AcceptOutcome::Replayed(id)
        } else {
            AcceptOutcome::Mismatch
        });
    }
    Ok(outcomes)
}

/// Takes a key for a request that makes nothing under it by itself. Run twice, it answers `Known`.
pub(crate) async fn take_key(
    pool: &Pool,
    at: Option<Timestamp>,
    key: &IdempotencyKey,
) -> Result<KeyOutcome> {
    let taken: Result<Taken> =
        repeatable!(pool, |connection| take(connection, at, key, Uuid::nil()));
    Ok(match taken? {
        Taken::Now => KeyOutcome::Taken,
        Taken::Before(_) => KeyOutcome::Known,
        Taken::ByAnother => KeyOutcome::Mismatch,
    })
}

/// What became of a key that a request wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It is the request's.
    Now,
    /// The same request had it before, and made this.
    Before(Uuid),
    /// Another request has it.
    ByAnother,
}

/// Takes a key for what a request makes. Two that repeat one request wait for each other here.
pub(crate) async fn take(
    connection: &mut PgConnection,
    at: Option<Timestamp>,
    key: &IdempotencyKey,
    resource: Uuid,
) -> std::result::Result<Taken, Fault> {
    let row = sql!("ledger/take_key")
        .bind(at.map(|at| at.0))
        .bind(key.tenant.0)
        .bind(text(&key.route).into_owned())
        .bind(text(&key.key).into_owned())
        .bind(key.body_hash.to_vec())
        .bind(resource)
        .fetch_one(connection)
        .await?;
    let mut fields = Fields::new(&row, "idempotency_keys");
    let hash: &[u8] = fields.take("body_hash")?;
    if hash != key.body_hash {
        return Ok(Taken::ByAnother);
    }
    let made = fields.take("resource")?;
    Ok(if fields.take("taken")? {
        Taken::Now
    } else {
        Taken::Before(made)
    })
}

/// Whether a request had this key.
pub(crate) async fn has_key(pool: &Pool, key: &IdempotencyKey) -> Result<bool> {
    let rows = fetch(pool, || {
        sql!("sends/find_keys")
            .bind(vec![key.tenant.0])
            .bind(vec![text(&key.route).into_owned()])
            .bind(vec![text(&key.key).into_owned()])
    });
    Ok(!rows.await?.is_empty())
}

/// What an idempotency key stands for.
pub(crate) struct Known {
    /// What its request made.
    pub(crate) resource: Uuid,
    /// Whether it was the request at hand.
    pub(crate) same_request: bool,
}

/// What idempotency keys stand for, by the index that came with each. Keys that are unknown are
/// left out.
pub(crate) async fn lookup(
    connection: &mut PgConnection,
    keys: Vec<(usize, &IdempotencyKey)>,
) -> std::result::Result<Vec<(usize, Known)>, Fault> {
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let tenants: Vec<i32> = keys.iter().map(|(_, key)| key.tenant.0).collect();
    let routes = keys.iter().map(|(_, key)| text(&key.route).into_owned());
    let texts = keys.iter().map(|(_, key)| text(&key.key).into_owned());
    let rows = sql!("sends/find_keys")
        .bind(tenants)
        .bind(routes.collect::<Vec<_>>())
        .bind(texts.collect::<Vec<_>>())
        .fetch_all(connection)
        .await?;
    let mut found = Vec::with_capacity(rows.len());
    for row in &rows {
        let mut fields = Fields::new(row, "idempotency_keys");
        let ord = fields.ord()?;
        let resource: Uuid = fields.take("resource")?;
        let hash: &[u8] = fields.take("body_hash")?;
        let (index, key) = keys[ord];
        let same_request = hash == key.body_hash;
        let known = Known {
            resource,
            same_request,
        };
        found.push((index, known));
    }
    Ok(found)
}
