//! What a configuration may say about what an endpoint accepts: the members of
//! [`Said`](mainspring_providers::rules::Said).

use mainspring_providers::rules::{
    AttachedBack, CallIds, ContentBesideCalls, OutputLimit, Pdf, ReasoningBack, ReasoningWhen,
    ResponseFormat, Sampling, SchemaDialect, SystemRole, ThinkingForm, ThinkingOff, ThinkingSwitch,
    ToolChoiceWord, ToolsAtResponses, UnsignedCalls,
};
use mainspring_runtime::Kind;

const COUNT: Kind = Kind::Integer {
    min: 1,
    max: 1_000_000_000,
};

/// The members of `[llm.rules."MODEL"]`.
pub(super) const MEMBERS: &[(&str, Kind)] = &[
    ("like", Kind::Text),
    ("output_limit", Kind::Choice(OutputLimit::WORDS)),
    ("limit_counts_prompt", Kind::Switch),
    ("system", Kind::Choice(SystemRole::WORDS)),
    ("temperature", Kind::Choice(Sampling::WORDS)),
    ("temperature_min", Kind::Number),
    ("temperature_max", Kind::Number),
    ("top_p", Kind::Choice(Sampling::WORDS)),
    ("both_samplings", Kind::Switch),
    ("stop", Kind::Switch),
    (
        "efforts",
        Kind::Choices(&["none", "minimal", "low", "medium", "high", "xhigh", "max"]),
    ),
    ("thinking_switch", Kind::Choice(ThinkingSwitch::WORDS)),
    ("reasoning_back", Kind::Choice(ReasoningBack::WORDS)),
    ("reasoning_when", Kind::Choice(ReasoningWhen::WORDS)),
    ("reasoning_empty", Kind::Switch),
    ("attached_back", Kind::Choice(AttachedBack::WORDS)),
    ("attachments", Kind::List),
    ("unsigned_calls", Kind::Choice(UnsignedCalls::WORDS)),
    ("call_ids", Kind::Choice(CallIds::WORDS)),
    ("call_ids_max", COUNT),
    ("user_after_tool", Kind::Switch),
    (
        "content_beside_calls",
        Kind::Choice(ContentBesideCalls::WORDS),
    ),
    ("empty_text", Kind::Text),
    ("schema", Kind::Choice(SchemaDialect::WORDS)),
    ("tool_description_max", COUNT),
    ("tools_max", COUNT),
    ("schema_with_tools", Kind::Switch),
    ("response_format", Kind::Choice(ResponseFormat::WORDS)),
    ("json_object", Kind::Switch),
    ("tools_at_responses", Kind::Choice(ToolsAtResponses::WORDS)),
    ("tool_choice", Kind::Choices(ToolChoiceWord::WORDS)),
    ("forced_while_thinking", Kind::Switch),
    ("parallel_tool_calls", Kind::Switch),
    ("picture_bytes_max", COUNT),
    ("picture_kinds", Kind::List),
    ("picture_urls", Kind::Switch),
    ("pdf", Kind::Choice(Pdf::WORDS)),
    ("audio", Kind::Switch),
    ("stream_options", Kind::Switch),
    ("prompt_cache_key", Kind::Switch),
    ("encrypted_reasoning", Kind::Switch),
    ("thinking", Kind::Choice(ThinkingForm::WORDS)),
    ("thinking_off", Kind::Choice(ThinkingOff::WORDS)),
    ("thinking_bound", Kind::Switch),
    ("drop_block", Kind::Switch),
    ("thoughts_only_in_total", Kind::Switch),
    ("end_without_reason", Kind::Switch),
];

#[cfg(test)]
mod tests {
    use mainspring_providers::rules::Said;

    use super::*;

    #[test]
    fn each_rule_can_be_configured() {
        let names: Vec<_> = MEMBERS.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, Said::MEMBERS);
    }
}
