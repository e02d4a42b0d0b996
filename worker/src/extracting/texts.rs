//! What a model is shown of a send that has ended.

use mainspring_shared::memory::Recalled;
use mainspring_shared::message::{Message, Role, plain_text};

/// What the model is asked about.
pub(super) fn shown(known: &[Recalled], text: &str) -> String {
    let listed = known.iter().zip(1..);
    let listed = listed.map(|(entry, n)| format!("{n}. {}", entry.text.replace('\n', " ")));
    let listed: Vec<String> = listed.collect();
    format!(
        "<known>\n{}\n</known>\n\n<conversation>\n{}\n</conversation>",
        listed.join("\n").replace("</", "<\u{200b}/"),
        text.replace("</", "<\u{200b}/")
    )
}

/// The last characters of a text, at most so many.
pub(super) fn end_of(text: &str, chars: usize) -> &str {
    let skipped = text.chars().count().saturating_sub(chars);
    let begin = text.char_indices().nth(skipped);
    begin.map_or("", |(at, _)| &text[at..])
}

/// The end of what people and the assistant said, without what tools gave.
pub(super) fn conversation(messages: &[&Message], chars: usize) -> String {
    let lines = messages.iter().filter_map(|message| {
        let who = match message.role {
            Role::User => "User",
            Role::Assistant => "Assistant",
            Role::Tool => return None,
        };
        let text = plain_text(&message.content);
        (!text.trim().is_empty()).then(|| format!("{who}: {text}"))
    });
    let text = lines.collect::<Vec<_>>().join("\n\n");
    end_of(&text, chars).to_owned()
}
