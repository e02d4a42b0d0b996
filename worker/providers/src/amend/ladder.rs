//! What is tried for a refusal that names nothing, from the most to the least likely.

use super::part::{Amendment, Cut, Protocol, tool_name};
use super::tree::Node;

/// Members that a request can do without.
const OPTIONAL: [&str; 14] = [
    "temperature",
    "top_p",
    "stop",
    "stop_sequences",
    "reasoning_effort",
    "reasoning",
    "thinking",
    "output_config",
    "tool_choice",
    "parallel_tool_calls",
    "stream_options",
    "prompt_cache_key",
    "include",
    "metadata",
];

/// The steps for this request. Each is tried by itself; the last is all of them together.
pub(super) fn steps(body: &Node<'_>, protocol: Protocol) -> Vec<Vec<Amendment>> {
    let history = vec![Amendment::NoReasoning, Amendment::NoAttachments];
    let media = vec![Amendment::NoPictures, Amendment::NoFiles];
    let optional = OPTIONAL
        .map(|name| Amendment::Without(name.to_owned()))
        .to_vec();
    let mut order = vec![Amendment::NoEmpty, Amendment::ShortIds];
    if protocol == Protocol::Chat {
        order.push(Amendment::Alternate);
    }
    let schemas = vec![Amendment::Schemas(Cut::Plain)];
    let names: Vec<String> = body.list("tools").iter().filter_map(tool_name).collect();
    let (first, second) = names.split_at(names.len().div_ceil(2));
    let out = |half: &[String]| {
        let half = half.iter();
        half.map(|name| Amendment::Tool(name.clone(), Cut::Out))
            .collect::<Vec<_>>()
    };
    let format = vec![Amendment::NoSchema];
    let all = [&history, &media, &optional, &order, &schemas, &format]
        .into_iter()
        .flatten();
    let all: Vec<Amendment> = all.cloned().collect();
    vec![
        history,
        optional,
        media,
        order,
        format,
        schemas,
        out(first),
        out(second),
        all,
    ]
}
