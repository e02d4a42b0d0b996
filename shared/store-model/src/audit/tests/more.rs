//! Violations of facts that are stored in more than one place.

use std::time::Duration;

use mainspring_shared::budget::{Budget, Spent};
use mainspring_shared::error::{Code, Failure};
use mainspring_shared::id::{BootId, RunId, SendId, TenantId};
use mainspring_shared::inbox::ItemKind;
use mainspring_shared::session::fold::{FoldKind, NewFold, attach};
use mainspring_shared::session::projection::{Projection, SendDigest};
use mainspring_shared::workflow::nodes::NodeKind;
use mainspring_shared::workflow::run::{NodeRecord, NodeState, RunRecord, RunStatus};
use uuid::Uuid;

use super::bed::{NOW, asked, found, healthy, items, send_id};
use super::*;
use mainspring_shared::usage::Usage;

const NOTHING: [String; 0] = [];

fn final_run(dump: &mut Dump, status: RunStatus) -> &mut RunRecord {
    let run = &mut run_of(dump).run;
    (run.status, run.alarm_at, run.finished_at) = (status, None, Some(NOW));
    run
}

fn node(state: NodeState) -> NodeRecord {
    NodeRecord {
        path: "/0".to_owned(),
        n: 1,
        kind: NodeKind::Agent,
        id: None,
        state,
        tolerated: false,
        attempt: 1,
        session: None,
        send: None,
        frozen: None,
        text: None,
        payload: None,
        error: None,
        usage: Usage::default(),
        kept: Spent::default(),
        reserved: Spent::default(),
        due_at: None,
        amended: false,
        steered: Vec::new(),
        earlier: Vec::new(),
        started_at: NOW,
        settled_at: None,
        extra: mainspring_shared::stored::Extra::default(),
    }
}

/// The violations this long after the content was made. The worker has renewed its lease by then,
/// and reported this number of sends in flight.
fn found_later(later: Duration, in_flight: u32, plant: impl FnOnce(&mut Dump)) -> Vec<String> {
    let mut dump = healthy();
    let boot = &mut dump.boots[0];
    boot.lease_until = NOW.after(later).after(boot.ttl);
    boot.in_flight = in_flight;
    plant(&mut dump);
    let violations = audit(&dump, NOW.after(later), AuditOptions::default());
    violations.into_iter().map(|v| v.invariant).collect()
}

/// Just within the takeover bound, and just beyond it.
fn bounds() -> [Duration; 2] {
    let bound = AuditOptions::default().takeover_bound;
    [bound, bound + Duration::from_millis(1)]
}

#[test]
fn a_final_run_with_anything_else_under_way_is_found() {
    let plants: [fn(&mut RunRecord); 3] = [
        |_| {},
        |run| run.alarm_at = Some(NOW),
        |run| run.counts.live = 1,
    ];
    for (n, plant) in plants.into_iter().enumerate() {
        let names = found(|dump| plant(final_run(dump, RunStatus::Completed)));
        assert_eq!(names.len(), usize::from(n > 0), "plant {n}: {names:?}");
        assert!(names.iter().all(|name| name == "run.final_is_quiet"));
    }
    let open = |state| {
        found(|dump| {
            final_run(dump, RunStatus::Completed);
            dump.runs[0].nodes.push(node(state));
        })
    };
    assert_eq!(open(NodeState::Completed), NOTHING);
    assert_eq!(open(NodeState::Waiting), ["run.final_is_quiet"]);
}

#[test]
fn only_a_run_that_broke_leaves_sends_that_are_to_end() {
    let names = |code: Code, asked: bool| {
        found(|dump| {
            final_run(dump, RunStatus::Failed).error = Some(Failure::new(code, "x"));
            let send = &mut dump.sessions[0].sends[1];
            (send.run, send.cancel_requested) = (Some(leaf()), asked);
        })
    };
    assert_eq!(names(Code::Internal, true), NOTHING);
    assert_eq!(names(Code::Internal, false), ["run.final_is_quiet"]);
    assert_eq!(names(Code::ToolFailed, true), ["run.final_is_quiet"]);
}

#[test]
fn an_owner_that_did_not_write_the_present_epoch_is_found() {
    let names = found(|dump| {
        let mut other = dump.boots[0].clone();
        other.id = BootId(Uuid::from_u128(0xbb));
        dump.sessions[0].hot.owner = Some(other.id);
        dump.boots.push(other);
    });
    assert_eq!(names, ["epoch.one_boot"]);
}

