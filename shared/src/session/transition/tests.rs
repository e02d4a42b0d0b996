//! Scenes shared by the matrix, the document and the properties, and what single transitions must do.

mod document;
mod matrix;
mod random;
mod world;

use std::time::Duration;

use uuid::Uuid;

use super::*;
use crate::agent::SendOptions;
use crate::id::{LeaseToken, SessionId, SessionKey, TenantId};
use crate::send::WaitingOn;
use crate::session::Lifecycle;

const NOW: Timestamp = Timestamp(1_000_000);
const LEASE_UNTIL: Timestamp = Timestamp(1_010_000);
const DEADLINE: Timestamp = Timestamp(1_060_000);
const SCHEDULER: BootId = BootId(Uuid::from_u128(90));
const WORKER: BootId = BootId(Uuid::from_u128(1));
const OTHER: BootId = BootId(Uuid::from_u128(2));
const TOKEN: LeaseToken = LeaseToken(Uuid::from_u128(11));
const OTHER_TOKEN: LeaseToken = LeaseToken(Uuid::from_u128(12));

const fn send_id(n: u128) -> SendId {
    SendId(Uuid::from_u128(n))
}

/// A session in a state that a transition may find.
#[derive(Debug, Clone)]
struct Scene {
    hot: HotRow,
    sends: Vec<SendState>,
    /// Whether the lease of the owner, if any, is still valid.
    owner_lives: bool,
}

impl Scene {
    fn idle() -> Self {
        let key = SessionKey {
            tenant: TenantId::DEFAULT,
            session: SessionId(Uuid::from_u128(7)),
        };
        Self {
            hot: HotRow::new(key, "default"),
            sends: Vec::new(),
            owner_lives: true,
        }
    }

    fn after(&self, change: &Change) -> Self {
        let mut after = self.clone();
        after.hot = change.hot.clone();
        if let Some(changed) = change.send {
            match after.sends.iter_mut().find(|send| send.id == changed.id) {
                Some(send) => *send = changed,
                None => after.sends.push(changed),
            }
        }
        after
    }

    fn accepted(&self, options: &SendOptions) -> Self {
        let change = accept(&self.hot, self.head_status(), self.offer(options), NOW);
        self.after(&change)
    }

    fn offer<'o>(&self, options: &'o SendOptions) -> Offer<'o> {
        Offer {
            id: send_id(101 + self.sends.len() as u128),
            options,
            boot: SCHEDULER,
        }
    }

    fn queued(&self) -> Self {
        self.accepted(&SendOptions::default())
    }

    fn claimed(&self) -> Self {
        let claim = claim(&self.hot, self.head().as_ref(), claimer(WORKER, TOKEN), NOW);
        self.after(&claim.change)
    }

    fn parked(&self, on: WaitingOn) -> Self {
        let totals = SendTotals::default();
        let parking = Parking {
            on,
            until: crate::store::ParkUntil::Asked,
            unless: 0,
            totals: &totals,
        };
        let head = self.head().expect("a send runs");
        let park = park(&self.hot, &head, self.lease(), parking, NOW);
        let Park::Parked(change) = park else {
            panic!("not parked: {park:?}")
        };
        self.after(&change)
    }

    fn lease(&self) -> Lease {
        Lease {
            boot: self.hot.owner.unwrap_or(WORKER),
            token: self.hot.token.unwrap_or(TOKEN),
            epoch: self.hot.epoch,
            write: self.hot.writes,
        }
    }

    fn lease_until(&self) -> Option<Timestamp> {
        self.is_held().then_some(LEASE_UNTIL)
    }

    fn is_held(&self) -> bool {
        self.owner_lives && self.hot.owner.is_some()
    }

    fn head(&self) -> Option<SendState> {
        let placed = self
            .sends
            .iter()
            .filter(|send| send.position.is_some() && !send.status.is_final());
        placed.min_by_key(|send| send.position).copied()
    }

    fn head_status(&self) -> Option<SendStatus> {
        self.head().map(|head| head.status)
    }

    fn last_queued(&self) -> Option<SendId> {
        let queued = self
            .sends
            .iter()
            .filter(|send| send.position.is_some() && send.status == SendStatus::Queued);
        queued.max_by_key(|send| send.position).map(|send| send.id)
    }

    /// The name of the state, as in the diagram.
    fn place(&self) -> &'static str {
        if self.hot.lifecycle == Lifecycle::Deleted {
            return "deleted";
        }
        match (self.head_status(), self.hot.owner, self.hot.ready_since) {
            (None, _, _) if self.hot.lifecycle == Lifecycle::Closed => "closed",
            (None, _, _) => "idle",
            (Some(SendStatus::Waiting), _, None) => "waiting",
            (Some(SendStatus::Waiting), _, Some(_)) => "woken",
            (Some(SendStatus::Queued), None, Some(_)) => "queued",
            (Some(SendStatus::Running), Some(_), Some(_)) => "running",
            (Some(SendStatus::Running), None, Some(_)) => "released",
            (Some(_), _, _) => "unsound",
        }
    }
}

