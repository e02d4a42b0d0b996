//! Tools as agents declare them, and the life of a call from request to result.

mod bounds;
mod call;
mod declared;
mod inquiry;
mod preset;
mod published;
mod question;
pub mod request;
pub mod schema;
pub mod secret;

pub use bounds::{bounded, digest_part, name_whole, named_whole};
pub use call::{
    Approval, CallRecord, CallResult, CallState, Claim, Repeat, answers, call_id, calls_of_round,
    calls_of_send, cancelled_call, child_item, child_result, interrupted_call, unknown_outcome,
};
pub use declared::{
    DeclaredTool, ExternalTool, HttpTool, McpTools, TOOLS_MAX, ToolEntry, ToolFault, WorkerTool,
    check, digest_by, is_pool, pool_fault, pool_of, url_fault,
};
pub use inquiry::{
    Asked, Form, FormFault, INQUIRIES_MAX, INQUIRY_BYTES_MAX, Inquiry, Replies, Reply, Wants,
};
pub use preset::{CORE, EXPLORE, FULL, preset};
pub use published::Published;
pub use question::{ASK_PERSON, CREATE_WORKFLOW, Question, QuestionKind, SPAWN_AGENT, expired};
