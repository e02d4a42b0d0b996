#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

// What requests are made of, and how they are repeated.
mod attempts;
mod call;
mod clock;
mod error;
mod http;
mod pages;
mod span;
mod transport;

// Generated: every operation and its types.
pub mod api;
pub mod types;

// Handles, which hold an id and may be made anew from it anywhere.
mod client;
mod events;
mod question;
mod run;
mod send;
mod session;
mod sse;
mod text;
mod timer;

// What a program brings along: tools, workflows, and what it does with webhooks.
pub mod flow;
mod serve;
mod tool;
pub mod webhooks;

pub use api::Api;
pub use client::{Client, NewSend};
pub use error::{ApiError, Error, Kind};
pub use events::{Event, RunEvent, RunStream, SendStream, TextPiece};
pub use pages::{Page, Pages};
pub use question::Question;
pub use run::{NewRun, RunAnswer, RunHandle};
pub use send::{Answer, SendBuilder, SendHandle};
pub use serve::{ServingTools, ToolLoop};
pub use session::Session;
pub use span::Span;
pub use timer::{NewTimer, TimerHandle};
pub use tool::{Tool, ToolCall};
pub use transport::{Arrival, Body, Request, Response, Transport, TransportError};