#[test]
fn a_send_that_goes_on_under_another_epoch_without_a_word_is_found() {
    let names = |kind: StepKind| {
        found(|dump| {
            let session = &mut dump.sessions[0];
            session.hot.epoch = 2;
            let last = session.messages.len() - 1;
            session.messages[last].epoch = 2;
            let ends = |step: &&mut Step| step.kind == StepKind::Finished;
            let end = session.steps.iter_mut().find(ends).expect("one ended");
            (end.epoch, end.kind) = (2, kind);
        })
    };
    assert_eq!(names(StepKind::Finished), NOTHING);
    let found = names(StepKind::Calls);
    assert!(found.contains(&"epoch.granted".to_owned()), "{found:?}");
}

#[test]
fn a_call_that_began_under_no_grant_is_found() {
    let names = found(|dump| {
        let call = &mut asked(dump).calls[0];
        (call.started_epoch, call.attempt) = (Some(9), 1);
    });
    assert_eq!(names, ["epoch.granted"]);
}

#[test]
fn a_call_in_no_message_is_found() {
    let names = found(|dump| {
        let session = asked(dump);
        let mut call = session.calls[0].clone();
        (call.call_id, call.place) = ("dangling".to_owned(), 1);
        session.calls.push(call);
    });
    assert_eq!(names, ["call.asked"]);
}

#[test]
fn a_message_without_its_step_and_a_step_without_its_message_are_found() {
    let unwritten = found(|dump| {
        let mut steps = dump.sessions[0].steps.iter_mut();
        let round = steps.find(|step| step.kind == StepKind::Round);
        round.expect("there is one").refs.messages = 1;
    });
    let name = "message.has_step".to_owned();
    assert!(unwritten.contains(&name), "{unwritten:?}");
    let lost = found(|dump| {
        let session = &mut dump.sessions[0];
        session.messages.pop();
        session.hot.next_seq -= 1;
    });
    assert_eq!(lost, ["message.has_step"]);
    let pruned = found(|dump| {
        let session = asked(dump);
        session.messages.drain(..3);
        session.calls.clear();
        session.first_seq = 4;
    });
    assert_eq!(pruned, NOTHING);
}

#[test]
fn words_of_a_send_that_never_began_are_found() {
    let names = found(|dump| dump.sessions[0].messages[3].send_id = send_id(3));
    let name = "send.unstarted_is_silent".to_owned();
    assert!(names.contains(&name), "{names:?}");
}

#[test]
fn a_usage_row_of_no_round_is_found() {
    let of = |send: u128, round: i32| {
        found(|dump| {
            let session = &mut dump.sessions[0];
            session.usage.push((send_id(send), round, 9));
            session.paid.push(Usage::default());
        })
    };
    assert_eq!(
        of(1, 2),
        NOTHING,
        "of the round that was open when it ended"
    );
    assert_eq!(of(1, 3), ["usage.matches_rounds"]);
    assert_eq!(of(77, 0), ["usage.matches_rounds"]);
}

#[test]
fn sums_that_are_not_those_of_their_rows_are_found() {
    let paid = |usage: fn(&mut Usage)| found(|dump| usage(&mut dump.sessions[0].paid[0]));
    assert_eq!(paid(|usage| usage.input_tokens = 3), ["usage.sums"]);
    assert_eq!(paid(|usage| usage.output_tokens = 3), ["usage.sums"]);
    assert_eq!(paid(|usage| usage.cache_read_tokens = 3), NOTHING);
    let used = |plant: fn(&mut DumpSession)| {
        found(|dump| {
            let session = asked(dump);
            // The child of this history may have added to its parent's usage.
            session.inbox.retain(|item| item.kind != ItemKind::Child);
            session.sends[0].usage.input_tokens = 3;
            plant(session);
        })
    };
    assert_eq!(used(|_| {}), ["usage.sums"]);
    assert_eq!(
        used(|session| session.sends[0].usage.estimated = true),
        NOTHING
    );
    let makes = |session: &mut DumpSession| "spawn_agent".clone_into(&mut session.calls[0].name);
    assert_eq!(used(makes), NOTHING);
    let tells = |session: &mut DumpSession| {
        session.sends[0].options.ended_run = Some(RunId(Uuid::from_u128(1)));
    };
    assert_eq!(used(tells), NOTHING);
}

