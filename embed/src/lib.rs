#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

// From what a program says to what runs.
mod agent;
mod app;
mod error;
mod opening;
mod store;

// How its calls and its closures get there.
mod closure;
mod door;

/// What may be replaced or added, each with the trait to implement.
pub mod extend {
    /// Tools, as workers see them: [`Opening::worker_tool`](crate::Opening::worker_tool). A closure is enough for most.
    pub mod tool {
        pub use mainspring_shared::tool::Repeat;
        pub use mainspring_worker::tool::{Invocation, Output, Tool, ToolError, ToolSpec, Traits};
    }
    /// Model providers: [`Opening::model`](crate::Opening::model). Those behind HTTP are [`Opening::provider`](crate::Opening::provider).
    pub mod model {
        pub use mainspring_providers::{Kind, Limits, ProviderSettings, RequestExtra};
        pub use mainspring_shared::message::{ContentPart, Message, ToolCall};
        pub use mainspring_shared::usage::Usage;
        pub use mainspring_worker::llm::{Chunk, Error, Finish, Model, Reply, Request, Secret};
    }
    /// How transcripts are folded: [`Opening::fold`](crate::Opening::fold).
    pub mod fold {
        pub use mainspring_worker::fold::{Fold, Part};
    }
    /// What agents remember: [`Opening::memory`](crate::Opening::memory).
    pub mod memory {
        pub use mainspring_shared::memory::{
            Embedded, Embedder, Forget, Memory, MemoryError, PaidCall, Recall, Recalled, Remember,
        };
    }
    /// Where blobs are: [`Opening::blobs`](crate::Opening::blobs).
    pub mod blobs {
        pub use mainspring_shared::blob::{BlobPlace, Blobs, Error};
    }
    /// What is asked before and told after something happens: [`Opening::hook`](crate::Opening::hook).
    pub mod hook {
        pub use mainspring_worker::hook::*;
    }
    pub use async_trait::async_trait;
}

pub use agent::Agent;
pub use app::Mainspring;
pub use error::Error;
pub use mainspring_client::{
    Answer, Client, Event, NewRun, NewTimer, Question, RunHandle, SendHandle, SendStream, Session,
    TextPiece, Tool, ToolCall, flow, types,
};
pub use mainspring_scheduler::SchedulerConfig;
pub use mainspring_worker::WorkerConfig;
pub use opening::Opening;
