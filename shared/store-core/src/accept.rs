//! Accepting sends, and creating the sessions that some of them require.

use mainspring_shared::id::{BootId, SendId, SessionKey};
use mainspring_shared::session::hot::HotRow;
use mainspring_shared::session::transition::{
    self, Change, GrantedAccept, Offer, grant_accepted, refuse_accept,
};
use mainspring_shared::store::{
    AcceptOutcome, AcceptSend, Accepted, GrantedSend, IdempotencyKey, KeyOutcome, NewSession,
    RefuseReason, Target,
};
use uuid::Uuid;

use crate::db::{Conn, sql};
use crate::fault::Result;
use crate::hot::{self, Session};
use crate::query::{query_as, query_scalar, statement};
use crate::rows::json;
use crate::store::Tx;

/// What is known about a request's idempotency key.
#[derive(Debug)]
pub(crate) enum Seen {
    Never,
    Before(Uuid),
    OtherBody,
}

/// Accepts sends in order, so that later ones of a session see the earlier ones.
pub(crate) async fn all(
    tx: &mut Tx,
    boot: BootId,
    items: Vec<AcceptSend>,
) -> Result<Vec<AcceptOutcome>> {
    let existing = |item: &AcceptSend| match &item.target {
        Target::Existing(key) => Some(*key),
        Target::New(_) => item.parent(),
    };
    let locked = hot::lock(tx, items.iter().filter_map(existing)).await?;
    let mut outcomes = Vec::with_capacity(items.len());
    for item in items {
        let is_locked = existing(&item).is_some_and(|key| locked.contains(&key));
        outcomes.push(if is_locked {
            AcceptOutcome::Locked
        } else {
            one(tx, boot, item).await?
        });
    }
    Ok(outcomes)
}

async fn one(tx: &mut Tx, boot: BootId, item: AcceptSend) -> Result<AcceptOutcome> {
    if let Some(key) = &item.idempotency {
        match seen(tx, key).await? {
            Seen::Never => {}
            Seen::Before(send) => return Ok(AcceptOutcome::Replayed(SendId(send))),
            Seen::OtherBody => return Ok(AcceptOutcome::Mismatch),
        }
    }
    if let Some(parent) = item.parent()
        && hot::load(tx, parent).await?.is_none()
    {
        return Ok(AcceptOutcome::Refused(RefuseReason::SessionNotFound));
    }
    let session = match &item.target {
        Target::New(new) => {
            create(tx, new).await?;
            fresh(new)
        }
        Target::Existing(key) => match admit(hot::load(tx, *key).await?, &item) {
            Ok(session) => session,
            Err(reason) => return Ok(AcceptOutcome::Refused(reason)),
        },
    };
    if let Some(key) = &item.idempotency {
        remember(tx, key, item.id.0).await?;
    }
    let keeper = match &item.target {
        Target::New(_) => None,
        Target::Existing(_) => item.keeper,
    };
    insert(tx, boot, session, keeper, item)
        .await
        .map(AcceptOutcome::Accepted)
}

/// A session right after its creation.
fn fresh(new: &NewSession) -> Session {
    Session {
        hot: HotRow::new(new.key, new.agent.pool()),
        owner_lives: false,
        owner_stopped: false,
        head: None,
        busy: false,
    }
}

fn admit(
    session: Option<Session>,
    item: &AcceptSend,
) -> std::result::Result<Session, RefuseReason> {
    let session = session.ok_or(RefuseReason::SessionNotFound)?;
    let on_busy = item.options.on_busy;
    match refuse_accept(&session.hot, session.busy, on_busy, item.queued_max) {
        Some(reason) => Err(reason),
        None => Ok(session),
    }
}

async fn insert(
    tx: &mut Tx,
    boot: BootId,
    session: Session,
    keeper: Option<BootId>,
    item: AcceptSend,
) -> Result<Accepted> {
    let now = tx.now;
    let offer = Offer {
        id: item.id,
        options: &item.options,
        boot,
    };
    let change = transition::accept(&session.hot, session.head, offer, now);
    let granted = grant(tx, &change, keeper).await?;
    // If the session is granted, the granted state is stored at once.
    let stored = granted
        .as_ref()
        .map_or(&change, |(granted, _)| &granted.change);
    let sql = sql!("sends/insert", "steps/insert", "sessions/save");
    hot::bind(statement(sql), stored)?
        .bind(json(&item.input)?)
        .bind(json(&item.options)?)
        .bind(change.send.and_then(|send| send.deadline_at).map(|at| at.0))
        .bind(item.reports_to)
        .bind(item.run.as_ref().map(|leaf| leaf.run.0))
        .bind(item.run.as_ref().map(|leaf| leaf.path.clone()))
        .bind(item.run.as_ref().map(|leaf| leaf.attempt))
        .bind(granted.as_ref().map(|(_, agent_version)| *agent_version))
        .execute(tx.conn())
        .await?;
    let position = change.send.and_then(|send| send.position);
    let step = change.step_n();
    let granted = granted.map(|(granted, agent_version)| {
        Box::new(GrantedSend {
            ready: granted.ready,
            epoch: granted.lease.epoch,
            counters: granted.change.hot.counters(),
            spent: granted.change.hot.spent,
            agent_version,
        })
    });
    Ok(Accepted {
        position,
        step,
        created_at: now,
        enqueue: change.notify.ready.filter(|_| granted.is_none()),
        granted,
    })
}

