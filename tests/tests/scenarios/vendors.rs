//! Whole sessions against every vendor's strict emulator, over real sockets: no request may be one that the vendor
//! refuses, or takes and then suffers from.

#![expect(
    clippy::unwrap_used,
    reason = "a helper that fails fails the test that called it"
)]

mod bench;
mod fallback;
mod ledger;
mod scenes;

use self::bench::Bench;
use self::scenes::{Scene, scenes};

/// Each scene with one vendor, all at once, and the shortest with tools with each of its other models.
async fn suite(vendor: &'static str) {
    let bench = Bench::of(&[vendor]).await;
    let worker = bench.worker();
    let scenes = scenes();
    let models = bench.models(vendor);
    let others = models.iter().skip(1).flat_map(|model| {
        let short = scenes.iter().filter(|scene| Scene::is_short(scene));
        short.map(move |scene| (model, scene))
    });
    let all = scenes.iter().map(|scene| (&models[0], scene)).chain(others);
    let played = all.map(|(model, scene)| bench.play(model, scene));
    let mut faults: Vec<String> = futures::future::join_all(played)
        .await
        .into_iter()
        .flatten()
        .collect();
    faults.extend(bench.breaches());
    worker.abort();
    assert!(
        faults.is_empty(),
        "{} faults:\n{}",
        faults.len(),
        faults.join("\n")
    );
}

macro_rules! each_vendor {
    ($($test:ident = $vendor:literal),* $(,)?) => {
        $(
            #[tokio::test]
            async fn $test() {
                suite($vendor).await;
            }
        )*

        /// The vendors that have a test.
        const TESTED: &[&str] = &[$($vendor),*];
    };
}

each_vendor! {
    every_scene_keeps_the_rules_of_openai_chat_completions = "openai-chat",
    every_scene_keeps_the_rules_of_openai_responses = "openai-responses",
    every_scene_keeps_the_rules_of_azure = "azure",
    every_scene_keeps_the_rules_of_anthropic = "anthropic",
    every_scene_keeps_the_rules_of_gemini = "gemini",
    every_scene_keeps_the_rules_of_mistral = "mistral",
    every_scene_keeps_the_rules_of_groq = "groq",
    every_scene_keeps_the_rules_of_cerebras = "cerebras",
    every_scene_keeps_the_rules_of_deepseek = "deepseek",
    every_scene_keeps_the_rules_of_kimi = "kimi",
    every_scene_keeps_the_rules_of_glm = "glm",
    every_scene_keeps_the_rules_of_minimax = "minimax",
    every_scene_keeps_the_rules_of_qwen = "qwen",
    every_scene_keeps_the_rules_of_xai = "xai",
    every_scene_keeps_the_rules_of_openrouter = "openrouter",
    every_scene_keeps_the_rules_of_together = "together",
    every_scene_keeps_the_rules_of_fireworks = "fireworks",
    every_scene_keeps_the_rules_of_vllm = "vllm",
    every_scene_keeps_the_rules_of_sglang = "sglang",
    every_scene_keeps_the_rules_of_ollama = "ollama",
    every_scene_keeps_the_rules_of_llamacpp = "llamacpp",
    every_scene_keeps_the_rules_of_lmstudio = "lmstudio",
    every_scene_keeps_the_rules_of_litellm = "litellm",
    every_scene_keeps_the_rules_of_copilot = "copilot",
}

#[test]
fn every_vendor_of_the_laboratory_has_a_test_and_at_least_thirty_scenes() {
    assert_eq!(TESTED, mainspring_vendors::catalogue::names());
    assert!(scenes().len() >= 30, "{}", scenes().len());
}
