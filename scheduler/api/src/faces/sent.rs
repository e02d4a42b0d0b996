//! A send that a client of another protocol asks about.

use axum::http::Method;
use mainspring_scheduler::error::Error;
use mainspring_shared::id::SendId;
use mainspring_shared::send::{SendRecord, SendStatus, SendView, WaitingOn};
use mainspring_shared::session::SessionRecord;

use super::asks::{self, Ask};
use crate::access::{Caller, Needs};
use crate::router::Api;

/// A send, and the session that it is in.
#[derive(Debug, Clone)]
pub(crate) struct Sent {
    pub(crate) send: SendRecord,
    pub(crate) session: SessionRecord,
}

impl Sent {
    /// Reads a send that the caller may see.
    pub(crate) async fn read(app: &Api, caller: &Caller, id: SendId) -> Result<Self, Error> {
        Needs::of(&Method::GET, "/v1/sends/{id}").check(caller)?;
        let send = app.watch.read_send(caller.tenant, id).await?;
        let send = send.ok_or_else(Error::send_not_found)?;
        let session = app.store.get_session(send.key).await?;
        let session = session.ok_or_else(Error::send_not_found)?;
        let binding = caller.binding();
        if binding.is_some_and(|binding| !binding.holds(&session)) {
            return Err(Error::send_not_found());
        }
        Ok(Self { send, session })
    }

    pub(crate) async fn again(&mut self, app: &Api) -> Result<(), Error> {
        let read = app.watch.read_send(self.send.key.tenant, self.send.id);
        self.send = read.await?.ok_or_else(Error::send_not_found)?;
        Ok(())
    }

    pub(crate) fn view(&self) -> SendView {
        SendView::from(self.send.clone())
    }

    pub(crate) fn is_final(&self) -> bool {
        self.send.status.is_final()
    }

    /// What it asks of those outside, itself or an agent below it.
    pub(crate) async fn asks(&self, app: &Api) -> Result<Vec<Ask>, Error> {
        let may_ask = match (self.send.status, self.send.waiting_on) {
            // What runs may do so beside a call that waits.
            (SendStatus::Waiting, Some(WaitingOn::Human | WaitingOn::Tool | WaitingOn::Agent))
            | (SendStatus::Running, _) => true,
            _ => false,
        };
        if !may_ask {
            return Ok(Vec::new());
        }
        let mut asks = asks::open(app, self.send.key).await?;
        asks.retain(|ask| {
            ask.call.session != self.send.key.session || ask.call.send_id == self.send.id
        });
        Ok(asks)
    }
}
