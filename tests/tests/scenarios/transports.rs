//! What every transport must do, over a real socket: read recorded answers, write requests, and
//! classify faults.

#![expect(
    clippy::unwrap_used,
    reason = "a helper that fails fails the test that called it"
)]

mod amended;
mod background;
mod faults;
mod replies;
mod requests;
mod responses;
mod server;
mod thinking;
mod verbatim;

use std::sync::Arc;
use std::time::Duration;

use mainspring_providers::{Kind, ProviderSettings};
use mainspring_runtime::SystemClock;
use mainspring_shared::id::SendId;
use mainspring_shared::message::{ContentPart, Message, NewMessage, Role};
use mainspring_shared::time::{Clock, Timestamp};
use mainspring_worker::llm::{Chunk, Error, Model, Reply, Request, Secret};

/// A fake key in the format of a real one.
pub(crate) const KEY: &str = "sk-test-0123456789abcdef";

/// Settings for a provider at `base_url`, quick to give up.
pub(crate) fn settings(kind: Kind, base_url: &str) -> ProviderSettings {
    ProviderSettings {
        base_url: base_url.to_owned(),
        api_key: Secret::new(KEY),
        first_byte_timeout: Duration::from_secs(20),
        idle_timeout: Duration::from_secs(20),
        attempt_timeout: Duration::from_mins(1),
        ..ProviderSettings::new("test", kind)
    }
}

/// The transport for these settings.
pub(crate) fn model(settings: &ProviderSettings) -> Arc<dyn Model> {
    // Fails if a test before this one did it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let providers =
        mainspring_providers::open(std::slice::from_ref(settings), "test", &clock).unwrap();
    providers.resolve(Some("m")).unwrap().client
}

pub(crate) fn message(seq: i64, new: NewMessage) -> Arc<Message> {
    Arc::new(new.at(seq, SendId(uuid::Uuid::nil()), Timestamp(0), 1))
}

pub(crate) fn said(role: Role, text: &str) -> NewMessage {
    NewMessage {
        role,
        ..NewMessage::user(vec![ContentPart::text(text)], 0)
    }
}

/// The smallest request.
pub(crate) fn hello() -> Request {
    Request {
        model: "m".to_owned(),
        messages: vec![message(1, said(Role::User, "hello"))],
        max_tokens: 100,
        ..Request::default()
    }
}

/// The outcome of an attempt.
pub(crate) struct Heard {
    pub(crate) reply: Result<Reply, Error>,
    pub(crate) text: String,
    pub(crate) reasoning: String,
}

pub(crate) async fn ask(model: &dyn Model, request: &Request) -> Heard {
    let (mut text, mut reasoning) = (String::new(), String::new());
    let mut hear = |chunk: Chunk<'_>| match chunk {
        Chunk::Text(piece) => text.push_str(piece),
        Chunk::Reasoning(piece) => reasoning.push_str(piece),
        Chunk::Hidden(_) | Chunk::Counted(_) | Chunk::Background(_) => {}
    };
    let reply = model.complete(request, &mut hear).await;
    Heard {
        reply,
        text,
        reasoning,
    }
}
