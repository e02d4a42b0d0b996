mod bed;
mod more;
mod owned;

use std::time::Duration;

use mainspring_shared::error::{Code, Failure};
use mainspring_shared::id::{BootId, RunId, RunKey};
use mainspring_shared::invariants::READABLE;
use mainspring_shared::timer::{Occurrence, TimerRecord};
use mainspring_shared::workflow::run::{RunLeaf, RunStatus};
use uuid::Uuid;

use self::bed::{KEY, NOW, asked, found, healthy, items, send_id, ticking};
use super::*;

#[test]
fn a_healthy_content_violates_nothing() {
    assert_eq!(found(|_| {}), Vec::<String>::new());
}

#[test]
fn a_second_final_step_is_found() {
    let names = found(|dump| {
        let steps = &mut dump.sessions[0].steps;
        steps[0].kind = StepKind::Finished;
    });
    assert!(
        names.contains(&"send.one_final_step".to_owned()),
        "{names:?}"
    );
}

#[test]
fn a_final_send_without_a_final_step_is_found() {
    let names = found(|dump| {
        let steps = dump.sessions[0].steps.iter_mut();
        for step in steps.filter(|step| step.kind == StepKind::Finished) {
            step.kind = StepKind::Round;
        }
    });
    assert_eq!(names, ["send.one_final_step"]);
}

#[test]
fn a_message_behind_the_final_step_is_found() {
    let names = found(|dump| {
        let session = &mut dump.sessions[0];
        let mut late = session.messages[0].clone();
        late.seq = session.hot.next_seq;
        session.hot.next_seq += 1;
        session.messages.push(late);
    });
    assert_eq!(names, ["send.final_is_last", "message.has_step"]);
}

#[test]
fn a_missing_message_is_found() {
    let names = found(|dump| {
        dump.sessions[0].messages.remove(0);
    });
    assert_eq!(names, ["session.seq_gap_free", "message.has_step"]);
}

#[test]
fn a_missing_step_is_found() {
    let names = found(|dump| dump.sessions[0].hot.next_step += 1);
    assert_eq!(names, ["session.steps_gap_free"]);
}

#[test]
fn a_place_taken_twice_is_found() {
    let names = found(|dump| dump.sessions[0].sends[1].position = Some(1));
    assert_eq!(names, ["session.positions_unique"]);
}

#[test]
fn a_wrong_count_of_queued_sends_is_found() {
    let names = found(|dump| dump.sessions[0].hot.pending = 0);
    assert_eq!(names, ["session.pending_matches"]);
}

#[test]
fn work_that_nobody_would_hear_of_is_found() {
    let names = found(|dump| {
        let hot = &mut dump.sessions[0].hot;
        (hot.owner, hot.token, hot.ready_since) = (None, None, None);
    });
    assert_eq!(names, ["session.ready_iff_work", "send.running_has_lease"]);
}

#[test]
fn two_running_sends_are_found() {
    let names = found(|dump| {
        let session = &mut dump.sessions[0];
        let started = session.sends[1].clone();
        session.hot.pending = 0;
        let third = &mut session.sends[2];
        third.status = SendStatus::Running;
        (third.started_at, third.agent_version) = (started.started_at, started.agent_version);
    });
    assert_eq!(names, ["session.one_active_send"]);
}

#[test]
fn an_epoch_that_goes_back_is_found() {
    let names = found(|dump| {
        let session = &mut dump.sessions[0];
        session.hot.epoch = 2;
        session.messages[0].epoch = 2;
    });
    assert_eq!(names, ["epoch.never_decreases", "message.has_step"]);
}

#[test]
fn two_boots_under_one_epoch_are_found() {
    let names = found(|dump| {
        let steps = &mut dump.sessions[0].steps;
        let last = steps.last_mut().expect("there are steps");
        last.boot = BootId(Uuid::from_u128(0xbb));
    });
    assert_eq!(names, ["epoch.one_boot"]);
}

#[test]
fn an_epoch_that_was_never_granted_is_found() {
    let names = found(|dump| dump.sessions[0].hot.epoch = 0);
    assert_eq!(names, ["epoch.granted"]);
}

