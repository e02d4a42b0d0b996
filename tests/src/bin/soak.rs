//! Injects faults of every kind into real processes for hours: `soak --hours H [--mix KIND,…]
//! [--seed N] [--chapter SECONDS] [--workers N] [--schedulers N] [--report FILE]`. Started by
//! `cargo xtask soak`.
//!
//! The time is divided into chapters. Each ends with comparing everything, and adds a line to the
//! report; a soak restarted with the same report continues where it stopped.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use mainspring_tests::faults::{
    Cluster, Cut, Effect, Load, Recipe, Shape, blocking, monotonic, pause, settle,
};
use mainspring_tests::simulation::Chance;
use serde_json::{Value, json};

/// The kinds of faults, by name.
const KINDS: [&str; 10] = [
    "kill-worker",
    "kill-scheduler",
    "kill-all",
    "stop-worker",
    "stop-scheduler",
    "failover",
    "redis-flush",
    "redis-away",
    "postgres-crash",
    "cut",
];

/// Upper bounds of the histogram's buckets, in milliseconds; the last bucket has none.
const BUCKETS_MS: [u64; 7] = [500, 1_000, 2_000, 3_000, 5_000, 10_000, 15_000];

/// How long to wait for a takeover.
const TAKEOVER: Duration = Duration::from_secs(30);

#[derive(Debug)]
struct Options {
    hours: f64,
    mix: Vec<&'static str>,
    seed: u64,
    chapter: Duration,
    workers: usize,
    schedulers: usize,
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
        workers: 3,
        schedulers: 2,
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
            "--workers" => options.workers = value()?.parse()?,
            "--schedulers" => options.schedulers = value()?.parse()?,
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
    // If stdout is closed there is nobody to report to.
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// Totals so far.
#[derive(Debug, Default)]
struct Tally {
    chapters: u64,
    seconds: f64,
    sends: u64,
    calls: u64,
    repeated: u64,
    done: BTreeMap<String, u64>,
    takeovers: [u64; BUCKETS_MS.len() + 1],
    /// Time from the return of Postgres until a client's next answer.
    recoveries: [u64; BUCKETS_MS.len() + 1],
}

impl Tally {
    /// The totals of a report's lines.
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
        for (mine, name) in [
            (&mut self.takeovers, "takeovers"),
            (&mut self.recoveries, "recoveries"),
        ] {
            let buckets = chapter[name].as_array().into_iter().flatten();
            for (mine, more) in mine.iter_mut().zip(buckets) {
                *mine += more.as_u64().unwrap_or_default();
            }
        }
    }

    fn line(&self, seed: u64) -> Value {
        json!({
            "seed": seed, "seconds": self.seconds, "sends": self.sends, "calls": self.calls,
            "repeated": self.repeated, "done": self.done, "takeovers": self.takeovers,
            "recoveries": self.recoveries, "violations": 0,
        })
    }

    fn did(&mut self, kind: &'static str, times: usize) {
        *self.done.entry(kind.to_owned()).or_default() += times as u64;
    }
}

/// The histogram bucket of a duration.
fn bucket(took: Duration) -> usize {
    let ms = took.as_millis() as u64;
    let bucket = BUCKETS_MS.iter().position(|most| ms <= *most);
    bucket.unwrap_or(BUCKETS_MS.len())
}

/// A random, non-empty subset of the numbers below `count`.
fn some(chance: &mut Chance, count: usize) -> Vec<usize> {
    let mut all: Vec<usize> = (0..count).collect();
    let wanted = chance.between(1, count as u64) as usize;
    while all.len() > wanted {
        all.remove(chance.index(all.len()));
    }
    all
}

