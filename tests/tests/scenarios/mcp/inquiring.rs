//! Servers that ask a person during a call.

use mainspring_shared::tool::{Asked, Inquiry, Reply, Wants};
use mainspring_worker::tool::{Inquiring, Kept, Progress};
use serde_json::json;

use super::script::{
    Got, Out, Scripted, answers, ask, awaited, error, handshake, notice, over_stdio, result,
};
use super::*;

const ASKS: &str = "elicitation/create";

fn form() -> Value {
    json!({"type": "object", "properties": {"sure": {"type": "boolean"}}, "required": ["sure"]})
}

fn question(message: &str) -> Value {
    json!({"message": message, "requestedSchema": form()})
}

fn said(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}

/// A server whose tool `act` asks in the way that is named; the tool `hang` never answers.
pub(crate) fn script(way: &str, request: &Value, times: usize) -> Vec<Out> {
    match request["method"].as_str().expect("a method") {
        "initialize" => {
            let mut said = handshake();
            if way.starts_with("asks as a task") {
                said["capabilities"]["tasks"] = json!({"requests": {"tools": {"call": {}}}});
            }
            vec![result(request, said)]
        }
        "tools/list" => {
            let tool = |name: &str| {
                json!({"name": name, "inputSchema": {"type": "object"},
                    "execution": {"taskSupport": "optional"}})
            };
            vec![result(
                request,
                json!({"tools": [tool("act"), tool("hang")]}),
            )]
        }
        "tools/call" if request["params"]["name"] == "hang" => {
            let token = &request["params"]["_meta"]["progressToken"];
            let begun = json!({"progressToken": token, "progress": 1});
            vec![notice("notifications/progress", begun), Out::Hang]
        }
        "tools/call" if way.starts_with("asks as a task") => {
            vec![result(request, json!({"task": task("working")}))]
        }
        "tools/call" => called(way, request, times),
        "tasks/get" => vec![result(request, of_task(way, times))],
        "tasks/update" => vec![result(request, json!({}))],
        "tasks/result" if way == "asks as a task" && times > 0 => {
            vec![result(request, said("done"))]
        }
        "tasks/result" => {
            let mut params = question("Delete 14 files?");
            params["_meta"] = json!({"io.modelcontextprotocol/related-task": {"taskId": "t-1"}});
            let id = format!("q{times}");
            let asks = ask(&id, ASKS, params);
            vec![asks, Out::Await(id), result(request, said("$answer"))]
        }
        _ => vec![error(&request["id"], -32601, "not here", Value::Null)],
    }
}

fn task(status: &str) -> Value {
    json!({"taskId": "t-1", "status": status, "ttl": null, "pollInterval": 500})
}

fn of_task(way: &str, times: usize) -> Value {
    match way {
        "asks as a task with requests" if times < 4 => {
            let mut task = task("input_required");
            let request = json!({"method": ASKS, "params": question("Delete 14 files?")});
            task["inputRequests"] = json!({ "sure": request });
            task
        }
        "asks as a task with requests" => {
            let mut task = task("completed");
            task["result"] = said("done");
            task
        }
        "asks as a task" if times > 0 => task("completed"),
        _ => task("input_required"),
    }
}

