//! The steps of a worker that owns a session.

use async_trait::async_trait;
use mainspring_shared::id::BootId;
use mainspring_shared::store;
use mainspring_shared::store::{
    AppendOutcome, AppendRound, ClaimOutcome, ClaimSession, CompleteOutcome, CompleteSend, Leases,
    ParkOutcome, ParkSend, ReleaseSession,
};

use crate::db::Commit;
use crate::store::SqlStore;
use crate::{boots, claim, complete, park, rounds};

#[async_trait]
impl Leases for SqlStore {
    async fn claim_sessions(
        &self,
        boot: BootId,
        items: Vec<ClaimSession>,
    ) -> store::Result<Vec<ClaimOutcome>> {
        let outcomes = self
            .transact(Commit::Relaxed, (boot, items), |tx, (boot, items)| {
                Box::pin(claim::all(tx, boot, items))
            })
            .await?;
        // Resuming a send is a step, which readers see: it has to survive a power cut.
        let goes_on = outcomes.iter().any(|outcome| match outcome {
            ClaimOutcome::Claimed(claimed) => claimed.send.resumed.is_some(),
            ClaimOutcome::Busy
            | ClaimOutcome::Suspect
            | ClaimOutcome::Idle
            | ClaimOutcome::Waits => false,
        });
        if goes_on {
            let kept = self.write(boot, |tx, boot| Box::pin(boots::touch(tx, boot)));
            if let Err(error) = kept.await {
                tracing::warn!(
                    %error,
                    "could not confirm that a claim is durable; a power cut may lose it"
                );
            }
        }
        Ok(outcomes)
    }

    async fn append_rounds(&self, items: Vec<AppendRound>) -> store::Result<Vec<AppendOutcome>> {
        self.write(items, |tx, items| Box::pin(rounds::all(tx, items)))
            .await
    }

    async fn complete_sends(
        &self,
        items: Vec<CompleteSend>,
    ) -> store::Result<Vec<CompleteOutcome>> {
        self.write(items, |tx, items| Box::pin(complete::all(tx, items)))
            .await
    }

    async fn park_sends(&self, items: Vec<ParkSend>) -> store::Result<Vec<ParkOutcome>> {
        self.write(items, |tx, items| Box::pin(park::all(tx, items)))
            .await
    }

    async fn release_sessions(&self, items: Vec<ReleaseSession>) -> store::Result<Vec<bool>> {
        self.write(items, |tx, items| Box::pin(park::release(tx, items)))
            .await
    }
}
