//! Sends from outside: accepting, cancelling, talking to a busy session.

use async_trait::async_trait;
use mainspring_shared::id::{BootId, SendId, SessionKey, TenantId};
use mainspring_shared::send::SendRecord;
use mainspring_shared::store;
use mainspring_shared::store::{
    AcceptOutcome, AcceptSend, CancelOutcome, DeliverItem, DeliverOutcome, IdempotencyKey,
    KeyOutcome, ListSends, Page, RetireSends, Retired, Sends,
};
use mainspring_shared::time::Timestamp;

use crate::store::SqlStore;
use crate::{accept, cancel, deliver, reads, sweep};

#[async_trait]
impl Sends for SqlStore {
    async fn accept_sends(
        &self,
        at: Option<Timestamp>,
        boot: BootId,
        items: Vec<AcceptSend>,
    ) -> store::Result<Vec<AcceptOutcome>> {
        self.write(at, (boot, items), |tx, (boot, items)| {
            Box::pin(accept::all(tx, boot, items))
        })
        .await
    }

    async fn take_key(
        &self,
        at: Option<Timestamp>,
        key: IdempotencyKey,
    ) -> store::Result<KeyOutcome> {
        self.write(at, key, |tx, key| Box::pin(accept::take_key(tx, key)))
            .await
    }

    async fn cancel_sends(
        &self,
        at: Option<Timestamp>,
        boot: BootId,
        items: Vec<(TenantId, SendId)>,
    ) -> store::Result<Vec<CancelOutcome>> {
        self.write(at, (boot, items), |tx, (boot, items)| {
            Box::pin(cancel::all(tx, boot, items))
        })
        .await
    }

    async fn deliver_items(
        &self,
        at: Option<Timestamp>,
        _boot: BootId,
        items: Vec<DeliverItem>,
    ) -> store::Result<Vec<DeliverOutcome>> {
        self.write(at, items, |tx, items| Box::pin(deliver::all(tx, items)))
            .await
    }

    async fn resume_recovery(
        &self,
        at: Option<Timestamp>,
        _boot: BootId,
        key: SessionKey,
    ) -> store::Result<Option<SendId>> {
        self.write(at, key, |tx, key| {
            Box::pin(cancel::resume_recovery(tx, key))
        })
        .await
    }

    async fn retire_sends(
        &self,
        at: Option<Timestamp>,
        query: RetireSends,
    ) -> store::Result<Retired> {
        self.write(at, query, |tx, query| {
            Box::pin(sweep::retire_sends(tx, query))
        })
        .await
    }

    async fn get_sends(
        &self,
        ids: Vec<(TenantId, SendId)>,
    ) -> store::Result<Vec<Option<SendRecord>>> {
        self.read(|conn| Box::pin(reads::sends(conn, ids))).await
    }

    async fn list_sends(&self, query: ListSends) -> store::Result<Page<SendRecord>> {
        self.read(|conn| Box::pin(reads::list_sends(conn, query)))
            .await
    }
}
