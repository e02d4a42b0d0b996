//! Access to the lists and transcripts.

use std::sync::Arc;
use std::time::Duration;

use mainspring_shared::blob::{self, Depot};
use mainspring_shared::error::Code;
use mainspring_shared::id::{SendId, SessionKey, TenantId};
use mainspring_shared::list::{Bounds, Change, List, ListName, Written};
use mainspring_shared::message::Message;
use mainspring_shared::send::SendRecord;
use mainspring_shared::session::SessionRecord;
use mainspring_shared::store::{
    self, FindMessages, ListOutcome, ListSends, Page, Store, WriteList,
};
use mainspring_shared::time::Clock;
use mainspring_shared::wording::plain;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use mainspring_worker::tool::{Invocation, ToolError};

/// The first pause between two attempts while the database is unavailable.
const PAUSE_MIN: Duration = Duration::from_millis(50);

/// The longest pause between two attempts while the database is unavailable.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// The stores that the tools read and write.
#[derive(Debug)]
pub(crate) struct MemoryTools {
    pub(super) store: Arc<dyn Store>,
    pub(super) blobs: Arc<Depot>,
    pub(super) clock: Arc<dyn Clock>,
}

impl MemoryTools {
    /// The session that asks, in its current state.
    pub(super) async fn session(&self, key: SessionKey) -> Result<SessionRecord, ToolError> {
        let found = self
            .retry_while_unavailable(|| self.store.get_session(key))
            .await?;
        found.ok_or_else(gone)
    }

    /// A send of this session.
    pub(super) async fn send(&self, key: SessionKey, id: SendId) -> Result<SendRecord, ToolError> {
        let ids = || vec![(key.tenant, id)];
        let found = self
            .retry_while_unavailable(|| self.store.get_sends(ids()))
            .await?;
        let send = found.into_iter().next().flatten();
        send.filter(|send| send.key == key).ok_or_else(gone)
    }

    /// A session that may not exist.
    pub(super) async fn find_session(
        &self,
        key: SessionKey,
    ) -> Result<Option<SessionRecord>, ToolError> {
        self.retry_while_unavailable(|| self.store.get_session(key))
            .await
    }

    /// The sessions that a session started, oldest first.
    pub(super) async fn children(&self, key: SessionKey) -> Result<Vec<SessionKey>, ToolError> {
        self.retry_while_unavailable(|| self.store.list_children(key))
            .await
    }

    /// Messages of a session, newest first.
    pub(super) async fn find_messages(
        &self,
        query: FindMessages,
    ) -> Result<Vec<Message>, ToolError> {
        self.retry_while_unavailable(|| self.store.find_messages(query.clone()))
            .await
    }

    /// Sends of a session, newest first.
    pub(super) async fn list_sends(&self, query: ListSends) -> Result<Page<SendRecord>, ToolError> {
        self.retry_while_unavailable(|| self.store.list_sends(query.clone()))
            .await
    }

    /// The output of a call of this session, if it is kept. Retries while the store is unavailable.
    pub(super) async fn output(
        &self,
        key: SessionKey,
        call_id: &str,
    ) -> Result<Option<String>, ToolError> {
        let mut pause = PAUSE_MIN;
        loop {
            match self.blobs.output(key, call_id).await {
                Ok(output) => return Ok(output),
                Err(
                    blob::Error::Unavailable { .. }
                    | blob::Error::Rows(store::Error::Unavailable { .. }),
                ) => {
                    self.clock.sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
                Err(error) => {
                    tracing::error!(%error, "could not read a stored output");
                    return Err(ToolError::reply("the stored output cannot be read"));
                }
            }
        }
    }

    pub(super) async fn read(&self, tenant: TenantId, name: ListName) -> Result<List, ToolError> {
        self.retry_while_unavailable(|| self.store.read_list(tenant, name.clone()))
            .await
    }

    /// Changes a list of this session, or the board of the session that owns it.
    pub(super) async fn write(
        &self,
        invocation: &Invocation,
        owner: SessionKey,
        name: ListName,
        change: Change,
        bounds: Bounds,
    ) -> Result<(Written, List), ToolError> {
        let item = WriteList {
            name,
            session: owner,
            call_id: invocation.call_id.clone(),
            change,
            bounds,
        };
        let outcome = self.retry_while_unavailable(|| self.store.write_list(item.clone()));
        match outcome.await? {
            ListOutcome::Written { written, list } => Ok((written, list)),
            ListOutcome::Refused(refusal) => Err(ToolError::reply(refusal.to_string())),
            ListOutcome::Gone => Err(gone()),
        }
    }

    async fn retry_while_unavailable<T, F>(&self, ask: impl Fn() -> F) -> Result<T, ToolError>
    where
        F: Future<Output = store::Result<T>>,
    {
        retry_while_unavailable(self.clock.as_ref(), "the list", ask).await
    }
}

/// Retries a database request while the database is unavailable; only the call's timeout ends this.
pub(crate) async fn retry_while_unavailable<T, F>(
    clock: &dyn Clock,
    what: &str,
    ask: impl Fn() -> F,
) -> Result<T, ToolError>
where
    F: Future<Output = store::Result<T>>,
{
    let mut pause = Duration::from_millis(50);
    loop {
        match ask().await {
            Ok(answer) => return Ok(answer),
            Err(store::Error::Unavailable { .. }) => {
                clock.sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
            Err(error) => {
                tracing::error!(%error, "{what} could not be read or written");
                return Err(ToolError::reply(format!("{what} cannot be reached")));
            }
        }
    }
}

/// Parses the arguments into the tool's own type. They match its schema.
pub(super) fn arguments<T: DeserializeOwned>(given: Map<String, Value>) -> Result<T, ToolError> {
    serde_json::from_value(Value::Object(given)).map_err(|error| ToolError::Reply {
        code: Code::ToolInvalidArguments,
        message: plain(&error.to_string()),
    })
}

fn gone() -> ToolError {
    ToolError::reply("the session is gone")
}
