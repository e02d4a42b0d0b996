//! Harm of every kind to real processes for hours: `soak --hours H [--mix KIND,…] [--seed N]
//! [--chapter SECONDS] [--report FILE]`. Started by `cargo xtask soak`.
//!
//! The time is divided into chapters. Each ends with everything compared, and is a line of the report;
//! a soak that is started again with the same report goes on where it ended.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use mainspring_tests::faults::{
    Cut, Effect, Load, Recipe, Shape, Stand, blocking, monotonic, pause, settle,
};
use mainspring_tests::simulation::Chance;
use serde_json::{Value, json};

/// What is done, by name.
const KINDS: [&str; 8] = [
    "kill-worker",
    "kill-scheduler",
    "kill-all",
    "stop",
    "redis-flush",
    "redis-away",
    "postgres-crash",
    "cut",
];

/// Upper ends of the histogram's buckets, in milliseconds; the last one has none.
const BUCKETS_MS: [u64; 7] = [500, 1_000, 2_000, 3_000, 5_000, 10_000, 15_000];

/// How long a takeover is waited for.
const TAKEOVER: Duration = Duration::from_secs(30);

#[derive(Debug)]
struct Options {
    hours: f64,
    mix: Vec<&'static str>,
    seed: u64,
    chapter: Duration,
    report: PathBuf,
}