#[test]
fn a_place_of_a_send_that_an_item_has_too_is_found() {
    let names = found(|dump| items(dump)[1].n = 1);
    assert_eq!(names, ["session.positions_unique"]);
}

#[test]
fn a_call_without_its_result_is_found() {
    let plants: [fn(&mut DumpSession); 5] = [
        |session| session.messages[2].tool_call_id = None,
        |session| session.messages[2].send_id = send_id(2),
        |session| session.messages[2].tool_call_id = Some("c2".to_owned()),
        |session| {
            session.messages[1].tool_calls.clear();
        },
        |session| session.calls.clear(),
    ];
    for (n, plant) in plants.into_iter().enumerate() {
        let names = found(|dump| plant(asked(dump)));
        assert!(
            names.contains(&"call.one_result".to_owned()),
            "{n}: {names:?}"
        );
    }
}

#[test]
fn answers_in_another_order_or_place_are_found() {
    let swapped = found(|dump| {
        let messages = &mut asked(dump).messages;
        let (answer, words) = (messages[2].clone(), messages[3].clone());
        messages[2] = Message { seq: 3, ..words };
        messages[3] = Message { seq: 4, ..answer };
    });
    assert_eq!(swapped, ["call.one_result"]);
    let twice = found(|dump| {
        let messages = &mut asked(dump).messages;
        let answer = messages[2].clone();
        messages[3] = Message { seq: 4, ..answer };
    });
    assert_eq!(twice, ["call.one_result"]);
}

#[test]
fn an_answered_call_that_is_not_settled_is_found() {
    let names = found(|dump| {
        let call = &mut asked(dump).calls[0];
        (call.result, call.settled_at) = (None, None);
    });
    assert_eq!(names, ["call.one_result"]);
}

#[test]
fn the_last_message_of_the_active_send_may_ask() {
    let ask = |dump: &mut Dump, send: SendId| {
        let session = asked(dump);
        let mut asking = session.messages[1].clone();
        asking.tool_calls[0].id = "c2".to_owned();
        (asking.seq, asking.send_id) = (session.hot.next_seq, send);
        session.hot.next_seq += 1;
        let mut step = session.steps[0].clone();
        (step.n, step.send_id, step.kind) = (session.hot.next_step, send, StepKind::Round);
        (step.epoch, step.boot) = (asking.epoch, session.hot.owner.expect("it is owned"));
        (step.refs.first_seq, step.refs.messages) = (Some(asking.seq), 1);
        session.hot.next_step += 1;
        session.steps.push(step);
        session.messages.push(asking);
        session.usage.push((send, 0, 1));
    };
    assert_eq!(found(|dump| ask(dump, send_id(2))), Vec::<String>::new());
    let names = found(|dump| ask(dump, send_id(1)));
    assert_eq!(names, ["send.final_is_last", "call.one_result"]);
}

#[test]
fn fields_of_a_call_that_do_not_fit_are_found() {
    let plants: [fn(&mut mainspring_shared::tool::CallRecord); 4] = [
        |call| call.settled_at = None,
        |call| call.waits_on = Some(mainspring_shared::send::WaitingOn::Tool),
        |call| call.attempt = 1,
        |call| call.started_epoch = Some(1),
    ];
    for (n, plant) in plants.into_iter().enumerate() {
        let names = found(|dump| plant(&mut asked(dump).calls[0]));
        assert_eq!(names, ["call.settled_shape"], "plant {n}");
    }
}

#[test]
fn an_item_without_one_fate_is_found() {
    let plants: [fn(&mut [mainspring_shared::inbox::InboxItem]); 6] = [
        |items| items[0].seq = None,
        |items| items[0].seq = Some(99),
        |items| items[0].settled_at = None,
        |items| items[1].seq = Some(1),
        |items| items[1].settled_at = Some(NOW),
        |items| items[2].seq = Some(1),
    ];
    for (n, plant) in plants.into_iter().enumerate() {
        let names = found(|dump| plant(items(dump)));
        assert_eq!(names, ["inbox.one_fate"], "plant {n}");
    }
}

