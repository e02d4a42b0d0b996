//! The steps of a worker that owns a session.

use async_trait::async_trait;
use mainspring_shared::id::BootId;
use mainspring_shared::store::{
    AppendOutcome, AppendRound, ClaimOutcome, ClaimSession, CompleteOutcome, CompleteSend, Leases,
    ParkOutcome, ParkSend, ReleaseSession, Result,
};

use crate::store::PostgresStore;
use crate::{claim, complete, park, rounds};

#[async_trait]
impl Leases for PostgresStore {
    async fn claim_sessions(
        &self,
        boot: BootId,
        items: Vec<ClaimSession>,
    ) -> Result<Vec<ClaimOutcome>> {
        claim::claim(
            &self.pools.claimers,
            &self.grants_to_release,
            self.at,
            boot,
            items,
        )
        .await
    }

    async fn append_rounds(&self, items: Vec<AppendRound>) -> Result<Vec<AppendOutcome>> {
        rounds::append(&self.pools.writers, self.at, items).await
    }

    async fn complete_sends(&self, items: Vec<CompleteSend>) -> Result<Vec<CompleteOutcome>> {
        complete::complete(
            &self.pools.writers,
            &self.grants_to_release,
            &self.watched,
            self.at,
            items,
        )
        .await
    }

    async fn park_sends(&self, items: Vec<ParkSend>) -> Result<Vec<ParkOutcome>> {
        park::park(&self.pools.writers, self.at, items).await
    }

    async fn release_sessions(&self, items: Vec<ReleaseSession>) -> Result<Vec<bool>> {
        park::release(&self.pools.writers, items).await
    }
}
