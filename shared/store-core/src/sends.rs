//! Sends from outside: accepting and cancelling them, and messages to busy sessions.

use async_trait::async_trait;
use mainspring_shared::id::{BootId, SendId, SessionKey, TenantId};
use mainspring_shared::send::SendRecord;
use mainspring_shared::store;
use mainspring_shared::store::{
    AcceptOutcome, AcceptSend, CancelOutcome, DeliverItem, DeliverOutcome, IdempotencyKey,
    KeyOutcome, ListSends, Page, RetireSends, Retired, Sends,
};
use uuid::Uuid;

use crate::store::SqlStore;
use crate::{accept, cancel, deliver, reads, sweep};

#[async_trait]
impl Sends for SqlStore {
    async fn accept_sends(
        &self,
        boot: BootId,
        items: Vec<AcceptSend>,
    ) -> store::Result<Vec<AcceptOutcome>> {
        self.write((boot, items), |tx, (boot, items)| {
            Box::pin(accept::all(tx, boot, items))
        })
        .await
    }

    async fn take_key(&self, key: IdempotencyKey) -> store::Result<KeyOutcome> {
        self.write(key, |tx, key| Box::pin(accept::take_key(tx, key)))
            .await
    }

    async fn keyed_resource(&self, key: IdempotencyKey) -> store::Result<Option<Uuid>> {
        self.read(|conn| Box::pin(accept::keyed_resource(conn, key)))
            .await
    }

    async fn cancel_sends(
        &self,
        boot: BootId,
        items: Vec<(TenantId, SendId)>,
    ) -> store::Result<Vec<CancelOutcome>> {
        self.write((boot, items), |tx, (boot, items)| {
            Box::pin(cancel::all(tx, boot, items))
        })
        .await
    }

    async fn deliver_items(
        &self,
        _boot: BootId,
        items: Vec<DeliverItem>,
    ) -> store::Result<Vec<DeliverOutcome>> {
        self.write(items, |tx, items| Box::pin(deliver::all(tx, items)))
            .await
    }

    async fn resume_recovery(
        &self,
        _boot: BootId,
        key: SessionKey,
    ) -> store::Result<Option<SendId>> {
        self.write(key, |tx, key| Box::pin(cancel::resume_recovery(tx, key)))
            .await
    }

    async fn retire_sends(&self, query: RetireSends) -> store::Result<Retired> {
        self.write(query, |tx, query| Box::pin(sweep::retire_sends(tx, query)))
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
