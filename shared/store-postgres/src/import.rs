//! Creating sessions with imported transcripts.

use mainspring_shared::id::{BootId, SessionId};
use mainspring_shared::list::ListName;
use mainspring_shared::message::{Message, copies_behind};
use mainspring_shared::session::{Lifecycle, SessionRecord, SessionStatus};
use mainspring_shared::store::{
    AppendCopies, CopiesOutcome, CreateOutcome, Error, ImportSession, Result, STAGED_MS,
};
use mainspring_shared::time::Timestamp;
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use crate::accept::lookup;
use crate::columns::{KeyColumns, ParentColumns, json, maybe_text, metadata, text};
use crate::fault::Fault;
use crate::folds;
use crate::group::{Group, drive};
use crate::ledger::Ledger;
use crate::lists;
use crate::projections;
use crate::retry::{Attempts, PgQuery, Pool, Verdict, sql};
use crate::rows::{Fields, key_columns};

pub(crate) async fn import(
    pool: &Pool,
    at: Option<Timestamp>,
    mut item: ImportSession,
) -> Result<CreateOutcome> {
    item.messages = copies_behind(item.messages, item.behind);
    let outcome = drive(pool, &Import { at }, &[item]).await?.pop();
    Ok(outcome.expect("one item has one outcome"))
}

/// Adds messages behind a transcript. A repeat finds those of the first attempt.
pub(crate) async fn append(
    pool: &Pool,
    at: Option<Timestamp>,
    item: AppendCopies,
) -> Result<CopiesOutcome> {
    let mut attempts = Attempts::default();
    loop {
        let appended = attempts.on(pool, async |connection| {
            append_once(connection, at, item.clone()).await
        });
        match appended.await {
            Ok(outcome) => return Ok(outcome),
            Err(fault) => match attempts.weigh(fault)? {
                Verdict::Again | Verdict::Lost => {}
                Verdict::BadData(error) => return Err(error),
            },
        }
    }
}

async fn append_once(
    connection: &mut PgConnection,
    at: Option<Timestamp>,
    item: AppendCopies,
) -> std::result::Result<CopiesOutcome, Fault> {
    let key = item.key;
    let mut tx = connection.begin().await?;
    let nobody = BootId(Uuid::nil());
    let mut ledger = Ledger::lock(&mut tx, at, nobody, [key]).await?;
    ledger.read_heads(&mut tx).await?;
    let is_busy = ledger.head(key).is_some();
    let hot = ledger.hot.get(&key).map(|hot| &hot.row);
    let Some(hot) = hot.filter(|hot| hot.lifecycle != Lifecycle::Deleted) else {
        tx.rollback().await?;
        return Ok(CopiesOutcome::NotFound);
    };
    let first_seq = hot.next_seq;
    if let Some(first) = item.messages.first() {
        let row = sql!("sessions/first_of")
            .bind(key.tenant.0)
            .bind(key.session.0)
            .bind(first_seq - AppendCopies::SEARCHED)
            .bind(first.send_id.0)
            .fetch_one(&mut *tx)
            .await?;
        let known: Option<i64> = Fields::new(&row, "messages").take("seq")?;
        if let Some(first_seq) = known {
            tx.rollback().await?;
            return Ok(CopiesOutcome::Appended { first_seq });
        }
    }
    if hot.lifecycle == Lifecycle::Closed || hot.owner.is_some() || is_busy {
        let is_closed = hot.lifecycle == Lifecycle::Closed;
        tx.rollback().await?;
        return Ok(if is_closed {
            CopiesOutcome::Closed
        } else {
            CopiesOutcome::Busy
        });
    }
    let messages = copies_behind(item.messages, first_seq - 1);
    let query = sql!("sessions/stage_messages")
        .bind(key.tenant.0)
        .bind(key.session.0)
        .bind(first_seq - 1);
    bind_messages(query, &messages).execute(&mut *tx).await?;
    sql!("sessions/appended")
        .bind(key.tenant.0)
        .bind(key.session.0)
        .bind(first_seq + messages.len() as i64)
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    Ok(CopiesOutcome::Appended { first_seq })
}

struct Import {
    at: Option<Timestamp>,
}

impl Group for Import {
    type Item = ImportSession;
    type Outcome = CreateOutcome;
    /// Whether the statement has an item: each transcript gets its own.
    type Seen = bool;

    fn conflicts_with(&self, _: &ImportSession, seen: &mut bool) -> bool {
        std::mem::replace(seen, true)
    }

    async fn run(
        &self,
        connection: &mut PgConnection,
        items: &[&ImportSession],
    ) -> std::result::Result<Vec<Option<CreateOutcome>>, Fault> {
        let mut outcomes = Vec::with_capacity(items.len());
        for item in items {
            let is_plain = item.folds.is_empty() && item.projections.is_empty();
            if item.more || item.behind > 0 || !is_plain {
                outcomes.push(self.page(connection, item).await?);
                continue;
            }
            let row = self
                .statement(item)
                .fetch_optional(&mut *connection)
                .await?;
            outcomes.push(match (row, &item.idempotency) {
                (Some(row), _) => {
                    let now = Fields::new(&row, "sessions").time("now")?;
                    Some(created_as(item, now))
                }
                (None, Some(key)) => {
                    let known = lookup(connection, vec![(0, key)]).await?.pop();
                    known.map(|(_, known)| {
                        if known.same_request {
                            CreateOutcome::Replayed(SessionId(known.resource))
                        } else {
                            CreateOutcome::Mismatch
                        }
                    })
                }
                (None, None) => None,
            });
        }
        Ok(outcomes)
    }

