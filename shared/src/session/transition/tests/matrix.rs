//! Every state with every event, in one table.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::*;
use crate::agent::OnBusy;
use crate::inbox::ItemKind;
use crate::session::fold::{FoldKind, FoldRef};
use crate::session::{SIGNAL_CANCEL, SIGNAL_INTERRUPT, SIGNAL_RESULT};
use crate::step::RoundRef;
use crate::store::{AfterSend, ParkUntil, ReleaseLoss};
use crate::time::Span;
use crate::usage::Usage;

const PAST: Timestamp = Timestamp(NOW.0 - 1);

/// The effect of an event on a scene: its changes in one transaction, or the word for its refusal.
pub(super) type Outcome = Result<Vec<Change>, &'static str>;

type Single = Result<Change, &'static str>;

pub(super) type Event = (&'static str, fn(&Scene) -> Outcome);

pub(super) fn scenes() -> Vec<(&'static str, Scene)> {
    let idle = Scene::idle();
    let queued = idle.queued();
    let running = queued.claimed();
    let with = |scene: &Scene, change: fn(&mut Scene)| {
        let mut scene = scene.clone();
        change(&mut scene);
        scene
    };
    let more = running.queued();
    let delayed = idle.accepted(&SendOptions {
        delay: Some(Span(Duration::from_secs(5))),
        ..SendOptions::default()
    });
    vec![
        ("idle", idle.clone()),
        ("idle, a delayed send", delayed),
        (
            "idle, an item kept",
            with(&idle, |s| s.hot.signals = SIGNAL_INBOX),
        ),
        ("queued", queued.clone()),
        ("queued, another one too", queued.queued()),
        ("running", running.clone()),
        ("running, another one queued", more.clone()),
        (
            "running, an item pending",
            with(&running, |s| s.hot.signals = SIGNAL_INBOX),
        ),
        (
            "running, cancel asked",
            with(&more, |s| {
                s.hot.signals = SIGNAL_CANCEL;
                s.sends[0].cancel_requested = true;
            }),
        ),
        (
            "running, the owner is late",
            with(&running, |s| s.owner_lives = false),
        ),
        (
            "running, the owner is late, two died before",
            with(&running, |s| {
                s.owner_lives = false;
                s.sends[0].crashes = 2;
            }),
        ),
        ("released", with(&running, |s| s.hot.clear_lease())),
        ("waiting for a tool", running.parked(WaitingOn::Tool)),
        (
            "waiting for a tool, another one queued",
            more.parked(WaitingOn::Tool),
        ),
        ("waiting for a retry", running.parked(WaitingOn::Retry)),
        ("waiting for recovery", running.parked(WaitingOn::Recovery)),
        ("woken", {
            let waiting = running.parked(WaitingOn::Retry);
            let head = waiting.head().expect("it waits");
            waiting.after(&wake(waiting.hot.clone(), &head, NOW))
        }),
        (
            "closed",
            with(&idle, |s| s.hot.lifecycle = Lifecycle::Closed),
        ),
        (
            "deleted",
            with(&idle, |s| s.hot = delete(&s.hot, SCHEDULER).0),
        ),
    ]
}

fn offered(scene: &Scene, options: &SendOptions) -> Single {
    let busy = scene.sends.iter().any(|send| !send.status.is_final());
    match refuse_accept(&scene.hot, busy, options.on_busy, 2) {
        Some(crate::store::RefuseReason::SessionNotFound) => Err("not found"),
        Some(crate::store::RefuseReason::SessionClosed) => Err("closed"),
        Some(crate::store::RefuseReason::Busy) => Err("busy"),
        Some(crate::store::RefuseReason::QueueFull) => Err("queue full"),
        None => Ok(accept(
            &scene.hot,
            scene.head_status(),
            scene.offer(options),
            NOW,
        )),
    }
}

fn claimed(scene: &Scene, boot: BootId, orphans: bool) -> Single {
    let claimer = Claimer {
        orphans,
        ..claimer(boot, OTHER_TOKEN)
    };
    let facts = ClaimFacts {
        owner_lives: scene.is_held(),
        claimer_dead: false,
    };
    match refuse_claim(&scene.hot, claimer, facts) {
        Some(ClaimRefusal::Idle) => Err("nothing to do"),
        Some(ClaimRefusal::Busy) => Err("busy"),
        None => Ok(claim(&scene.hot, scene.head().as_ref(), claimer, NOW).change),
    }
}

fn appended(scene: &Scene, rounds: i32, behind: i64) -> Single {
    let head = scene.head().ok_or("no send")?;
    let mut lease = scene.lease();
    lease.write -= behind;
    let round = (rounds > 0).then(|| RoundRef {
        index: 0,
        model: "m".to_owned(),
        usage: Usage::default(),
        digest: None,
        folded: None,
        aged_to: None,
        recalled: None,
    });
    let refs = StepRefs {
        round,
        ..StepRefs::default()
    };
    let totals = totals(rounds, 1 - rounds);
    append(&scene.hot, &head, lease, refs, &totals, NOW).ok_or("lease lost")
}

fn folded(scene: &Scene) -> Single {
    let head = scene.head().ok_or("no send")?;
    let refs = StepRefs {
        fold: Some(FoldRef {
            from_seq: 1,
            to_seq: 2,
            kind: FoldKind::Summary,
            tokens_before: 100,
            tokens_after: 10,
        }),
        ..StepRefs::default()
    };
    append(&scene.hot, &head, scene.lease(), refs, &totals(0, 0), NOW).ok_or("lease lost")
}

fn completed(scene: &Scene, unless: i32, then: AfterSend) -> Outcome {
    let head = scene.head().ok_or("no send")?;
    let completion = Completion {
        result: SendResult::completed(crate::send::StopReason::End, String::new()),
        round: None,
        totals: &totals(1, 0),
        unless,
        then,
    };
    match complete(&scene.hot, &head, scene.lease(), completion, NOW) {
        Complete::LeaseLost => Err("lease lost"),
        Complete::Undelivered(change) | Complete::Ended(change) => Ok(vec![change]),
        Complete::Continues(change) => {
            let after = scene.after(&change);
            let next = start_next(&after.hot, after.head().as_ref(), NOW);
            Ok(vec![change, next])
        }
    }
}

fn parked(scene: &Scene, unless: i32) -> Single {
    let head = scene.head().ok_or("no send")?;
    let parking = Parking {
        on: WaitingOn::Retry,
        until: ParkUntil::After(Duration::from_secs(30)),
        unless,
        totals: &totals(0, 1),
    };
    match park(&scene.hot, &head, scene.lease(), parking, NOW) {
        Park::LeaseLost => Err("lease lost"),
        Park::Woken(change) | Park::Cancelled(change) | Park::Parked(change) => Ok(change),
    }
}

fn cancelled(scene: &Scene, send: Option<SendState>) -> Single {
    let send = send.ok_or("no send")?;
    let (head, lease) = (scene.head_status(), scene.lease_until());
    cancel(&scene.hot, &send, head, lease, SCHEDULER, NOW).ok_or("final")
}

fn expired(scene: &Scene, deadline: Option<Timestamp>) -> Single {
    let send = scene.sends.first().ok_or("no send")?;
    if send.status == SendStatus::Queued && send.position.is_some() && deadline == Some(DEADLINE) {
        // Its deadline is its only alarm.
        return Err("no alarm");
    }
    let send = SendState {
        deadline_at: deadline,
        ..*send
    };
    let (head, lease) = (scene.head_status(), scene.lease_until());
    Ok(expire(&scene.hot, &send, head, lease, SCHEDULER, NOW))
}

fn delivered(scene: &Scene, mode: OnBusy, kind: ItemKind) -> Single {
    let head = scene.head();
    let facts = DeliveryFacts {
        head: head.as_ref(),
        last_queued: scene.last_queued(),
        pending_items: 0,
    };
    match deliver(&scene.hot, facts, mode, kind, 10, NOW) {
        Delivery::Full => Err("full"),
        Delivery::Idle => Err("to be a send"),
        Delivery::Joined { change, .. } => Ok(change),
        Delivery::Stored(stored) => Ok(stored.change),
    }
}

fn answered(scene: &Scene, round_waits: bool) -> Change {
    let head = scene.head();
    answer(&scene.hot, head.as_ref(), send_id(101), round_waits, NOW)
}

fn reported(scene: &Scene, at_rest: AtRest) -> Single {
    let stored = report(&scene.hot, scene.head().as_ref(), at_rest, NOW);
    stored.map(|stored| stored.change).ok_or("to be a send")
}

pub(super) fn events() -> Vec<Event> {
    let mut events = of_workers();
    events.extend(of_others());
    events
}

fn one(change: Single) -> Outcome {
    change.map(|change| vec![change])
}

fn of_workers() -> Vec<Event> {
    vec![
        ("claim", |s| one(claimed(s, OTHER, false))),
        ("claim, orphans too", |s| one(claimed(s, OTHER, true))),
        ("claim by the owner itself", |s| {
            one(claimed(s, WORKER, true))
        }),
        ("append a round", |s| one(appended(s, 1, 0))),
        ("append begun model calls", |s| one(appended(s, 0, 0))),
        ("attach a fold", |s| one(folded(s))),
        ("append a second time", |s| one(appended(s, 1, 1))),
        ("complete", |s| {
            completed(s, SIGNAL_INBOX, AfterSend::Continue)
        }),
        ("complete and release", |s| {
            completed(s, 0, AfterSend::Release)
        }),
        ("park for a retry", |s| one(parked(s, 0))),
        ("park unless an item came", |s| one(parked(s, SIGNAL_INBOX))),
        ("release", |s| one(released(s, ReleaseLoss::Nothing))),
        ("release, a model call lost", |s| {
            one(released(s, ReleaseLoss::ModelCall))
        }),
        ("release, the work lost", |s| {
            one(released(s, ReleaseLoss::Work))
        }),
    ]
}

fn of_others() -> Vec<Event> {
    vec![
        ("accept", |s| one(offered(s, &SendOptions::default()))),
        ("accept, delayed", |s| {
            let delay = Some(Span(Duration::from_secs(5)));
            let options = SendOptions {
                delay,
                ..SendOptions::default()
            };
            one(offered(s, &options))
        }),
        ("accept, rejected if busy", |s| {
            let on_busy = OnBusy::Reject;
            let options = SendOptions {
                on_busy,
                ..SendOptions::default()
            };
            one(offered(s, &options))
        }),
        ("cancel the head", |s| one(cancelled(s, s.head()))),
        ("cancel the last one", |s| {
            one(cancelled(s, s.sends.last().copied()))
        }),
        ("expire: an alarm", |s| one(expired(s, Some(DEADLINE)))),
        ("expire: the deadline", |s| one(expired(s, Some(PAST)))),
        ("deliver, steer", |s| {
            one(delivered(s, OnBusy::Steer, ItemKind::Message))
        }),
        ("deliver, interrupt", |s| {
            one(delivered(s, OnBusy::Interrupt, ItemKind::Message))
        }),
        ("deliver, coalesce", |s| {
            one(delivered(s, OnBusy::Coalesce, ItemKind::Message))
        }),
        ("post the last result", |s| one(Ok(answered(s, false)))),
        ("post a result, others are open", |s| {
            one(Ok(answered(s, true)))
        }),
        ("report a child", |s| one(reported(s, AtRest::Keep))),
        ("report a run that wakes", |s| {
            one(reported(s, AtRest::Send))
        }),
        ("resume", |s| {
            one(resume(&s.hot, s.head().as_ref(), NOW).ok_or("no recovery"))
        }),
        ("delete", deleted),
    ]
}

fn released(scene: &Scene, lost: ReleaseLoss) -> Single {
    release(&scene.hot, scene.head().as_ref(), scene.lease(), lost).ok_or("lease lost")
}

fn deleted(scene: &Scene) -> Outcome {
    if scene.hot.lifecycle == Lifecycle::Deleted {
        return Err("not found");
    }
    let (hot, grant) = delete(&scene.hot, SCHEDULER);
    let mut changes = vec![Change::of(hot)];
    for send in scene.sends.iter().filter(|send| !send.status.is_final()) {
        let hot = changes.last().map_or(&scene.hot, |last| &last.hot).clone();
        changes.push(finish(hot, send, SendResult::cancelled(), grant, NOW));
    }
    Ok(changes)
}

/// The effect of an event, in one line.
fn describe_all(before: &Scene, changes: &[Change]) -> String {
    let mut scene = before.clone();
    let mut said = Vec::new();
    for change in changes {
        said.push(describe(&scene, change));
        scene = scene.after(change);
    }
    format!("{}: {}", scene.place(), said.join("; then "))
}

fn describe(before: &Scene, change: &Change) -> String {
    let mut said = Vec::new();
    let (old, new) = (&before.hot, &change.hot);
    if old.pending != new.pending {
        said.push(format!("pending {}", new.pending));
    }
    if old.next_position != new.next_position
        && change.send.is_none_or(|send| !is_new(before, &send))
    {
        said.push(format!("item at position {}", old.next_position));
    }
    if old.signals != new.signals {
        said.push(format!("signals {}", signals(new.signals)));
    }
    if old.owner != new.owner {
        let owner = if new.owner.is_some() { "taken" } else { "none" };
        said.push(format!("lease {owner}"));
    }
    if let Some(send) = change.send {
        let known = before.sends.iter().find(|known| known.id == send.id);
        said.push(described(known, &send));
    }
    if let Some(end) = &change.end {
        said.push(format!("ends {}", end.stop_reason.as_str()));
    }
    if let Some(step) = &change.step {
        let grant = if step.epoch == 0 { "without" } else { "with" };
        let reason = step.refs.reason.as_deref().unwrap_or("-");
        said.push(format!(
            "step {} {reason} {grant} a grant",
            step.kind.as_str()
        ));
    }
    if change.notify.ready.is_some() {
        said.push("notify workers".to_owned());
    }
    if change.notify.owner.is_some() {
        said.push("notify the owner".to_owned());
    }
    if said.is_empty() {
        said.push("nothing changes".to_owned());
    }
    said.join("; ")
}

/// Whether a send gets its position with this change.
fn is_new(before: &Scene, send: &SendState) -> bool {
    let known = before.sends.iter().find(|known| known.id == send.id);
    known.is_none_or(|known| known.position != send.position)
}

fn described(known: Option<&SendState>, send: &SendState) -> String {
    let mut said = format!("send {}", send.status.as_str());
    if let Some(on) = send.waiting_on {
        write!(said, " on {}", on.as_str()).expect("to a string");
    }
    if known.is_none_or(|known| known.position != send.position) {
        let position = send
            .position
            .map_or_else(|| "none".to_owned(), |n| n.to_string());
        write!(said, ", position {position}").expect("to a string");
    }
    if known.is_some_and(|known| known.crashes != send.crashes) {
        write!(said, ", crashes {}", send.crashes).expect("to a string");
    }
    if known.is_some_and(|known| known.attempts != send.attempts) {
        write!(said, ", attempts {}", send.attempts).expect("to a string");
    }
    if let Some(alarm) = send.alarm_at {
        write!(said, ", alarm in {} ms", alarm.0 - NOW.0).expect("to a string");
    }
    said
}

fn signals(signals: i32) -> String {
    let names = [
        (SIGNAL_CANCEL, "cancel"),
        (SIGNAL_INBOX, "inbox"),
        (SIGNAL_INTERRUPT, "interrupt"),
        (SIGNAL_RESULT, "result"),
    ];
    let raised = names.iter().filter(|(bit, _)| signals & bit != 0);
    let raised: Vec<_> = raised.map(|(_, name)| *name).collect();
    if raised.is_empty() {
        "none".to_owned()
    } else {
        raised.join(" and ")
    }
}

#[test]
fn the_whole_matrix_is_as_reviewed() {
    let mut matrix = String::new();
    for (name, scene) in scenes() {
        writeln!(matrix, "{name} ({})", scene.place()).expect("to a string");
        for (event, run) in events() {
            let said = match run(&scene) {
                Ok(changes) => describe_all(&scene, &changes),
                Err(refused) => format!("refused: {refused}"),
            };
            writeln!(matrix, "  {event} -> {said}").expect("to a string");
        }
    }
    insta::assert_snapshot!(matrix);
}

/// The arrows of the diagram: from, to, and the events that lead there.
pub(super) fn arrows() -> BTreeMap<(&'static str, &'static str), Vec<&'static str>> {
    let mut arrows = BTreeMap::<_, Vec<_>>::new();
    for (_, scene) in scenes() {
        for (event, run) in events() {
            let Ok(changes) = run(&scene) else { continue };
            let to = changes
                .iter()
                .fold(scene.clone(), |scene, change| scene.after(change));
            let to = to.place();
            let word = event.split([' ', ',', ':']).next().unwrap_or(event);
            let words = arrows.entry((scene.place(), to)).or_default();
            if scene.place() != to && !words.contains(&word) {
                words.push(word);
            }
        }
    }
    arrows.retain(|_, words| !words.is_empty());
    arrows
}
