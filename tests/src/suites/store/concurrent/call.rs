//! Store calls together with their answers, so that they can be repeated on the model.

use mainspring_shared::id::SendId;
use mainspring_shared::id::{BootId, TenantId};
use mainspring_shared::store::{
    AcceptOutcome, AcceptSend, AlarmSweep, AppendOutcome, AppendRound, CancelOutcome, ClaimOutcome,
    ClaimSession, CompleteOutcome, CompleteSend, DeliverItem, DeliverOutcome, Inspect, ParkOutcome,
    ParkSend, ReleaseSession, Result,
};

use crate::suites::store::prelude::{SCHEDULER, boot, one};

/// One call with one item: a store may commit the items of a call together or separately.
#[derive(Debug, Clone)]
pub(super) enum Call {
    Claim(BootId, ClaimSession),
    Append(Box<AppendRound>),
    Complete(Box<CompleteSend>),
    Park(Box<ParkSend>),
    Release(ReleaseSession),
    Cancel(SendId),
    Deliver(Box<DeliverItem>),
    Accept(Box<AcceptSend>),
    Sweep,
    Stop(BootId),
}

/// The answer to a call.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Outcome {
    Claim(ClaimOutcome),
    Append(AppendOutcome),
    Complete(CompleteOutcome),
    Park(ParkOutcome),
    Release(bool),
    Cancel(CancelOutcome),
    Deliver(DeliverOutcome),
    Accept(AcceptOutcome),
    Sweep(AlarmSweep),
    Stop,
}

impl Call {
    /// Makes the call.
    pub(super) async fn on(&self, store: &dyn Inspect) -> Result<Outcome> {
        let scheduler = boot(SCHEDULER);
        Ok(match self.clone() {
            Self::Claim(boot, item) => {
                Outcome::Claim(one(store.claim_sessions(boot, vec![item]).await?))
            }
            Self::Append(item) => Outcome::Append(one(store.append_rounds(vec![*item]).await?)),
            Self::Complete(item) => {
                Outcome::Complete(one(store.complete_sends(vec![*item]).await?))
            }
            Self::Park(item) => Outcome::Park(one(store.park_sends(vec![*item]).await?)),
            Self::Release(item) => {
                Outcome::Release(one(store.release_sessions(vec![item]).await?))
            }
            Self::Cancel(send) => {
                let ids = vec![(TenantId::DEFAULT, send)];
                Outcome::Cancel(one(store.cancel_sends(scheduler, ids).await?))
            }
            Self::Deliver(item) => {
                Outcome::Deliver(one(store.deliver_items(scheduler, vec![*item]).await?))
            }
            Self::Accept(item) => {
                Outcome::Accept(one(store.accept_sends(scheduler, vec![*item]).await?))
            }
            Self::Sweep => Outcome::Sweep(swept(store.sweep_alarms(scheduler, 9).await?)),
            Self::Stop(boot) => {
                store.stop_boot(boot).await?;
                Outcome::Stop
            }
        })
    }
}

/// What a sweep did, without what it merely saw: others may have served an alarm since it looked.
fn swept(sweep: AlarmSweep) -> AlarmSweep {
    AlarmSweep {
        served: 0,
        next_alarm_at: None,
        ..sweep
    }
}

impl Outcome {
    /// Whether the call did nothing because a session was locked: it has to be retried, and says
    /// nothing about when it took place.
    pub(super) fn is_no_answer(&self) -> bool {
        match self {
            Self::Claim(outcome) => *outcome == ClaimOutcome::Busy,
            Self::Append(outcome) => *outcome == AppendOutcome::Locked,
            Self::Complete(outcome) => *outcome == CompleteOutcome::Locked,
            Self::Park(outcome) => *outcome == ParkOutcome::Locked,
            Self::Cancel(outcome) => *outcome == CancelOutcome::Locked,
            Self::Deliver(outcome) => *outcome == DeliverOutcome::Locked,
            Self::Accept(outcome) => *outcome == AcceptOutcome::Locked,
            Self::Release(_) | Self::Sweep(_) | Self::Stop => false,
        }
    }

    /// Whether the call may have done nothing: a sweep skips sessions locked by others, and its
    /// answer does not always show what it served.
    pub(super) fn is_maybe_nothing(&self) -> bool {
        match self {
            Self::Sweep(sweep) => sweep.enqueue.is_empty() && sweep.finished.is_empty(),
            _ => false,
        }
    }
}
