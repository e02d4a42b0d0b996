//! Bindings: the part of its tenant to which an API key is restricted.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::agent::{AgentName, AgentSpec};
use crate::id::SessionId;
use crate::memory::Namespace;
use crate::session::SessionRecord;
use crate::stored::Extra;

/// Maximum number of agents that a key may be bound to.
pub const AGENTS_MAX: usize = 100;

/// Maximum number of metadata pairs that a key may be bound to.
pub const PAIRS_MAX: usize = 20;

/// Maximum number of sessions that a key may be bound to.
pub const SESSIONS_MAX: usize = 100;

/// What a key is bound to. Anything outside does not exist for the key, and cannot be created with it. An absent member
/// does not restrict the key.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Binding {
    /// Published agents: sessions have one of these, and no others can be named.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(value_type = Vec<String>, required = false)]
    pub agents: BTreeSet<AgentName>,
    /// Metadata that sessions must have, each member with exactly this text. Sessions that the key creates get it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(required = false)]
    pub metadata: BTreeMap<String, String>,
    /// Sessions: no others exist, none can be created, and no agent can be named for them. Memories are out of reach unless
    /// there is a namespace.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(value_type = Vec<String>, required = false)]
    pub sessions: BTreeSet<SessionId>,
    /// The memory namespace, with all below it; sessions whose agents use another namespace are outside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub namespace: Option<Namespace>,
    /// Fields that this release does not know. Nothing is inside a binding that it cannot evaluate,
    /// so all requests are refused.
    #[serde(flatten, skip_serializing_if = "Extra::is_empty")]
    #[schema(ignore)]
    pub extra: Extra,
}

/// Why something is outside a binding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outside {
    /// The agent is not one of those listed, or is defined inline instead of named.
    Agent,
    /// A member of the metadata has another value.
    Metadata {
        /// The member's name.
        name: String,
    },
    /// The agent's memory namespace is another one.
    Namespace,
    /// The session is not one of those listed.
    Session,
    /// A newer release bound the key to something that this one cannot evaluate.
    Unknown,
}

impl fmt::Display for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agent => {
                f.write_str("the agent must be one of the published agents of its binding")
            }
            Self::Metadata { name } => {
                write!(
                    f,
                    "the member {name:?} of the metadata must have the value of its binding"
                )
            }
            Self::Namespace => {
                f.write_str("the agent's memory must be in the namespace of its binding")
            }
            Self::Session => f.write_str("the session must be one of those of its binding"),
            Self::Unknown => f.write_str(
                "its binding was created by a newer release, which this one cannot \
                             check",
            ),
        }
    }
}

impl Binding {
    /// Whether it restricts nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether a published agent is inside.
    pub fn has_agent(&self, name: &AgentName) -> bool {
        !self.names_agents() || self.agents.contains(name)
    }

    /// Whether only named agents may be used: a key that could define its own agents would not be
    /// bound to any.
    pub fn names_agents(&self) -> bool {
        !self.agents.is_empty() || !self.sessions.is_empty()
    }

    /// Adds the required metadata to that of a new session. Fails if it has other values.
    pub fn fill(&self, metadata: &mut Map<String, Value>) -> Result<(), Outside> {
        for (name, text) in &self.metadata {
            let value = metadata
                .entry(name.clone())
                .or_insert_with(|| Value::String(text.clone()));
            if value.as_str() != Some(text) {
                return Err(Outside::Metadata { name: name.clone() });
            }
        }
        Ok(())
    }

    /// Checks that a session with this agent and metadata is inside.
    pub fn judge(
        &self,
        agent: &AgentSpec,
        metadata: &Map<String, Value>,
        session: SessionId,
    ) -> Result<(), Outside> {
        if !self.extra.is_empty() {
            return Err(Outside::Unknown);
        }
        if !self.sessions.is_empty() && !self.sessions.contains(&session) {
            return Err(Outside::Session);
        }
        if !self.agents.is_empty()
            && !agent
                .reference()
                .is_some_and(|agent| self.agents.contains(&agent.name))
        {
            return Err(Outside::Agent);
        }
        for (name, text) in &self.metadata {
            let value = metadata.get(name).and_then(Value::as_str);
            if value != Some(text) {
                return Err(Outside::Metadata { name: name.clone() });
            }
        }
        self.judge_memory(agent, metadata, session).map(drop)
    }