#[test]
fn the_end_of_a_child_that_its_parent_does_not_know_is_found() {
    let names = |later: i64, plant: fn(&mut Dump)| {
        let mut dump = healthy();
        dump.boots[0].lease_until = Timestamp(NOW.0 + 1_000_000);
        dump.boots[0].in_flight = 1;
        plant(&mut dump);
        let now = Timestamp(NOW.0 + later);
        let violations = audit(&dump, now, AuditOptions::default());
        let names = violations.into_iter().map(|v| v.invariant);
        names.collect::<Vec<_>>()
    };
    let forget: fn(&mut Dump) = |dump| {
        dump.sessions[0].inbox.pop();
    };
    assert_eq!(names(60_001, |_| {}), Vec::<String>::new());
    assert_eq!(names(60_000, forget), Vec::<String>::new());
    assert_eq!(names(60_001, forget), ["child.reported"]);
    let parent_gone = names(60_001, |dump| {
        dump.sessions.remove(0);
    });
    assert_eq!(parent_gone, Vec::<String>::new());
}

#[test]
fn a_running_send_whose_owner_is_long_dead_is_found() {
    let bound = AuditOptions::default().takeover_bound.as_millis() as i64;
    let at_bound = found(|dump| dump.boots[0].lease_until = Timestamp(NOW.0 - bound));
    assert_eq!(at_bound, Vec::<String>::new());
    let names = found(|dump| dump.boots[0].lease_until = Timestamp(NOW.0 - bound - 1));
    assert_eq!(names, ["send.running_has_lease"]);
    let unknown = found(|dump| dump.boots.clear());
    assert_eq!(unknown, ["send.running_has_lease"]);
}

#[test]
fn a_round_that_nobody_paid_for_is_found() {
    let names = found(|dump| {
        dump.sessions[0].usage.remove(0);
    });
    assert_eq!(names, ["usage.matches_rounds"]);
}

#[test]
fn fields_that_do_not_fit_the_status_are_found() {
    let plants: [fn(&mut SendRecord); 6] = [
        |send| send.finished_at = None,
        |send| send.stop_reason = None,
        |send| send.waiting_on = Some(mainspring_shared::send::WaitingOn::Tool),
        |send| send.error = Some(Failure::new(Code::Internal, "x")),
        |send| send.alarm_at = Some(NOW),
        |send| send.agent_version = None,
    ];
    for (n, plant) in plants.into_iter().enumerate() {
        let names = found(|dump| plant(&mut dump.sessions[0].sends[0]));
        assert_eq!(names, ["send.shape"], "plant {n}");
    }
}

#[test]
fn a_timer_that_did_not_fire_once_and_in_time_is_found() {
    type Plant = fn(&mut TimerRecord, &mut Vec<Occurrence>);
    let plants: [(&str, Plant); 9] = [
        ("timer.fired_once", |_, all| all.retain(|o| o.n != 2)),
        ("timer.fired_once", |_, all| all.truncate(2)),
        ("timer.fired_once", |timer, _| timer.state.next_n += 1),
        ("timer.fired_once", |_, all| all[2].send_id = all[0].send_id),
        ("timer.fired_once", |_, all| all[2].send_id = None),
        ("timer.never_early", |_, all| {
            all[1].due_at = NOW.after(Duration::from_hours(1));
        }),
        ("timer.never_early", |_, all| {
            all[1].due_at = Timestamp(all[1].due_at.0 - 500);
        }),
        ("timer.shape", |timer, _| timer.state.fire_at = None),
        ("timer.shape", |timer, _| timer.state.ended_at = Some(NOW)),
    ];
    let options = AuditOptions::default();
    assert_eq!(audit(&ticking(), NOW, options), []);
    for (name, plant) in plants {
        let mut dump = ticking();
        let (timer, occurrences) = &mut dump.timers[0];
        assert_eq!(occurrences.len(), 3);
        plant(timer, occurrences);
        let names = audit(&dump, NOW, options).into_iter().map(|v| v.invariant);
        assert_eq!(names.collect::<Vec<_>>(), [name]);
    }
}

