//! Agents of this program.

use mainspring_client::Tool;
use mainspring_client::types::{AgentSpec, NewAgentBody, ToolEntry, WorkerTool};

/// An agent, with closures as its tools. It is published under its name when the program opens its database: a version that is
/// the same as the newest one is not made again.
#[derive(Debug, Clone)]
pub struct Agent {
    name: String,
    spec: AgentSpec,
    pub(crate) tools: Vec<Tool>,
}

impl Agent {
    /// An agent with nothing but a name.
    pub fn new(name: impl Into<String>) -> Self {
        Self::of(name, AgentSpec::default())
    }

    /// An agent with everything that the API lets one have.
    pub fn of(name: impl Into<String>, spec: AgentSpec) -> Self {
        Self {
            name: name.into(),
            spec,
            tools: Vec::new(),
        }
    }

    /// Its system prompt.
    #[must_use]
    pub fn prompt(mut self, prompt: impl Into<String>) -> Self {
        self.spec.system_prompt = Some(prompt.into());
        self
    }

    /// Its model, `MODEL` or `PROVIDER/MODEL`; that of the default provider if not set.
    #[must_use]
    pub fn model(mut self, model: impl Into<String>) -> Self {
        self.spec.model = Some(model.into());
        self
    }

    /// A closure of this program that it may call.
    #[must_use]
    pub fn tool(mut self, tool: Tool) -> Self {
        self.tools.push(tool);
        self
    }

    /// A built-in tool or preset (`core`, `notes`, `spawn_agent`), or a [worker's tool](crate::Opening::worker_tool).
    #[must_use]
    pub fn built_in(mut self, name: impl Into<String>) -> Self {
        self.spec
            .tools
            .get_or_insert_default()
            .push(ToolEntry::Text(name.into()));
        self
    }

    /// What is published: its sends run in this pool, whose workers have its closures.
    pub(crate) fn body(&self, pool: &str, is_own: impl Fn(&str) -> bool) -> NewAgentBody {
        let mut spec = self.spec.clone();
        for entry in spec.tools.iter_mut().flatten() {
            // A name of the program's own says nothing of where its workers are.
            if let ToolEntry::Text(name) = entry
                && is_own(name)
            {
                let tool = WorkerTool {
                    name: std::mem::take(name),
                    pool: Some(pool.to_owned()),
                    ..WorkerTool::default()
                };
                *entry = mainspring_client::types::DeclaredTool::from(tool).into();
            }
        }
        let declared = self.tools.iter().map(|tool| {
            let declared = tool.declaration();
            let tool = WorkerTool {
                name: declared.name,
                approval: declared.approval,
                pool: Some(pool.to_owned()),
                ..WorkerTool::default()
            };
            mainspring_client::types::DeclaredTool::from(tool).into()
        });
        spec.tools.get_or_insert_default().extend(declared);
        NewAgentBody {
            name: self.name.clone(),
            spec,
            ..NewAgentBody::default()
        }
    }
}
