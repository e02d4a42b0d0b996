//! Runs worlds from seeds: `simulate [--seeds N] [--from SEED] [--store model|sqlite] [--threads N]
//! [--trace] [--whole]`. Started by `cargo xtask simulate`, which builds it with optimizations.

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, Result, bail};
use mainspring_tests::simulation::{Backing, Outcome, Plan, run, shrunk};

/// How many runs may be spent on shrinking a failing world.
const TRIES: usize = 150;

/// Failing seeds that are reported in full; further ones get one line.
const TOLD: usize = 5;

/// Worlds between progress messages.
const PROGRESS: u64 = 5_000;

/// One world in this many is run twice, and must take the same course both times.
const TWICE: u64 = 50;

#[derive(Debug)]
struct Options {
    seeds: u64,
    from: u64,
    backing: Backing,
    threads: usize,
    trace: bool,
    whole: bool,
}

fn options() -> Result<Options> {
    let mut options = Options {
        seeds: 1,
        from: 0,
        backing: Backing::Model,
        threads: std::thread::available_parallelism().map_or(1, usize::from),
        trace: false,
        whole: false,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || {
            words
                .next()
                .with_context(|| format!("{word} wants a value"))
        };
        match word.as_str() {
            "--seeds" => options.seeds = value()?.parse()?,
            "--from" => options.from = value()?.parse()?,
            "--threads" => options.threads = value()?.parse()?,
            "--store" => {
                options.backing = match value()?.as_str() {
                    "model" => Backing::Model,
                    "sqlite" => Backing::Sqlite,
                    strange => bail!("{strange} is no store: model, sqlite"),
                }
            }
            "--trace" => options.trace = true,
            "--whole" => options.whole = true,
            strange => bail!("{strange} is not an option"),
        }
    }
    Ok(options)
}

/// Prints a line.
fn say(text: &str) {
    // If stdout is closed there is nobody to report to.
    let _ = writeln!(std::io::stdout(), "{text}");
}

fn again(seed: u64, options: &Options) -> String {
    let store = match options.backing {
        Backing::Model => "model",
        Backing::Sqlite => "sqlite",
    };
    format!("cargo xtask simulate --seeds 1 --from {seed} --store {store} --trace")
}

/// Reports a failing world, shrunk as far as possible.
fn report(seed: u64, outcome: &Outcome, options: &Options) {
    let plan = Plan::of(seed);
    let small = if options.whole {
        plan
    } else {
        shrunk(&plan, options.backing, TRIES)
    };
    let failed = run(&small, options.backing, options.trace);
    let mut lines = vec![format!("seed {seed} fails:")];
    lines.extend(outcome.violations.iter().map(|it| format!("  {it}")));
    lines.push(format!(
        "the smallest world found that fails: {} workers, {} schedulers, {} sessions, {} at once",
        small.workers, small.schedulers, small.sessions, small.concurrency
    ));
    lines.extend(small.ops.iter().map(|op| format!("  {op:?}")));
    lines.extend(small.faults.iter().map(|fault| format!("  {fault:?}")));
    lines.extend(failed.violations.iter().map(|it| format!("  fails: {it}")));
    lines.extend(failed.trace.iter().map(|line| format!("  {line}")));
    lines.push(format!("again: {}", again(seed, options)));
    say(&lines.join("\n"));
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(error) => {
            say(&format!("simulate: {error:#}"));
            return ExitCode::FAILURE;
        }
    };
    let next = AtomicU64::new(0);
    let virtual_ms = AtomicU64::new(0);
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..options.threads.max(1) {
            scope.spawn(|| {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= options.seeds {
                        return;
                    }
                    if n > 0 && n.is_multiple_of(PROGRESS) {
                        say(&format!("{n} of {} worlds", options.seeds));
                    }
                    let seed = options.from + n;
                    let plan = Plan::of(seed);
                    let mut outcome = run(&plan, options.backing, options.trace);
                    virtual_ms.fetch_add(outcome.took_ms, Ordering::Relaxed);
                    if n.is_multiple_of(TWICE) {
                        let twice = run(&plan, options.backing, false);
                        if twice.digest != outcome.digest {
                            let lie = "run twice, it takes two courses".to_owned();
                            outcome.violations.push(lie);
                        }
                    }
                    if outcome.violations.is_empty() {
                        if options.trace && options.seeds == 1 {
                            outcome.trace.iter().for_each(|line| say(line));
                        }
                        continue;
                    }
                    let told =
                        failed
                            .lock()
                            .map_or(0, |mut failed: std::sync::MutexGuard<'_, Vec<_>>| {
                                failed.push(seed);
                                failed.len()
                            });
                    if told <= TOLD {
                        report(seed, &outcome, &options);
                    } else {
                        say(&format!("seed {seed} fails: {}", outcome.violations[0]));
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap_or_default();
    let hours = virtual_ms.load(Ordering::Relaxed) as f64 / 3_600_000.0;
    say(&format!(
        "{} worlds from seed {} on ({:?}), {hours:.1} virtual hours: {} failed {failed:?}",
        options.seeds,
        options.from,
        options.backing,
        failed.len()
    ));
    if failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