/// Runs one chapter: a cluster of its own, load, faults, and the comparison.
async fn chapter(options: &Options, number: u64) -> Result<Value> {
    let seed = options.seed.wrapping_add(number);
    let mut chance = Chance::new(seed);
    let recipe = Recipe {
        proxied: true,
        workers: options.workers,
        schedulers: options.schedulers,
        ..Recipe::default()
    };
    let Some(mut cluster) = Cluster::start(recipe).await? else {
        bail!("a server's program is missing");
    };
    let load = Load::start(cluster.urls(), Shape::default()).await?;
    let begun = monotonic();
    let mut tally = Tally::default();
    while monotonic() < begun + options.chapter {
        pause(Duration::from_millis(chance.between(200, 2_500))).await;
        let kind = chance.pick(&options.mix);
        let injected = inject(kind, &mut cluster, &load, &mut chance, &mut tally).await;
        injected
            .with_context(|| format!("{kind}, {:.0?} in", monotonic().saturating_sub(begun)))?;
    }
    let report = settle(&format!("chapter {number}"), &mut cluster, load).await?;
    cluster.passed();
    tally.seconds = monotonic().saturating_sub(begun).as_secs_f64();
    (tally.sends, tally.calls) = (report.sends as u64, report.calls as u64);
    tally.repeated = report.repeated as u64;
    Ok(tally.line(seed))
}

async fn inject(
    kind: &'static str,
    cluster: &mut Cluster,
    load: &Load,
    chance: &mut Chance,
    tally: &mut Tally,
) -> Result<()> {
    let times = match kind {
        "kill-worker" => kill_workers(cluster, chance, tally).await?,
        "kill-scheduler" => kill_schedulers(cluster, chance)?,
        "kill-all" => kill_all(cluster)?,
        "stop-worker" | "stop-scheduler" => stop(kind, cluster, chance).await?,
        "redis-flush" => {
            let flush = || blocking(|| cluster.redis.command(&["FLUSHALL"]));
            cluster
                .fault_log
                .during("redis is emptied", Effect::None, flush)
                .map(|_| 1)?
        }
        "redis-away" => {
            let place = cluster.fault_log.begin("redis is away", Effect::None);
            blocking(|| cluster.redis.stop());
            pause(Duration::from_millis(chance.between(100, 6_000))).await;
            blocking(|| cluster.redis.restart())?;
            cluster.fault_log.end(place);
            1
        }
        "postgres-crash" => {
            let place = cluster.fault_log.begin("postgres crashes", Effect::Repeats);
            blocking(|| cluster.postgres.stop());
            pause(Duration::from_millis(chance.pick(&[0, 300, 2_500]))).await;
            blocking(|| cluster.postgres.restart())?;
            cluster.fault_log.end(place);
            answers_again(cluster, load, tally).await?
        }
        "failover" => {
            cluster.add_standby()?;
            let place = cluster
                .fault_log
                .begin("a standby takes over", Effect::Repeats);
            cluster.fail_over()?;
            cluster.fault_log.end(place);
            answers_again(cluster, load, tally).await?
        }
        "cut" => cut(cluster, chance).await,
        strange => bail!("{strange} is no kind of fault"),
    };
    tally.did(kind, times);
    Ok(())
}

/// Kills some workers at once, and waits until others have taken over what they held.
async fn kill_workers(
    cluster: &mut Cluster,
    chance: &mut Chance,
    tally: &mut Tally,
) -> Result<usize> {
    let victims = some(chance, cluster.workers.len());
    let names: Vec<_> = victims
        .iter()
        .map(|victim| format!("'{}'", cluster.workers[*victim].name))
        .collect();
    let dead = format!(
        "SELECT coalesce(string_agg(format('%L', boot_id), ','), '') FROM boots \
         WHERE name IN ({}) AND dead_at IS NULL",
        names.join(",")
    );
    let boots = cluster.query(&dead)?;
    let book = cluster.fault_log.clone();
    book.during("workers are killed", Effect::Repeats, || {
        for victim in &victims {
            cluster.kill_worker(*victim);
        }
    });
    let killed = monotonic();
    for victim in &victims {
        cluster.replace_worker(*victim)?;
    }
    cluster.all_ready()?;
    if !boots.is_empty() {
        let held = format!(
            "SELECT count(*) FROM session_hot WHERE owner_boot IN ({boots}) AND active = 1"
        );
        if cluster.query(&held)? != "0" {
            let gone = async |cluster: &Cluster| Ok(cluster.query(&held)? == "0");
            cluster.until("a takeover", TAKEOVER, gone).await?;
            tally.takeovers[bucket(monotonic().saturating_sub(killed))] += 1;
        }
    }
    Ok(victims.len())
}