#[test]
fn a_budget_that_was_passed_is_found() {
    let names = |budget: Budget, plant: fn(&mut DumpSession)| {
        found(|dump| {
            let session = asked(dump);
            session.sends[0].options.budget = Some(budget);
            plant(session);
        })
    };
    let rounds = |rounds| Budget {
        rounds: Some(rounds),
        ..Budget::default()
    };
    assert_eq!(names(rounds(2), |_| {}), NOTHING);
    assert_eq!(names(rounds(1), |_| {}), ["budget.kept"]);
    let tokens = Budget {
        tokens: Some(5),
        ..Budget::default()
    };
    // The length of the last answer is unknown in advance.
    let last = names(tokens, |session| {
        (
            session.paid[1].output_tokens,
            session.sends[0].usage.output_tokens,
        ) = (9, 9);
    });
    assert_eq!(last, NOTHING);
    let first = names(tokens, |session| {
        (
            session.paid[0].output_tokens,
            session.sends[0].usage.output_tokens,
        ) = (9, 9);
    });
    assert_eq!(first, ["budget.kept"]);
    let aside = names(tokens, |session| {
        hold(session, 6);
    });
    assert_eq!(aside, ["budget.kept"]);
}

fn hold(session: &mut DumpSession, tokens: u64) {
    let slice = Spent {
        tokens,
        ..Spent::default()
    };
    session.sends[0].held.0.insert("c1".to_owned(), slice);
}

#[test]
fn a_slice_of_a_child_that_reported_is_found() {
    let of = |name: &str, value: Value| {
        found(|dump| {
            let session = asked(dump);
            hold(session, 5);
            name.clone_into(&mut session.calls[0].name);
            let result = session.calls[0].result.as_mut().expect("it is settled");
            result.value = Some(Box::new(value));
        })
    };
    let names = |name: &str, status: &str| of(name, json!({ "status": status }));
    let below =
        json!({ "status": "completed", "kept": { "tokens": 5, "nano_usd": 0, "rounds": 1 } });
    assert_eq!(of("spawn_agent", below), NOTHING, "others work on below it");
    assert_eq!(names("spawn_agent", "completed"), ["budget.kept"]);
    assert_eq!(names("spawn_agent", "accepted"), NOTHING, "it goes on");
    assert_eq!(
        names("create_workflow", "failed"),
        NOTHING,
        "it says what it keeps"
    );
}

#[test]
fn rounds_that_are_not_closed_in_order_are_found() {
    let names = |index: i32| {
        found(|dump| {
            let steps = dump.sessions[0].steps.iter_mut();
            let mut rounds = steps.filter_map(|step| step.refs.round.as_mut());
            rounds.next_back().expect("there are two").index = index;
        })
    };
    assert_eq!(names(1), NOTHING);
    assert_eq!(names(0), ["send.rounds_in_order"]);
    assert_eq!(names(2), ["send.rounds_in_order"]);
    let lost = found(|dump| dump.sessions[0].sends[0].rounds = 3);
    assert_eq!(lost, ["send.rounds_in_order"]);
}

#[test]
fn a_session_that_its_worker_forgot_is_found() {
    let [within, beyond] = bounds();
    assert_eq!(found_later(within, 0, |_| {}), NOTHING);
    assert_eq!(found_later(beyond, 0, |_| {}), ["boot.in_flight"]);
    assert_eq!(found_later(beyond, 1, |_| {}), NOTHING);
    let late = found_later(beyond, 0, |dump| {
        dump.boots[0].lease_until = NOW.after(beyond);
    });
    assert_eq!(late, NOTHING, "it has not said anything since");
}

#[test]
fn a_running_send_that_nobody_takes_is_found() {
    let [within, beyond] = bounds();
    let given_back = |later: Duration, in_flight: u32, plant: fn(&mut Dump)| {
        found_later(later, in_flight, |dump| {
            let hot = &mut dump.sessions[0].hot;
            (hot.owner, hot.token) = (None, None);
            plant(dump);
        })
    };
    let name = ["send.running_has_lease"];
    assert_eq!(given_back(within, 0, |_| {}), NOTHING);
    assert_eq!(given_back(beyond, 0, |_| {}), name);
    assert_eq!(given_back(beyond, 1, |_| {}), NOTHING, "everybody is busy");
    let elsewhere = |dump: &mut Dump| "other".clone_into(&mut dump.sessions[0].hot.pool);
    assert_eq!(given_back(beyond, 0, elsewhere), NOTHING);
    let suspect = |dump: &mut Dump| dump.sessions[0].sends[1].crashes = 1;
    assert_eq!(given_back(beyond, 0, suspect), NOTHING);
    let forgotten = given_back(within, 1, |dump| dump.sessions[0].hot.ready_since = None);
    assert_eq!(forgotten, ["session.ready_iff_work", name[0]]);
}