#[expect(clippy::disallowed_methods, reason = "a seed for whoever names none")]
fn drawn_seed() -> u64 {
    let now = std::time::SystemTime::now();
    let since = now.duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

fn options() -> Result<Options> {
    let mut options = Options {
        hours: 1.0,
        mix: KINDS.to_vec(),
        seed: drawn_seed(),
        chapter: Duration::from_mins(10),
        report: "soak.jsonl".into(),
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || {
            words
                .next()
                .with_context(|| format!("{word} wants a value"))
        };
        match word.as_str() {
            "--hours" => options.hours = value()?.parse()?,
            "--seed" => options.seed = value()?.parse()?,
            "--chapter" => options.chapter = Duration::from_secs(value()?.parse()?),
            "--report" => options.report = value()?.into(),
            "--mix" => {
                let names = value()?;
                let known = |name: &str| KINDS.into_iter().find(|kind| *kind == name);
                let mix = names.split(',').map(|name| {
                    known(name).with_context(|| format!("{name} is not one of {KINDS:?}"))
                });
                options.mix = mix.collect::<Result<_>>()?;
            }
            strange => bail!("{strange} is not an option"),
        }
    }
    Ok(options)
}

fn say(text: &str) {
    // Nobody is left to tell when it is gone.
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// What was done and seen so far.
#[derive(Debug, Default)]
struct Tally {
    chapters: u64,
    seconds: f64,
    sends: u64,
    calls: u64,
    repeated: u64,
    done: BTreeMap<String, u64>,
    takeovers: [u64; BUCKETS_MS.len() + 1],
}

impl Tally {
    /// What the lines of a report come to.
    fn read(report: &PathBuf) -> Result<Self> {
        let mut tally = Self::default();
        let text = match std::fs::read_to_string(report) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(tally),
            Err(error) => return Err(error.into()),
        };
        for line in text.lines() {
            tally.add(&serde_json::from_str(line).context("a line of the report")?);
        }
        Ok(tally)
    }

    fn add(&mut self, chapter: &Value) {
        self.chapters += 1;
        self.seconds += chapter["seconds"].as_f64().unwrap_or_default();
        let number = |name: &str| chapter[name].as_u64().unwrap_or_default();
        self.sends += number("sends");
        self.calls += number("calls");
        self.repeated += number("repeated");
        for (kind, times) in chapter["done"].as_object().into_iter().flatten() {
            *self.done.entry(kind.clone()).or_default() += times.as_u64().unwrap_or_default();
        }
        let buckets = chapter["takeovers"].as_array().into_iter().flatten();
        for (mine, more) in self.takeovers.iter_mut().zip(buckets) {
            *mine += more.as_u64().unwrap_or_default();
        }
    }

    fn line(&self, seed: u64) -> Value {
        json!({
            "seed": seed, "seconds": self.seconds, "sends": self.sends, "calls": self.calls,
            "repeated": self.repeated, "done": self.done, "takeovers": self.takeovers,
            "violations": 0,
        })
    }

    fn takeover(&mut self, took: Duration) {
        let ms = took.as_millis() as u64;
        let bucket = BUCKETS_MS.iter().position(|most| ms <= *most);
        self.takeovers[bucket.unwrap_or(BUCKETS_MS.len())] += 1;
    }
}

/// One chapter: a system of its own, load, harm, and the comparison.
async fn chapter(options: &Options, number: u64) -> Result<Value> {
    let seed = options.seed.wrapping_add(number);
    let mut chance = Chance::new(seed);
    let recipe = Recipe {
        proxied: true,
        ..Recipe::default()
    };
    let Some(mut stand) = Stand::start(recipe).await? else {
        bail!("a server's program is missing");
    };
    let load = Load::start(stand.urls(), Shape::default()).await?;
    let begun = monotonic();
    let mut tally = Tally::default();
    while monotonic() < begun + options.chapter {
        pause(Duration::from_millis(chance.between(200, 2_500))).await;
        let kind = chance.pick(&options.mix);
        harm(kind, &mut stand, &mut chance, &mut tally).await?;
        *tally.done.entry(kind.to_owned()).or_default() += 1;
    }
    let report = settle(&format!("chapter {number}"), &mut stand, load).await?;
    stand.passed();
    tally.seconds = monotonic().saturating_sub(begun).as_secs_f64();
    (tally.sends, tally.calls) = (report.sends as u64, report.calls as u64);
    tally.repeated = report.repeated as u64;
    Ok(tally.line(seed))
}

async fn harm(kind: &str, stand: &mut Stand, chance: &mut Chance, tally: &mut Tally) -> Result<()> {
    let book = stand.harm.clone();
    match kind {
        "kill-worker" => {
            let victim = chance.index(stand.workers.len());
            let name = stand.workers[victim].name.clone();
            let sql = format!(
                "SELECT boot_id FROM boots WHERE name = '{name}' AND dead_at IS NULL LIMIT 1"
            );
            let boot = stand.query(&sql)?;
            book.during("a worker is killed", Effect::Repeats, || {
                stand.kill_worker(victim);
            });
            let killed = monotonic();
            stand.replace_worker(victim)?;
            stand.all_ready()?;
            let held = format!(
                "SELECT count(*) FROM session_hot WHERE owner_boot = '{boot}' AND active = 1"
            );
            if !boot.is_empty() && stand.query(&held)? != "0" {
                let gone = async |stand: &Stand| Ok(stand.query(&held)? == "0");
                stand.until("a takeover", TAKEOVER, gone).await?;
                tally.takeover(monotonic().saturating_sub(killed));
            }
        }
        "kill-scheduler" => {
            let victim = chance.index(stand.schedulers.len());
            book.during("a scheduler is killed", Effect::None, || {
                blocking(|| stand.schedulers[victim].kill());
            });
            stand.replace_scheduler(victim)?;
            stand.all_ready()?;
        }
        "kill-all" => {
            let place = book.begin("everything is killed", Effect::Repeats);
            blocking(|| {
                stand.postgres.stop();
                stand.redis.stop();
                for process in stand.workers.iter_mut().chain(&mut stand.schedulers) {
                    process.kill();
                }
            });
            blocking(|| {
                stand
                    .postgres
                    .restart()
                    .and_then(|()| stand.redis.restart())
            })?;
            for n in 0..stand.workers.len() {
                stand.replace_worker(n)?;
            }
            for n in 0..stand.schedulers.len() {
                stand.replace_scheduler(n)?;
            }
            stand.all_ready()?;
            book.end(place);
        }
        "stop" => {
            let sleeper = chance.index(stand.workers.len());
            let place = book.begin("a worker sleeps", Effect::Sleeps);
            stand.workers[sleeper].pause()?;
            pause(Duration::from_millis(chance.between(2_200, 4_500))).await;
            stand.workers[sleeper].resume()?;
            book.end(place);
        }
        "redis-flush" => {
            let flush = || blocking(|| stand.redis.command(&["FLUSHALL"]));
            book.during("redis is emptied", Effect::None, flush)?;
        }
        "redis-away" => {
            let place = book.begin("redis is away", Effect::None);
            blocking(|| stand.redis.stop());
            pause(Duration::from_millis(chance.between(100, 6_000))).await;
            blocking(|| stand.redis.restart())?;
            book.end(place);
        }
        "postgres-crash" => {
            let place = book.begin("postgres crashes", Effect::Repeats);
            blocking(|| stand.postgres.stop());
            pause(Duration::from_millis(chance.pick(&[0, 300, 2_500]))).await;
            blocking(|| stand.postgres.restart())?;
            book.end(place);
        }
        "cut" => {
            let kinds = [
                Cut::Inside,
                Cut::Behind,
                Cut::Unheard,
                Cut::Silent(Duration::from_millis(400)),
            ];
            let place = book.begin("a connection is cut", Effect::One);
            if let Some(proxy) = &stand.proxy {
                proxy.cut(chance.pick(&kinds), Duration::from_secs(2)).await;
            }
            book.end(place);
        }
        strange => bail!("{strange} is no kind of harm"),
    }
    Ok(())
}

async fn soak(options: &Options) -> Result<()> {
    let mut tally = Tally::read(&options.report)?;
    say(&format!(
        "soak: seed {}, {} chapters in {} so far",
        options.seed,
        tally.chapters,
        options.report.display()
    ));
    while tally.seconds < options.hours * 3_600.0 {
        let line = chapter(options, tally.chapters).await.with_context(|| {
            let seed = options.seed.wrapping_add(tally.chapters);
            format!("chapter {} of seed {seed}", tally.chapters)
        })?;
        let mut report = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&options.report)?;
        writeln!(report, "{line}")?;
        report.sync_all()?;
        tally.add(&line);
        say(&line.to_string());
    }
    ensure!(tally.sends > 0, "nothing was sent");
    say(&format!("in all: {}", tally.line(options.seed)));
    say(&format!("takeovers within {BUCKETS_MS:?} ms, and later"));
    Ok(())
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    let done = match options() {
        Ok(options) => soak(&options).await,
        Err(error) => Err(error),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("soak: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