fn kill_schedulers(cluster: &mut Cluster, chance: &mut Chance) -> Result<usize> {
    let victims = some(chance, cluster.schedulers.len());
    let book = cluster.fault_log.clone();
    book.during("schedulers are killed", Effect::None, || {
        for victim in &victims {
            blocking(|| cluster.schedulers[*victim].kill());
        }
    });
    for victim in &victims {
        cluster.replace_scheduler(*victim)?;
    }
    cluster.all_ready()?;
    Ok(victims.len())
}

fn kill_all(cluster: &mut Cluster) -> Result<usize> {
    let place = cluster
        .fault_log
        .begin("everything is killed", Effect::Repeats);
    blocking(|| {
        cluster.postgres.stop();
        cluster.redis.stop();
        for process in cluster.workers.iter_mut().chain(&mut cluster.schedulers) {
            process.kill();
        }
        cluster
            .postgres
            .restart()
            .and_then(|()| cluster.redis.restart())
    })?;
    for n in 0..cluster.workers.len() {
        cluster.replace_worker(n)?;
    }
    for n in 0..cluster.schedulers.len() {
        cluster.replace_scheduler(n)?;
    }
    cluster.all_ready()?;
    cluster.fault_log.end(place);
    Ok(1)
}

/// Stops some workers or schedulers for longer than their lease.
async fn stop(kind: &str, cluster: &mut Cluster, chance: &mut Chance) -> Result<usize> {
    let (processes, what, effect) = if kind == "stop-worker" {
        (&cluster.workers, "workers sleep", Effect::Sleeps)
    } else {
        (&cluster.schedulers, "schedulers sleep", Effect::None)
    };
    let sleepers = some(chance, processes.len());
    let place = cluster.fault_log.begin(what, effect);
    for sleeper in &sleepers {
        processes[*sleeper].pause()?;
    }
    pause(Duration::from_millis(chance.between(2_200, 4_500))).await;
    for sleeper in &sleepers {
        processes[*sleeper].resume()?;
    }
    cluster.fault_log.end(place);
    Ok(sleepers.len())
}

/// Waits until a client sees another answer.
async fn answers_again(cluster: &Cluster, load: &Load, tally: &mut Tally) -> Result<usize> {
    let (back, before) = (monotonic(), load.done());
    let goes_on = async |_: &Cluster| Ok(load.done() > before);
    cluster.until("a new answer", TAKEOVER, goes_on).await?;
    tally.recoveries[bucket(monotonic().saturating_sub(back))] += 1;
    Ok(1)
}

/// Cuts a few connections one after another; returns how many.
async fn cut(cluster: &Cluster, chance: &mut Chance) -> usize {
    let kinds = [
        Cut::Inside,
        Cut::Behind,
        Cut::Unheard,
        Cut::Silent(Duration::from_millis(400)),
    ];
    let mut times = 0;
    for _ in 0..chance.between(1, 20) {
        let place = cluster.fault_log.begin("a connection is cut", Effect::One);
        if let Some(proxy) = &cluster.proxy
            && proxy.cut(chance.pick(&kinds), Duration::from_secs(2)).await
        {
            times += 1;
        }
        cluster.fault_log.end(place);
    }
    times
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
    say(&format!(
        "takeovers and recoveries within {BUCKETS_MS:?} ms, and later"
    ));
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