    async fn read_back(
        &self,
        connection: &mut PgConnection,
        items: &[&ImportSession],
    ) -> std::result::Result<Vec<Option<CreateOutcome>>, Fault> {
        let (tenants, sessions) = key_columns(items.iter().map(|item| item.session.key));
        let rows = sql!("sessions/created")
            .bind(tenants)
            .bind(sessions)
            .fetch_all(connection)
            .await?;
        let mut found: Vec<_> = items.iter().map(|_| None).collect();
        for row in &rows {
            let mut fields = Fields::new(row, "sessions");
            let ord = fields.ord()?;
            found[ord] = Some(created_as(items[ord], fields.time("created_at")?));
        }
        Ok(found)
    }

    fn unsettled(&self, _: &ImportSession) -> Result<CreateOutcome> {
        Err(Error::Unavailable {
            source: "an idempotency key was taken and freed again and again".into(),
        })
    }
}

impl Import {
    /// Stores a page. Until the last page the session looks like a deleted one, and is removed if
    /// no further page arrives for a while. `None` if the idempotency key was taken and is free
    /// again.
    async fn page(
        &self,
        connection: &mut PgConnection,
        item: &ImportSession,
    ) -> std::result::Result<Option<CreateOutcome>, Fault> {
        let key = item.session.key;
        let mut tx = connection.begin().await?;
        let query = if item.behind > 0 {
            sql!("sessions/stage_on")
        } else {
            sql!("sessions/stage")
        };
        let query = query
            .bind(self.at.map(|at| at.0))
            .bind(key.tenant.0)
            .bind(key.session.0)
            .bind(STAGED_MS);
        let held = if item.behind > 0 {
            query.fetch_optional(&mut *tx).await?.is_some()
        } else {
            let pool = text(item.session.agent.pool()).into_owned();
            query.bind(pool).execute(&mut *tx).await?;
            true
        };
        if !held {
            tx.rollback().await?;
            return Ok(Some(CreateOutcome::Gone));
        }
        if item.more {
            let query = sql!("sessions/stage_messages")
                .bind(key.tenant.0)
                .bind(key.session.0)
                .bind(item.behind);
            bind_messages(query, &item.messages)
                .execute(&mut *tx)
                .await?;
            tx.commit().await?;
            return Ok(Some(CreateOutcome::Staged));
        }
        sql!("sessions/unstage")
            .bind(key.tenant.0)
            .bind(key.session.0)
            .execute(&mut *tx)
            .await?;
        let row = self.statement(item).fetch_optional(&mut *tx).await?;
        if let Some(row) = row {
            let now = Fields::new(&row, "sessions").time("now")?;
            folds::copy(&mut tx, key, &item.folds).await?;
            projections::copy(&mut tx, key, &item.projections).await?;
            tx.commit().await?;
            return Ok(Some(created_as(item, now)));
        }
        tx.rollback().await?;
        let met = item.idempotency.iter().map(|key| (0, key));
        let known = lookup(connection, met.collect()).await?.pop();
        Ok(known.map(|(_, known)| {
            if known.same_request {
                CreateOutcome::Replayed(SessionId(known.resource))
            } else {
                CreateOutcome::Mismatch
            }
        }))
    }

    fn statement(&self, item: &ImportSession) -> PgQuery {
        let new = &item.session;
        let mut parents = ParentColumns::default();
        parents.push(new.parent.as_ref());
        let mut keys = KeyColumns::default();
        keys.push(item.idempotency.as_ref());
        let query = sql!("sessions/import")
            .bind(self.at.map(|at| at.0))
            .bind(new.key.tenant.0)
            .bind(new.key.session.0)
            .bind(json(&new.agent))
            .bind(maybe_text(new.agent.name.as_deref()))
            .bind(metadata(&new.metadata));
        let query = keys.bind(parents.bind(query));
        let query = bind_messages(
            query.bind(text(new.agent.pool()).into_owned()),
            &item.messages,
        );
        let session = new.key.session;
        let copies = [
            (ListName::Todo(session), &item.todo),
            (ListName::Notes(session), &item.notes),
        ];
        lists::bind_copies(query, &copies).bind(item.behind)
    }
}

fn bind_messages(query: PgQuery, messages: &[Message]) -> PgQuery {
    let rows = || messages.iter();
    let calls = rows().map(|message| {
        let calls = &message.tool_calls;
        (!calls.is_empty()).then(|| json(calls))
    });
    let answers = rows().map(|message| maybe_text(message.tool_call_id.as_deref()));
    let names = rows().map(|message| maybe_text(message.name.as_deref()));
    let roles: Vec<&'static str> = rows().map(|message| message.role.as_str()).collect();
    let contents: Vec<String> = rows().map(|message| json(&message.content)).collect();
    query
        .bind(rows().map(|message| message.send_id.0).collect::<Vec<_>>())
        .bind(roles)
        .bind(contents)
        .bind(calls.collect::<Vec<_>>())
        .bind(answers.collect::<Vec<_>>())
        .bind(names.collect::<Vec<_>>())
        .bind(rows().map(|message| message.failed).collect::<Vec<_>>())
        .bind(rows().map(|message| message.round).collect::<Vec<_>>())
        .bind(
            rows()
                .map(|message| message.asked_at_seq)
                .collect::<Vec<_>>(),
        )
        .bind(
            rows()
                .map(|message| message.created_at.0)
                .collect::<Vec<_>>(),
        )
}

fn created_as(item: &ImportSession, now: Timestamp) -> CreateOutcome {
    let new = &item.session;
    CreateOutcome::Created(Box::new(SessionRecord {
        key: new.key,
        status: SessionStatus::Idle,
        agent: new.agent.clone(),
        agent_version: 1,
        metadata: new.metadata.clone(),
        messages: item.behind + item.messages.len() as i64,
        first_seq: 1,
        parent: new.parent.clone(),
        created_at: now,
        updated_at: now,
    }))
}
