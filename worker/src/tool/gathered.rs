//! The offers of an agent while they are collected from its list.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::ToolSpec;
use super::isolation::Cell;
use super::offer::Offer;

/// Maximum characters of a name that every provider accepts.
const NAME_CHARS_MAX: usize = 64;

/// Hex digits by which a name that was cut is told apart from others.
const SUFFIX_DIGITS: usize = 8;

/// Offers being collected. Of two tools with one name, that of an MCP server, whose names nobody
/// here has chosen, is offered under a name that begins with the server's. Other tools with one name
/// are the same tool, in two presets for instance, and the first one stays.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    /// Each name with the place of its entry in the agent's list.
    pub(super) names: BTreeMap<String, usize>,
    pub(super) list: Vec<Offer>,
    /// Names that this worker lacks.
    pub(super) missing: Vec<String>,
    /// Sources that are unavailable; logged where that is noticed.
    pub(super) away: Vec<String>,
    /// The place of the entry whose offers are being added.
    pub(super) place: usize,
    /// The MCP server whose tools are being added.
    pub(super) server: Option<String>,
    /// Where tools that reach beyond the database are made; in this process if absent.
    pub(super) cell: Option<Arc<dyn Cell>>,
    /// The servers of the tools that are from one, by the names that they are offered under.
    pub(super) servers: BTreeMap<String, String>,
}

impl Gathered {
    /// Adds an offer, unless its schema is invalid.
    pub(super) fn add_valid(&mut self, name: &str, offer: Result<Offer, String>) {
        match offer {
            Ok(offer) => self.add(offer),
            Err(detail) => tracing::warn!(
                tool.name = name,
                mcp.server = self.server,
                detail,
                "leaving out a tool: its schema is invalid"
            ),
        }
    }

    pub(super) fn add(&mut self, offer: Offer) {
        let name = offer.spec.name.clone();
        if !self.names.contains_key(&name) {
            self.put(offer, self.place, self.server.clone());
            return;
        }
        match (self.server.clone(), self.servers.get(&name).cloned()) {
            (Some(new), Some(old)) if new == old => {}
            (Some(new), _) => self.put_aside(offer, self.place, new),
            (None, Some(old)) => {
                let at = self.list.iter().position(|offer| offer.spec.name == name);
                let place = self.names.remove(&name).unwrap_or(self.place);
                self.servers.remove(&name);
                if let Some(at) = at {
                    let moved = std::mem::replace(&mut self.list[at], offer);
                    self.names.insert(name, self.place);
                    self.put_aside(moved, place, old);
                }
            }
            (None, None) => {}
        }
    }

    /// Adds a tool of a server under a name that begins with the server's.
    fn put_aside(&mut self, mut offer: Offer, place: usize, server: String) {
        let name = prefixed(&server, &offer.spec.name);
        let is_known = self.names.contains_key(&name);
        tracing::warn!(
            mcp.server = server,
            tool.name = offer.spec.name,
            tool.offered_as = name,
            is_left_out = is_known,
            "two tools of an agent have one name; give the MCP server's a prefix"
        );
        if is_known {
            return;
        }
        offer.spec = Arc::new(ToolSpec {
            name,
            ..offer.spec.as_ref().clone()
        });
        self.put(offer, place, Some(server));
    }

    fn put(&mut self, offer: Offer, place: usize, server: Option<String>) {
        let name = offer.spec.name.clone();
        if let Entry::Vacant(vacant) = self.names.entry(name.clone()) {
            vacant.insert(place);
            if let Some(server) = server {
                self.servers.insert(name, server);
            }
            self.list.push(offer);
        }
    }
}

/// The name of a server's tool that says whose it is: the same in every worker and whatever else the
/// agent has.
fn prefixed(server: &str, name: &str) -> String {
    let clean = |c: char| {
        let fits = c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        if fits { c } else { '_' }
    };
    let whole: String = format!("{server}_{name}").chars().map(clean).collect();
    if whole.len() <= NAME_CHARS_MAX {
        return whole;
    }
    let digest = format!("{:x}", Sha256::digest(format!("{server}\n{name}")));
    let kept = &whole[..NAME_CHARS_MAX - SUFFIX_DIGITS - 1];
    format!("{kept}_{}", &digest[..SUFFIX_DIGITS])
}

#[cfg(test)]
mod tests {
    use mainspring_shared::send::WaitingOn;
    use mainspring_shared::tool::Repeat;
    use mainspring_shared::tool::schema::{Schema, any_object};

    use super::*;
    use crate::tool::{Executor, Traits};

    fn offer(name: &str, words: &str) -> Offer {
        Offer {
            spec: Arc::new(ToolSpec {
                name: name.to_owned(),
                description: words.to_owned(),
                parameters: any_object(),
            }),
            schema: Schema::compile(&any_object()).expect("a schema"),
            traits: Traits::new(Repeat::Safe),
            approval: false,
            place: Executor::Outside {
                on: WaitingOn::Tool,
                deadline: None,
            },
        }
    }

    /// What is offered, as name and words, of entries with their server, name and words.
    fn offered(entries: &[(Option<&str>, &str, &str)]) -> Vec<(String, String)> {
        let mut gathered = Gathered::default();
        for (place, (server, name, words)) in entries.iter().enumerate() {
            gathered.place = place;
            gathered.server = server.map(str::to_owned);
            gathered.add(offer(name, words));
        }
        assert_eq!(gathered.names.len(), gathered.list.len());
        let told = gathered.list.iter().map(|offer| {
            let place = gathered.names[&offer.spec.name];
            assert_eq!(entries[place].2, offer.spec.description, "its own place");
            (offer.spec.name.clone(), offer.spec.description.clone())
        });
        told.collect()
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        let owned = |(a, b): &(&str, &str)| ((*a).to_owned(), (*b).to_owned());
        pairs.iter().map(owned).collect()
    }

    #[test]
    fn two_servers_with_one_tool_name_are_both_offered() {
        let both = [(Some("plain"), "act", "a"), (Some("other"), "act", "b")];
        assert_eq!(offered(&both), pairs(&[("act", "a"), ("other_act", "b")]));
        let third = [both[0], both[1], (Some("x y"), "act", "c")];
        assert_eq!(offered(&third)[2], ("x_y_act".to_owned(), "c".to_owned()));
    }

    #[test]
    fn a_tool_that_the_agent_names_keeps_its_name_wherever_it_stands() {
        let ours = (None, "read_file", "ours");
        let theirs = (Some("files"), "read_file", "theirs");
        let expected = pairs(&[("read_file", "ours"), ("files_read_file", "theirs")]);
        assert_eq!(offered(&[ours, theirs]), expected);
        assert_eq!(offered(&[theirs, ours]), expected);
    }

    #[test]
    fn a_tool_that_is_listed_twice_is_offered_once() {
        let once = pairs(&[("act", "a")]);
        assert_eq!(offered(&[(None, "act", "a"), (None, "act", "b")]), once);
        let twice = [(Some("s"), "act", "a"), (Some("s"), "act", "b")];
        assert_eq!(offered(&twice), once);
    }

    #[test]
    fn long_names_are_cut_and_told_apart() {
        let one = prefixed("server", &format!("{}1", "x".repeat(63)));
        let two = prefixed("server", &format!("{}2", "x".repeat(63)));
        assert!(
            one.len() == 64 && two.len() == 64 && one != two,
            "{one} {two}"
        );
    }
}
