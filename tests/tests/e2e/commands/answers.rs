use serde_json::{Value, json};

use crate::commands::fake::{Fake, json as answer, stream};
use crate::commands::program::{Ended, ask, ask_with_input};

const ID: &str = "snd_0123456789abcdef0123456789abcdef";

fn send(status: &str, more: &Value) -> Value {
    let mut send = json!({ "id": ID, "session_id": "ses_1", "status": status });
    for (name, value) in more.as_object().expect("an object") {
        send[name] = value.clone();
    }
    send
}

fn event(name: &str, id: &str, data: &Value) -> String {
    format!("event: {name}\nid: {id}\ndata: {data}\n\n")
}

/// Runs `send --wait`; the server first answers that it is queued, then how it ended.
fn wait(ended: &Value, more: &[&str]) -> Ended {
    let queued = answer(202, "", &send("queued", &json!({})).to_string());
    let fake = Fake::answering([queued, answer(200, "", &ended.to_string())]);
    let mut arguments = vec!["send", "hi", "--wait"];
    arguments.extend(more);
    ask(&fake.url, &arguments)
}

#[test]
fn the_answer_is_data_and_the_way_on_is_not() {
    let ended = wait(
        &send("completed", &json!({ "output_text": "the answer" })),
        &[],
    );
    assert_eq!((ended.code, ended.stdout.as_str()), (0, "the answer\n"));
    assert!(ended.stderr.contains("--session ses_1"), "{}", ended.stderr);
    let as_json = wait(
        &send("completed", &json!({ "output_text": "x" })),
        &["-o", "json"],
    );
    let parsed: Value = serde_json::from_str(&as_json.stdout).expect("JSON");
    assert_eq!(parsed["output_text"], "x");
}

#[test]
fn a_failed_send_is_7_with_its_reason_and_a_cancelled_one_8() {
    let error = json!({ "code": "llm.auth", "message": "the key is refused\u{1b}[2J" });
    let failed = wait(&send("failed", &json!({ "error": error })), &[]);
    assert_eq!((failed.code, failed.stdout.as_str()), (7, ""));
    assert!(
        failed.stderr.contains("the key is refused[2J (llm.auth)"),
        "{}",
        failed.stderr
    );
    let failed = wait(
        &send("failed", &json!({ "error": error })),
        &["-o", "jsonl"],
    );
    assert_eq!((failed.code, failed.stdout.lines().count()), (7, 1));
    let cancelled = wait(&send("cancelled", &json!({})), &[]);
    assert_eq!((cancelled.code, cancelled.stdout.as_str()), (8, ""));
}

#[test]
fn a_wait_that_takes_too_long_is_6_and_names_the_send() {
    let fake = Fake::answering([answer(202, "", &send("waiting", &json!({})).to_string())]);
    let ended = ask(&fake.url, &["send", "hi", "--wait", "--timeout", "200ms"]);
    assert_eq!(ended.code, 6);
    assert!(
        ended.stderr.contains(&format!("sends tail {ID}")),
        "{}",
        ended.stderr
    );
}

#[expect(
    clippy::disallowed_methods,
    reason = "the command's own bound is what is measured"
)]
fn clock() -> std::time::Instant {
    std::time::Instant::now()
}

/// A server that accepts connections and never answers.
fn silent() -> (std::net::TcpListener, String) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    (listener, url)
}

#[test]
fn the_timeout_counts_from_the_start_of_the_command() {
    let (_listener, url) = silent();
    let start = clock();
    let words = [
        "send",
        "hi",
        "--wait",
        "--timeout",
        "500ms",
        "--idempotency-key",
        "k1",
    ];
    let ended = ask(&url, &words);
    assert_eq!(ended.code, 6, "{}", ended.stderr);
    // Far less than the answer timeout of 30 s.
    assert!(start.elapsed().as_secs() < 15, "{:?}", start.elapsed());
    assert!(
        ended.stderr.contains("--idempotency-key k1"),
        "{}",
        ended.stderr
    );
}

