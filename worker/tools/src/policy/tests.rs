//! A policy decided by an external service.

use std::collections::BTreeSet;

use mainspring_runtime::{OsEntropy, SystemClock};
use mainspring_shared::id::{SendId, SessionId, SessionKey, TenantId};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use mainspring_worker::hook::EndReason;

use super::*;
use crate::http::CallerSettings;

mod observed;

/// Answers each request with the next of these bodies; returns the requests.
async fn service(bodies: Vec<&'static str>) -> (String, tokio::task::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/policy", listener.local_addr().expect("bound"));
    let served = tokio::spawn(async move {
        let mut asked = Vec::new();
        for body in bodies {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let mut text = String::new();
            let mut buffer = [0; 4096];
            while !text.ends_with('}') {
                let count = stream.read(&mut buffer).await.expect("a request");
                text.push_str(&String::from_utf8_lossy(&buffer[..count]));
            }
            asked.push(text);
            let answer = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\
                 content-length: {}\r\n\r\n{body}",
                body.len()
            );
            stream.write_all(answer.as_bytes()).await.expect("sent");
        }
        asked
    });
    (url, served)
}

fn caller() -> Caller {
    let settings = CallerSettings {
        allow_private: vec!["127.0.0.1".into()],
        ..CallerSettings::default()
    };
    // Another test may have installed it already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let clock = Arc::new(SystemClock::new());
    Caller::new(&settings, clock, Arc::new(OsEntropy)).expect("good settings")
}

