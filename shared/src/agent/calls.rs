//! How a model is called, apart from what it is shown: what agents, sends and leaves may all set.

use serde::{Deserialize, Serialize};

use super::model_options::ModelOptions;
use super::{AgentSpec, SendOptions};

/// Whether a model must call tools: `auto`, `none`, `required`, or `{"name": TOOL}`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ToolChoice {
    /// It decides.
    #[default]
    Auto,
    /// It must not, in all rounds of a send.
    None,
    /// It must call at least one, in the first round of a send.
    Required,
    /// It must call the one with this name, in the first round of a send.
    #[serde(rename = "name")]
    Tool(String),
}

impl ToolChoice {
    /// Whether the model decides.
    pub fn is_auto(&self) -> bool {
        *self == Self::Auto
    }

    /// The choice in this round of a send, counted from 0. A model that had to call a tool in each
    /// round could never answer, so whoever forces a call forces it once.
    #[must_use]
    pub fn in_round(&self, round: u32) -> Self {
        match self {
            Self::Auto => Self::Auto,
            Self::None => Self::None,
            Self::Required | Self::Tool(_) if round > 0 => Self::Auto,
            Self::Required => Self::Required,
            Self::Tool(name) => Self::Tool(name.clone()),
        }
    }

    /// What is wrong with it if these are all tools on offer.
    pub fn fault<'t>(&self, mut offered: impl Iterator<Item = &'t str>) -> Option<String> {
        match self {
            Self::Auto | Self::None => None,
            Self::Required => offered
                .next()
                .is_none()
                .then(|| "a tool must be called, but none is offered".to_owned()),
            Self::Tool(name) => (!offered.any(|offered| offered == name))
                .then(|| format!("the tool {name:?} must be called, but is not offered")),
        }
    }
}

/// How much a model is to think before it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ReasoningEffort {
    /// Not at all, if the model supports that.
    None,
    /// As little as possible.
    Minimal,
    /// A little.
    Low,
    /// As the task needs.
    Medium,
    /// Much.
    High,
    /// Very much. Not every model supports it.
    XHigh,
    /// As much as possible. Not every model supports it.
    Max,
}

impl ReasoningEffort {
    /// All of them, from the least on.
    pub const ALL: [Self; 7] = [
        Self::None,
        Self::Minimal,
        Self::Low,
        Self::Medium,
        Self::High,
        Self::XHigh,
        Self::Max,
    ];

    /// The name in requests.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Minimal => "minimal",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::XHigh => "xhigh",
            Self::Max => "max",
        }
    }
}

/// How a model is called. What is absent is the provider's default, or that of whoever the settings
/// are laid over.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CallSettings {
    /// Maximum number of tokens of an answer.
    pub max_tokens: Option<u32>,
    /// The temperature.
    pub temperature: Option<f64>,
    /// The share of likely tokens to choose from.
    pub top_p: Option<f64>,
    /// How much to think.
    pub reasoning_effort: Option<ReasoningEffort>,
    /// Whether tools must be called.
    pub tool_choice: Option<ToolChoice>,
    /// Whether one answer may have several calls.
    pub parallel_tool_calls: Option<bool>,
    /// Further members of requests.
    pub model_options: Option<ModelOptions>,
}

/// The largest temperature that any provider accepts.
pub const TEMPERATURE_MAX: f64 = 2.0;

/// Maximum bytes of a tool's name in [`ToolChoice::Tool`].
const NAME_BYTES_MAX: usize = 200;

impl CallSettings {
    /// What is wrong with them: pointers to members, each with the reason. Limits on
    /// `max_tokens` differ, and are the caller's.
    pub fn faults(&self) -> Vec<(String, String)> {
        let mut faults = Vec::new();
        let mut refuse = |pointer: &str, detail: &str| {
            faults.push((pointer.to_owned(), detail.to_owned()));
        };
        let is_heat = |heat: f64| (0.0..=TEMPERATURE_MAX).contains(&heat);
        if self.temperature.is_some_and(|heat| !is_heat(heat)) {
            refuse("/temperature", "must be from 0 to 2");
        }
        if self.top_p.is_some_and(|p| !(0.0..=1.0).contains(&p)) {
            refuse("/top_p", "must be from 0 to 1");
        }
        if let Some(ToolChoice::Tool(name)) = &self.tool_choice
            && (name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains('\0'))
        {
            refuse("/tool_choice/name", "must be the name of a tool");
        }
        for fault in self.model_options.iter().flat_map(ModelOptions::faults) {
            refuse(&format!("/model_options{}", fault.pointer), &fault.detail);
        }
        faults
    }

    /// Lays them over an agent's.
    fn onto(self, agent: &mut AgentSpec) {
        let Self {
            max_tokens,
            temperature,
            top_p,
            reasoning_effort,
            tool_choice,
            parallel_tool_calls,
            model_options,
        } = self;
        agent.max_tokens = max_tokens.or(agent.max_tokens);
        agent.temperature = temperature.or(agent.temperature);
        agent.top_p = top_p.or(agent.top_p);
        agent.reasoning_effort = reasoning_effort.or(agent.reasoning_effort);
        agent.tool_choice = tool_choice.or(agent.tool_choice.take());
        agent.parallel_tool_calls = parallel_tool_calls.or(agent.parallel_tool_calls);
        agent.model_options = model_options.or(agent.model_options.take());
    }
}

impl AgentSpec {
    /// How its model is called.
    pub fn call_settings(&self) -> CallSettings {
        CallSettings {
            max_tokens: self.max_tokens,
            temperature: self.temperature,
            top_p: self.top_p,
            reasoning_effort: self.reasoning_effort,
            tool_choice: self.tool_choice.clone(),
            parallel_tool_calls: self.parallel_tool_calls,
            model_options: self.model_options.clone(),
        }
    }
}

