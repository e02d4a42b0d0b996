//! Ids of calls as an endpoint takes them: its own ones byte for byte, and others made to fit its form.

use std::borrow::Cow;
use std::collections::BTreeSet;

use mainspring_shared::message::{CallAttached, Origin, ToolCall};
use sha2::{Digest as _, Sha256};

use super::wire_name;
use crate::rules::{AttachedBack, CallIds, Rules};

/// The length of an endpoint's own id at most; a longer one is made to fit like any other.
const OWN_ID_BYTES_MAX: usize = 512;

/// Letters and digits, for ids of calls.
const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// How many of them end an id that had to be changed.
const HASH_CHARS: usize = 10;

/// Whom a request is for, and what goes back there.
#[derive(Debug, Clone, Copy)]
struct Asked<'a> {
    protocol: &'a str,
    host: &'a str,
    model: &'a str,
    back: AttachedBack,
}

impl Asked<'_> {
    fn gave(&self, origin: &Origin) -> bool {
        let here = origin.protocol == self.protocol && origin.host == self.host;
        match self.back {
            AttachedBack::Host => here,
            AttachedBack::HostAndModel => here && origin.model == self.model,
            AttachedBack::Nothing => false,
        }
    }
}

/// The receiver of a request: tells its own attachments from those of others, and gives the calls of the conversation
/// their ids, turn by turn and in order. The same beginning of a conversation always gets the same ids.
#[derive(Debug)]
pub(crate) struct Receiver<'a> {
    asked: Asked<'a>,
    form: CallIds,
    chars_max: usize,
    /// Ids of this request.
    used: BTreeSet<String>,
    calls: usize,
}

impl<'a> Receiver<'a> {
    /// The receiver at this host, by this protocol.
    pub(crate) fn new(rules: &Rules, protocol: &'a str, host: &'a str, model: &'a str) -> Self {
        Self {
            asked: Asked {
                protocol,
                host,
                model,
                back: rules.attached_back,
            },
            form: rules.call_ids,
            chars_max: rules.call_ids_max.max(HASH_CHARS),
            used: BTreeSet::new(),
            calls: 0,
        }
    }

    /// Whether what has this origin goes back to it.
    pub(crate) fn gave(&self, origin: &Origin) -> bool {
        self.asked.gave(origin)
    }

    /// What it attached itself to a call.
    pub(crate) fn attached<'c>(&self, call: &'c ToolCall) -> Option<&'c CallAttached> {
        let attached = call.attached.as_deref();
        attached.filter(|attached| self.gave(&attached.origin))
    }

    /// The ids of the calls of the next turn, in the order of the calls.
    pub(crate) fn ids<'c>(&mut self, calls: &'c [ToolCall]) -> Vec<Cow<'c, str>> {
        calls.iter().map(|call| self.id(call)).collect()
    }

    fn id<'c>(&mut self, call: &'c ToolCall) -> Cow<'c, str> {
        let own = self.attached(call).and_then(|it| it.id.as_deref());
        let own = own.filter(|id| !id.is_empty() && id.len() <= OWN_ID_BYTES_MAX);
        let number = self.calls;
        self.calls += 1;
        let mut id = match own {
            Some(own) => Cow::Borrowed(own),
            None => self.fitted(call, number, 0),
        };
        let mut again = 1;
        while !self.used.insert(id.clone().into_owned()) {
            id = self.fitted(call, number, again);
            again += 1;
        }
        id
    }

    /// An id in the endpoint's form; `again` tells apart those of one call.
    fn fitted<'c>(&self, call: &'c ToolCall, number: usize, again: usize) -> Cow<'c, str> {
        let alphanumeric = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric());
        match self.form {
            CallIds::Nine if again == 0 && call.id.len() == 9 && alphanumeric(&call.id) => {
                Cow::Borrowed(&call.id)
            }
            CallIds::Nine => Cow::Owned(hash(&call.id, again, 9)),
            CallIds::Functions => {
                let name = wire_name(&call.name);
                Cow::Owned(format!("functions.{name}:{}", number + again))
            }
            CallIds::Any => {
                let fitted = wire_name(&call.id);
                let is_same = matches!(fitted, Cow::Borrowed(_)) && !call.id.is_empty();
                if again == 0 && is_same && fitted.len() <= self.chars_max {
                    return fitted;
                }
                let mut id: String = fitted
                    .chars()
                    .take(self.chars_max.saturating_sub(HASH_CHARS + 1))
                    .collect();
                if !id.is_empty() {
                    id.push('_');
                }
                // Empty ids only differ by their places.
                let salt = if call.id.is_empty() { number } else { 0 };
                id.push_str(&hash(&call.id, again + salt, HASH_CHARS));
                Cow::Owned(id)
            }
        }
    }
}

