//! Decides what to do with the facts that a model found: which are new, and which change known
//! entries.

use std::collections::BTreeSet;

use mainspring_shared::agent::memory::BUILTIN;
use mainspring_shared::blob::BlobHash;
use mainspring_shared::memory::rank::likeness;
use mainspring_shared::memory::words::words;
use mainspring_shared::memory::{MemoryError, MemorySource, Recalled, Remember, TEXT_CHARS_MAX};
use mainspring_shared::store::{ChangeMemory, Extraction, NewMemory};
use serde::Deserialize;
use serde_json::Map;

use crate::memory::{Memories, entry_id};
use crate::send::values_in;

/// Maximum number of facts from one send; a model that finds more makes them up.
const FACTS_MAX: usize = 20;

/// Two texts that share this fraction of their words count as the same.
const LIKENESS_MIN: f64 = 0.8;

/// A fact as returned by the model.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct Fact {
    text: String,
    #[serde(default)]
    replaces: Option<usize>,
}

#[derive(Debug, Deserialize)]
struct Answer {
    memories: Vec<Fact>,
}

/// The entries to store.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Found {
    pub(super) saved: Vec<NewMemory>,
    pub(super) changed: Vec<ChangeMemory>,
}

/// The facts of an answer, which may contain other text; `None` if it has no JSON of this form.
pub(super) fn facts(answer: &str) -> Option<Vec<Fact>> {
    let values = values_in(answer).values.into_iter();
    let answer = values
        .map(serde_json::from_value::<Answer>)
        .find_map(Result::ok)?;
    let facts = answer.memories.into_iter().take(FACTS_MAX);
    Some(facts.filter(|fact| !fact.text.trim().is_empty()).collect())
}

/// Decides about each fact. A duplicate of a known entry is dropped; an update of a known entry
/// changes it; nothing is deleted.
pub(super) async fn decide(
    memories: &Memories,
    owed: &Extraction,
    facts: Vec<Fact>,
    known: &[Recalled],
    source: MemorySource,
) -> Result<Found, MemoryError> {
    let mut seen: Vec<BTreeSet<String>> = known.iter().map(|entry| words(&entry.text)).collect();
    let mut found = Found::default();
    for fact in facts {
        let text: String = fact.text.trim().chars().take(TEXT_CHARS_MAX).collect();
        let own = words(&text);
        let replaced = fact.replaces.and_then(|n| n.checked_sub(1));
        let same = |other: &BTreeSet<String>| likeness(&own, other) >= LIKENESS_MIN;
        let exactly = seen.contains(&own);
        let like = seen
            .iter()
            .position(same)
            .filter(|place| *place < known.len());
        let replaced = replaced.filter(|place| *place < known.len()).or(like);
        if exactly || (replaced.is_none() && seen.iter().any(same)) {
            continue;
        }
        seen.push(own);
        // The key depends on the text, because another attempt may find fewer facts, or in another
        // order.
        let said = BlobHash::of(text.as_bytes());
        let key = format!("extract {} {said}", owed.send_id);
        let replaced = replaced.map(|place| known[place].id.clone());
        if owed.spec.provider != BUILTIN {
            let entry = Remember {
                tenant: owed.key.tenant,
                namespace: owed.spec.namespace.clone(),
                text,
                metadata: Map::new(),
                source: Some(source),
                replaces: replaced,
                key,
            };
            memories.get(&owed.spec.provider)?.remember(entry).await?;
            continue;
        }
        if let Some(id) = replaced.and_then(|id| id.parse().ok()) {
            found.changed.push(ChangeMemory {
                tenant: owed.key.tenant,
                id,
                text: Some(text),
                metadata: None,
                expires_at: None,
                source: Some(source),
            });
        } else {
            found.saved.push(NewMemory {
                id: entry_id(&key, Some(owed.send_id)),
                namespace: owed.spec.namespace.clone(),
                text,
                metadata: Map::new(),
                source: Some(source),
                expires_at: None,
            });
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_found_between_other_words() {
        let answer = "Here you are:\n```json\n{\"memories\": [{\"text\": \"likes tea\"}, \
                      {\"text\": \" \"}, {\"text\": \"is 42\", \"replaces\": 1}]}\n```";
        let facts = facts(answer).expect("it holds JSON");
        let texts: Vec<&str> = facts.iter().map(|fact| fact.text.as_str()).collect();
        assert_eq!(texts, ["likes tea", "is 42"]);
        assert_eq!(facts[1].replaces, Some(1));
        let behind = "I left out {name}. {\"memories\": []}";
        assert_eq!(super::facts(behind), Some(Vec::new()));
        assert_eq!(super::facts("nothing"), None);
        assert_eq!(super::facts("{\"other\": 1}"), None);
    }
}
