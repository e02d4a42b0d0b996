//! The worker settings that a cell receives: those that its agent's tools need, and no others.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mainspring_shared::agent::{AgentSpec, FoldStrategy};
use mainspring_shared::id::TenantId;
use mainspring_shared::time::Clock;
use mainspring_shared::tool::secret::Held;
use mainspring_shared::tool::{DeclaredTool, ToolEntry};
use serde::{Deserialize, Serialize};

use crate::http::{Caller, CallerSettings, Keys, Vault, keys_of_tools};
use crate::mcp::{HeaderSources, OAuthSettings, Pool, ServerSettings, Transport};
use crate::web::WebSettings;
use mainspring_worker::llm::Secret;

/// How HTTP tools and MCP servers are reached.
#[derive(Debug, Clone, Default)]
pub struct Outside {
    /// How HTTP tools are called.
    pub caller: CallerSettings,
    /// The MCP servers by name.
    pub servers: BTreeMap<String, ServerSettings>,
}

/// What the child of an isolated agent is started with besides its directory.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WireCell {
    /// Memory limit in bytes of each of its processes.
    pub(crate) memory: u64,
    /// How HTTP tools are called, if the agent has any.
    http: Option<WireCaller>,
    /// The MCP servers that the agent names.
    servers: BTreeMap<String, WireServer>,
    /// How pages of the web are read, if the agent reads any.
    pub(crate) web: Option<WebSettings>,
}

/// A value that `Debug` does not show.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
struct Hidden(String);

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hidden(…)")
    }
}

impl From<&Secret> for Hidden {
    fn from(secret: &Secret) -> Self {
        Self(secret.expose().to_owned())
    }
}

