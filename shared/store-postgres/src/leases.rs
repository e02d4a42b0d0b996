//! The steps of a worker that owns a session.

use async_trait::async_trait;
use mainspring_shared::id::BootId;
use mainspring_shared::store::{
    AppendOutcome, AppendRound, ClaimOutcome, ClaimSession, CompleteOutcome, CompleteSend, Leases,
    ParkOutcome, ParkSend, ReleaseSession, Result,
};
use mainspring_shared::time::Timestamp;

use crate::store::PostgresStore;
use crate::{claim, complete, park, rounds};

#[async_trait]
impl Leases for PostgresStore {
    async fn claim_sessions(
        &self,
        at: Option<Timestamp>,
        boot: BootId,
        items: Vec<ClaimSession>,
    ) -> Result<Vec<ClaimOutcome>> {
        claim::claim(&self.pools.claimers, &self.doubtful, at, boot, items).await
    }

    async fn append_rounds(
        &self,
        at: Option<Timestamp>,
        items: Vec<AppendRound>,
    ) -> Result<Vec<AppendOutcome>> {
        rounds::append(&self.pools.writers, at, items).await
    }

    async fn complete_sends(
        &self,
        at: Option<Timestamp>,
        items: Vec<CompleteSend>,
    ) -> Result<Vec<CompleteOutcome>> {
        complete::complete(&self.pools.writers, &self.doubtful, at, items).await
    }

    async fn park_sends(
        &self,
        at: Option<Timestamp>,
        items: Vec<ParkSend>,
    ) -> Result<Vec<ParkOutcome>> {
        park::park(&self.pools.writers, at, items).await
    }

    async fn release_sessions(
        &self,
        _at: Option<Timestamp>,
        items: Vec<ReleaseSession>,
    ) -> Result<Vec<bool>> {
        park::release(&self.pools.writers, items).await
    }
}
