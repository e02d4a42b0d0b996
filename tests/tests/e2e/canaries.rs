//! Secrets planted wherever the product takes one must be found nowhere else: not in logs, spans,
//! metrics, events, answers, rows, Redis, archives, the journal or command output, although
//! everything that can fail with them fails, and quotes them.

mod api;
mod commands;
mod outside;
mod planted;
mod requests;
mod settings;
mod sinks;
mod work;

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use mainspring_benches::servers::{Postgres, Redis};
use mainspring_tests::faults::{alone, blocking, monotonic, pause, skipped};

use self::api::Api;
use self::commands::Shell;
use self::outside::Outside;
use self::planted::{Found, Planted, random};
use self::requests::Signer;
use self::settings::Programs;
use self::sinks::Monitor;

/// Places where a non-secret control word must be found, which proves that the search would find a
/// secret there.
const SINKS: [&str; 11] = [
    "answers",
    "archives",
    "commands",
    "database",
    "events",
    "journal",
    "logs",
    "metrics",
    "outside/llm",
    "outside/otlp",
    "redis/commands",
];

/// Minimum number of kinds of secrets that are planted.
const KINDS_MIN: usize = 100;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_is_nowhere_but_where_it_belongs() -> Result<()> {
    if skipped() {
        return Ok(());
    }
    let _turn = blocking(alone)?;
    let began = monotonic();
    let folder = tempfile::Builder::new()
        .prefix("mainspring-secrets-")
        .tempdir()?;
    let said = search(folder.path(), began).await;
    if said.is_err() {
        // If stderr is closed there is nobody to report to.
        let _ = writeln!(
            std::io::stderr(),
            "all that came out is kept in {}",
            folder.keep().display()
        );
    }
    said
}

async fn search(folder: &Path, began: Duration) -> Result<()> {
    let out = folder.join("out");
    let mut planted = Planted::default();
    let mut control = Planted::default();
    // Starts with a letter, because it is also used as a name of many things.
    let word = format!("word{}", random());
    control.note("the word", &word, &SINKS);

    let signer = Signer::new(folder)?;
    let outside = Outside::start(&out.join("outside"), signer.public.clone())?;
    let (postgres, redis) = blocking(|| anyhow::Ok((Postgres::start()?, Redis::start()?)))?;
    let monitor = Monitor::start(&redis, &out)?;
    let servers = settings::guard(&mut planted, &postgres, &redis)?;
    let servers = (servers.0.as_str(), servers.1.as_str());
    let places = (folder, out.as_path());
    let programs = settings::programs(&mut planted, servers, &outside, places, &word)?;
    run(&programs, &mut planted, (&outside, &signer), places, &word).await?;
    sinks::database(&postgres, &out)?;
    sinks::redis(&redis, &out)?;
    sinks::image(&programs.worker.binary, &out)?;
    drop(monitor);

    // The image's control word is one of the program's own words, because the image consists of the
    // program.
    control.note(
        "a word of the program",
        "MAINSPRING_SECRETS_KEY",
        &["image"],
    );
    let found = control.found(&out)?;
    ensure!(control.missed(&found).is_empty(), "{found:?}");
    let missed: Vec<_> = SINKS
        .iter()
        .filter(|sink| !found.iter().any(|(_, file)| file.starts_with(*sink)))
        .collect();
    let found = planted.found(&out)?;
    let strays = planted.strays(&found);
    let unused = planted.missed(&found);
    // If stderr is closed there is nobody to report to.
    let _ = writeln!(
        std::io::stderr(),
        "{} secrets, {} MiB, {:?}",
        planted.count(),
        size(&out)? >> 20,
        monotonic().saturating_sub(began)
    );
    let told = report(&strays, &out)?;
    ensure!(told.is_empty(), "found:\n{told}");
    ensure!(missed.is_empty(), "the search finds nothing in {missed:?}");
    ensure!(unused.is_empty(), "never used: {unused:?}");
    ensure!(planted.count() >= KINDS_MIN, "{} kinds", planted.count());
    Ok(())
}

/// Runs everything to its end.
async fn run(
    programs: &Programs,
    planted: &mut Planted,
    (outside, signer): (&Outside, &Signer),
    (folder, out): (&Path, &Path),
    word: &str,
) -> Result<()> {
    let mut scheduler = blocking(|| programs.scheduler.scheduler("scheduler"))?;
    let mut other = blocking(|| programs.other_scheduler.scheduler("other-scheduler"))?;
    let mut worker = blocking(|| programs.worker.worker("worker", &[]))?;
    let api = Api::new(scheduler.url(), &programs.root_keys[0], out)?;
    let beside = Api::new(other.url(), &programs.root_keys[1], out)?;

    let session = work::models(&api, word).await?;
    work::tools(&api, planted, outside).await?;
    work::memories(&beside, planted, outside).await?;
    work::runs(&api).await?;
    let tenant = work::tenant(&api, planted).await?;
    work::webhooks(&tenant, planted, outside).await?;
    requests::tokens(&api, planted, signer, &outside.base).await?;
    requests::misplaced(&api, planted).await?;
    requests::blob(&api).await?;
    requests::blob(&beside).await?;

    // The remaining output comes from a worker whose collector refuses it.
    let mut last = blocking(|| programs.other_worker.worker("other-worker", &[]))?;
    sinks::no_cores(&[&scheduler, &other, &worker, &last])?;
    sinks::metrics(
        &[&scheduler, &other, &worker, &last],
        &programs.root_keys,
        out,
    )
    .await?;
    blocking(|| worker.stop(Duration::from_secs(20)))?;
    work::one_more(&api).await?;

    sinks::archives(&api, &session, out).await?;
    let shell = Shell {
        program: &programs.worker,
        out,
    };
    commands::shown(&shell)?;
    commands::refused(&shell, planted, folder)?;
    let client = (scheduler.url(), programs.root_keys[0].clone());
    commands::clients(&shell, planted, (&client.0, &client.1, &session))?;
    let journal = out.join("journal/journal.jsonl");
    let until = monotonic() + Duration::from_secs(10);
    while !std::fs::read_to_string(&journal)
        .unwrap_or_default()
        .contains(&session)
    {
        ensure!(monotonic() < until, "the journal is empty");
        pause(Duration::from_millis(50)).await;
    }
    let path = journal.display().to_string();
    let (code, said) = shell.run(&["replay", &path], &[], "")?;
    ensure!(code == 0, "{said:.2000}");
    for process in [&mut last, &mut other, &mut scheduler] {
        blocking(|| process.stop(Duration::from_secs(20)))?;
    }
    Ok(())
}

/// Reports what was found where it does not belong, with its surroundings.
fn report(strays: &Found, out: &Path) -> Result<String> {
    let mut lines = Vec::new();
    for (name, file) in strays {
        let bytes = std::fs::metadata(out.join(file))?.len();
        lines.push(format!("{name}: in {file} ({bytes} bytes)"));
    }
    Ok(lines.join("\n"))
}

fn size(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        bytes += if entry.file_type()?.is_dir() {
            size(&entry.path())?
        } else {
            entry.metadata()?.len()
        };
    }
    Ok(bytes)
}