/// Letters and digits that stand for an id.
fn hash(id: &str, again: usize, chars: usize) -> String {
    let mut hasher = Sha256::new();
    hasher.update(id.as_bytes());
    if again > 0 {
        hasher.update(again.to_be_bytes());
    }
    let bytes = hasher.finalize();
    let letter = |byte: &u8| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()]);
    bytes.iter().take(chars).map(letter).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const OWN: &str = "call_0123456789abcdef0123456789abcdef_12_3";

    fn call(id: &str, own: Option<(&str, &str)>) -> ToolCall {
        let mut call = ToolCall::new(id, "read", json!({}));
        call.attached = own.map(|(host, id)| {
            let origin = Origin {
                protocol: "openai".to_owned(),
                host: host.to_owned(),
                model: "m".to_owned(),
                member: None,
            };
            Box::new(CallAttached {
                origin,
                id: Some(id.to_owned()),
                json: None,
            })
        });
        call
    }

    fn ids(form: CallIds, chars_max: usize, calls: &[ToolCall]) -> Vec<String> {
        let rules = Rules {
            call_ids: form,
            call_ids_max: chars_max,
            ..Rules::default()
        };
        let mut receiver = Receiver::new(&rules, "openai", "here", "m");
        let ids = receiver.ids(calls);
        ids.into_iter().map(Cow::into_owned).collect()
    }

    #[test]
    fn an_endpoints_own_ids_go_back_byte_for_byte_and_those_of_others_do_not() {
        let calls = [
            call(OWN, Some(("here", "functions.read:0"))),
            call(OWN, Some(("there", "toolu_é"))),
        ];
        let ids = ids(CallIds::Any, 64, &calls);
        assert_eq!(ids, ["functions.read:0", OWN]);
    }

    #[test]
    fn ids_of_others_get_the_form_that_an_endpoint_demands() {
        let calls = [
            call(OWN, None),
            call("abcDEF123", None),
            call("call_0", None),
        ];
        let nine = ids(CallIds::Nine, 64, &calls);
        assert!(
            nine.iter()
                .all(|id| id.len() == 9 && id.bytes().all(|b| b.is_ascii_alphanumeric()))
        );
        assert_eq!(nine[1], "abcDEF123");
        assert_ne!(nine[0], nine[2]);
        let kimi = ids(CallIds::Functions, 64, &calls);
        assert_eq!(
            kimi,
            ["functions.read:0", "functions.read:1", "functions.read:2"]
        );
    }

    #[test]
    fn long_ids_are_shortened_without_becoming_equal() {
        let other = OWN.replace("_12_3", "_12_4");
        let far = "x".repeat(80);
        let calls = [
            call(OWN, None),
            call(&other, None),
            call(&format!("{far}1"), None),
            call(&format!("{far}2"), None),
            call("", None),
            call("", None),
        ];
        for chars_max in [40, 64] {
            let ids = ids(CallIds::Any, chars_max, &calls);
            assert!(ids.iter().all(|id| id.len() <= chars_max), "{ids:?}");
            assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), calls.len());
        }
    }

    #[test]
    fn an_id_that_an_endpoint_repeats_is_told_apart() {
        let calls = [
            call("call_a", Some(("here", "call_0"))),
            call("call_b", Some(("here", "call_0"))),
        ];
        let given = ids(CallIds::Any, 64, &calls);
        assert_eq!(given[0], "call_0");
        assert!(given[1].starts_with("call_b_"), "{given:?}");
        let again = ids(CallIds::Any, 64, &calls);
        assert_eq!(given, again);
    }
}
