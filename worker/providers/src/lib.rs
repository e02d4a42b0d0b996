//! The built-in transports to language models: implementations of the worker's port
//! [`mainspring_worker::llm`].
//!
//! | provider | module |
//! |---|---|
//! | `anthropic` | `anthropic`: the Messages API |
//! | `demo` | `demo`: answers by itself, without a network |
//! | `openai` | `openai`: chat completions, the public API and everything compatible with it |
//! | `openai-responses` | `responses`: OpenAI's Responses API, and servers that speak it |
//!
//! [`open()`] creates all configured providers.

mod amend;
mod answer;
mod anthropic;
#[cfg(test)]
mod chunkings;
mod demo;
mod embeddings;
mod exact;
mod extra;
mod gate;
mod http;
mod metrics;
mod open;
mod openai;
mod probe;
mod responses;
pub mod rules;
mod schema;
mod settings;
mod signature;
mod sse;
mod status;
mod surrogates;
mod tools;
mod transcript;
mod usage;

pub use demo::{Demo, DemoVectors};
pub use embeddings::Embeddings;
pub use extra::{ExtraFault, RequestExtra};
pub use open::{SetupError, open};
pub use probe::{Learned, Probed, learn, probe};
pub use settings::{ANTHROPIC_BASE_URL, Kind, Limits, OPENAI_BASE_URL, ProviderSettings};
