//! Sends, as clients see them: accepting, cancelling, delivering messages to busy sessions.

use async_trait::async_trait;
use mainspring_shared::id::{BootId, SendId, SessionKey, TenantId};
use mainspring_shared::send::SendRecord;
use mainspring_shared::store::{
    AcceptOutcome, AcceptSend, CancelOutcome, DeliverItem, DeliverOutcome, IdempotencyKey,
    KeyOutcome, ListSends, Page, Result, RetireSends, Retired, Sends,
};
use uuid::Uuid;

use crate::store::PostgresStore;
use crate::{accept, cancel, deliver, reads, sweep};

#[async_trait]
impl Sends for PostgresStore {
    async fn accept_sends(
        &self,
        boot: BootId,
        items: Vec<AcceptSend>,
    ) -> Result<Vec<AcceptOutcome>> {
        accept::accept(&self.pools.writers, self.at, boot, items).await
    }

    async fn take_key(&self, key: IdempotencyKey) -> Result<KeyOutcome> {
        accept::take_key(&self.pools.writers, self.at, &key).await
    }

    async fn keyed_resource(&self, key: IdempotencyKey) -> Result<Option<Uuid>> {
        accept::keyed_resource(&self.pools.claimers, &key).await
    }

    async fn cancel_sends(
        &self,
        boot: BootId,
        items: Vec<(TenantId, SendId)>,
    ) -> Result<Vec<CancelOutcome>> {
        cancel::cancel(&self.pools.writers, self.at, boot, &items).await
    }

    async fn deliver_items(
        &self,
        boot: BootId,
        items: Vec<DeliverItem>,
    ) -> Result<Vec<DeliverOutcome>> {
        deliver::deliver(&self.pools.writers, self.at, boot, &items).await
    }

    async fn resume_recovery(&self, boot: BootId, key: SessionKey) -> Result<Option<SendId>> {
        cancel::resume_recovery(&self.pools.writers, self.at, boot, key).await
    }

    async fn retire_sends(&self, query: RetireSends) -> Result<Retired> {
        sweep::retire_sends(&self.pools.writers, self.at, query).await
    }

    async fn get_sends(&self, ids: Vec<(TenantId, SendId)>) -> Result<Vec<Option<SendRecord>>> {
        reads::sends(&self.pools.claimers, &ids).await
    }

    async fn list_sends(&self, query: ListSends) -> Result<Page<SendRecord>> {
        reads::list_sends(&self.pools.readers, &query).await
    }
}
