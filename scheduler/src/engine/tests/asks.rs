//! Requests that people make of runs.

use mainspring_shared::error::Code;
use mainspring_shared::time::Timestamp;
use mainspring_shared::workflow::run::{NodeState, RunAsk, RunOptions, RunRecord, RunStatus};
use mainspring_shared::workflow::view::RunView;
use serde_json::{Value, json};

use super::fixture::{Fixture, agent, envelope, fails, record, said, says};

fn fan() -> Value {
    envelope(&json!({"type": "sequence", "steps": [
        agent("plan", &json!({})),
        {"type": "foreach", "id": "f", "as": "x", "items_from": "plan.list", "max_concurrency": 2,
         "body": agent("r", &json!({"input": "{{x}}"}))},
        agent("end", &json!({"input": "{{f}}"})),
    ]}))
}

fn half_way() -> Fixture {
    let mut fixture = Fixture::new(&fan());
    fixture.answer("/0:plan", says(r#"{"list": ["a", "b", "c", "d"]}"#));
    fixture.answer("/1:f[0]/r", says("A"));
    fixture
}

fn cancel() -> RunAsk {
    RunAsk::Cancel { reason: None }
}

fn retry() -> RunAsk {
    RunAsk::Retry { max_tokens: None }
}

#[test]
fn a_cancelled_run_keeps_what_succeeded_and_a_retry_runs_the_rest() {
    for crashes in [false, true] {
        let mut fixture = half_way();
        fixture.crashes = crashes;
        fixture.ask(cancel());
        assert!(fixture.live.iter().all(|live| live.cancelled) && fixture.live.len() == 2);
        fixture.end(0, says("x"));
        assert!(!fixture.status().is_final(), "a leaf has not ended yet");
        fixture.end(0, says("x"));
        assert_eq!(
            (fixture.status(), fixture.code()),
            (RunStatus::Cancelled, Some(Code::WorkflowCancelled))
        );
        assert_eq!(fixture.run.record().counts.leaves, 4);
        let advance = fixture.ask(cancel());
        assert_eq!(advance.refused.len(), 1);
        fixture.ask(retry());
        assert_eq!(fixture.paths(), ["/1:f[1]/r", "/1:f[2]/r"]);
        assert_eq!(fixture.live[0].start.attempt, 2);
        fixture.finish(&|start| says(&format!("<{}>", said(start))), |_| 0);
        assert_eq!(
            (fixture.status(), fixture.text()),
            (RunStatus::Completed, "<A\n\n<b>\n\n<c>\n\n<d>>")
        );
        let counts = fixture.run.record().counts;
        assert_eq!(
            (counts.leaves, counts.completed, counts.cancelled),
            (6, 6, 0)
        );
        assert_eq!(
            fixture.ask(retry()).refused.len(),
            1,
            "a completed run has nothing to retry"
        );
    }
}

#[test]
fn a_node_that_runs_again_takes_what_depends_on_it_along() {
    let mut fixture = half_way();
    fixture.finish(&|start| says(&format!("<{}>", said(start))), |_| 0);
    let before = fixture.started.len();
    fixture.reload();
    fixture.ask(RunAsk::RetryNode {
        path: "/1:f[2]/r".to_owned(),
    });
    assert_eq!(
        (fixture.status(), fixture.paths()),
        (RunStatus::Running, vec!["/1:f[2]/r"])
    );
    fixture.reload();
    fixture.answer("/1:f[2]/r", says("new"));
    assert_eq!(said(&fixture.live[0].start), "A\n\n<b>\n\nnew\n\n<d>");
    fixture.answer("/2:end", says("end"));
    assert_eq!(
        (fixture.status(), fixture.text()),
        (RunStatus::Completed, "end")
    );
    assert_eq!(fixture.started.len(), before + 2);
    fixture.ask(RunAsk::RetryNode {
        path: "/0:plan".to_owned(),
    });
    fixture.answer("/0:plan", says(r#"{"list": ["z"]}"#));
    assert_eq!(fixture.paths(), ["/1:f[0]/r"]);
    fixture.reload();
    fixture.answer("/1:f[0]/r", says("Z"));
    assert_eq!(
        said(&fixture.live[0].start),
        "Z",
        "items of the old list are no part of it"
    );
}

#[test]
fn an_amended_node_counts_as_if_it_had_said_that() {
    let amend = |path: &str| RunAsk::AmendNode {
        path: path.to_owned(),
        text: Some("by hand".to_owned()),
        payload: None,
    };
    let mut fixture = half_way();
    fixture.answer("/1:f[1]/r", fails("away"));
    fixture.end(0, says("x"));
    assert_eq!(fixture.status(), RunStatus::Failed);
    fixture.ask(amend("/1:f[1]/r"));
    assert!(fixture.run.node("/1:f[1]/r").expect("the node").amended);
    // The sibling that its failure cancelled counts as a failure itself.
    assert_eq!(fixture.status(), RunStatus::Cancelled);
    fixture.ask(retry());
    fixture.finish(&|start| says(&format!("<{}>", said(start))), |_| 0);
    assert_eq!(fixture.text(), "<A\n\nby hand\n\n<c>\n\n<d>>");
    fixture.ask(amend("/2:end"));
    assert_eq!(
        (fixture.status(), fixture.text()),
        (RunStatus::Completed, "by hand")
    );
    // While the run is running.
    let mut fixture = half_way();
    fixture.ask(amend("/1:f[1]/r"));
    assert!(fixture.live[0].cancelled);
    fixture.end(0, says("too late"));
    fixture.finish(&|start| says(&format!("<{}>", said(start))), |_| 0);
    assert_eq!(fixture.text(), "<A\n\nby hand\n\n<c>\n\n<d>>");
}

#[test]
fn one_node_is_cancelled_alone() {
    let spec = envelope(&json!({"type": "parallel", "on_error": "continue",
        "branches": [agent("a", &json!({})), agent("b", &json!({}))]}));
    let mut fixture = Fixture::new(&spec);
    fixture.ask(RunAsk::CancelNode {
        path: "/0:a".to_owned(),
    });
    assert!(fixture.live[0].cancelled && !fixture.live[1].cancelled);
    fixture.end(0, says("x"));
    assert_eq!(fixture.state("/0:a"), NodeState::Cancelled);
    fixture.end(0, says("b"));
    assert_eq!(
        (fixture.status(), fixture.text()),
        (RunStatus::Completed, "b")
    );
}

#[test]
fn what_cannot_be_done_is_refused_with_a_reason() {
    let mut fixture = half_way();
    for (ask, code) in [
        (retry(), Code::WorkflowNotResumable),
        (
            RunAsk::CancelNode {
                path: "/9".to_owned(),
            },
            Code::WorkflowNodeNotFound,
        ),
        (
            RunAsk::CancelNode {
                path: "/0:plan".to_owned(),
            },
            Code::WorkflowNotResumable,
        ),
        (
            RunAsk::RetryNode {
                path: "/1:f[1]/r".to_owned(),
            },
            Code::WorkflowNotResumable,
        ),
        (
            RunAsk::AmendNode {
                path: "/1:f".to_owned(),
                text: None,
                payload: None,
            },
            Code::WorkflowNotResumable,
        ),
    ] {
        let advance = fixture.ask(ask.clone());
        let codes: Vec<_> = advance
            .refused
            .iter()
            .map(|(_, failure)| failure.code)
            .collect();
        assert_eq!(codes, [code], "{ask:?}");
    }
}

#[test]
fn a_paused_run_starts_nothing_until_it_is_resumed() {
    for crashes in [false, true] {
        let mut fixture = half_way();
        fixture.crashes = crashes;
        fixture.ask(RunAsk::Pause { at: Timestamp(7) });
        fixture.ask(RunAsk::Pause { at: Timestamp(8) });
        let paused = |fixture: &Fixture| fixture.run.record().options.paused_at;
        assert_eq!(paused(&fixture), Some(Timestamp(7)), "the first one counts");
        assert_eq!(fixture.paths(), ["/1:f[1]/r", "/1:f[2]/r"], "they go on");
        assert_eq!(fixture.status(), RunStatus::Running);
        fixture.end(0, says("B"));
        fixture.end(0, says("C"));
        assert!(fixture.live.is_empty(), "nothing has started");
        assert_eq!(fixture.status(), RunStatus::Waiting);
        assert_eq!(fixture.state("/1:f[3]/r"), NodeState::Ready);
        fixture.ask(RunAsk::Resume);
        assert_eq!(paused(&fixture), None);
        assert_eq!(fixture.status(), RunStatus::Running);
        fixture.finish(&|_| says("x"), |_| 0);
        assert_eq!(fixture.status(), RunStatus::Completed);
        for ask in [RunAsk::Resume, RunAsk::Pause { at: Timestamp(9) }] {
            let refused = fixture.ask(ask).refused;
            assert_eq!(refused[0].1.code, Code::WorkflowNotResumable);
        }
    }
}

#[test]
fn a_paused_run_is_cancelled_and_runs_again_without_its_pause() {
    let mut fixture = half_way();
    fixture.ask(RunAsk::Pause { at: Timestamp(7) });
    fixture.ask(cancel());
    fixture.end(0, says("x"));
    fixture.end(0, says("x"));
    assert_eq!(fixture.status(), RunStatus::Cancelled);
    fixture.ask(retry());
    assert_eq!(fixture.run.record().options.paused_at, None);
    assert_eq!(fixture.paths(), ["/1:f[1]/r", "/1:f[2]/r"]);
}

#[test]
fn what_is_asked_is_shown_in_its_order() {
    let mut run = record(&fan(), json!(""), RunOptions::default());
    let shown = |run: &RunRecord, asks: &[RunAsk]| {
        let shown = run.clone().asked(asks);
        (shown.status, shown.options.paused_at)
    };
    let pause = || RunAsk::Pause { at: Timestamp(7) };
    let at = Some(Timestamp(7));
    assert_eq!(shown(&run, &[pause()]), (RunStatus::Queued, at));
    assert_eq!(
        shown(&run, &[pause(), RunAsk::Resume]),
        (RunStatus::Queued, None)
    );
    run.status = RunStatus::Failed;
    run.options.paused_at = Some(Timestamp(1));
    for (asks, shows) in [
        (vec![pause(), retry()], (RunStatus::Queued, None)),
        (vec![retry(), pause()], (RunStatus::Queued, at)),
        (
            vec![retry(), pause(), RunAsk::Resume],
            (RunStatus::Queued, None),
        ),
    ] {
        assert_eq!(shown(&run, &asks), shows, "{asks:?}");
    }
    assert_eq!(RunView::from(run).paused_at, None, "it is final");
}

#[test]
fn a_retried_leaf_has_all_its_attempts_again_and_never_a_number_twice() {
    let leaf = agent(
        "a",
        &json!({"retry": {"max_attempts": 2, "backoff": 0}, "fallback": agent("f", &json!({}))}),
    );
    let mut fixture = Fixture::new(&envelope(&leaf));
    fixture.crashes = true;
    for _ in 0..2 {
        fixture.answer("/", fails("away"));
        fixture.answer("/", fails("away"));
        fixture.answer("/fallback", fails("away"));
        assert_eq!(fixture.status(), RunStatus::Failed);
        fixture.ask(retry());
    }
    fixture.answer("/", says("at last"));
    assert_eq!(
        (fixture.status(), fixture.text()),
        (RunStatus::Completed, "at last")
    );
    let started: Vec<_> = fixture
        .started
        .iter()
        .map(|(path, attempt, _)| (path.as_str(), *attempt))
        .collect();
    let expected = [
        ("/", 1),
        ("/", 2),
        ("/fallback", 1),
        ("/", 3),
        ("/", 4),
        ("/fallback", 2),
        ("/", 5),
    ];
    assert_eq!(started, expected);
    let earlier: Vec<_> = fixture
        .run
        .node("/")
        .expect("the leaf")
        .earlier
        .iter()
        .map(|one| one.attempt)
        .collect();
    assert_eq!(earlier, [1, 2, 3, 4]);
}