fn called(way: &str, request: &Value, times: usize) -> Vec<Out> {
    let id = |n: usize| format!("q{times}.{n}");
    let asks = |n: usize, params: Value| [ask(&id(n), ASKS, params), Out::Await(id(n))];
    let answered = vec![result(request, said("$answer"))];
    match way {
        "asks twice" => {
            let both = [asks(1, question("first?")), asks(2, question("second?"))];
            both.into_iter().flatten().chain(answered).collect()
        }
        "asks for a page" => {
            let page = json!({"mode": "url", "message": "Sign in.", "elicitationId": "e",
                "url": format!("https://login.example/start?state={times}")});
            asks(1, page).into_iter().chain(answered).collect()
        }
        "asks what nobody can show" => {
            let nested = json!({"type": "object", "properties": {"a": {"type": "object"}}});
            let params = json!({"message": "m", "requestedSchema": nested});
            asks(1, params).into_iter().chain(answered).collect()
        }
        "asks something else each time" => {
            let asks = asks(1, question(&format!("number {times}?")));
            asks.into_iter().chain(answered).collect()
        }
        "asks in its result" if request["params"]["inputResponses"].is_object() => {
            let responses = &request["params"]["inputResponses"];
            assert_eq!(request["params"]["requestState"], "opaque");
            vec![result(request, said(&responses.to_string()))]
        }
        "asks in its result" => {
            let asked = json!({"method": ASKS, "params": question("Delete 14 files?")});
            let wanted = json!({"resultType": "input_required", "requestState": "opaque",
                "inputRequests": {"sure": asked}});
            vec![result(request, wanted)]
        }
        "asks to open a page first" if times == 0 => {
            let page = json!({"elicitations": [{"mode": "url", "elicitationId": "e",
                "url": "https://login.example/start", "message": "Sign in."}]});
            vec![error(
                &request["id"],
                -32042,
                "URL elicitation required",
                page,
            )]
        }
        "asks to open a page first" => vec![result(request, said("done"))],
        _ => {
            let asks = asks(1, question("Delete 14 files?"));
            asks.into_iter().chain(answered).collect()
        }
    }
}

/// The call again, with what it asked before.
fn with(asked: &[(Inquiry, Reply)]) -> Invocation {
    let asked = asked.iter().map(|(inquiry, reply)| Asked {
        inquiry: inquiry.clone(),
        attempt: 1,
        reply: Some(reply.clone()),
    });
    Invocation {
        inquiring: Inquiring::new(&asked.collect::<Vec<_>>()),
        ..invocation(json!({}))
    }
}

async fn act(pool: &Pool, invocation: Invocation) -> Result<Output, ToolError> {
    let over = tool(pool, "act").await;
    let over = over.call(invocation);
    tokio::time::timeout(LONG, over).await.expect("it ends")
}

fn asked(over: Result<Output, ToolError>) -> Inquiry {
    match over {
        Err(ToolError::Asks(inquiry)) => *inquiry,
        other => panic!("{other:?}"),
    }
}

fn yes() -> Reply {
    let content = json!({"sure": true}).as_object().cloned();
    Reply::Accept { content }
}

const YES: &str = r#"{"action":"accept","content":{"sure":true}}"#;

fn methods(got: &Got) -> Vec<String> {
    let got = got.lock().unwrap();
    let methods = got.iter().filter_map(|(_, body)| body["method"].as_str());
    methods.map(str::to_owned).collect()
}

/// The server in both of its forms.
async fn both(way: &str) -> (Scripted, [Transport; 2]) {
    let server = Scripted::start(way, script, true).await;
    let transports = [server.transport(), over_stdio(way)];
    (server, transports)
}

