//! The rule files that come with the crate.

use crate::rules::Rules;

/// Each file by name.
const FILES: &[(&str, &str)] = &[
    ("openai-chat", include_str!("../rules/openai-chat.toml")),
    (
        "openai-responses",
        include_str!("../rules/openai-responses.toml"),
    ),
    ("azure", include_str!("../rules/azure.toml")),
    ("anthropic", include_str!("../rules/anthropic.toml")),
    ("gemini", include_str!("../rules/gemini.toml")),
    ("mistral", include_str!("../rules/mistral.toml")),
    ("groq", include_str!("../rules/groq.toml")),
    ("cerebras", include_str!("../rules/cerebras.toml")),
    ("deepseek", include_str!("../rules/deepseek.toml")),
    ("kimi", include_str!("../rules/kimi.toml")),
    ("glm", include_str!("../rules/glm.toml")),
    ("minimax", include_str!("../rules/minimax.toml")),
    ("qwen", include_str!("../rules/qwen.toml")),
    ("xai", include_str!("../rules/xai.toml")),
    ("openrouter", include_str!("../rules/openrouter.toml")),
    ("together", include_str!("../rules/together.toml")),
    ("fireworks", include_str!("../rules/fireworks.toml")),
    ("vllm", include_str!("../rules/vllm.toml")),
    ("sglang", include_str!("../rules/sglang.toml")),
    ("ollama", include_str!("../rules/ollama.toml")),
    ("llamacpp", include_str!("../rules/llamacpp.toml")),
    ("lmstudio", include_str!("../rules/lmstudio.toml")),
    ("litellm", include_str!("../rules/litellm.toml")),
    ("copilot", include_str!("../rules/copilot.toml")),
];

/// The names of all vendors.
pub fn names() -> Vec<&'static str> {
    FILES.iter().map(|(name, _)| *name).collect()
}

/// The file of a vendor.
///
/// # Errors
///
/// Nobody of this name is known.
pub fn text(name: &str) -> anyhow::Result<&'static str> {
    FILES
        .iter()
        .find(|(other, _)| *other == name)
        .map(|(_, text)| *text)
        .ok_or_else(|| anyhow::anyhow!("no vendor `{name}`; there are {}", names().join(", ")))
}

/// The rules of a vendor.
///
/// # Errors
///
/// Nobody of this name is known, or the file is not as it should be.
pub fn load(name: &str) -> anyhow::Result<Rules> {
    let text = text(name)?;
    read(text).map_err(|error| error.context(format!("rules of {name}")))
}

/// Reads a rule file.
///
/// # Errors
///
/// It is not TOML, has members that nobody knows, or a pattern is malformed.
pub fn read(text: &str) -> anyhow::Result<Rules> {
    Ok(toml::from_str(text)?)
}
