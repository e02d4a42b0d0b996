//! Delivering messages to sessions that may be busy.

use std::collections::BTreeMap;

use mainspring_shared::agent::OnBusy;
use mainspring_shared::id::{BootId, SendId, SessionKey};
use mainspring_shared::inbox::InboxItem;
use mainspring_shared::session::Lifecycle;
use mainspring_shared::session::transition::{self, Delivery, DeliveryFacts, Notify};
use mainspring_shared::store::{DeliverItem, DeliverOutcome, Error, IdempotencyKey, Result};
use mainspring_shared::time::Timestamp;
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use crate::accept::{Known, lookup};
use crate::columns::text;
use crate::fault::Fault;
use crate::group::{Group, LostResponse, drive};
use crate::ledger::{Ledger, NewItem};
use crate::retry::{Pool, sql};
use crate::rows::{Fields, key_columns};

pub(crate) async fn deliver(
    pool: &Pool,
    at: Option<Timestamp>,
    boot: BootId,
    items: &[DeliverItem],
) -> Result<Vec<DeliverOutcome>> {
    let group = Deliver {
        at,
        boot,
        lost_response: LostResponse::default(),
    };
    drive(pool, &group, items).await
}

struct Deliver {
    at: Option<Timestamp>,
    boot: BootId,
    lost_response: LostResponse,
}

impl Group for Deliver {
    type Item = DeliverItem;
    type Outcome = DeliverOutcome;
    type Seen = ();

    fn conflicts_with(&self, _: &DeliverItem, (): &mut ()) -> bool {
        false
    }

    /// No item gets an outcome if another request took one of the idempotency keys meanwhile: then
    /// nothing was written.
    async fn run(
        &self,
        connection: &mut PgConnection,
        items: &[&DeliverItem],
    ) -> std::result::Result<Vec<Option<DeliverOutcome>>, Fault> {
        let mut tx = connection.begin().await?;
        let keys = items.iter().map(|item| item.key);
        let mut ledger = Ledger::lock(&mut tx, self.at, self.boot, keys).await?;
        let mut state =
            DeliverState::open(&mut tx, &mut ledger, items, self.lost_response.any()).await?;
        let outcomes: Vec<Option<DeliverOutcome>> = items
            .iter()
            .enumerate()
            .map(|(index, item)| Some(state.take(&mut ledger, index, item)))
            .collect();
        let now = ledger.now;
        if !write_keys(&mut tx, now, &state.keyed).await? {
            tx.rollback().await?;
            return Ok(items.iter().map(|_| None).collect());
        }
        ledger.write(&mut tx).await?;
        tx.commit().await?;
        Ok(outcomes)
    }

    async fn read_back(
        &self,
        _: &mut PgConnection,
        items: &[&DeliverItem],
    ) -> std::result::Result<Vec<Option<DeliverOutcome>>, Fault> {
        self.lost_response.note();
        Ok(items.iter().map(|_| None).collect())
    }

    fn unsettled(&self, _: &DeliverItem) -> Result<DeliverOutcome> {
        Err(Error::Unavailable {
            source: "an idempotency key was taken and freed again and again".into(),
        })
    }

    fn session(&self, item: &DeliverItem) -> Option<SessionKey> {
        Some(item.key)
    }

    fn locked(&self, _: &DeliverItem) -> Result<DeliverOutcome> {
        Ok(DeliverOutcome::Locked)
    }
}

type KeyText = (i32, String, String);

fn key_text(key: &IdempotencyKey) -> KeyText {
    let (route, name) = (text(&key.route), text(&key.key));
    (key.tenant.0, route.into_owned(), name.into_owned())
}

/// State of a delivery besides the ledger; each item adds to it.
struct DeliverState {
    /// Whether an earlier attempt may have committed.
    was_lost: bool,
    /// Requests that took the idempotency keys before, by item.
    seen: BTreeMap<usize, Known>,
    /// The idempotency keys that this call takes.
    keyed: BTreeMap<KeyText, ([u8; 32], SendId)>,
    stored: BTreeMap<(SessionKey, String), InboxItem>,
    pending: BTreeMap<SessionKey, i64>,
}

impl DeliverState {
    async fn open(
        connection: &mut PgConnection,
        ledger: &mut Ledger,
        items: &[&DeliverItem],
        was_lost: bool,
    ) -> std::result::Result<Self, Fault> {
        ledger.read_heads(connection).await?;
        if items.iter().any(|item| item.mode == OnBusy::Interrupt) {
            ledger.read_last(connection).await?;
        }
        let keys = items.iter().enumerate();
        let keys = keys.filter_map(|(index, item)| Some((index, item.idempotency.as_ref()?)));
        let seen = lookup(connection, keys.collect()).await?;
        Ok(Self {
            was_lost,
            seen: seen.into_iter().collect(),
            keyed: BTreeMap::new(),
            stored: stored(connection, items).await?,
            pending: pending(connection, ledger).await?,
        })
    }

    fn take(&mut self, ledger: &mut Ledger, index: usize, item: &DeliverItem) -> DeliverOutcome {
        let name = (item.key, text(&item.item_id).into_owned());
        // After a lost response the key only tells that it was used; the stored item is the result.
        if self.was_lost
            && let Some(known) = self.stored.get(&name)
            && let Some(send_id) = known.send_id
        {
            return accepted(send_id, known.clone(), ledger.notified_before(item.key));
        }
        if let Some(outcome) = self.known(index, item) {
            return outcome;
        }
        match ledger.hot.get(&item.key).map(|hot| hot.row.lifecycle) {
            None | Some(Lifecycle::Deleted) => return DeliverOutcome::NotFound,
            Some(Lifecycle::Closed) => return DeliverOutcome::Closed,
            Some(Lifecycle::Open) => {}
        }
        let outcome = self.put(ledger, name, item);
        if let (Some(key), DeliverOutcome::Accepted { send_id, .. }) = (&item.idempotency, &outcome)
        {
            self.keyed.insert(key_text(key), (key.body_hash, *send_id));
        }
        outcome
    }

