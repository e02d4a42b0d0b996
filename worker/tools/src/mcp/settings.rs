//! Settings for starting and talking to MCP servers.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use reqwest::Url;
use reqwest::header::{HeaderName, HeaderValue};

use super::credentials::HeaderSources;
use mainspring_shared::secrets::Secrets;
use mainspring_worker::llm::Secret;

/// One server.
#[derive(Debug, Clone)]
pub struct ServerSettings {
    /// The transport to the server.
    pub transport: Transport,
    /// How long one call may take, and how long it may take after each report of its progress.
    pub timeout: Duration,
    /// How long one call may take in total, whatever progress it reports.
    pub timeout_max: Duration,
    /// How long the server may take from its start to the list of its tools.
    pub start_timeout: Duration,
}

/// The transport to a server.
#[derive(Debug, Clone)]
pub enum Transport {
    /// A child process of the worker, over its standard input and output.
    Stdio {
        /// The program: a path, or a name looked up on the worker's `PATH`.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Its environment, besides the few variables that it inherits from the worker.
        env: BTreeMap<String, Secret>,
    },
    /// Streamable HTTP.
    Http {
        /// Its URL.
        url: String,
        /// Headers sent with every request. Their values are not shown.
        headers: Vec<(String, Secret)>,
        /// Where further headers come from.
        sources: Box<HeaderSources>,
    },
}

impl Transport {
    /// What the server is told and nobody else may see. The server may quote it.
    pub(super) fn secrets(&self) -> Secrets {
        let none = Secrets::default();
        match self {
            Self::Stdio { env, .. } => env.values().map(Secret::expose).fold(none, Secrets::and),
            Self::Http { url, headers, .. } => headers
                .iter()
                .map(|(_, value)| value.expose())
                .fold(none.and_of_url(url), Secrets::and),
        }
    }
}

impl ServerSettings {
    /// A server with this transport and the default timeouts.
    pub fn new(transport: Transport) -> Self {
        Self {
            transport,
            timeout: Duration::from_mins(1),
            timeout_max: Duration::from_mins(30),
            // Package runners download the program first.
            start_timeout: Duration::from_secs(30),
        }
    }

    pub(super) fn check(&self, name: &str) -> Result<(), SetupError> {
        let server = || name.to_owned();
        match &self.transport {
            Transport::Stdio { command, env, .. } => {
                if command.is_empty() {
                    return Err(SetupError::Command { server: server() });
                }
                let wrong = |name: &&String| name.is_empty() || name.contains(['=', '\0']);
                match env.keys().find(wrong) {
                    Some(variable) => Err(SetupError::Variable {
                        server: server(),
                        variable: variable.clone(),
                    }),
                    None => Ok(()),
                }
            }
            Transport::Http {
                url,
                headers,
                sources,
            } => {
                let files = sources.files.keys();
                if let Some(wrong) = files
                    .into_iter()
                    .find(|name| header(name, &plain()).is_none())
                {
                    return Err(SetupError::Header {
                        server: server(),
                        header: wrong.clone(),
                    });
                }
                address(url).ok_or_else(|| SetupError::Url { server: server() })?;
                for (name, value) in headers {
                    header(name, value).ok_or_else(|| SetupError::Header {
                        server: server(),
                        header: name.clone(),
                    })?;
                }
                Ok(())
            }
        }
    }
}

/// Settings that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SetupError {
    /// The command is empty.
    #[error("the MCP server {server} has an empty command")]
    Command {
        /// The server.
        server: String,
    },
    /// A variable name that no environment accepts.
    #[error("the MCP server {server} has no usable variable {variable:?}")]
    Variable {
        /// The server.
        server: String,
        /// The variable.
        variable: String,
    },
    /// The URL is not a valid HTTP or HTTPS URL.
    #[error("the url of the MCP server {server} is not one of http or https")]
    Url {
        /// The server.
        server: String,
    },
    /// A header that is not valid in HTTP.
    #[error("the MCP server {server} has an unusable header {header:?}")]
    Header {
        /// The server.
        server: String,
        /// The header.
        header: String,
    },
}

/// Parses the URL of a server.
pub(super) fn address(url: &str) -> Option<Url> {
    let url = Url::parse(url).ok()?;
    (matches!(url.scheme(), "http" | "https") && url.has_host()).then_some(url)
}

/// Whether a server is on this machine, so that no proxy is used.
pub(super) fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

fn plain() -> Secret {
    Secret::new("x")
}

/// Converts a header to HTTP types.
pub(super) fn header(name: &str, value: &Secret) -> Option<(HeaderName, HeaderValue)> {
    let name = HeaderName::try_from(name).ok()?;
    let mut value = HeaderValue::try_from(value.expose()).ok()?;
    value.set_sensitive(true);
    Some((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn http(url: &str, header: &str, value: &str) -> ServerSettings {
        ServerSettings::new(Transport::Http {
            url: url.to_owned(),
            headers: vec![(header.to_owned(), Secret::new(value))],
            sources: Box::default(),
        })
    }

    #[test]
    fn unusable_settings_are_named_without_their_secrets() {
        let good = http("https://mcp.example/mcp", "x-key", "hidden");
        assert_eq!(good.check("a"), Ok(()));
        assert!(!format!("{good:?}").contains("hidden"));
        let server = || "a".to_owned();
        for url in ["", "mcp.example", "ftp://mcp.example/"] {
            let error = http(url, "x-key", "hidden").check("a").expect_err(url);
            assert_eq!(error, SetupError::Url { server: server() });
        }
        for (name, value) in [("x key", "hidden"), ("x-key", "hid\nden")] {
            let error = http("https://mcp.example", name, value)
                .check("a")
                .expect_err(name);
            let header = name.to_owned();
            assert_eq!(
                error,
                SetupError::Header {
                    server: server(),
                    header
                }
            );
        }
        let stdio = |command: &str, variable: &str| {
            let env = BTreeMap::from([(variable.to_owned(), Secret::new("hidden"))]);
            let transport = Transport::Stdio {
                command: command.to_owned(),
                args: Vec::new(),
                env,
            };
            ServerSettings::new(transport).check("a")
        };
        assert_eq!(stdio("serve", "KEY"), Ok(()));
        assert_eq!(
            stdio("", "KEY"),
            Err(SetupError::Command { server: server() })
        );
        for variable in ["", "A=B"] {
            let error = stdio("serve", variable).expect_err("no variable");
            let variable = variable.to_owned();
            assert_eq!(
                error,
                SetupError::Variable {
                    server: server(),
                    variable
                }
            );
        }
    }
}
