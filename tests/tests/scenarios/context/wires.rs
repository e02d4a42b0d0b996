//! Requests as the shipped transports send them.

use std::sync::{Arc, Once};

use mainspring_providers::{Kind, ProviderSettings};
use mainspring_shared::time::Clock;
use mainspring_tests::world::World;
use mainspring_worker::llm::{Model, Request};

/// The three protocols.
const KINDS: [Kind; 3] = [Kind::OpenAi, Kind::OpenAiResponses, Kind::Anthropic];

/// A transport.
#[derive(Debug)]
pub(crate) struct Wire {
    pub(crate) kind: Kind,
    model: Arc<dyn Model>,
}

impl Wire {
    /// The transport of a kind, with an address where nothing listens.
    pub(crate) fn of(kind: Kind, clock: &Arc<dyn Clock>, marks: bool) -> Self {
        static CRYPTO: Once = Once::new();
        CRYPTO.call_once(|| {
            // Another test may have installed one already.
            let _ = rustls::crypto::ring::default_provider().install_default();
        });
        let settings = ProviderSettings {
            model: "m".to_owned(),
            base_url: "http://127.0.0.1:1".to_owned(),
            prompt_cache: marks,
            ..ProviderSettings::new("p", kind)
        };
        let providers = mainspring_providers::open(&[settings], "p", clock);
        let providers = providers.expect("the settings are complete");
        let model = providers.resolve(None).expect("it is there").client;
        Self { kind, model }
    }

    /// The transports of all kinds, in a world.
    pub(crate) fn all(world: &World) -> Vec<Self> {
        let of = |kind| Self::of(kind, &world.clock(), false);
        KINDS.map(of).into()
    }

    /// The bytes of a request.
    pub(crate) fn body(&self, request: &Request) -> Vec<u8> {
        let body = self.model.wire(request).expect("it has a form");
        body.expect("it is sound")
    }
}

/// The text of a request without the ids in it, which differ in each world: whole ids, and
/// `mem_0190…` where a digest cut one short.
pub(crate) fn without_ids(body: &[u8]) -> String {
    const ID: usize = 32;
    let text = std::str::from_utf8(body).expect("it is JSON");
    let mut kept = String::with_capacity(text.len());
    let mut digits = 0;
    for char in text.chars() {
        if char == '…' && kept[..kept.len() - digits].ends_with('_') {
            kept.truncate(kept.len() - digits);
        }
        kept.push(char);
        let is_digit = char.is_ascii_digit() || ('a'..='f').contains(&char);
        digits = if is_digit { digits + 1 } else { 0 };
        if digits == ID {
            kept.truncate(kept.len() - ID);
            digits = 0;
        }
    }
    kept
}