    /// The outcome of the earlier request with the item's idempotency key, if there was one.
    fn known(&self, index: usize, item: &DeliverItem) -> Option<DeliverOutcome> {
        let key = item.idempotency.as_ref()?;
        let (same_request, send_id) = if let Some(known) = self.seen.get(&index) {
            (known.same_request, SendId(known.resource))
        } else {
            let (hash, send_id) = self.keyed.get(&key_text(key))?;
            (*hash == key.body_hash, *send_id)
        };
        Some(if same_request {
            DeliverOutcome::Replayed(send_id)
        } else {
            DeliverOutcome::Mismatch
        })
    }

    fn put(
        &mut self,
        ledger: &mut Ledger,
        name: (SessionKey, String),
        item: &DeliverItem,
    ) -> DeliverOutcome {
        if let Some(known) = self.stored.get(&name)
            && let Some(send_id) = known.send_id
        {
            return accepted(send_id, known.clone(), Notify::default());
        }
        let known = self.stored.get(&name);
        if let Some(known) = known.filter(|known| known.kind == item.kind) {
            return DeliverOutcome::Kept(Box::new(known.clone()));
        }
        let Some(row) = ledger.row(item.key) else {
            return DeliverOutcome::NotFound;
        };
        let pending = self.pending.entry(item.key).or_default();
        let head = ledger.head(item.key);
        let facts = DeliveryFacts {
            head: head.as_ref(),
            last_queued: ledger.last_queued(item.key),
            pending_items: *pending,
        };
        let (mode, kind) = (item.mode, item.kind);
        let decided = transition::deliver(row, facts, mode, kind, item.items_max, ledger.now);
        let new = NewItem {
            id: name.1.clone(),
            kind,
            mode,
            content: item.content.clone(),
        };
        let (send, (stored, notify)) = match decided {
            Delivery::Full => return DeliverOutcome::Full,
            Delivery::Idle => return DeliverOutcome::Idle,
            Delivery::Joined { change, n, send } => {
                (Some(send), ledger.join_item(new, change, n, send))
            }
            Delivery::Stored(what) => {
                *pending += 1;
                (what.send, ledger.store_item(item.key, new, what))
            }
        };
        self.stored.insert(name, stored.clone());
        match send {
            Some(send) => accepted(send, stored, notify),
            None => DeliverOutcome::Kept(Box::new(stored)),
        }
    }
}

fn accepted(send_id: SendId, item: InboxItem, notify: Notify) -> DeliverOutcome {
    DeliverOutcome::Accepted {
        send_id,
        item: Box::new(item),
        enqueue: notify.ready,
        owner: notify.owner,
    }
}

/// Items that exist already, by session and id.
async fn stored(
    connection: &mut PgConnection,
    items: &[&DeliverItem],
) -> std::result::Result<BTreeMap<(SessionKey, String), InboxItem>, Fault> {
    let (tenants, sessions) = key_columns(items.iter().map(|item| item.key));
    let ids = items.iter().map(|item| text(&item.item_id).into_owned());
    let rows = sql!("inbox/get")
        .bind(tenants)
        .bind(sessions)
        .bind(ids.collect::<Vec<_>>())
        .fetch_all(connection)
        .await?;
    let mut stored = BTreeMap::new();
    for row in &rows {
        let mut fields = Fields::new(row, "inbox");
        let key = items[fields.ord()?].key;
        let item = fields.item()?;
        stored.insert((key, item.id.clone()), item);
    }
    Ok(stored)
}

/// The number of undelivered items of each locked session; sessions without any are left out.
async fn pending(
    connection: &mut PgConnection,
    ledger: &Ledger,
) -> std::result::Result<BTreeMap<SessionKey, i64>, Fault> {
    let (tenants, sessions) = key_columns(ledger.hot.keys().copied());
    let rows = sql!("inbox/count")
        .bind(tenants)
        .bind(sessions)
        .fetch_all(connection)
        .await?;
    let counts = rows.iter().map(|row| {
        let mut fields = Fields::new(row, "inbox");
        Ok((fields.key()?, fields.take("items")?))
    });
    Ok(counts.collect::<Result<_>>()?)
}

/// Takes idempotency keys for the sends that absorbed items. False if one is already taken.
async fn write_keys(
    connection: &mut PgConnection,
    now: Timestamp,
    keyed: &BTreeMap<KeyText, ([u8; 32], SendId)>,
) -> std::result::Result<bool, Fault> {
    if keyed.is_empty() {
        return Ok(true);
    }
    let tenants: Vec<i32> = keyed.keys().map(|(tenant, ..)| *tenant).collect();
    let routes: Vec<String> = keyed.keys().map(|(_, route, _)| route.clone()).collect();
    let names: Vec<String> = keyed.keys().map(|(.., name)| name.clone()).collect();
    let hashes: Vec<Vec<u8>> = keyed.values().map(|(hash, _)| hash.to_vec()).collect();
    let sends: Vec<Uuid> = keyed.values().map(|(_, send)| send.0).collect();
    let rows = sql!("ledger/write_keys")
        .bind(now.0)
        .bind(tenants)
        .bind(routes)
        .bind(names)
        .bind(hashes)
        .bind(sends)
        .fetch_all(connection)
        .await?;
    Ok(rows.len() == keyed.len())
}
