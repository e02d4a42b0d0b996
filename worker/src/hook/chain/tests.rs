//! Order, names, and the effect of a failing hook.

use std::sync::Mutex;

use async_trait::async_trait;
use mainspring_shared::id::{SendId, SessionId, SessionKey, TenantId};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::*;
use crate::hook::HookTraits;

#[derive(Debug)]
struct Probe {
    name: &'static str,
    order: i32,
    closed: bool,
    does: Decision<CallResult>,
    log: Arc<Mutex<Vec<&'static str>>>,
}

#[async_trait]
impl Hook for Probe {
    fn name(&self) -> &str {
        self.name
    }

    fn traits(&self) -> HookTraits {
        HookTraits {
            order: self.order,
            fails_closed: self.closed,
        }
    }

    async fn before_tool(&self, _at: At, call: &mut ToolCall) -> Decision<CallResult> {
        self.log
            .lock()
            .expect("nobody panics under it")
            .push(self.name);
        assert_ne!(call.name, "panics", "as it was told");
        call.arguments
            .insert(self.name.to_owned(), Value::Bool(true));
        self.does.clone()
    }
}

fn at() -> At {
    At {
        session: SessionKey {
            tenant: TenantId::DEFAULT,
            session: SessionId(Uuid::nil()),
        },
        send: SendId(Uuid::nil()),
        round: 0,
        attempt: 1,
        life: 1,
    }
}

fn call(name: &str) -> ToolCall {
    ToolCall {
        call_id: "call_1".into(),
        name: name.into(),
        arguments: Map::new(),
        said: None,
    }
}

type Log = Arc<Mutex<Vec<&'static str>>>;

fn hooks(list: Vec<(&'static str, i32, bool, Decision<CallResult>)>) -> (Hooks, Log) {
    let log = Log::default();
    let mut hooks = Hooks::default();
    for (name, order, closed, does) in list {
        let log = log.clone();
        let probe = Probe {
            name,
            order,
            closed,
            does,
            log,
        };
        hooks.register(Arc::new(probe)).expect("a new name");
    }
    (hooks, log)
}

fn asked(log: &Log) -> Vec<&'static str> {
    log.lock().expect("nobody panics under it").clone()
}

#[tokio::test]
async fn hooks_run_by_order_then_as_registered_until_one_decides() {
    let answer = CallResult::text("instead");
    let (hooks, log) = hooks(vec![
        ("late", 9, false, Ok(Verdict::Go)),
        ("first", -1, false, Ok(Verdict::Go)),
        ("second", 0, false, Ok(Verdict::Go)),
        ("decides", 0, false, Ok(Verdict::Instead(answer.clone()))),
    ]);
    let mut call = call("look");
    assert_eq!(hooks.before_tool(at(), &mut call).await, Some(answer));
    assert_eq!(asked(&log), ["first", "second", "decides"]);
    assert!(call.arguments.contains_key("second"));
}

#[tokio::test]
async fn an_observer_that_fails_is_passed_over_and_a_policy_fails_closed() {
    let broken = || Err(HookError("away".into()));
    let (observed, log) = hooks(vec![
        ("observer", 0, false, broken()),
        ("next", 1, false, Ok(Verdict::Go)),
    ]);
    assert_eq!(observed.before_tool(at(), &mut call("look")).await, None);
    assert_eq!(asked(&log), ["observer", "next"]);
    for (policy, name) in [(broken(), "look"), (Ok(Verdict::Go), "panics")] {
        let (guarded, _) = hooks(vec![("policy", 0, true, policy)]);
        let result = guarded.before_tool(at(), &mut call(name)).await;
        assert_eq!(result.expect("denied").code, Some(Code::ToolDenied));
    }
    let (refusing, _) = hooks(vec![("policy", 0, true, Ok(Verdict::Refuse("no".into())))]);
    let result = refusing.before_tool(at(), &mut call("look")).await;
    let text = result.expect("denied").whole_text();
    assert!(text.contains("policy: no"), "{text}");
}

#[test]
fn names_are_unique_and_not_the_kernels() {
    let (mut hooks, log) = hooks(vec![("a", 0, false, Ok(Verdict::Go))]);
    for (name, twice) in [("a", true), ("builtin.x", false), (" ", false)] {
        let probe = Probe {
            name,
            order: 0,
            closed: false,
            does: Ok(Verdict::Go),
            log: log.clone(),
        };
        let refused = hooks.register(Arc::new(probe)).expect_err(name);
        assert_eq!(matches!(refused, NameError::Twice { .. }), twice, "{name}");
    }
    assert!(hooks.contains("a") && hooks.remove("a") && !hooks.remove("a"));
    assert!(hooks.is_empty());
}
