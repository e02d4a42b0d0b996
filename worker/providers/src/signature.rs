//! Signatures that providers attach to reasoning so that it can be sent back, and whose they are: a
//! session may change its provider, and each refuses what another one signed.

use mainspring_worker::llm::json;

/// Prefix for the data of a redacted Messages block, which has no text. Messages signatures contain
/// no colon.
const REDACTED: &str = "redacted:";

/// Prefix for a Responses item, followed by its id, the model and its encrypted content, separated
/// by spaces.
const RESPONSES: &str = "responses:";

/// The signature of a reasoning part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signature<'a> {
    /// Of a Messages block.
    Thinking(&'a str),
    /// The data of a redacted Messages block.
    Redacted(&'a str),
    /// Of a Responses item.
    Item {
        id: &'a str,
        /// The model that was asked; others may be unable to read it.
        model: &'a str,
        encrypted: &'a str,
    },
}

impl<'a> Signature<'a> {
    /// Parses a stored signature.
    pub(super) fn read(stored: &'a str) -> Self {
        if let Some(data) = stored.strip_prefix(REDACTED) {
            return Self::Redacted(data);
        }
        let Some(item) = stored.strip_prefix(RESPONSES) else {
            return Self::Thinking(stored);
        };
        let (id, item) = item.split_once(' ').unwrap_or(("", item));
        let (model, encrypted) = item.split_once(' ').unwrap_or(("", item));
        Self::Item {
            id,
            model,
            encrypted,
        }
    }

    /// The form in which it is stored.
    pub(super) fn store(self) -> String {
        match self {
            Self::Thinking(signature) => json::clean(signature).into_owned(),
            Self::Redacted(data) => format!("{REDACTED}{}", json::clean(data)),
            Self::Item {
                id,
                model,
                encrypted,
            } => {
                let word = |text: &str| json::clean(text).replace(' ', "_");
                let encrypted = json::clean(encrypted);
                format!("{RESPONSES}{} {} {encrypted}", word(id), word(model))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_is_read_back_as_the_same_providers() {
        let item = Signature::Item {
            id: "rs_1",
            model: "ft:m",
            encrypted: "gAAA: x=",
        };
        for signature in [
            Signature::Thinking("c2ln"),
            Signature::Redacted("c2Vh"),
            item,
        ] {
            assert_eq!(Signature::read(&signature.store()), signature);
        }
    }
}
