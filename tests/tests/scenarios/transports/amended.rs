//! A whole send over a socket whose provider refuses part of a request, or no longer has the model.

use mainspring_providers::{Kind, ProviderSettings};
use mainspring_shared::agent::AgentSpec;
use mainspring_shared::event::LiveKind;
use mainspring_shared::send::{SendRecord, SendStatus};
use mainspring_tests::world::World;
use serde_json::{Value, json};

use super::server::{Answer, Received, Server};
use super::settings;

pub(super) const PROTOCOLS: [Kind; 3] = [Kind::OpenAi, Kind::OpenAiResponses, Kind::Anthropic];

pub(super) fn whole(kind: Kind) -> Answer {
    let body = match kind {
        Kind::OpenAi => json!({
            "id": "c", "object": "chat.completion", "model": "m",
            "choices": [{
                "index": 0,
                "message": {"role": "assistant", "content": "whole"},
                "finish_reason": "stop",
            }],
            "usage": {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6},
        }),
        Kind::OpenAiResponses => json!({
            "id": "resp_1", "object": "response", "status": "completed", "model": "m",
            "output": [{
                "type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
                "content": [{"type": "output_text", "text": "whole", "annotations": []}],
            }],
            "usage": {"input_tokens": 5, "output_tokens": 1, "total_tokens": 6},
        }),
        Kind::Anthropic => json!({
            "id": "msg_1", "type": "message", "role": "assistant", "model": "m",
            "content": [{"type": "text", "text": "whole"}],
            "stop_reason": "end_turn", "stop_sequence": null,
            "usage": {"input_tokens": 5, "output_tokens": 1},
        }),
        Kind::Demo => unreachable!("it has no socket"),
    };
    answer(200, &body)
}

fn answer(status: u16, body: &Value) -> Answer {
    let body = body.to_string().into_bytes();
    Answer::new(status, "application/json", &body, body.len())
}

fn refusal(kind: Kind) -> Answer {
    let error = if kind == Kind::Anthropic {
        let message = "`temperature` is deprecated for this model.";
        json!({"type": "error", "error": {"type": "invalid_request_error", "message": message}})
    } else {
        let message = "Unsupported parameter: 'temperature' is not supported with this model.";
        json!({"error": {
            "message": message, "type": "invalid_request_error",
            "param": "temperature", "code": "unsupported_parameter",
        }})
    };
    answer(400, &error)
}

fn provider(name: &str, kind: Kind, server: &Server) -> ProviderSettings {
    // Fails if a test before this one did it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    ProviderSettings {
        name: name.to_owned(),
        stream: false,
        ..settings(kind, &server.url("/v1"))
    }
}

async fn ended(
    world: &World,
    agent: &AgentSpec,
    texts: &[&str],
) -> (Vec<LiveKind>, Vec<SendRecord>) {
    let key = world.session(agent.clone()).await;
    let _worker = world.worker("w", world.store.clone());
    let mut records = Vec::new();
    for text in texts {
        let id = world.send(key, text).await;
        records.push(world.settle(&[id]).await.remove(0));
    }
    (world.live(key), records)
}

fn is_heated(received: &Received) -> bool {
    let body: Value = serde_json::from_slice(&received.body).unwrap();
    body.get("temperature").is_some()
}

#[tokio::test]
async fn a_refused_part_costs_one_request_and_the_next_send_meets_no_refusal() {
    for kind in PROTOCOLS {
        let server = Server::with(vec![refusal(kind), whole(kind)]).await;
        let mut world = World::new().await;
        world.providers.push(provider("test", kind, &server));
        let agent = AgentSpec {
            model: Some("test/m".into()),
            temperature: Some(0.5),
            ..AgentSpec::default()
        };
        let (live, records) = ended(&world, &agent, &["one", "two"]).await;
        for record in &records {
            assert_eq!(record.status, SendStatus::Completed, "{record:?}");
            assert_eq!(record.output_text.as_deref(), Some("whole"));
        }
        let asked = server.received();
        let heated: Vec<_> = asked.iter().map(is_heated).collect();
        assert_eq!(heated, [true, false, false], "{kind:?}");
        assert_eq!([records[0].attempts, records[1].attempts], [2, 1]);
        let warned: Vec<_> = live
            .iter()
            .filter_map(|event| match event {
                LiveKind::ModelWarning { code, part, .. } => {
                    Some((code.as_str(), part.as_deref()?))
                }
                _ => None,
            })
            .collect();
        let [("llm.amended", part)] = warned[..] else {
            panic!("{kind:?}: {warned:?}");
        };
        assert!(part.contains("temperature"), "{part}");
        world.audit().await;
    }
}

#[tokio::test]
async fn a_retired_model_is_left_at_once_for_the_fallback() {
    for kind in PROTOCOLS {
        let gone = if kind == Kind::Anthropic {
            let error = json!({"type": "not_found_error", "message": "model: m"});
            answer(404, &json!({"type": "error", "error": error}))
        } else {
            let message = "The model `m` has been deprecated, learn more here: \
                           https://platform.openai.com/docs/deprecations";
            answer(
                404,
                &json!({"error": {
                    "message": message, "type": "invalid_request_error",
                    "param": null, "code": "model_not_found",
                }}),
            )
        };
        let retired = Server::start(gone).await;
        let next = Server::start(whole(kind)).await;
        let mut world = World::new().await;
        world.providers.push(provider("test", kind, &retired));
        world.providers.push(provider("next", kind, &next));
        let agent = AgentSpec {
            model: Some("test/m".into()),
            fallback: vec!["next/m".into()],
            ..AgentSpec::default()
        };
        let (_, records) = ended(&world, &agent, &["one"]).await;
        assert_eq!(records[0].status, SendStatus::Completed, "{records:?}");
        assert_eq!(records[0].output_text.as_deref(), Some("whole"));
        let asked = (retired.received().len(), next.received().len());
        assert_eq!(asked, (1, 1), "{kind:?}");
        world.audit().await;
    }
}