    /// Whether a session is inside.
    pub fn holds(&self, session: &SessionRecord) -> bool {
        let judged = self.judge(&session.agent, &session.metadata, session.key.session);
        judged.is_ok()
    }

    /// Checks only the memory. Returns the checked namespace, if there is one and the binding has one.
    pub fn judge_memory(
        &self,
        agent: &AgentSpec,
        metadata: &Map<String, Value>,
        session: SessionId,
    ) -> Result<Option<Namespace>, Outside> {
        let (Some(within), Some(memory)) = (&self.namespace, &agent.memory) else {
            return Ok(None);
        };
        // An agent whose namespace cannot be rendered has no memory yet, but its metadata may change.
        match Namespace::render(&memory.namespace, metadata, session) {
            Ok(namespace) if within.covers(&namespace) => Ok(Some(namespace)),
            Ok(_) | Err(_) => Err(Outside::Namespace),
        }
    }

    /// Whether a memory entry in this namespace is inside.
    pub fn covers(&self, namespace: &Namespace) -> bool {
        match &self.namespace {
            Some(within) => within.covers(namespace),
            None => self.sessions.is_empty(),
        }
    }

    /// The part of a namespace that is inside: all of it, the key's namespace, or nothing.
    pub fn narrow(&self, asked: Option<Namespace>) -> Option<Narrowed> {
        let Some(within) = &self.namespace else {
            return self.sessions.is_empty().then_some(Narrowed(asked));
        };
        match asked {
            Some(asked) if within.covers(&asked) => Some(Narrowed(Some(asked))),
            Some(asked) if !asked.covers(within) => None,
            Some(_) | None => Some(Narrowed(Some(within.clone()))),
        }
    }

    /// A short text that differs between different bindings.
    pub fn fingerprint(&self) -> String {
        // This cannot fail: there are only sorted sets and maps of texts.
        let json = serde_json::to_vec(self).unwrap_or_default();
        let digest: [u8; 32] = Sha256::digest(json).into();
        let half: [u8; 16] = std::array::from_fn(|n| digest[n]);
        uuid::Uuid::from_bytes(half).simple().to_string()
    }
}

/// A namespace inside a binding; all namespaces if `None`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Narrowed(Option<Namespace>);

impl Narrowed {
    /// The namespace.
    pub fn into_inner(self) -> Option<Namespace> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::agent::prompt::bind;
    use crate::agent::{AgentRef, MemorySpec};

    fn session() -> SessionId {
        SessionId(uuid::Uuid::from_u128(1))
    }

    fn binding(json: &Value) -> Binding {
        crate::stored::read(&json.to_string()).expect("a binding")
    }

    fn object(value: &Value) -> Map<String, Value> {
        value.as_object().expect("an object").clone()
    }

    fn published(name: &str, memory: Option<&str>) -> AgentSpec {
        let reference = AgentRef {
            name: name.parse().expect("a name"),
            version: 1,
        };
        let spec = AgentSpec {
            memory: memory.map(MemorySpec::new),
            ..AgentSpec::default()
        };
        bind(spec, Some(reference), Map::new(), &Map::new()).expect("binds")
    }

