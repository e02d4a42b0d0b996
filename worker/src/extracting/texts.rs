//! The texts that a model is shown about an ended send.

use mainspring_shared::memory::Recalled;
use mainspring_shared::message::{Message, Role, plain_text};

/// The known entries and the conversation, as the model's input.
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

/// The last `chars` characters of a text.
pub(super) fn end_of(text: &str, chars: usize) -> &str {
    let skipped = text.chars().count().saturating_sub(chars);
    let begin = text.char_indices().nth(skipped);
    begin.map_or("", |(at, _)| &text[at..])
}

/// The end of what people and the assistant said, without tool results.
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