#[test]
fn what_a_deleted_session_left_for_good_is_found() {
    let delete = |dump: &mut Dump, erasing| {
        let session = &mut dump.sessions[0];
        session.hot.lifecycle = Lifecycle::Deleted;
        session.erasing = erasing;
    };
    let names = found(|dump| delete(dump, false));
    assert!(names.contains(&"session.erased".to_owned()), "{names:?}");
    let names = found(|dump| delete(dump, true));
    assert!(!names.contains(&"session.erased".to_owned()), "{names:?}");
    let below = |dump: &mut Dump, erasing| {
        let mut above = dump.sessions[0].clone();
        above.key.session = mainspring_shared::id::SessionId(Uuid::from_u128(77));
        above.messages.clear();
        above.calls.clear();
        above.inbox.clear();
        above.usage.clear();
        above.hot.lifecycle = Lifecycle::Deleted;
        above.erasing = erasing;
        dump.sessions[0].parent = Some(mainspring_shared::store::Parent {
            session: above.key.session,
            call_id: "call".to_owned(),
            root: above.key.session,
            depth: 1,
        });
        dump.sessions.push(above);
    };
    let names = found(|dump| below(dump, false));
    assert!(names.contains(&"session.erased".to_owned()), "{names:?}");
    let names = found(|dump| below(dump, true));
    assert!(!names.contains(&"session.erased".to_owned()), "{names:?}");
}

#[test]
fn every_invariant_of_the_list_has_a_plant_here() {
    let plants = [
        include_str!("tests.rs"),
        include_str!("tests/more.rs"),
        include_str!("tests/owned.rs"),
    ];
    // Nothing in memory can be unreadable.
    let checked = INVARIANTS.iter().filter(|(name, _)| *name != READABLE);
    for (name, _) in checked {
        let quoted = format!("\"{name}\"");
        assert!(plants.iter().any(|file| file.contains(&quoted)), "{name}");
    }
}

#[test]
fn no_more_rows_are_shown_than_asked_for() {
    let mut dump = healthy();
    dump.sessions[0].usage.clear();
    let options = AuditOptions {
        rows_max: 1,
        ..AuditOptions::default()
    };
    let violations = audit(&dump, NOW, options);
    assert_eq!(violations.len(), 1);
    assert_eq!(violations[0].rows.len(), 1);
}

fn run_of(dump: &mut Dump) -> &mut mainspring_shared::store::DumpRun {
    let new = mainspring_shared::store::NewRun {
        key: RunKey {
            tenant: KEY.tenant,
            run: RunId(Uuid::from_u128(1)),
        },
        name: "r".to_owned(),
        spec: Value::Null,
        dsl_version: 1,
        input: Value::Null,
        options: mainspring_shared::workflow::run::RunOptions::default(),
        session: None,
        reports_to: None,
        depth: 1,
        idempotency: None,
    };
    dump.runs.push(mainspring_shared::store::DumpRun {
        run: new.record(NOW),
        owner: None,
        step: 0,
        nodes: Vec::new(),
        asks: Vec::new(),
        steps: Vec::new(),
    });
    &mut dump.runs[0]
}

fn leaf() -> RunLeaf {
    RunLeaf {
        run: RunId(Uuid::from_u128(1)),
        path: "/0".to_owned(),
        attempt: 1,
    }
}

#[test]
fn an_attempt_of_a_leaf_with_two_sends_is_found() {
    let names = found(|dump| {
        for send in &mut dump.sessions[0].sends[..2] {
            send.run = Some(leaf());
        }
    });
    assert_eq!(names, ["run.leaf_one_send"]);
}

#[test]
fn a_final_run_with_a_live_leaf_is_found() {
    let names = found(|dump| {
        let run = &mut run_of(dump).run;
        (run.status, run.alarm_at, run.finished_at) = (RunStatus::Completed, None, Some(NOW));
        let mut sends = dump.sessions[0].sends.iter_mut();
        let live = sends.find(|send| send.status == SendStatus::Running);
        live.expect("one runs").run = Some(leaf());
    });
    assert_eq!(names, ["run.final_is_quiet"]);
}

#[test]
fn a_missing_advance_is_found() {
    let names = found(|dump| run_of(dump).step = 1);
    assert_eq!(names, ["run.steps_gap_free"]);
}
