//! Sends that are about to end, in simulated time: hooks make them continue, as often and as far as
//! allowed.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use mainspring_shared::agent::{AgentSpec, SendOptions};
use mainspring_shared::budget::Budget;
use mainspring_shared::error::Code;
use mainspring_shared::message::Role::{self, Assistant, Tool, User};
use mainspring_shared::message::plain_text;
use mainspring_shared::send::{SendRecord, SendStatus, StopReason};
use mainspring_shared::tool::ToolEntry;
use mainspring_tests::world::{Fault, FaultPlan, Faulty, World};
use mainspring_tools::builtin::{self, Settings};
use mainspring_worker::WorkerConfig;
use mainspring_worker::hook::{At, EndReason, Ending, GoOn, Hook, HookError};
use serde_json::{Value, json};

/// Makes sends that end for one of these reasons continue, at most `times` times.
#[derive(Debug)]
struct Ender {
    why: &'static [EndReason],
    times: u32,
    rounds: u32,
    hangs: bool,
    seen: Mutex<Vec<(EndReason, u32, u32)>>,
}

impl Ender {
    const fn new(why: &'static [EndReason], times: u32, rounds: u32) -> Self {
        Self {
            why,
            times,
            rounds,
            hangs: false,
            seen: Mutex::new(Vec::new()),
        }
    }

    fn seen(&self) -> Vec<(EndReason, u32, u32)> {
        self.seen.lock().expect("nobody panics under it").clone()
    }
}

#[async_trait]
impl Hook for Ender {
    fn name(&self) -> &'static str {
        "ender"
    }

    async fn before_end(&self, _at: At, ending: &Ending) -> Result<Option<GoOn>, HookError> {
        let seen = (ending.why, ending.rounds_left, ending.sent_back);
        self.seen.lock().expect("nobody panics under it").push(seen);
        if self.hangs {
            std::future::pending::<()>().await;
        }
        let wants = self.why.contains(&ending.why) && ending.sent_back < self.times;
        Ok(wants.then(|| GoOn {
            message: "sum up".to_owned(),
            rounds: self.rounds,
        }))
    }
}

struct Setting {
    ender: Ender,
    options: SendOptions,
    config: WorkerConfig,
    faults: Option<FaultPlan>,
}

impl Setting {
    fn new(ender: Ender) -> Self {
        Self {
            ender,
            options: SendOptions::default(),
            config: WorkerConfig::default(),
            faults: None,
        }
    }
}

/// Runs a send with these answers to its end.
async fn answered(list: &Value, setting: Setting) -> (World, SendRecord, Arc<Ender>) {
    let mut world = World::with_tools(|tools, _, clock| {
        builtin::register(Settings::default(), clock.clone(), tools).expect("new names");
    })
    .await;
    let ender = Arc::new(setting.ender);
    world.hooks.register(ender.clone()).expect("a new name");
    let tools = ["look", "put", "pass_turn"];
    let key = world
        .session(AgentSpec {
            tools: tools.map(|name| ToolEntry::Named(name.into())).into(),
            ..AgentSpec::default()
        })
        .await;
    let text = format!("answers {list}");
    let id = world.send_with(key, &text, setting.options).await;
    if let Some(plan) = setting.faults {
        let store = Arc::new(Faulty::new(world.store.clone(), plan));
        world.worker_with(setting.config.clone(), store);
        world.pass(Duration::from_millis(1)).await;
    }
    world.worker_with(setting.config, world.store.clone());
    let record = world.settle(&[id]).await.remove(0);
    world.audit().await;
    (world, record, ender)
}

async fn said(world: &World) -> Vec<(Role, String)> {
    let session = world.dump().await.sessions.remove(0);
    let said = session.messages.iter().skip(1);
    said.map(|m| (m.role, plain_text(&m.content))).collect()
}

fn look() -> Value {
    json!([["look", {"n": 1}]])
}

fn rounds(max: u32) -> SendOptions {
    SendOptions {
        max_rounds: Some(max),
        ..SendOptions::default()
    }
}

