use mainspring_runtime::SystemClock;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::net::TcpStream;

use super::*;
use crate::settings::Kind;

/// Decides about a request: a refusal's message, or `None`.
type Judge = fn(&Value) -> Option<&'static str>;

/// Reads one request.
async fn body_of(stream: &mut TcpStream) -> Value {
    let mut read = Vec::new();
    loop {
        if stream.read_buf(&mut read).await.expect("a request") == 0 {
            return Value::Null;
        }
        let text = String::from_utf8_lossy(&read);
        if let Some((_, body)) = text.split_once("\r\n\r\n")
            && let Ok(body) = serde_json::from_str(body)
        {
            return body;
        }
    }
}

fn answer(body: &Value) -> Value {
    let is_second = body["messages"]
        .as_array()
        .is_some_and(|it| it.iter().any(|m| m["role"] == "tool"));
    let message = if body["tools"].is_array() && !is_second {
        json!({"role": "assistant", "content": null, "reasoning_content": "hm", "tool_calls": [
            {"id": "own:1", "type": "function", "function": {"name": "note", "arguments": "{\"text\":\"ok\"}"}}]})
    } else {
        json!({"role": "assistant", "content": "ok"})
    };
    json!({"model": "m", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 2}})
}

/// Learns about a server that judges requests in this manner.
async fn learned(judge: Judge) -> Learned {
    // May be installed already, by this or another test.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let settings = ProviderSettings {
        base_url: format!("http://{address}/v1"),
        stream: false,
        ..ProviderSettings::new("main", Kind::OpenAi)
    };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let serve = async {
        loop {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let body = body_of(&mut stream).await;
            let (status, said) = match judge(&body) {
                Some(message) => ("400 Bad Request", json!({"error": {"message": message}})),
                None => ("200 OK", answer(&body)),
            };
            let said = said.to_string();
            let head = format!(
                "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                said.len()
            );
            stream.write_all(head.as_bytes()).await.expect("written");
            stream.write_all(said.as_bytes()).await.expect("written");
        }
    };
    tokio::select! {
        learned = learn(&settings, "m", &clock) => learned.expect("it answers"),
        () = serve => unreachable!("it serves for ever"),
    }
}

#[tokio::test]
async fn of_a_lenient_server_there_is_nothing_to_configure() {
    assert_eq!(learned(|_| None).await, Learned::default());
}

#[tokio::test]
async fn a_strict_server_is_learnt_member_by_member() {
    let learned = learned(|body| {
        let messages = body["messages"].as_array().expect("messages");
        let roles: Vec<_> = messages.iter().map(|it| &it["role"]).collect();
        if !body["max_tokens"].is_null() {
            return Some("Unsupported value in the request");
        }
        if !body["temperature"].is_null() || !body["stop"].is_null() {
            return Some("Not accepted here");
        }
        let effort = &body["reasoning_effort"];
        if !effort.is_null() && effort != "low" && effort != "high" {
            return Some("'max' is bad. Supported values are: 'low', 'high'");
        }
        if body["tools"].is_array() && body["response_format"].is_object() {
            return Some("One of the two");
        }
        if messages.iter().any(|it| !it["reasoning_content"].is_null()) {
            return Some("Extra inputs");
        }
        let fits = |id: &str| id.starts_with("own") || id.len() == 9;
        if messages
            .iter()
            .filter_map(|it| it["tool_call_id"].as_str())
            .any(|id| !fits(id))
        {
            return Some("Bad id");
        }
        if roles
            .windows(2)
            .any(|pair| pair[0] == "tool" && pair[1] == "user")
        {
            return Some("Bad order");
        }
        None
    })
    .await;
    let wanted = r#"
        output_limit = "max_completion_tokens"
        temperature = "none"
        top_p = "none"
        stop = false
        efforts = ["low", "high"]
        reasoning_back = "none"
        call_ids = "nine"
        call_ids_max = 64
        user_after_tool = false
        schema_with_tools = false
    "#;
    assert_eq!(learned.failed, []);
    assert_eq!(learned.said, toml::from_str(wanted).expect("members"));
}

#[test]
fn efforts_are_read_from_refusals() {
    let message = "Unsupported value: 'max' is not supported with this model. Supported values are: 'none', 'low', and 'high'.";
    let efforts = [
        ReasoningEffort::None,
        ReasoningEffort::Low,
        ReasoningEffort::High,
    ];
    assert_eq!(listed(message), efforts);
    assert_eq!(listed("reasoning_effort: unknown member"), []);
}