impl AgentSpec {
    /// Whether a send of it may be offered a tool of this name. Only a worker knows for sure: an MCP
    /// server may have any tools, and skills, memory and hidden results bring some of their own.
    pub fn may_offer(&self, name: &str) -> bool {
        if self.brings_tools() {
            return true;
        }
        let is_allowed = |allow: &Vec<String>| allow.iter().any(|allowed| allowed == name);
        self.allow.as_ref().is_none_or(is_allowed)
            && self.tools.iter().any(|tool| tool.may_be(name))
    }

    /// Whether its sends are offered no tools, whatever worker runs them.
    pub fn has_no_tools(&self) -> bool {
        let is_none = self.tools.is_empty() || self.allow.as_ref().is_some_and(Vec::is_empty);
        is_none && !self.brings_tools()
    }

    fn brings_tools(&self) -> bool {
        !self.skills.is_empty() || self.memory.is_some() || self.context.hides()
    }
}

impl SendOptions {
    /// How the model is called in this send, as far as the sender decides.
    pub fn call_settings(&self) -> CallSettings {
        CallSettings {
            max_tokens: self.max_tokens,
            temperature: self.temperature,
            top_p: self.top_p,
            reasoning_effort: self.reasoning_effort,
            tool_choice: self.tool_choice.clone(),
            parallel_tool_calls: self.parallel_tool_calls,
            model_options: self.model_options.clone(),
        }
    }

    /// Whether the send runs with its session's agent as that is.
    pub fn leaves_agent(&self) -> bool {
        self.agent.is_none() && self.call_settings() == CallSettings::default()
    }

    /// The agent with what the sender decides about its model calls.
    #[must_use]
    pub fn over(&self, mut agent: AgentSpec) -> AgentSpec {
        self.call_settings().onto(&mut agent);
        agent
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_choice_of_tools_is_read_as_it_is_written() {
        for (choice, written) in [
            (ToolChoice::Auto, json!("auto")),
            (ToolChoice::None, json!("none")),
            (ToolChoice::Required, json!("required")),
            (ToolChoice::Tool("look".into()), json!({"name": "look"})),
        ] {
            assert_eq!(json!(choice), written);
            assert_eq!(
                serde_json::from_value::<ToolChoice>(written).ok(),
                Some(choice)
            );
        }
        for wrong in [json!("any"), json!({"tool": "look"}), json!({"name": 1})] {
            assert!(serde_json::from_value::<ToolChoice>(wrong).is_err());
        }
    }

    #[test]
    fn a_call_is_forced_once_and_forbidden_always() {
        let named = ToolChoice::Tool("look".into());
        for (choice, later) in [
            (ToolChoice::Auto, ToolChoice::Auto),
            (ToolChoice::None, ToolChoice::None),
            (ToolChoice::Required, ToolChoice::Auto),
            (named, ToolChoice::Auto),
        ] {
            assert_eq!(choice.in_round(0), choice);
            assert_eq!(choice.in_round(1), later);
        }
    }

    #[test]
    fn only_a_tool_on_offer_can_be_forced() {
        let named = ToolChoice::Tool("look".into());
        assert_eq!(named.fault(["look", "go"].into_iter()), None);
        assert!(named.fault(["go"].into_iter()).is_some());
        assert_eq!(ToolChoice::Required.fault(["go"].into_iter()), None);
        assert!(ToolChoice::Required.fault(std::iter::empty()).is_some());
        assert_eq!(ToolChoice::None.fault(std::iter::empty()), None);
    }

    #[test]
    fn what_a_sender_decides_replaces_what_the_agent_says() {
        let agent = AgentSpec {
            max_tokens: Some(100),
            temperature: Some(0.5),
            tool_choice: Some(ToolChoice::Required),
            ..AgentSpec::default()
        };
        let options = SendOptions {
            temperature: Some(1.0),
            tool_choice: Some(ToolChoice::Auto),
            parallel_tool_calls: Some(false),
            ..SendOptions::default()
        };
        let over = options.over(agent.clone());
        let expected = AgentSpec {
            temperature: Some(1.0),
            tool_choice: Some(ToolChoice::Auto),
            parallel_tool_calls: Some(false),
            ..agent.clone()
        };
        assert_eq!(over, expected);
        assert_eq!(options.over(over), expected, "twice is once");
        assert_eq!(SendOptions::default().over(agent.clone()), agent);
        assert!(SendOptions::default().leaves_agent() && !options.leaves_agent());
    }

    #[test]
    fn an_agent_may_offer_what_its_list_or_an_mcp_server_may_have() {
        let agent = |tools: serde_json::Value| -> AgentSpec {
            serde_json::from_value(json!({ "tools": tools })).expect("an agent")
        };
        let plain = agent(json!(["core", "todo", {"type": "external", "name": "sign"}]));
        for (name, may) in [
            ("grep", true),
            ("todo", true),
            ("sign", true),
            ("core", false),
        ] {
            assert_eq!(plain.may_offer(name), may, "{name}");
        }
        let allow = Some(vec!["todo".to_owned()]);
        let narrow = AgentSpec { allow, ..plain };
        assert!(narrow.may_offer("todo") && !narrow.may_offer("grep"));
        let mcp = json!({"type": "mcp", "server": "files", "tools": ["read"], "prefix": "f_"});
        let mcp = agent(json!([mcp]));
        assert!(mcp.may_offer("f_read") && mcp.may_offer("whatever"));
        assert!(agent(json!([])).has_no_tools() && !mcp.has_no_tools());
    }

    #[test]
    fn every_effort_is_written_as_it_is_named() {
        for effort in ReasoningEffort::ALL {
            assert_eq!(json!(effort), json!(effort.as_str()));
        }
    }
}