fn claimer(boot: BootId, token: LeaseToken) -> Claimer {
    Claimer {
        boot,
        token,
        crashes_below: 3,
        orphans: true,
    }
}

fn totals(rounds: i32, attempts: i32) -> SendTotals {
    SendTotals {
        rounds,
        attempts,
        ..SendTotals::default()
    }
}

#[test]
fn a_cancel_wins_over_the_result_and_over_what_keeps_a_send() {
    let mut scene = Scene::idle().queued().claimed();
    scene.hot.signals = crate::session::SIGNAL_CANCEL | SIGNAL_INBOX;
    let head = scene.head().expect("it runs");
    let totals = SendTotals::default();
    let completion = Completion {
        result: SendResult::completed(crate::send::StopReason::End, String::new()),
        round: None,
        totals: &totals,
        unless: SIGNAL_INBOX,
        then: crate::store::AfterSend::Continue,
    };
    let ended = complete(&scene.hot, &head, scene.lease(), completion, NOW);
    let Complete::Ended(change) = ended else {
        panic!("not ended: {ended:?}");
    };
    assert_eq!(change.end, Some(SendResult::cancelled()));
    // The next send still gets the inbox.
    assert_eq!(change.hot.signals, SIGNAL_INBOX);
}

#[test]
fn a_send_that_is_over_is_not_written_under_the_lease_that_went_on() {
    let scene = Scene::idle().queued().claimed();
    let mut send = scene.head().expect("it runs");
    send.status = SendStatus::Completed;
    let totals = totals(1, 0);
    let change = append(
        &scene.hot,
        &send,
        scene.lease(),
        StepRefs::default(),
        &totals,
        NOW,
    );
    assert_eq!(change, None);
}

#[test]
fn more_model_calls_are_no_progress_and_keep_the_crash_count() {
    let scene = Scene::idle().queued().claimed();
    let mut head = scene.head().expect("it runs");
    head.crashes = 2;
    let crashes = |totals: SendTotals| {
        let change = append(
            &scene.hot,
            &head,
            scene.lease(),
            StepRefs::default(),
            &totals,
            NOW,
        );
        change
            .and_then(|change| change.send)
            .map(|send| send.crashes)
    };
    assert_eq!(crashes(totals(0, 1)), Some(2));
    assert_eq!(crashes(totals(0, 0)), Some(0));
    assert_eq!(crashes(totals(1, 0)), Some(0));
}

#[test]
fn a_session_is_left_alone_once_too_many_workers_died_under_its_send() {
    let mut scene = Scene::idle().queued().claimed();
    scene.sends[0].crashes = 2;
    let head = scene.head();
    let claimed = claim(&scene.hot, head.as_ref(), claimer(OTHER, OTHER_TOKEN), NOW);
    assert_eq!(claimed.granted, Granted::Suspect);
    assert_eq!(claimed.dead, Some(WORKER));
    assert_eq!(claimed.change.send.map(|send| send.crashes), Some(3));
    assert_eq!(claimed.change.hot.owner, None);
    assert_eq!(claimed.change.hot.epoch, scene.hot.epoch);
    assert!(claimed.change.step.is_none());
}

#[test]
fn messages_are_numbered_from_where_the_transcript_ended() {
    let scene = Scene::idle().queued().claimed();
    let head = scene.head().expect("it runs");
    let change = append(
        &scene.hot,
        &head,
        scene.lease(),
        StepRefs::default(),
        &totals(1, 0),
        NOW,
    );
    let change = change.expect("the lease holds").with_messages(3);
    let refs = change.step.expect("a step").refs;
    assert_eq!((refs.first_seq, refs.messages), (Some(1), 3));
    assert_eq!(change.hot.next_seq, 4);
}

#[test]
fn a_delayed_send_gets_its_position_with_its_own_priority() {
    let options = SendOptions {
        delay: Some(crate::time::Span(Duration::from_secs(5))),
        priority: Priority::Low,
        ..SendOptions::default()
    };
    let scene = Scene::idle().accepted(&options);
    assert_eq!(scene.place(), "idle");
    let send = scene.sends[0];
    let change = expire(&scene.hot, &send, None, None, SCHEDULER, NOW);
    let ready = change.notify.ready.expect("it is ready");
    assert_eq!(ready.priority, Priority::Low);
    assert_eq!(change.hot.pending, 1);
}
