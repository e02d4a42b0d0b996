//! The laboratory over a socket, as a client meets it.

use std::collections::BTreeMap;

use mainspring_vendors::Laboratory;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Serves these vendors for the length of a test.
async fn served(names: &[&str]) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let laboratory = Laboratory::of(names, None).expect("files of the crate");
    tokio::spawn(laboratory.serve(listener));
    address
}

async fn ask(address: std::net::SocketAddr, method: &str, path: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    stream
        .write_all(request.as_bytes())
        .await
        .expect("it reads");
    let mut answer = String::new();
    stream
        .read_to_string(&mut answer)
        .await
        .expect("it answers");
    let status = answer.split(' ').nth(1).and_then(|text| text.parse().ok());
    let body = answer
        .split_once("\r\n\r\n")
        .map(|(_, body)| body.to_owned());
    (status.expect("a status"), body.unwrap_or_default())
}

#[tokio::test]
async fn a_vendor_answers_judges_and_counts() {
    let address = served(&["mistral"]).await;
    let body = json!({"model": "mistral-large-2512", "messages": [{"role": "user", "content": "!say hi there"}]});
    let (status, answer) = ask(address, "POST", "/v1/chat/completions", &body.to_string()).await;
    assert_eq!(status, 200, "{answer}");
    let answer: Value = serde_json::from_str(&answer).expect("JSON");
    assert_eq!(answer["choices"][0]["message"]["content"], "hi there");
    let mut odd = body.clone();
    odd["store"] = json!(false);
    let (status, refusal) = ask(
        address,
        "POST",
        "/mistral/v1/chat/completions",
        &odd.to_string(),
    )
    .await;
    assert_eq!(status, 422);
    assert!(refusal.contains("extra_forbidden"), "{refusal}");
    let (_, judgements) = ask(address, "GET", "/judgements", "").await;
    let judgements: Vec<BTreeMap<String, Value>> = serde_json::from_str(&judgements).expect("JSON");
    let verdicts: Vec<&Value> = judgements.iter().map(|judged| &judged["verdict"]).collect();
    assert_eq!(verdicts, [&json!("kept"), &json!("refused")]);
    let (_, ledger) = ask(address, "GET", "/mistral/ledger", "").await;
    let ledger: Vec<Value> = serde_json::from_str(&ledger).expect("JSON");
    assert_eq!(ledger[0]["answers"], 1);
    assert_eq!(ledger[0]["output"], 2);
}

#[tokio::test]
async fn a_stream_has_the_pieces_of_the_answer_and_an_injected_error_comes_so_often() {
    let address = served(&["openai-chat", "groq"]).await;
    let text = "!error throttle 2\n!say something longer than a piece";
    let body = json!({"model": "gpt-4.1", "stream": true, "messages": [{"role": "user", "content": text}]});
    for _ in 0..2 {
        let (status, _) = ask(
            address,
            "POST",
            "/openai-chat/v1/chat/completions",
            &body.to_string(),
        )
        .await;
        assert_eq!(status, 429);
    }
    let (status, stream) = ask(
        address,
        "POST",
        "/openai-chat/v1/chat/completions",
        &body.to_string(),
    )
    .await;
    assert_eq!(status, 200);
    assert!(
        stream.contains("something lo") && stream.contains("data: [DONE]"),
        "{stream}"
    );
    let (status, _) = ask(
        address,
        "POST",
        "/openai-chat/v1/responses",
        r#"{"model":"gpt-4.1","input":"hi"}"#,
    )
    .await;
    assert_eq!(status, 200, "the vendor's other protocol is beside it");
    let (status, _) = ask(address, "POST", "/elsewhere", "{}").await;
    assert_eq!(status, 404);
}
