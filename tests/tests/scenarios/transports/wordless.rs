//! Whole sends to servers that refuse what is longer than their window, and do not say why.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use mainspring_providers::{Kind, ProviderSettings};
use mainspring_shared::agent::{AgentSpec, ContextSpec, FoldSpec, FoldStrategy};
use mainspring_shared::event::LiveKind;
use mainspring_shared::send::SendStatus;
use mainspring_tests::world::World;
use mainspring_worker::llm::FactsOverride;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::amended::PROTOCOLS;
use super::settings;

/// Bytes of a request that the servers take. The worker believes in a window of a quarter more tokens.
const BYTES_MAX: usize = 310_000;
const WINDOW: u64 = 100_000;

/// How the servers refuse: none of it says anything of a length.
const REFUSALS: [(u16, &str); 4] = [
    (400, ""),
    (400, "Bad Request"),
    (422, "{\"detail\":\"Unprocessable Entity\"}"),
    (
        400,
        "{\"error\":{\"message\":\"Ung\u{fc}ltige Anfrage\",\"type\":\"invalid_request_error\"}}",
    ),
];

struct Short {
    url: String,
    /// The sizes of the requests that were refused.
    refused: Arc<Mutex<Vec<usize>>>,
    task: JoinHandle<()>,
}

impl Drop for Short {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Short {
    async fn start(kind: Kind, (status, words): (u16, &'static str)) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let refused = Arc::new(Mutex::new(Vec::new()));
        let kept = refused.clone();
        let router = Router::new().fallback(move |body: Bytes| {
            let kept = kept.clone();
            async move {
                if body.len() > BYTES_MAX {
                    kept.lock().unwrap().push(body.len());
                    return (StatusCode::from_u16(status).unwrap(), words).into_response();
                }
                // As many tokens as the worker expects of such words.
                said(kind, body.len() / 4)
            }
        });
        let task = tokio::spawn(async move {
            let _ = axum::serve(listener, router).await;
        });
        Self { url, refused, task }
    }
}

fn said(kind: Kind, tokens: usize) -> Response {
    let body = match kind {
        Kind::OpenAi => json!({
            "model": "m", "usage": {"prompt_tokens": tokens, "completion_tokens": 1},
            "choices": [{"index": 0, "message": {"role": "assistant", "content": "whole"}, "finish_reason": "stop"}],
        }),
        Kind::OpenAiResponses => json!({
            "id": "resp_1", "object": "response", "status": "completed", "model": "m",
            "output": [{
                "type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
                "content": [{"type": "output_text", "text": "whole", "annotations": []}],
            }],
            "usage": {"input_tokens": tokens, "output_tokens": 1},
        }),
        Kind::Anthropic => json!({
            "id": "msg_1", "type": "message", "role": "assistant", "model": "m",
            "content": [{"type": "text", "text": "whole"}], "stop_reason": "end_turn",
            "usage": {"input_tokens": tokens, "output_tokens": 1},
        }),
        Kind::Demo => unreachable!("it has no socket"),
    };
    axum::Json(body).into_response()
}

async fn talked(kind: Kind, refusal: (u16, &'static str)) {
    // Fails if a test before this one did it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let server = Short::start(kind, refusal).await;
    let mut world = World::new().await;
    world.providers.push(ProviderSettings {
        stream: false,
        ..settings(kind, &server.url)
    });
    let facts = FactsOverride {
        window: Some(WINDOW),
        ..FactsOverride::default()
    };
    world.facts.insert("m".to_owned(), facts);
    let agent = AgentSpec {
        model: Some("test/m".into()),
        max_tokens: Some(500),
        context: ContextSpec {
            // Nothing is folded before the server refuses.
            fold: FoldSpec {
                strategy: FoldStrategy::Projection,
                soft: Some(0.84),
                hard: Some(0.85),
                ..FoldSpec::default()
            },
            ..ContextSpec::default()
        },
        ..AgentSpec::default()
    };
    let key = world.session(agent).await;
    let _worker = world.worker("w", world.store.clone());
    for n in 0..30 {
        let text = format!("{n} {}", "word ".repeat(3_200));
        let id = world.send(key, &text).await;
        let record = world.settle(&[id]).await.remove(0);
        let said = record.output_text.as_deref();
        assert_eq!(
            (record.status, said),
            (SendStatus::Completed, Some("whole")),
            "{kind:?} {refusal:?}, send {n}: {:?}",
            record.error
        );
    }
    let refused = server.refused.lock().unwrap().len();
    assert!(
        (1..=3).contains(&refused),
        "{kind:?} {refusal:?}: {refused}"
    );
    let live = world.live(key);
    let amended = live
        .iter()
        .any(|event| matches!(event, LiveKind::ModelWarning { code, .. } if code == "llm.amended"));
    assert!(!amended, "{kind:?} {refusal:?}: no part is left out for it");
    world.audit().await;
}

#[tokio::test]
async fn a_session_outgrows_a_window_whose_server_refuses_without_words() {
    for kind in PROTOCOLS {
        for refusal in REFUSALS {
            talked(kind, refusal).await;
        }
    }
}