#[test]
fn what_is_named_of_another_tenant_is_found() {
    let other = TenantId(9);
    let run = found(|dump| {
        run_of(dump).run.key.tenant = other;
        dump.tenants.push(other);
        dump.sessions[0].sends[1].run = Some(leaf());
    });
    assert_eq!(run, ["tenant.own_rows"]);
    let nobodys = found(|dump| dump.sessions[0].sends[1].run = Some(leaf()));
    assert_eq!(nobodys, NOTHING, "it was deleted");
    let parent = found(|dump| {
        let mut sessions = dump.sessions.iter_mut();
        let child = sessions.find(|session| session.parent.is_some());
        let child = child.expect("there is one");
        child.key.tenant = other;
        for send in &mut child.sends {
            send.key.tenant = other;
        }
    });
    assert!(parent.contains(&"tenant.own_rows".to_owned()), "{parent:?}");
    let send = found(|dump| {
        let theirs = dump.sessions.last().expect("there are two").clone();
        assert_ne!(theirs.key.session, dump.sessions[0].key.session);
        let id = theirs.sends[0].id;
        dump.sessions.pop();
        let mut theirs = theirs;
        (theirs.key.tenant, theirs.parent) = (other, None);
        theirs.sends[0].key.tenant = other;
        dump.sessions.push(theirs);
        items(dump)[0].send_id = Some(id);
    });
    assert!(send.contains(&"tenant.own_rows".to_owned()), "{send:?}");
}

#[test]
fn folds_that_are_not_beside_each_other_are_found() {
    let fold = |dump: &mut Dump, (from_seq, to_seq, level): (i64, i64, i32)| {
        let session = &mut dump.sessions[0];
        let new = NewFold {
            from_seq,
            to_seq,
            level,
            kind: FoldKind::Summary,
            text: String::new(),
            model: None,
            tokens_before: 0,
            tokens_after: 0,
        };
        let n = session.folds.len() as i64 + 1;
        attach(&mut session.folds, new.at(n, session.sends[0].id, NOW));
    };
    let names = |ranges: &[(i64, i64, i32)]| {
        found(|dump| ranges.iter().for_each(|range| fold(dump, *range)))
    };
    assert_eq!(names(&[(-3, 0, 0), (-3, 1, 1)]), NOTHING);
    assert_eq!(names(&[(-3, 0, 0), (0, 1, 1)]), ["fold.in_order"]);
    assert_eq!(names(&[(-3, 0, 0), (-3, 1, 0)]), ["fold.in_order"]);
    let parted = found(|dump| {
        let mut messages = dump.sessions[0].messages.iter();
        let result = messages.find(|message| message.asked_at_seq.is_some());
        let behind = result.expect("a call has a result").seq - 1;
        fold(dump, (1, behind, 0));
    });
    assert_eq!(parted, ["fold.in_order"]);
}

#[test]
fn projections_of_other_messages_than_those_of_their_send_are_found() {
    let with = |from_seq: i64, more: i64, other: bool| {
        found(|dump| {
            let session = &mut dump.sessions[0];
            let first = session.messages[0].send_id;
            let own = session.messages.iter().filter(|it| it.send_id == first);
            let count = own.count() as i64;
            session.projections.push(Projection {
                from_seq,
                to_seq: count + more,
                send_id: if other { SendId(Uuid::nil()) } else { first },
                version: 1,
                left: SendDigest::default(),
            });
        })
    };
    assert_eq!(with(1, 0, false), NOTHING);
    for (from_seq, more, other) in [(1, 0, true), (2, 0, false), (1, -1, false), (1, 1, false)] {
        let found = with(from_seq, more, other);
        assert_eq!(found, ["projection.of_send"], "{from_seq} {more} {other}");
    }
}