#[tokio::test]
async fn a_question_ends_the_call_and_its_answer_is_given_when_the_call_is_made_again() {
    let (server, transports) = both("asks").await;
    for transport in transports {
        let pool = pool(transport, LONG, LONG);
        let inquiry = asked(act(&pool, with(&[])).await);
        let expected = Inquiry {
            message: "Delete 14 files?".to_owned(),
            wants: Wants::Form(form()),
        };
        assert_eq!(inquiry, expected);
        assert_eq!(
            text(act(&pool, with(&[(inquiry.clone(), yes())])).await),
            YES
        );
        let refused = act(&pool, with(&[(inquiry, Reply::Decline {})])).await;
        assert_eq!(text(refused), r#"{"action":"decline"}"#);
    }
    // The server heard that the first call is not wanted any longer before anything else.
    let methods = methods(&server.got);
    let cancelled = methods
        .iter()
        .position(|it| it == "notifications/cancelled");
    let second = methods.iter().rposition(|it| it == "tools/call");
    assert!(cancelled < second && cancelled.is_some(), "{methods:?}");
    assert_eq!(
        awaited(&server.got, "q0.1").await,
        json!({"action": "cancel"})
    );
    let head = server.got.lock().unwrap()[0].1.clone();
    let offered = &head["params"]["capabilities"]["elicitation"];
    assert!(
        offered["form"].is_object() && offered["url"].is_object(),
        "{head}"
    );
}

#[tokio::test]
async fn questions_are_answered_one_after_the_other_on_both_transports() {
    let (_server, transports) = both("asks twice").await;
    for transport in transports {
        let pool = pool(transport, LONG, LONG);
        let first = asked(act(&pool, with(&[])).await);
        assert_eq!(first.message, "first?");
        let known = (first, Reply::Decline {});
        let second = asked(act(&pool, with(std::slice::from_ref(&known))).await);
        assert_eq!(second.message, "second?");
        assert_eq!(text(act(&pool, with(&[known, (second, yes())])).await), YES);
    }
}

#[tokio::test]
async fn a_page_is_asked_for_and_known_again_by_its_path() {
    let (_server, transports) = both("asks for a page").await;
    for transport in transports {
        let pool = pool(transport, LONG, LONG);
        let page = asked(act(&pool, with(&[])).await);
        let url = Wants::Url("https://login.example/start?state=0".to_owned());
        assert!(page.wants == url, "{page:?}");
        let opened = Reply::Accept { content: None };
        let over = act(&pool, with(&[(page, opened)])).await;
        assert_eq!(text(over), r#"{"action":"accept"}"#);
    }
}

#[tokio::test]
async fn a_refusal_until_a_page_is_opened_is_a_question_as_well() {
    let (_server, transports) = both("asks to open a page first").await;
    for transport in transports {
        let pool = pool(transport, LONG, LONG);
        let page = asked(act(&pool, with(&[])).await);
        assert_eq!(page.message, "Sign in.");
        let opened = Reply::Accept { content: None };
        assert_eq!(text(act(&pool, with(&[(page, opened)])).await), "done");
    }
}

#[tokio::test]
async fn what_a_result_asks_is_answered_with_the_servers_own_state() {
    let (server, transports) = both("asks in its result").await;
    for transport in transports {
        let pool = pool(transport, LONG, LONG);
        let inquiry = asked(act(&pool, with(&[])).await);
        let over = text(act(&pool, with(&[(inquiry, yes())])).await);
        assert_eq!(over, format!(r#"{{"sure":{YES}}}"#));
    }
    let calls = methods(&server.got);
    let calls = calls.iter().filter(|method| *method == "tools/call");
    assert_eq!(calls.count(), 3);
}

#[tokio::test]
async fn what_nobody_can_show_is_refused_and_the_call_goes_on() {
    let (_server, transports) = both("asks what nobody can show").await;
    for transport in transports {
        let pool = pool(transport, LONG, LONG);
        let over = text(act(&pool, with(&[])).await);
        assert!(
            over.contains("-32602") && over.contains("/properties/a"),
            "{over}"
        );
    }
}

#[tokio::test]
async fn where_nobody_can_be_asked_the_server_is_told_so_at_once() {
    let (_server, transports) = both("asks").await;
    for transport in transports {
        let pool = pool(transport, LONG, LONG);
        let over = act(&pool, invocation(json!({}))).await;
        assert_eq!(text(over), r#"{"action":"cancel"}"#);
    }
}

#[tokio::test]
async fn a_server_that_asks_something_else_each_time_gets_no_answer_to_it() {
    let (_server, transports) = both("asks something else each time").await;
    for transport in transports {
        let pool = pool(transport, LONG, LONG);
        let first = asked(act(&pool, with(&[])).await);
        let second = asked(act(&pool, with(&[(first.clone(), yes())])).await);
        assert_ne!(first, second);
        let full = vec![(first, yes()); mainspring_shared::tool::INQUIRIES_MAX];
        let (_, message) = refusal(act(&pool, with(&full)).await);
        assert!(message.contains("16 questions"), "{message}");
    }
}

#[tokio::test]
async fn over_http_a_question_is_of_the_call_on_whose_stream_it_comes() {
    let server = Scripted::start("asks", script, true).await;
    let pool = pool(server.transport(), LONG, LONG);
    let other = tool(&pool, "hang").await;
    let beside = with(&[]);
    let stop = beside.stop.clone();
    let other = tokio::spawn(async move { other.call(beside).await });
    while !methods(&server.got).contains(&"tools/call".to_owned()) {
        tokio::task::yield_now().await;
    }
    let inquiry = asked(act(&pool, with(&[])).await);
    assert_eq!(inquiry.message, "Delete 14 files?");
    stop.cancel();
    let (code, _) = refusal(other.await.expect("it ends"));
    assert_eq!(code, Code::ToolInterrupted);
}

#[tokio::test]
async fn over_stdio_a_question_waits_until_it_can_be_of_one_call_only() {
    let pool = pool(over_stdio("asks"), LONG, LONG);
    let (other, act) = (tool(&pool, "hang").await, tool(&pool, "act").await);
    let (begun, mut began) = tokio::sync::mpsc::unbounded_channel();
    let clock: Arc<dyn Clock> = Arc::new(Leaping::default());
    let beside = Invocation {
        progress: Progress::new(clock, move |_| {
            let _ = begun.send(());
        }),
        ..with(&[])
    };
    let stop = beside.stop.clone();
    let other = tokio::spawn(async move { other.call(beside).await });
    began.recv().await.expect("it is under way");
    let (over, ()) = tokio::join!(act.call(with(&[])), async { stop.cancel() });
    let inquiry = asked(over);
    let (code, _) = refusal(other.await.expect("it ends"));
    assert_eq!(code, Code::ToolInterrupted);
    // From now on, such calls are made one after the other: no answer goes to another one.
    let answered = act.call(with(&[(inquiry, yes())])).await;
    assert_eq!(text(answered), YES);
}

#[tokio::test]
async fn a_task_that_asks_goes_on_with_the_answer() {
    let (server, transports) = both("asks as a task").await;
    for (n, transport) in transports.into_iter().enumerate() {
        let pool = pool(transport, LONG, LONG);
        let inquiry = asked(act(&pool, with(&[])).await);
        let again = Invocation {
            kept: Kept::left(json!({"mcp_task": "t-1"})),
            ..with(&[(inquiry, yes())])
        };
        assert_eq!(text(act(&pool, again).await), "done");
        if n == 0 {
            let yes: Value = serde_json::from_str(YES).unwrap();
            assert_eq!(answers(&server.got, "q0"), [yes], "it is not asked again");
            let calls = methods(&server.got);
            assert_eq!(calls.iter().filter(|it| *it == "tools/call").count(), 1);
        }
    }
}

#[tokio::test]
async fn another_worker_answers_a_task_that_asks_again() {
    let server = Scripted::start("asks as a task, anew", script, true).await;
    let first = pool(server.transport(), LONG, LONG);
    let inquiry = asked(act(&first, with(&[])).await);
    drop(first);
    let again = Invocation {
        kept: Kept::left(json!({"mcp_task": "t-1"})),
        ..with(&[(inquiry, yes())])
    };
    let second = pool(server.transport(), LONG, LONG);
    assert_eq!(text(act(&second, again).await), YES);
    let calls = methods(&server.got);
    assert_eq!(calls.iter().filter(|it| *it == "tools/call").count(), 1);
}

#[tokio::test]
async fn what_a_task_lists_is_answered_once() {
    let server = Scripted::start("asks as a task with requests", script, false).await;
    let pool = pool(server.transport(), LONG, LONG);
    let inquiry = asked(act(&pool, with(&[])).await);
    let again = Invocation {
        kept: Kept::left(json!({"mcp_task": "t-1"})),
        ..with(&[(inquiry, yes())])
    };
    assert_eq!(text(act(&pool, again).await), "done");
    let got = server.got.lock().unwrap();
    let updates = got
        .iter()
        .filter(|(_, body)| body["method"] == "tasks/update");
    let updates: Vec<_> = updates
        .map(|(_, body)| body["params"]["inputResponses"].clone())
        .collect();
    let yes: Value = serde_json::from_str(YES).unwrap();
    assert_eq!(updates, [json!({ "sure": yes })]);
}
