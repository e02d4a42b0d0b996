//! What the providers of a configuration can do.

use std::sync::Arc;

use mainspring_providers::probe;
use mainspring_runtime::Choice as _;
use mainspring_shared::error::Coded as _;
use mainspring_shared::time::Clock;
use mainspring_worker::llm::Providers;

use super::rules::Learner;
use super::{Finding, Status};
use crate::args::DoctorArgs;
use crate::config::{Backend, Config, Provider, ProviderKind};
use crate::failure::{causes, next_of};
use crate::wiring;

pub(super) async fn providers(
    config: &Config,
    clock: &Arc<dyn Clock>,
    args: &DoctorArgs,
) -> Vec<Finding> {
    // A scheduler's machine does not need a provider.
    if config.backend() != Backend::Sqlite && config.has_no_provider() {
        let next =
            "set OPENAI_API_KEY, ANTHROPIC_API_KEY or MAINSPRING_LLM_BASE_URL where workers run";
        let detail = "none is configured: a worker here would not start";
        return vec![Finding::bad("provider", detail, next).only_a_warning()];
    }
    let wired = match wiring::providers(config, clock) {
        Ok(wired) => wired,
        Err(failure) => {
            return vec![Finding::bad(
                "provider",
                failure.message,
                "mend its settings",
            )];
        }
    };
    let learner = Learner { config, clock };
    if let Some(model) = &args.model {
        return vec![probed(&wired, &learner, model, model).await];
    }
    let mut findings = Vec::new();
    let named = config
        .providers
        .iter()
        .map(|(name, it)| (format!("{name}/"), it));
    for (name, provider) in std::iter::once((String::new(), &config.llm)).chain(named) {
        let wired = (&wired, &learner);
        findings.push(provider_finding(&name, provider, wired, args.probe).await);
    }
    findings
}

async fn provider_finding(
    name: &str,
    provider: &Provider,
    (wired, learner): (&Providers, &Learner<'_>),
    probe: bool,
) -> Finding {
    let shown = match name.strip_suffix('/') {
        Some(name) => format!("{} ({name})", provider.kind.as_str()),
        None => provider.kind.as_str().to_owned(),
    };
    // A vendor's own endpoint always requires a key.
    if provider.needs_key() {
        let detail = format!("{shown}: has no key");
        return Finding::bad(
            "provider",
            detail,
            "set it as the configuration's line says",
        );
    }
    let Some(model) = &provider.model else {
        let next = "name one: model, or MAINSPRING_LLM_MODEL for the default provider";
        let detail = format!("{shown}: agents that name no model will fail");
        return Finding::bad("provider", detail, next);
    };
    if !probe || provider.kind == ProviderKind::Demo {
        let how = if probe {
            "needs no network"
        } else {
            "not called; --probe calls it"
        };
        return Finding::good("provider", format!("{shown}: model {model}, {how}"));
    }
    probed(wired, learner, name, &format!("{shown}: model {model}")).await
}

/// Probes what a model can do. `shown` is its name for people.
async fn probed(wired: &Providers, learner: &Learner<'_>, name: &str, shown: &str) -> Finding {
    let failed = |error: &mainspring_worker::llm::Error| {
        let detail = format!("{shown}: {} ({})", causes(error), error.code());
        Finding::bad("provider", detail, next_of(error.code()))
    };
    let resolved = match wired.resolve(Some(name)) {
        Ok(resolved) => resolved,
        Err(error) => return failed(&error),
    };
    let mut probed = match probe(resolved.client.as_ref(), &resolved.model).await {
        Ok(probed) => probed,
        Err(error) => return failed(&error),
    };
    let (rules, unlearnt) = learner.learn(&resolved.provider, &resolved.model).await;
    probed.failed.extend(unlearnt);
    let able = [
        ("streams", probed.streams),
        ("counts tokens", probed.counts),
        ("calls tools", probed.calls_tools),
        ("holds to schemas", probed.native_schema),
        ("takes pictures", probed.takes_images),
        ("takes PDF files", probed.takes_pdf),
        ("thinks", probed.thinks),
        ("keeps prompts in a cache", probed.caches),
    ];
    let of = |wanted| {
        let of = able.iter().filter(|(_, found)| *found == Some(wanted));
        of.map(|(what, _)| *what).collect::<Vec<_>>().join(", ")
    };
    let mut detail = format!("{shown} answers; it {}", of(true));
    if of(false).is_empty() {
        detail.push_str(", and no unsupported feature was found");
    } else {
        detail = format!("{detail}; not: {}", of(false));
    }
    let model = format!("{}/{}", resolved.provider, resolved.model);
    let facts = Some((model, probed.facts(resolved.facts.takes)));
    let findings = Finding {
        facts,
        rules,
        ..Finding::good("provider", detail)
    };
    match probed.failed.as_slice() {
        [] => findings,
        failed => {
            let failed = failed
                .iter()
                .map(|(question, why)| format!("{question}: {why}"));
            let next = failed.collect::<Vec<_>>().join("; ");
            Finding {
                status: Status::Warning,
                next: Some(next),
                ..findings
            }
        }
    }
}