impl From<&Hidden> for Secret {
    fn from(hidden: &Hidden) -> Self {
        Self::new(&hidden.0)
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireCaller {
    /// The signing keys of the agent's own recipients, for its own tenant. The secrets that they
    /// are derived from stay in the worker.
    keys: BTreeMap<String, Vec<Hidden>>,
    /// The secrets that the agent's own tools name.
    #[serde(default)]
    secrets: BTreeMap<String, WireHeld>,
    allow_private: Vec<String>,
    timeout: Duration,
    answer_bytes_max: usize,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireHeld {
    value: Hidden,
    hosts: Vec<String>,
}

impl From<Held> for WireHeld {
    fn from(held: Held) -> Self {
        Self {
            value: Hidden(held.value),
            hosts: held.hosts,
        }
    }
}

impl From<WireHeld> for Held {
    fn from(wire: WireHeld) -> Self {
        Self {
            value: wire.value.0,
            hosts: wire.hosts,
        }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireServer {
    transport: WireTransport,
    timeout: Duration,
    timeout_max: Duration,
    start_timeout: Duration,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WireTransport {
    Stdio {
        command: String,
        args: Vec<String>,
        env: BTreeMap<String, Hidden>,
    },
    Http {
        url: String,
        headers: Vec<(String, Hidden)>,
        files: BTreeMap<String, PathBuf>,
        command: Vec<String>,
        oauth: Option<Box<WireOAuth>>,
    },
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireOAuth {
    client_id: String,
    client_secret: Option<Hidden>,
    refresh_token: Option<Hidden>,
    scopes: Vec<String>,
    token_url: Option<String>,
    issuer: Option<String>,
    allow_private: Vec<String>,
}

impl WireOAuth {
    fn of(settings: &OAuthSettings) -> Self {
        let hidden = |secret: &Option<Secret>| secret.as_ref().map(Hidden::from);
        Self {
            client_id: settings.client_id.clone(),
            client_secret: hidden(&settings.client_secret),
            refresh_token: hidden(&settings.refresh_token),
            scopes: settings.scopes.clone(),
            token_url: settings.token_url.clone(),
            issuer: settings.issuer.clone(),
            allow_private: settings.allow_private.clone(),
        }
    }

    fn settings(self) -> OAuthSettings {
        OAuthSettings {
            client_id: self.client_id,
            client_secret: self.client_secret.as_ref().map(Secret::from),
            refresh_token: self.refresh_token.as_ref().map(Secret::from),
            scopes: self.scopes,
            token_url: self.token_url,
            issuer: self.issuer,
            allow_private: self.allow_private,
        }
    }
}

impl WireCell {
    /// The settings that this agent needs, and the secrets that its tools name.
    pub(crate) fn of(
        outside: &Outside,
        agent: &AgentSpec,
        (tenant, secrets): (TenantId, BTreeMap<String, Held>),
        memory: u64,
    ) -> Self {
        let mut cell = Self {
            memory,
            http: WireCaller::of(&outside.caller, agent, (tenant, secrets)),
            servers: BTreeMap::new(),
            web: None,
        };
        for entry in &agent.tools {
            match entry {
                ToolEntry::Declared(DeclaredTool::Mcp(wanted)) => {
                    if let Some(server) = outside.servers.get(&wanted.server) {
                        let server = WireServer::of(server);
                        cell.servers.insert(wanted.server.clone(), server);
                    }
                }
                ToolEntry::Named(_)
                | ToolEntry::Declared(
                    DeclaredTool::Http(_) | DeclaredTool::External(_) | DeclaredTool::Worker(_),
                ) => {}
            }
        }
        cell
    }

    /// What makes the agent's calls: an HTTP caller, if there is one, and the MCP servers.
    pub(super) fn sources(self, clock: &Arc<dyn Clock>) -> Result<(Option<Caller>, Pool), String> {
        let caller = self.http.map(|http| {
            let (keys, settings) = http.settings();
            let caller = Caller::given(keys, &settings, clock.clone());
            caller.map_err(|error| error.to_string())
        });
        let servers = self.servers.into_iter();
        let servers = servers.map(|(name, server)| (name, server.settings()));
        let pool = Pool::new(servers.collect(), clock).map_err(|error| error.to_string())?;
        Ok((caller.transpose()?, pool))
    }
}

impl WireCaller {
    /// What calls this agent's HTTP tools and its fold service; `None` if it has neither.
    fn of(
        settings: &CallerSettings,
        agent: &AgentSpec,
        (tenant, secrets): (TenantId, BTreeMap<String, Held>),
    ) -> Option<Self> {
        let fold = &agent.context.fold;
        let folds = (fold.strategy == FoldStrategy::Http).then_some(fold.url.as_deref());
        let tools = agent.tools.iter().filter_map(|entry| match entry {
            ToolEntry::Declared(DeclaredTool::Http(tool)) => Some(tool.url.as_str()),
            ToolEntry::Named(_)
            | ToolEntry::Declared(
                DeclaredTool::Mcp(_) | DeclaredTool::External(_) | DeclaredTool::Worker(_),
            ) => None,
        });
        let urls: Vec<&str> = tools.chain(folds.flatten()).collect();
        let keys = keys_of_tools(settings, urls.iter().copied(), tenant).into_iter();
        let hidden = |keys: Keys| keys.reveal().into_iter().map(Hidden).collect();
        (!urls.is_empty()).then(|| Self {
            keys: keys
                .map(|(recipient, keys)| (recipient, hidden(keys)))
                .collect(),
            secrets: secrets
                .into_iter()
                .map(|(name, held)| (name, held.into()))
                .collect(),
            allow_private: settings.allow_private.clone(),
            timeout: settings.timeout,
            answer_bytes_max: settings.answer_bytes_max,
        })
    }

    fn settings(self) -> (BTreeMap<String, Keys>, CallerSettings) {
        let keys = self.keys.iter().map(|(recipient, keys)| {
            let keys = keys.iter().map(|key| key.0.as_str());
            (recipient.clone(), Keys::of_revealed(keys))
        });
        let secrets = self.secrets.into_iter();
        let secrets = secrets.map(|(name, held)| (name, held.into()));
        let settings = CallerSettings {
            vault: Vault::given(secrets.collect()),
            allow_private: self.allow_private,
            timeout: self.timeout,
            answer_bytes_max: self.answer_bytes_max,
            ..CallerSettings::default()
        };
        (keys.collect(), settings)
    }
}

impl WireServer {
    fn of(settings: &ServerSettings) -> Self {
        let transport = match &settings.transport {
            Transport::Stdio { command, args, env } => {
                let env = env.iter();
                let env = env.map(|(name, value)| (name.clone(), Hidden::from(value)));
                WireTransport::Stdio {
                    command: command.clone(),
                    args: args.clone(),
                    env: env.collect(),
                }
            }
            Transport::Http {
                url,
                headers,
                sources,
            } => {
                let headers = headers.iter();
                let headers = headers.map(|(name, value)| (name.clone(), Hidden::from(value)));
                WireTransport::Http {
                    url: url.clone(),
                    headers: headers.collect(),
                    files: sources.files.clone(),
                    command: sources.command.clone(),
                    oauth: sources.oauth.as_ref().map(WireOAuth::of).map(Box::new),
                }
            }
        };
        Self {
            transport,
            timeout: settings.timeout,
            timeout_max: settings.timeout_max,
            start_timeout: settings.start_timeout,
        }
    }

    fn settings(self) -> ServerSettings {
        let transport = match self.transport {
            WireTransport::Stdio { command, args, env } => {
                let env = env.iter();
                let env = env.map(|(name, value)| (name.clone(), Secret::from(value)));
                Transport::Stdio {
                    command,
                    args,
                    env: env.collect(),
                }
            }
            WireTransport::Http {
                url,
                headers,
                files,
                command,
                oauth,
            } => {
                let headers = headers.iter();
                let headers = headers.map(|(name, value)| (name.clone(), Secret::from(value)));
                let sources = HeaderSources {
                    files,
                    command,
                    oauth: oauth.map(|oauth| oauth.settings()),
                };
                Transport::Http {
                    url,
                    headers: headers.collect(),
                    sources: Box::new(sources),
                }
            }
        };
        ServerSettings {
            transport,
            timeout: self.timeout,
            timeout_max: self.timeout_max,
            start_timeout: self.start_timeout,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn outside() -> Outside {
        let server = |key: &str| {
            ServerSettings::new(Transport::Http {
                url: "https://mcp.example/".to_owned(),
                headers: vec![("authorization".to_owned(), Secret::new(key))],
                sources: Box::default(),
            })
        };
        Outside {
            caller: CallerSettings {
                signing_secrets: vec![Secret::new("the master")],
                ..CallerSettings::default()
            },
            servers: BTreeMap::from([
                ("mine".to_owned(), server("of-mine")),
                ("other".to_owned(), server("of-another")),
            ]),
        }
    }

    fn wire(agent: &serde_json::Value) -> String {
        let agent: AgentSpec = serde_json::from_value(agent.clone()).expect("an agent");
        let held = Held {
            value: "its-tools-own".to_owned(),
            hosts: Vec::new(),
        };
        let secrets = BTreeMap::from([("key".to_owned(), held)]);
        let cell = WireCell::of(&outside(), &agent, (TenantId(2), secrets), 1);
        let shown = format!("{cell:?}");
        for secret in [
            "the master",
            "whsec_",
            "of-mine",
            "of-another",
            "its-tools-own",
        ] {
            assert!(!shown.contains(secret), "{shown}");
        }
        let wire = serde_json::to_string(&cell).expect("is JSON");
        assert!(!wire.contains("the master"), "{wire}");
        wire
    }

    fn key(url: &str, tenant: TenantId) -> String {
        let settings = outside().caller;
        let keys = keys_of_tools(&settings, std::iter::once(url), tenant);
        let key = keys.into_values().flat_map(|keys| keys.reveal()).next();
        key.expect("a key")
    }

    #[test]
    fn a_cell_gets_what_its_agent_needs_and_nothing_else() {
        let none = wire(&json!({"tools": ["core"]}));
        assert!(!none.contains("whsec_") && !none.contains("of-"), "{none}");
        let http = json!({"type": "http", "name": "a", "url": "https://a.example/"});
        let http = wire(&json!({"tools": [http]}));
        let (own, other) = ("https://a.example/b", "https://b.example/");
        assert!(
            http.contains(&key(own, TenantId(2))) && !http.contains("of-"),
            "{http}"
        );
        assert!(http.contains("its-tools-own"), "{http}");
        for (at, tenant) in [(own, TenantId(1)), (other, TenantId(2))] {
            assert!(!http.contains(&key(at, tenant)), "{http}");
        }
        let mcp = wire(&json!({"tools": [{"type": "mcp", "server": "mine"}]}));
        assert!(
            mcp.contains("of-mine") && !mcp.contains("of-another"),
            "{mcp}"
        );
        assert!(!mcp.contains("whsec_"), "{mcp}");
    }
}