/// The state of a send that is accepted and granted to its session's keeper in one step, with the
/// version of the session's agent; none if the session may not be granted.
async fn grant(
    tx: &mut Tx,
    accepted: &Change,
    keeper: Option<BootId>,
) -> Result<Option<(GrantedAccept, i32)>> {
    let Some(boot) = keeper else { return Ok(None) };
    let Some(granted) = grant_accepted(accepted, boot, tx.now) else {
        return Ok(None);
    };
    let hot = &granted.change.hot;
    let key = hot.key;
    let version: Option<i32> = query_scalar(sql!("boots/keeps"))
        .bind(key.tenant.0)
        .bind(key.session.0)
        .bind(boot.0)
        .bind(tx.now.0)
        .bind(hot.pool.clone())
        .fetch_optional(tx.conn())
        .await?;
    Ok(version.map(|version| (granted, version)))
}

/// Creates a session with its agent as version 1.
pub(crate) async fn create(tx: &mut Tx, new: &NewSession) -> Result<()> {
    let now = tx.now;
    let SessionKey { tenant, session } = new.key;
    let parent = new.parent.as_ref();
    statement(sql!("sessions/create"))
        .bind(tenant.0)
        .bind(session.0)
        .bind(new.agent.name.clone())
        .bind(json(&new.metadata)?)
        .bind(now.0)
        .bind(json(&new.agent)?)
        .bind(new.agent.pool().to_owned())
        .bind(parent.map(|parent| parent.session.0))
        .bind(parent.map(|parent| parent.call_id.clone()))
        .bind(parent.map(|parent| parent.root.0))
        .bind(parent.map(|parent| parent.depth))
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// Looks up a request's key.
pub(crate) async fn seen(tx: &mut Tx, key: &IdempotencyKey) -> Result<Seen> {
    if key.names_session() {
        let session = find_named(tx.conn(), key).await?;
        return Ok(session.map_or(Seen::Never, Seen::Before));
    }
    let row: Option<(Vec<u8>, Uuid)> =
        query_as(sql!("idempotency/find"), ["body_hash", "resource"])
            .bind(key.tenant.0)
            .bind(key.route.clone())
            .bind(key.key.clone())
            .fetch_optional(tx.conn())
            .await?;
    Ok(match row {
        None => Seen::Never,
        Some((hash, resource)) if hash == key.body_hash => Seen::Before(resource),
        Some(_) => Seen::OtherBody,
    })
}

/// What a request with this key led to.
pub(crate) async fn keyed_resource(conn: &mut Conn, key: IdempotencyKey) -> Result<Option<Uuid>> {
    if key.names_session() {
        return find_named(conn, &key).await;
    }
    let row: Option<(Vec<u8>, Uuid)> =
        query_as(sql!("idempotency/find"), ["body_hash", "resource"])
            .bind(key.tenant.0)
            .bind(key.route)
            .bind(key.key)
            .fetch_optional(conn)
            .await?;
    Ok(row.map(|(_, resource)| resource))
}

/// The session with this name.
async fn find_named(conn: &mut Conn, name: &IdempotencyKey) -> Result<Option<Uuid>> {
    query_scalar(sql!("sessions/named"))
        .bind(name.tenant.0)
        .bind(name.key.clone())
        .fetch_optional(conn)
        .await
}

/// Takes a key for a request that does not itself create a resource.
pub(crate) async fn take_key(tx: &mut Tx, key: IdempotencyKey) -> Result<KeyOutcome> {
    Ok(match seen(tx, &key).await? {
        Seen::Never => {
            remember(tx, &key, Uuid::nil()).await?;
            KeyOutcome::Taken
        }
        Seen::Before(_) => KeyOutcome::Known,
        Seen::OtherBody => KeyOutcome::Mismatch,
    })
}

/// Stores the resource that a request's key led to.
pub(crate) async fn remember(tx: &mut Tx, key: &IdempotencyKey, resource: Uuid) -> Result<()> {
    let now = tx.now;
    if key.names_session() {
        statement(sql!("sessions/name"))
            .bind(key.tenant.0)
            .bind(key.key.clone())
            .bind(resource)
            .execute(tx.conn())
            .await?;
        return Ok(());
    }
    statement(sql!("idempotency/insert"))
        .bind(key.tenant.0)
        .bind(key.route.clone())
        .bind(key.key.clone())
        .bind(key.body_hash.to_vec())
        .bind(resource)
        .bind(now.0)
        .execute(tx.conn())
        .await?;
    Ok(())
}