#[tokio::test(start_paused = true)]
async fn at_the_limit_of_rounds_a_hook_gives_one_more_for_a_report() {
    let list = json!([look(), "report"]);
    let setting = Setting {
        options: rounds(1),
        ..Setting::new(Ender::new(&[EndReason::RoundLimit], 4, 1))
    };
    let (world, record, ender) = answered(&list, setting).await;
    assert_eq!(record.stop_reason, Some(StopReason::End), "{record:#?}");
    assert_eq!(record.output_text.as_deref(), Some("report"));
    assert_eq!(record.rounds, 2);
    assert_eq!(
        ender.seen(),
        [(EndReason::RoundLimit, 0, 0), (EndReason::Answer, 0, 1)]
    );
    let said = said(&world).await;
    let expected = [
        (Assistant, "calling"),
        (Tool, "look did 1"),
        (User, "sum up"),
        (Assistant, "report"),
    ];
    let said: Vec<_> = said.iter().map(|(role, text)| (*role, &**text)).collect();
    assert_eq!(said, expected);
}

#[tokio::test(start_paused = true)]
async fn no_rounds_beyond_what_is_configured_and_none_that_nobody_gave() {
    let list = json!([look()]);
    for (given, most, taken) in [(0, 8, 1), (5, 3, 4), (1, 8, 5), (2, 0, 1)] {
        let setting = Setting {
            options: rounds(1),
            config: WorkerConfig {
                extra_rounds_max: most,
                ..WorkerConfig::default()
            },
            ..Setting::new(Ender::new(&[EndReason::RoundLimit], 100, given))
        };
        let (_, record, _) = answered(&list, setting).await;
        assert_eq!(record.stop_reason, Some(StopReason::RoundLimit));
        assert_eq!(record.status, SendStatus::Completed);
        assert_eq!(record.rounds, taken, "{given} of {most}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_in_the_last_round_goes_on_with_rounds_only() {
    for (given, output, taken) in [(0, "half", 1), (1, "whole", 2)] {
        let setting = Setting {
            options: rounds(1),
            ..Setting::new(Ender::new(&[EndReason::Answer], 1, given))
        };
        let list = json!(["half", "whole"]);
        let (_, record, ender) = answered(&list, setting).await;
        assert_eq!(record.output_text.as_deref(), Some(output));
        assert_eq!(record.rounds, taken);
        assert_eq!(ender.seen()[0], (EndReason::Answer, 0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_spent_budget_leaves_a_round_for_last_words_where_a_hook_gives_it() {
    let budget = || SendOptions {
        budget: Some(Budget {
            rounds: Some(1),
            ..Budget::default()
        }),
        ..SendOptions::default()
    };
    let list = json!([look(), "report"]);
    let unasked = Setting {
        options: budget(),
        ..Setting::new(Ender::new(&[], 0, 0))
    };
    let (_, record, ender) = answered(&list, unasked).await;
    let error = record.error.expect("it failed");
    assert_eq!(error.code, Code::BudgetExceeded);
    assert_eq!(ender.seen()[0].0, EndReason::Budget);
    let setting = Setting {
        options: budget(),
        ..Setting::new(Ender::new(&[EndReason::Budget], 1, 1))
    };
    let (world, record, _) = answered(&list, setting).await;
    assert_eq!(record.status, SendStatus::Completed, "{record:#?}");
    assert_eq!(record.output_text.as_deref(), Some("report"));
    assert_eq!(said(&world).await.len(), 4);
    // The extra round that the hook granted is used up: after that the budget ends the send.
    let list = json!([look(), look(), "never"]);
    let setting = Setting {
        options: budget(),
        ..Setting::new(Ender::new(&[EndReason::Budget], 1, 1))
    };
    let (_, record, _) = answered(&list, setting).await;
    let error = record.error.expect("it failed");
    assert_eq!((error.code, record.rounds), (Code::BudgetExceeded, 2));
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_is_passed_goes_on_where_a_hook_wants_it() {
    let list = json!([[["put", {"n": 1}], ["pass_turn", {"reason": "done"}]], "more"]);
    let setting = Setting::new(Ender::new(&[EndReason::Passed], 1, 0));
    let (world, record, ender) = answered(&list, setting).await;
    assert_eq!(record.output_text.as_deref(), Some("more"));
    assert_eq!(ender.seen()[0].0, EndReason::Passed);
    let roles: Vec<_> = said(&world).await.iter().map(|(role, _)| *role).collect();
    assert_eq!(roles, [Assistant, Tool, Tool, User, Assistant]);
}

#[tokio::test(start_paused = true)]
async fn a_value_that_fits_is_asked_about_and_what_is_said_is_no_repair() {
    let options = SendOptions {
        output_schema: Some(json!({
            "type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"],
        })),
        ..SendOptions::default()
    };
    // The maximum number of repairs, besides what the hook wants.
    let list = json!(["{\"n\": 1}", "no", "no", "{\"n\": 2}"]);
    for faults in [
        None,
        Some(FaultPlan {
            at: 4,
            fault: Fault::DieBefore,
        }),
    ] {
        let setting = Setting {
            options: options.clone(),
            faults,
            ..Setting::new(Ender::new(&[EndReason::Answer], 1, 0))
        };
        let (_, record, ender) = answered(&list, setting).await;
        assert_eq!(record.output, Some(json!({"n": 2})), "{record:#?}");
        assert_eq!(record.rounds, 4);
        let firsts = ender.seen().into_iter().filter(|seen| seen.2 == 0).count();
        assert!(firsts >= 1, "the first value was asked about");
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_dies_a_send_goes_on_as_often_as_it_may_and_no_more() {
    let mut struck = 0;
    for fault in Fault::ALL {
        for at in 0..12 {
            let place = format!("{fault:?} at write {at}");
            let faults = Some(FaultPlan { at, fault });
            let setting = Setting {
                faults,
                ..Setting::new(Ender::new(&[EndReason::Answer], 100, 0))
            };
            let (world, record, ender) = answered(&json!(["a", "b", "c"]), setting).await;
            assert_eq!(record.status, SendStatus::Completed, "{place}");
            assert_eq!(record.rounds, 5, "{place}");
            let said = said(&world).await;
            let back = said.iter().filter(|(role, _)| *role == User).count();
            assert_eq!((back, said.len()), (4, 9), "{place}: {said:?}");
            struck += usize::from(ender.seen().len() > 4);
        }
    }
    assert!(struck > 0, "no death made a hook be asked again");
}

#[tokio::test(start_paused = true)]
async fn whatever_dies_a_round_beyond_the_limit_is_given_once() {
    for fault in Fault::ALL {
        for at in 0..10 {
            let place = format!("{fault:?} at write {at}");
            let setting = Setting {
                options: rounds(1),
                faults: Some(FaultPlan { at, fault }),
                ..Setting::new(Ender::new(&[EndReason::RoundLimit], 1, 1))
            };
            let list = json!([[["put", {"n": 1}]], "report"]);
            let (world, record, _) = answered(&list, setting).await;
            assert_eq!(record.output_text.as_deref(), Some("report"), "{place}");
            assert_eq!(record.rounds, 2, "{place}");
            let roles: Vec<_> = said(&world).await.iter().map(|(role, _)| *role).collect();
            assert_eq!(roles, [Assistant, Tool, User, Assistant], "{place}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancel_does_not_wait_for_a_hook_and_keeps_the_answer() {
    let mut world = World::new().await;
    let ender = Ender {
        hangs: true,
        ..Ender::new(&[EndReason::Answer], 1, 0)
    };
    world.hooks.register(Arc::new(ender)).expect("a new name");
    let key = world.session(AgentSpec::default()).await;
    let _worker = world.worker("w", world.store.clone());
    let id = world.send(key, "hello").await;
    world.pass(Duration::from_secs(1)).await;
    assert_eq!(world.record(id).await.status, SendStatus::Running);
    world.cancel(key, id).await;
    world.pass(Duration::from_secs(1)).await;
    let record = world.record(id).await;
    assert_eq!(record.status, SendStatus::Cancelled);
    assert_eq!(said(&world).await, [(Assistant, "echo: hello".to_owned())]);
    world.audit().await;
}