#[test]
fn a_wait_in_vain_says_that_no_worker_is_there() {
    let queued = answer(202, "", &send("queued", &json!({})).to_string());
    let session = json!({ "id": "ses_1", "agent": { "pool": "slow" } });
    let workers = json!({ "data": [{ "pool": "default" }] });
    let fake = Fake::choosing(move |line| match line {
        "GET /v1/workers" => answer(200, "", &workers.to_string()),
        "GET /v1/sessions/ses_1" => answer(200, "", &session.to_string()),
        _ => queued.clone(),
    });
    let ended = ask(&fake.url, &["send", "hi", "--wait", "--timeout", "2s"]);
    assert_eq!(ended.code, 6);
    assert!(
        ended.stderr.contains("no worker of pool slow is alive"),
        "{}",
        ended.stderr
    );
    assert!(
        ended.stderr.contains("mainspring worker"),
        "{}",
        ended.stderr
    );
}

#[test]
fn a_stream_that_is_cut_goes_on_where_it_was() {
    let queued = event("send.queued", "1.0", &send("queued", &json!({})));
    let completed = event("send.completed", "3.1", &send("completed", &json!({})));
    let fake = Fake::answering([stream(&queued), stream(&completed)]);
    let ended = ask(&fake.url, &["sends", "tail", ID, "-o", "jsonl"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let lines: Vec<Value> = ended
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let ids: Vec<_> = lines
        .iter()
        .map(|line| line["id"].as_str().expect("an id"))
        .collect();
    assert_eq!(ids, ["1.0", "3.1"]);
    let resumed: Vec<Option<String>> = fake
        .asked()
        .iter()
        .map(|it| it.header("last-event-id").map(str::to_owned))
        .collect();
    assert_eq!(resumed, [None, Some("1.0".to_owned())]);
}

#[test]
fn a_conversation_listens_before_it_speaks_and_keeps_its_session() {
    let accepted = answer(202, "", &send("queued", &json!({})).to_string());
    let message = |text: &str| {
        let content = json!([{ "type": "text", "text": text }]);
        json!({ "role": "assistant", "round": 0, "send_id": ID, "content": content })
    };
    let answered = |text: &str, n: u32| {
        let completed = send("completed", &json!({}));
        event("message.completed", &format!("{n}.0"), &message(text))
            + &event("send.completed", &format!("{n}.1"), &completed)
    };
    let others = json!({ "role": "assistant", "send_id": "snd_other", "content": [] });
    let told =
        event("message.completed", "1.0", &others) + &answered("first", 2) + &answered("second", 3);
    let fake = Fake::choosing(move |line| match line {
        "POST /v1/sessions" => answer(201, "", "{\"id\":\"ses_1\"}"),
        "GET /v1/sessions/ses_1/events" => stream(&told),
        _ => accepted.clone(),
    });
    let ended = ask_with_input(&fake.url, &["chat", "--model", "m"], "one\n\n//two\n");
    assert_eq!(
        (ended.code, ended.stdout.as_str()),
        (0, "first\nsecond\n"),
        "{}",
        ended.stderr
    );
    let asked = fake.asked();
    let lines: Vec<_> = asked.iter().map(|it| it.line.as_str()).collect();
    assert_eq!(
        lines,
        [
            "POST /v1/sessions",
            "GET /v1/sessions/ses_1/events",
            "POST /v1/sessions/ses_1/sends",
            "POST /v1/sessions/ses_1/sends",
        ]
    );
    let body = |n: usize| -> Value { serde_json::from_str(&asked[n].body).expect("JSON") };
    assert_eq!(body(0), json!({ "agent": { "model": "m" } }));
    assert_eq!(body(2), json!({ "input": "one", "options": {} }));
    assert_eq!(body(3), json!({ "input": "/two", "options": {} }));
    assert!(
        ended.stderr.contains("chat --session ses_1"),
        "{}",
        ended.stderr
    );
}

#[test]
fn a_list_is_read_page_by_page() {
    let page = |ids: &[&str], next: Option<&str>| {
        let rows: Vec<Value> = ids
            .iter()
            .map(|id| json!({ "id": id, "status": "idle" }))
            .collect();
        answer(
            200,
            "",
            &json!({ "data": rows, "next_cursor": next }).to_string(),
        )
    };
    let fake = Fake::answering([page(&["a", "b"], Some("b")), page(&["c", "d"], Some("d"))]);
    let ended = ask(
        &fake.url,
        &["sessions", "list", "--limit", "3", "-o", "jsonl"],
    );
    assert_eq!(ended.stdout.lines().count(), 3, "{}", ended.stderr);
    let lines: Vec<_> = fake.asked().into_iter().map(|it| it.line).collect();
    assert_eq!(
        lines,
        [
            "GET /v1/sessions?limit=3",
            "GET /v1/sessions?limit=1&cursor=b"
        ]
    );
}
