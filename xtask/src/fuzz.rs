//! Fuzzes the API with requests generated from its description.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail, ensure};
use serde_json::Value;

use crate::packages::{binary, installed, python_environment, target};
use crate::process::run;
use crate::{clients, tools};

/// Pinned, because another version generates other requests.
const PYTHON: [&str; 1] = ["schemathesis==4.32.5"];

/// The default number of cases.
const CASES: u64 = 50_000;

/// The checks: no 5xx, and no response whose status, type, headers or body contradicts the
/// description.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
    response_headers_conformance,response_schema_conformance";

/// Excluded operations: event streams, which do not end, and bodies of lines, which cannot be
/// generated.
const LEFT_OUT: [&str; 2] = ["/events", ":import"];

/// Turns off link inference: the fuzzer aborts at a URL that it cannot parse, and requests that it
/// generates itself lead to such URLs in responses.
const SETTINGS: &str = "[phases.stateful.inference]\nalgorithms = []\n";

/// How many cases to run, and against which program.
#[derive(Debug)]
pub(crate) struct Options<'a> {
    cases: u64,
    /// The program to start; built if none is given.
    binary: Option<&'a Path>,
    /// The seed of an earlier run, to repeat it.
    seed: Option<&'a str>,
}

impl<'a> Options<'a> {
    /// Reads `--cases N`, `--binary FILE` and `--seed N`.
    pub(crate) fn parse(words: &[&'a str]) -> anyhow::Result<Self> {
        let mut options = Self {
            cases: CASES,
            binary: None,
            seed: None,
        };
        for pair in words.chunks(2) {
            match *pair {
                ["--cases", number] => options.cases = number.parse().context("--cases N")?,
                ["--binary", file] => options.binary = Some(file.as_ref()),
                ["--seed", seed] => options.seed = Some(seed),
                _ => bail!("fuzz takes --cases N, --binary FILE and --seed N, not {pair:?}"),
            }
        }
        Ok(options)
    }
}

/// Sends generated requests for every operation to a server of its own. Fails with the bad
/// responses.
pub(crate) fn check(options: &Options<'_>) -> anyhow::Result<()> {
    let binary = match options.binary {
        Some(binary) => binary.to_owned(),
        None => binary()?,
    };
    let work = target()?.join("fuzz");
    std::fs::create_dir_all(&work)?;
    let python = installed(&work, "python", &PYTHON, |folder| {
        python_environment(folder, &PYTHON)
    })?;
    let each = each(options.cases, operations()?);
    let server = clients::serve(&binary)?;
    let mut fuzzer = Command::new(python.join("bin/schemathesis"));
    let settings = work.join("schemathesis.toml");
    std::fs::write(&settings, SETTINGS)?;
    fuzzer.arg("--config-file").arg(&settings);
    fuzzer.arg("run").arg("docs/openapi.json");
    fuzzer.arg("--url").arg(&server.url);
    fuzzer.args(["--checks", CHECKS, "--max-examples", &each.to_string()]);
    let left_out = format!("({})$", LEFT_OUT.join("|"));
    fuzzer.args(["--exclude-path-regex", &left_out]);
    fuzzer.args(["--request-timeout", "60", "--continue-on-failure"]);
    // Keep nothing between runs, in particular not in the source tree; warnings only concern the
    // description.
    fuzzer.args(["--generation-database", "none", "--warnings", "off"]);
    if let Some(seed) = options.seed {
        fuzzer.args(["--seed", seed]);
    }
    run(&mut fuzzer)?;
    tools::say("fuzz: no 5xx, and no answer that the description does not have");
    Ok(())
}

/// Cases per operation to reach the total; the cases that come from the description's limits and
/// links are added on top.
fn each(cases: u64, operations: u64) -> u64 {
    cases.div_ceil(operations.max(1)).max(1)
}

/// The number of operations tested.
fn operations() -> anyhow::Result<u64> {
    let description: Value = serde_json::from_slice(&std::fs::read("docs/openapi.json")?)?;
    let paths = description["paths"].as_object().context("paths")?;
    let is_asked = |path: &str| !LEFT_OUT.iter().any(|end| path.ends_with(end));
    let asked = paths.iter().filter(|(path, _)| is_asked(path));
    let count: usize = asked
        .filter_map(|(_, methods)| methods.as_object())
        .map(|methods| methods.keys().filter(|name| *name != "parameters").count())
        .sum();
    ensure!(count > 0, "docs/openapi.json has no operations");
    Ok(count as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_operation_has_its_share_of_the_cases() {
        assert_eq!(
            (each(50_000, 100), each(101, 100), each(0, 100)),
            (500, 2, 1)
        );
        let options = Options::parse(&["--cases", "7"]).expect("good options");
        assert_eq!((options.cases, options.seed), (7, None));
        Options::parse(&["--cases"]).expect_err("how many");
        Options::parse(&["--what", "1"]).expect_err("what is that");
    }
}