fn place() -> At {
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

fn reply(text: &str) -> Reply {
    Reply {
        content: vec![ContentPart::text(text)],
        tool_calls: Vec::new(),
        finish: mainspring_worker::llm::Finish::Stop,
        usage: mainspring_shared::usage::Usage::default(),
        model: "m".into(),
    }
}

fn look() -> ToolCall {
    ToolCall {
        call_id: "call_1".into(),
        name: "look".into(),
        arguments: Map::new(),
        said: None,
    }
}

#[tokio::test]
async fn another_service_has_a_send_go_on_or_lets_it_end() {
    let (url, served) = service(vec![
        r#"{"action":"allow"}"#,
        r#"{"action":"continue","message":"and the sources?","rounds":2}"#,
        r#"{"action":"continue"}"#,
        r#"{"action":"allow","entries":[]}"#,
    ])
    .await;
    let policy = HttpPolicy::before_end("policy", &url, &caller());
    let ending = Ending {
        why: EndReason::RoundLimit,
        reply: Some(Arc::new(reply("done"))),
        rounds_left: 0,
        sent_back: 1,
    };
    assert_eq!(policy.before_end(place(), &ending).await, Ok(None));
    let back = policy.before_end(place(), &ending).await;
    let go_on = GoOn {
        message: "and the sources?".to_owned(),
        rounds: 2,
    };
    assert_eq!(back, Ok(Some(go_on)));
    assert!(policy.before_end(place(), &ending).await.is_err());
    let strange = policy.before_end(place(), &ending).await.expect_err("no");
    assert!(strange.0.contains("entries"), "{strange}");
    let asked = served.await.expect("served");
    for part in [
        r#"{"kind":"policy","tenant":"ten_1","#,
        r#""name":"before_end""#,
        r#""text":"done""#,
        r#""why":"round_limit""#,
        r#""rounds_left":0"#,
        r#""sent_back":1"#,
    ] {
        assert!(asked[0].contains(part), "{part}: {}", asked[0]);
    }
}

#[tokio::test]
async fn another_service_rewrites_refuses_and_ends_with_answers() {
    let (url, served) = service(vec![
        r#"{"action":"allow"}"#,
        r#"{"action":"allow","content":"no\u0000thing"}"#,
        r#"{"action":"deny","reason":"not that"}"#,
        r#"{"action":"end"}"#,
        r#"{"action":"allow","content":" "}"#,
        r#"{"action":"retry"}"#,
    ])
    .await;
    let policy = HttpPolicy::after_model("policy", &url, &caller());
    let mut said = reply("a secret");
    assert_eq!(
        policy.after_model(place(), &mut said).await,
        Ok(Verdict::Go)
    );
    assert_eq!(said, reply("a secret"));
    assert_eq!(
        policy.after_model(place(), &mut said).await,
        Ok(Verdict::Go)
    );
    assert_eq!(said, reply("nothing"));
    let refused = policy.after_model(place(), &mut said).await;
    assert_eq!(refused, Ok(Verdict::Refuse("not that".into())));
    let ended = policy.after_model(place(), &mut said).await;
    assert_eq!(ended, Ok(Verdict::End));
    assert!(policy.after_model(place(), &mut said).await.is_err());
    assert!(policy.after_model(place(), &mut said).await.is_err());
    assert_eq!(said, reply("nothing"), "no decision changes nothing");
    let asked = served.await.expect("served");
    assert!(asked[0].contains(r#""text":"a secret""#), "{}", asked[0]);
    assert!(asked[0].contains(r#""name":"after_model""#), "{}", asked[0]);
}

#[tokio::test]
async fn another_service_answers_in_the_place_of_a_tool() {
    let (url, served) = service(vec![
        r#"{"action":"answer","output":"cached"}"#,
        r#"{"action":"answer","output":{"n":1},"failed":true}"#,
        r#"{"action":"answer"}"#,
    ])
    .await;
    let policy = HttpPolicy::before_tool("policy", &url, &caller());
    let mut call = look();
    let cached = policy.before_tool(place(), &mut call).await;
    assert_eq!(cached, Ok(Verdict::Instead(CallResult::text("cached"))));
    let failed = CallResult {
        value: Some(Box::new(json!({"n": 1}))),
        ..CallResult::error(Code::ToolFailed, r#"{"n":1}"#)
    };
    let given = policy.before_tool(place(), &mut call).await;
    assert_eq!(given, Ok(Verdict::Instead(failed)));
    assert!(policy.before_tool(place(), &mut call).await.is_err());
    served.await.expect("served");
}

#[tokio::test]
async fn another_service_judges_results_and_failures() {
    let (url, served) = service(vec![
        r#"{"action":"allow"}"#,
        r#"{"action":"retry"}"#,
        r#"{"action":"answer","output":"as of yesterday"}"#,
        r#"{"action":"deny"}"#,
    ])
    .await;
    let policy = HttpPolicy::tool_failed("policy", &url, &caller());
    let broken = CallResult::error(Code::ToolTimeout, "too slow");
    let other = OnFailure::Instead(CallResult::text("as of yesterday"));
    for expected in [OnFailure::Tell, OnFailure::Retry, other] {
        let wanted = policy.tool_failed(place(), &look(), &broken).await;
        assert_eq!(wanted, Ok(expected));
    }
    let unclear = policy.tool_failed(place(), &look(), &broken).await;
    assert!(unclear.is_err(), "{unclear:?}");
    let asked = served.await.expect("served");
    assert!(
        asked[0].contains(r#""code":"tool.timeout""#),
        "{}",
        asked[0]
    );
    let (url, served) = service(vec![r#"{"action":"allow"}"#; 3]).await;
    let policy = HttpPolicy::tool_failed("policy", &url, &caller());
    for (life, attempt) in [(7, 1), (7, 2), (8, 1)] {
        let at = At {
            life,
            attempt,
            ..place()
        };
        let told = policy.tool_failed(at, &look(), &broken).await;
        assert_eq!(told, Ok(OnFailure::Tell));
    }
    let ids: BTreeSet<String> = served
        .await
        .expect("served")
        .iter()
        .filter_map(|asked| Some(asked.split(r#""call_id":"failed_"#).nth(1)?.to_owned()))
        .filter_map(|rest| Some(rest.split('"').next()?.to_owned()))
        .collect();
    assert_eq!(ids.len(), 3, "each failure has an id of its own: {ids:?}");
    let (url, served) = service(vec![
        r#"{"action":"allow","inject":"mind the date"}"#,
        r#"{"action":"allow","output":"redacted"}"#,
        r#"{"action":"deny","reason":"private"}"#,
        r#"{"action":"skip","reason":"found it"}"#,
        r#"{"action":"end"}"#,
    ])
    .await;
    let policy = HttpPolicy::after_tool("policy", &url, &caller());
    let mut result = CallResult::text("found");
    let done = policy.after_tool(place(), &look(), &mut result).await;
    assert_eq!(
        (done, &result.said[..]),
        (Ok(()), &["mind the date".to_owned()][..])
    );
    assert_eq!(result.whole_text(), "found");
    let done = policy.after_tool(place(), &look(), &mut result).await;
    assert_eq!(
        (done, result.said.len()),
        (Ok(()), 1),
        "what was said stays"
    );
    assert_eq!(result.whole_text(), "redacted");
    let done = policy.after_tool(place(), &look(), &mut result).await;
    assert_eq!((done, result.code), (Ok(()), Some(Code::ToolDenied)));
    assert!(result.whole_text().contains("private"));
    assert_eq!(result.said, ["mind the date"], "another hook said it");
    assert_eq!(result.skips, None);
    let done = policy.after_tool(place(), &look(), &mut result).await;
    assert_eq!((done, result.skips.as_deref()), (Ok(()), Some("found it")));
    assert!(
        policy
            .after_tool(place(), &look(), &mut result)
            .await
            .is_err()
    );
    served.await.expect("served");
}

#[tokio::test]
async fn another_service_says_something_before_a_round_or_a_model_call() {
    let (url, served) = service(vec![
        r#"{"action":"allow"}"#,
        r#"{"action":"allow","inject":"it is Friday"}"#,
        r#"{"action":"end"}"#,
        r#"{"action":"deny","inject":"no"}"#,
    ])
    .await;
    let policy = HttpPolicy::round_started("policy", &url, &caller());
    let words = vec![ContentPart::text("it is Friday")];
    for expected in [Verdict::Go, Verdict::Say(words), Verdict::End] {
        assert_eq!(policy.round_started(place()).await, Ok(expected));
    }
    assert!(policy.round_started(place()).await.is_err());
    let asked = served.await.expect("served");
    assert!(
        asked[0].contains(r#""name":"round_started""#),
        "{}",
        asked[0]
    );
}

#[tokio::test]
async fn another_service_judges_all_calls_together() {
    let (url, served) = service(vec![
        r#"{"action":"allow"}"#,
        r#"{"action":"end"}"#,
        r#"{"action":"continue","message":"no"}"#,
    ])
    .await;
    let policy = HttpPolicy::before_calls("policy", &url, &caller());
    let calls = [ToolCall {
        call_id: "call_1".into(),
        name: "look".into(),
        arguments: Map::new(),
        said: None,
    }];
    assert_eq!(policy.before_calls(place(), &calls).await, Ok(Verdict::Go));
    assert_eq!(policy.before_calls(place(), &calls).await, Ok(Verdict::End));
    assert!(policy.before_calls(place(), &calls).await.is_err());
    let asked = served.await.expect("served");
    assert!(asked[0].contains(r#""call_id":"call_1""#), "{}", asked[0]);
}

#[tokio::test]
async fn another_service_allows_changes_and_denies() {
    let (url, served) = service(vec![
        r#"{"action":"allow"}"#,
        r#"{"action":"allow","arguments":{"n":1}}"#,
        r#"{"action":"deny","reason":"not today"}"#,
        r#"{"verdict":"yes"}"#,
    ])
    .await;
    let policy = HttpPolicy::before_tool("policy", &url, &caller());
    assert!(policy.traits().fails_closed);
    let at = place();
    let mut call = ToolCall {
        call_id: "call_1".into(),
        name: "look".into(),
        arguments: Map::new(),
        said: None,
    };
    let allowed = policy.before_tool(at, &mut call).await;
    assert!(matches!(allowed, Ok(Verdict::Go)), "{allowed:?}");
    assert!(call.arguments.is_empty());
    let changed = policy.before_tool(at, &mut call).await;
    assert!(matches!(changed, Ok(Verdict::Go)), "{changed:?}");
    assert_eq!(call.arguments.get("n"), Some(&Value::from(1)));
    let denied = policy.before_tool(at, &mut call).await;
    assert_eq!(denied, Ok(Verdict::Refuse("not today".into())));
    let unclear = policy.before_tool(at, &mut call).await;
    assert!(unclear.is_err(), "{unclear:?}");
    let asked = served.await.expect("served");
    assert!(asked[0].contains(r#""name":"before_tool""#), "{}", asked[0]);
    assert!(asked[0].to_lowercase().contains("idempotency-key: call_1"));
}

fn known(id: &str) -> Recalled {
    Recalled {
        id: id.to_owned(),
        text: format!("of {id}"),
        updated_at: None,
    }
}

#[tokio::test]
async fn another_service_chooses_what_is_shown_of_the_memory() {
    let (url, served) = service(vec![
        r#"{"action":"allow"}"#,
        r#"{"action":"allow","entries":["c","unknown","a"]}"#,
        r#"{"action":"deny","reason":"not hers"}"#,
        r#"{"action":"continue"}"#,
    ])
    .await;
    let policy = HttpPolicy::memory_recalled("policy", &url, &caller());
    let found = ["a", "b", "c"].map(known);
    assert_eq!(
        policy.memory_recalled(place(), &found).await,
        Ok(Verdict::Go)
    );
    let chosen = policy.memory_recalled(place(), &found).await;
    assert_eq!(chosen, Ok(Verdict::Instead(vec![known("c"), known("a")])));
    let denied = policy.memory_recalled(place(), &found).await;
    assert_eq!(denied, Ok(Verdict::Refuse("not hers".into())));
    assert!(policy.memory_recalled(place(), &found).await.is_err());
    let asked = served.await.expect("served");
    assert!(
        asked[0].contains(r#""name":"memory_recalled""#),
        "{}",
        asked[0]
    );
    assert!(asked[0].contains(r#""text":"of b""#), "{}", asked[0]);
}

#[tokio::test]
async fn another_service_says_whether_a_part_is_folded() {
    let (url, served) = service(vec![
        r#"{"action":"allow"}"#,
        r#"{"action":"deny","reason":"not now"}"#,
        r#"{"action":"allow","text":"they met in May"}"#,
        r#"{"action":"allow","text":""}"#,
    ])
    .await;
    let policy = HttpPolicy::before_fold("policy", &url, &caller());
    let part = FoldPart {
        part: mainspring_worker::fold::Part {
            session: place().session,
            send: place().send,
            folds: Vec::new(),
            messages: Vec::new(),
        },
        from_seq: 3,
        to_seq: 8,
        tokens: 900,
        beside: false,
    };
    assert_eq!(policy.before_fold(place(), &part).await, Ok(Verdict::Go));
    let denied = policy.before_fold(place(), &part).await;
    assert_eq!(denied, Ok(Verdict::Refuse("not now".into())));
    let written = policy.before_fold(place(), &part).await;
    assert_eq!(written, Ok(Verdict::Instead("they met in May".into())));
    assert!(policy.before_fold(place(), &part).await.is_err());
    let asked = served.await.expect("served");
    assert!(asked[0].contains(r#""to_seq":8"#), "{}", asked[0]);
}

#[tokio::test]
async fn another_service_judges_what_a_timer_fired() {
    let (url, served) = service(vec![
        r#"{"action":"allow"}"#,
        r#"{"action":"allow","input":"other words"}"#,
        r#"{"action":"end"}"#,
        r#"{"action":"deny","reason":"not now"}"#,
        r#"{"action":"postpone","seconds":600}"#,
        r#"{"action":"postpone","until":"1970-01-01T00:00:05Z"}"#,
        r#"{"action":"postpone"}"#,
        r#"{"action":"allow","input":" "}"#,
        r#"{"action":"continue"}"#,
    ])
    .await;
    let policy = HttpPolicy::timer_fired("policy", &url, &caller());
    let fired = FiredTimer {
        timer: mainspring_shared::id::TimerId(Uuid::from_u128(7)),
        n: 3,
        due_at: mainspring_shared::time::Timestamp(1_000),
        input: vec![ContentPart::text("tick")],
    };
    let words = OnFired::Input(vec![ContentPart::text("other words")]);
    let later = OnFired::After(std::time::Duration::from_mins(10));
    let then = OnFired::At(mainspring_shared::time::Timestamp(5_000));
    for expected in [
        Verdict::Go,
        Verdict::Instead(words),
        Verdict::End,
        Verdict::Refuse("not now".into()),
        Verdict::Instead(later),
        Verdict::Instead(then),
    ] {
        assert_eq!(policy.timer_fired(place(), &fired).await, Ok(expected));
    }
    assert!(
        policy.timer_fired(place(), &fired).await.is_err(),
        "until when?"
    );
    // A blank input replaces nothing, and only an answer can be continued.
    assert!(policy.timer_fired(place(), &fired).await.is_err());
    assert!(policy.timer_fired(place(), &fired).await.is_err());
    let asked = served.await.expect("served");
    for part in [
        r#""name":"timer_fired""#,
        r#""timer_id":"tmr_00000000000000000000000000000007""#,
        r#""n":3"#,
        r#""text":"tick""#,
    ] {
        assert!(asked[0].contains(part), "{part}: {}", asked[0]);
    }
}

fn request() -> Request {
    let spec = |name: &str| {
        Arc::new(mainspring_worker::tool::ToolSpec {
            name: name.into(),
            description: String::new(),
            parameters: any_object(),
        })
    };
    Request {
        model: "m".into(),
        system: Some("be brief".into()),
        max_tokens: 100,
        tools: vec![spec("look"), spec("erase")],
        ..Request::default()
    }
}

#[tokio::test]
async fn another_service_changes_what_a_model_is_asked() {
    let (url, served) = service(vec![
        r#"{"action":"allow","system_prompt":"be exact","tools":["look"],"max_tokens":50,"temperature":0.5}"#,
        r#"{"action":"allow","inject":"it is Friday","max_tokens":1000}"#,
        r#"{"action":"allow","tools":[]}"#,
        r#"{"action":"allow","tools":["read"]}"#,
        r#"{"action":"allow","max_tokens":0}"#,
        r#"{"action":"allow","temperature":3}"#,
        r#"{"action":"allow","system_prompt":" "}"#,
        r#"{"action":"deny","tools":[]}"#,
        r#"{"action":"skip"}"#,
    ])
    .await;
    let policy = HttpPolicy::before_model("policy", &url, &caller());
    let mut changed = request();
    let said = policy.before_model(place(), &mut changed).await;
    assert_eq!(said, Ok(Verdict::Go));
    let expected = Request {
        system: Some("be exact".into()),
        tools: request().tools[..1].to_vec(),
        max_tokens: 50,
        temperature: Some(0.5),
        ..request()
    };
    assert_eq!(changed, expected);
    let mut same = request();
    let said = policy.before_model(place(), &mut same).await;
    let words = vec![ContentPart::text("it is Friday")];
    assert_eq!((said, same), (Ok(Verdict::Say(words)), request()));
    let mut bare = request();
    let said = policy.before_model(place(), &mut bare).await;
    assert_eq!((said, bare.tools.len()), (Ok(Verdict::Go), 0));
    for wrong in [
        "no tool \"read\"",
        "not a decision",
        "temperature",
        "system_prompt is empty",
        "requires allow",
        "skip is not allowed",
    ] {
        let said = policy.before_model(place(), &mut request()).await;
        let error = said.expect_err(wrong);
        assert!(error.0.contains(wrong), "{wrong}: {error}");
    }
    let asked = served.await.expect("served");
    assert!(asked[0].contains(r#""temperature":null"#), "{}", asked[0]);
    assert!(
        asked[0].contains(r#""tools":["look","erase"]"#),
        "{}",
        asked[0]
    );
}