    #[test]
    fn a_session_is_inside_if_everything_about_it_is() {
        let binding = binding(&json!({
            "agents": ["support"], "metadata": {"user": "7"}, "namespace": "user/7"
        }));
        let inside = object(&json!({"user": "7", "more": 1}));
        let template = Some("user/{{metadata.user}}");
        let judge = |agent: &AgentSpec, metadata: &Map<String, Value>| {
            binding.judge(agent, metadata, session())
        };
        assert_eq!(judge(&published("support", None), &inside), Ok(()));
        assert_eq!(judge(&published("support", template), &inside), Ok(()));
        assert_eq!(
            judge(&published("other", None), &inside),
            Err(Outside::Agent)
        );
        // The name of an agent defined inline does not count.
        let own = AgentSpec {
            name: Some("support".to_owned()),
            ..AgentSpec::default()
        };
        assert_eq!(judge(&own, &inside), Err(Outside::Agent));
        let user = || Outside::Metadata {
            name: "user".to_owned(),
        };
        for other in [json!({}), json!({"user": 7}), json!({"user": "8"})] {
            let judged = judge(&published("support", None), &object(&other));
            assert_eq!(judged, Err(user()));
        }
        for elsewhere in [
            "user/77",
            "user",
            "all",
            "{{session_id}}",
            "user/{{metadata.none}}",
        ] {
            let judged = judge(&published("support", Some(elsewhere)), &inside);
            assert_eq!(judged, Err(Outside::Namespace), "{elsewhere}");
        }
    }

    #[test]
    fn a_binding_to_sessions_holds_them_and_nothing_else() {
        let bound = binding(&json!({"sessions": [session()]}));
        let support = published("support", Some("user/7"));
        assert_eq!(bound.judge(&support, &Map::new(), session()), Ok(()));
        let other = SessionId(uuid::Uuid::from_u128(2));
        let judged = bound.judge(&support, &Map::new(), other);
        assert_eq!(judged, Err(Outside::Session));
        assert!(!bound.has_agent(&"support".parse().expect("a name")));
        assert!(!bound.covers(&"user/7".parse().expect("a namespace")));
        assert_eq!(bound.narrow(None), None);
        let within = binding(&json!({"sessions": [session()], "namespace": "user/7"}));
        assert!(within.covers(&"user/7/x".parse().expect("a namespace")));
    }

    #[test]
    fn what_is_missing_is_filled_in_and_what_contradicts_is_refused() {
        let binding = binding(&json!({"metadata": {"user": "7"}}));
        let mut metadata = object(&json!({"a": 1}));
        assert_eq!(binding.fill(&mut metadata), Ok(()));
        assert_eq!(metadata, object(&json!({"a": 1, "user": "7"})));
        assert_eq!(binding.fill(&mut metadata), Ok(()));
        for other in [
            json!({"user": null}),
            json!({"user": 7}),
            json!({"user": "8"}),
        ] {
            assert!(binding.fill(&mut object(&other)).is_err());
        }
    }

    #[test]
    fn a_namespace_is_narrowed_to_what_lies_inside() {
        let path = |text: &str| text.parse::<Namespace>().expect("a namespace");
        let binding = binding(&json!({"namespace": "user/7"}));
        let narrow = |asked: Option<&str>| binding.narrow(asked.map(path)).map(|it| it.0);
        let own = Some(Some(path("user/7")));
        assert_eq!(narrow(None), own);
        assert_eq!(narrow(Some("user")), own);
        assert_eq!(narrow(Some("user/7")), own);
        assert_eq!(narrow(Some("user/7/x")), Some(Some(path("user/7/x"))));
        assert_eq!(narrow(Some("user/77")), None);
        assert_eq!(Binding::default().narrow(None), Some(Narrowed(None)));
    }

    #[test]
    fn what_only_a_newer_release_knows_holds_nothing() {
        let binding = binding(&json!({"region": "eu"}));
        assert!(!binding.is_empty());
        let judged = binding.judge(&published("a", None), &Map::new(), session());
        assert_eq!(judged, Err(Outside::Unknown));
    }

    #[test]
    fn fingerprints_tell_bindings_apart() {
        let one = binding(&json!({"metadata": {"a": "1", "b": "2"}}));
        let same = binding(&json!({"metadata": {"b": "2", "a": "1"}}));
        let other = binding(&json!({"metadata": {"a": "1", "b": "3"}}));
        assert_eq!(one.fingerprint(), same.fingerprint());
        assert_ne!(one.fingerprint(), other.fingerprint());
    }
}
