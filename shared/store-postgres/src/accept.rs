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
use crate::fault::Fault;
use crate::group::{Group, drive};
use crate::retry::{PgQuery, Pool, fetch, repeatable, sql};
use crate::rows::{Fields, priority_number};

pub(crate) async fn accept(
    pool: &Pool,
    at: Option<Timestamp>,
    boot: BootId,
    items: Vec<AcceptSend>,
) -> Result<Vec<AcceptOutcome>> {
    drive(pool, &Accept { at, boot }, &items).await
}

/// Accepts sends without idempotency keys to existing sessions, within the caller's transaction.
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

/// The sessions and idempotency keys of the sends that share a statement.
#[derive(Default)]
pub(crate) struct Seen {
    /// Sessions that the statement creates.
    created: BTreeSet<SessionKey>,
    /// Sessions with sends that have an idempotency key and so may be repeats.
    keyed: BTreeSet<SessionKey>,
    /// The idempotency keys of those sends: owner, route and key.
    requests: BTreeSet<(TenantId, String, String)>,
}

/// The statement's result for an item.
enum Verdict {
    Stored(Accepted),
    Refused(RefuseReason),
    /// Its idempotency key exists already.
    Known,
}

impl Group for Accept {
    type Item = AcceptSend;
    type Outcome = AcceptOutcome;
    type Seen = Seen;

    /// Three kinds of sends clash. One to a session that the same statement creates would not find
    /// it. One with `OnBusy::Reject` would count a repeat of another send, which is not stored
    /// again, as a send before it. And of two with the same idempotency key, the first, if it has
    /// to run again, would find the key taken by the second.
    fn conflicts_with(&self, item: &AcceptSend, seen: &mut Seen) -> bool {
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
                // Its key was taken and is free again: the transaction that took it was rolled
                // back.
                (None, Verdict::Known) => None,
                // The refusal counted an earlier item of the group that turned out not to be
                // stored.
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

/// The session to enqueue, or else its grant to the send's keeper. A row without an epoch has no
/// grant.
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
            // Later sends of the same group count as accepted later.
            pending: 0,
            signals: fields.take("signals")?,
            context_version: fields.take("context_version")?,
        },
        spent: fields.maybe_json("spent")?,
        agent_version: fields.take("agent_version")?,
    };
    Ok((None, Some(Box::new(granted))))
}

/// Whether an item needs nothing that only the general statement handles. Most do not, and the
/// general statement costs the server 50 % more, since its cost grows with its number of parameters
/// and parts.
fn is_plain(item: &AcceptSend) -> bool {
    matches!(item.target, Target::Existing(_))
        && item.idempotency.is_none()
        && item.reports_to.is_none()
        && item.run.is_none()
        && item.options.delay.is_none()
        && item.options.on_busy != OnBusy::Reject
}

/// The arguments of the statement for plain items.
fn bind_plain(query: PgQuery, items: &[&AcceptSend]) -> PgQuery {
    bind_sends(query, items)
        .bind(deadlines(items))
        .bind(keepers(items))
}

fn keepers(items: &[&AcceptSend]) -> Vec<Option<Uuid>> {
    let each = items.iter();
    each.map(|item| item.keeper.map(|boot| boot.0)).collect()
}

/// The columns that every send has.
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

/// The columns of parents, and of sessions that are created with their sends.
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

/// Looks up the results of earlier requests with the idempotency keys of the wanted items.
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

/// Takes a key for a request that creates no resource itself. A second run returns `Known`.
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

/// The result of taking an idempotency key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    /// This request took it.
    Now,
    /// The same request took it before, and created this resource.
    Before(Uuid),
    /// Another request took it.
    ByAnother,
}

/// Takes a key for the resource that a request creates. Concurrent repeats of a request wait for
/// each other here.
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

/// What this key was taken for.
pub(crate) async fn keyed_resource(pool: &Pool, key: &IdempotencyKey) -> Result<Option<Uuid>> {
    let rows = fetch(pool, || {
        sql!("sends/find_keys")
            .bind(vec![key.tenant.0])
            .bind(vec![text(&key.route).into_owned()])
            .bind(vec![text(&key.key).into_owned()])
    });
    let rows = rows.await?;
    let first = rows.first();
    first
        .map(|row| Fields::new(row, "idempotency_keys").take("resource"))
        .transpose()
}

/// The request that took an idempotency key.
pub(crate) struct Known {
    /// The resource that the request created.
    pub(crate) resource: Uuid,
    /// Whether it is the same as the current request.
    pub(crate) same_request: bool,
}

/// Looks up idempotency keys; each result has the index that was passed with its key. Unknown keys
/// are left out.
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
        let hash: Option<&[u8]> = fields.take("body_hash")?;
        let (index, key) = keys[ord];
        // Whoever names a session means the one that has the name.
        let same_request = hash.is_none_or(|hash| hash == key.body_hash);
        let known = Known {
            resource,
            same_request,
        };
        found.push((index, known));
    }
    Ok(found)
}
