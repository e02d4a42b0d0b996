use serde_json::{Value, json};

use crate::fake::{Fake, json as answer, stream};
use crate::program::{Ended, ask, ask_with_input};

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

/// Sends and waits; the server answers at once that it is queued, then how it ended.
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
fn a_conversation_reads_lines_and_keeps_its_session() {
    let accepted = answer(202, "", &send("queued", &json!({})).to_string());
    let message = |text: &str| json!({ "role": "assistant", "round": 0, "content": [{ "type": "text", "text": text }] });
    let answered = |text: &str| {
        let message = event("message.completed", "2.0", &message(text));
        stream(&(message + &event("send.completed", "2.1", &send("completed", &json!({})))))
    };
    let fake = Fake::answering([
        accepted.clone(),
        answered("first"),
        accepted,
        answered("second"),
    ]);
    let ended = ask_with_input(&fake.url, &["chat", "--model", "m"], "one\n\ntwo\n");
    assert_eq!(
        (ended.code, ended.stdout.as_str()),
        (0, "first\nsecond\n"),
        "{}",
        ended.stderr
    );
    let asked = fake.asked();
    let lines: Vec<_> = asked.iter().map(|it| it.line.as_str()).collect();
    let events = format!("GET /v1/sends/{ID}/events");
    assert_eq!(
        lines,
        [
            "POST /v1/sends",
            &events,
            "POST /v1/sessions/ses_1/sends",
            &events
        ]
    );
    let body: Value = serde_json::from_str(&asked[0].body).expect("JSON");
    assert_eq!(
        body,
        json!({ "input": "one", "session": { "agent": { "model": "m" } } })
    );
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
