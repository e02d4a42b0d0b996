//! Processes that are killed around calls of MCP tools: ones that became tasks, and ones that ask a person. Each call
//! holds still at one place, the processes are killed there, and a server that outlives them counts what it did.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use mainspring_benches::process::Process;
use mainspring_tests::faults::{
    Cluster, McpServer, Point, Recipe, RetryingClient, RowLock, any_of, blocking, fault_duration,
    monotonic, pass_on_lines, pause, say,
};
use serde_json::{Value, json};

/// Environment variable of the program over stdio: where the server is that it passes lines on to.
const LINES: &str = "MAINSPRING_FAULTS_MCP_LINES";

/// How long anything may take that works.
const SOON: Duration = Duration::from_secs(20);

/// What the model is told of a call whose outcome is unknown.
const UNKNOWN: &str = "whether it took effect is not known";

/// Who is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victims {
    /// One worker; the calls of the others go on.
    Worker,
    Workers,
    Schedulers,
    /// All processes, and the servers that they use.
    All,
}

/// When the person answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    /// Nobody is asked.
    Never,
    /// Before the processes are killed.
    Before,
    /// While no worker lives.
    Meanwhile,
    /// When all live again.
    After,
    /// When all live again, if the question was stored.
    IfAsked,
}

/// How a call ends whose processes were killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Done,
    /// It was under way and must not be made again.
    Unknown,
}

/// One call, and where it is when the processes are killed.
#[derive(Debug, Clone, Copy)]
struct Case {
    name: &'static str,
    tool: &'static str,
    /// Where it holds still; nowhere if it waits for the person.
    at: Option<Point>,
    /// Whether what follows cannot be stored: the session's row is locked before the call goes on.
    is_locked: bool,
    answer: Answer,
    end: End,
    /// How often the tool is called in all, if the processes are killed.
    calls: usize,
}

const fn case(name: &'static str, tool: &'static str, at: Option<Point>) -> Case {
    Case {
        name,
        tool,
        at,
        is_locked: false,
        answer: Answer::Never,
        end: End::Done,
        calls: 1,
    }
}

impl Case {
    const fn locked(self) -> Self {
        Self {
            is_locked: true,
            ..self
        }
    }

    const fn answered(self, answer: Answer) -> Self {
        Self { answer, ..self }
    }

    const fn called(self, calls: usize) -> Self {
        Self { calls, ..self }
    }

    const fn unknown(self) -> Self {
        Self {
            end: End::Unknown,
            ..self
        }
    }

    /// How often the tool is called if nothing of the call is lost: once more with a person's answer.
    fn undisturbed(&self) -> usize {
        1 + usize::from(self.tool.starts_with("ask"))
    }

    fn is_task(&self) -> bool {
        self.tool.starts_with("work")
    }
}

/// Each is made over HTTP and over stdio.
const CASES: [Case; 19] = [
    // A task was created, and nobody but its server knows of it.
    case("created", "work", Some(Point::Created)).unknown(),
    case("created-keyed", "work_keyed", Some(Point::Created)).called(2),
    // Its handle has come, and cannot be stored.
    case("unstored", "work", Some(Point::Created))
        .locked()
        .unknown(),
    case("unstored-keyed", "work_keyed", Some(Point::Created))
        .locked()
        .called(2),
    // Its handle is stored: it is taken up, and never created again.
    case("stored", "work", Some(Point::FirstPoll)),
    case("polled", "work", Some(Point::LastPoll)),
    case("result", "work", Some(Point::Result)),
    // Its result has come, and cannot be stored.
    case("result-unstored", "work", Some(Point::Result)).locked(),
    // A question has come, and cannot be stored.
    case("question-unstored", "ask", Some(Point::Asks))
        .locked()
        .answered(Answer::IfAsked)
        .unknown(),
    case("question-unstored-keyed", "ask_keyed", Some(Point::Asks))
        .locked()
        .answered(Answer::After)
        .called(3),
    // The question waits.
    case("waiting", "ask", None)
        .answered(Answer::After)
        .called(2),
    case("waiting-task", "work_asks", None).answered(Answer::After),
    // It is answered, and the call is not made again yet.
    case("answered", "ask", None)
        .answered(Answer::Meanwhile)
        .called(2),
    case("answered-task", "work_asks", None).answered(Answer::Meanwhile),
    // The call is made again, and the answer has not reached the server.
    case("again", "ask", Some(Point::Again))
        .answered(Answer::Before)
        .called(2)
        .unknown(),
    case("again-keyed", "ask_keyed", Some(Point::Again))
        .answered(Answer::Before)
        .called(3),
    // The answer has reached it, and the result has not come back.
    case("acted", "ask", Some(Point::Acted))
        .answered(Answer::Before)
        .called(2)
        .unknown(),
    case("acted-keyed", "ask_keyed", Some(Point::Acted))
        .answered(Answer::Before)
        .called(3),
    case("acted-task", "work_asks", Some(Point::Result)).answered(Answer::Before),
];

/// A call that was made.
struct Made {
    case: Case,
    mark: String,
    send: String,
    session: String,
}

impl Made {
    fn call_id(&self) -> String {
        format!("call_{}_0_0", self.send.trim_start_matches("snd_"))
    }

    /// Whether anything is left to kill for it.
    fn may_hold(&self) -> Option<&str> {
        self.case.at.map(|_| &*self.mark)
    }
}

/// The name of a server over stdio: each case has its own, because a question over stdio does not say of which call it is.
fn piped(case: &Case) -> String {
    format!("piped_{}", case.name.replace('-', "_"))
}

fn config(server: &McpServer) -> Result<String> {
    let program = std::env::current_exe()?;
    let mut lines = vec![
        "[mcp.web]".to_owned(),
        format!("url = {}", json!(server.url())),
    ];
    for case in &CASES {
        let args = json!(["--exact", "mcp::passes_on_lines", "--nocapture"]);
        lines.extend([
            format!("[mcp.{}]", piped(case)),
            format!("command = {}", json!(program)),
            format!("args = {args}"),
            format!("env = {{ {LINES} = \"{}\" }}", server.lines()),
        ]);
    }
    Ok(lines.join("\n"))
}

/// Not a test but the program over stdio: it does nothing unless a worker has started it.
#[tokio::test]
async fn passes_on_lines() -> Result<()> {
    if let Some(server) = std::env::var_os(LINES) {
        pass_on_lines(server.to_str().context("an address")?).await?;
    }
    Ok(())
}

struct World {
    cluster: Cluster,
    server: McpServer,
    caller: RetryingClient,
}

impl World {
    /// Makes a call in a session of its own.
    async fn make(&mut self, case: Case, server: &str, mark: String) -> Result<Made> {
        self.server.expect(&mark, case.at);
        let words = format!(
            "[[send {mark}]] [[tool {} {}]] go",
            case.tool,
            json!({ "mark": mark })
        );
        let tools = json!([{ "type": "mcp", "server": server, "tools": [case.tool] }]);
        let body = json!({ "input": words, "session": { "agent": { "tools": tools } } });
        let made = self.caller.post("/v1/sends", &body, &mark).await?.json()?;
        let word = |name: &str| made[name].as_str().map(str::to_owned);
        Ok(Made {
            case,
            send: word("id").with_context(|| made.to_string())?,
            session: word("session_id").with_context(|| made.to_string())?,
            mark,
        })
    }

    /// Waits until the person is asked.
    async fn asked(&mut self, made: &Made) -> Result<()> {
        let end = monotonic() + SOON;
        let path = format!("/v1/sessions/{}/calls", made.session);
        loop {
            let calls = self.caller.get(&path).await?;
            let calls = calls["data"].as_array().cloned().unwrap_or_default();
            if let [call] = &calls[..] {
                ensure!(call["wants"] == "reply", "{}: {call}", made.mark);
                let words = format!("sure about {}?", made.mark);
                ensure!(call.to_string().contains(&words), "{}: {call}", made.mark);
                return Ok(());
            }
            ensure!(calls.is_empty(), "{}: {calls:?}", made.mark);
            let seen = self.server.seen(&made.mark);
            ensure!(monotonic() < end, "{} asks nobody: {seen:?}", made.mark);
            pause(Duration::from_millis(20)).await;
        }
    }

    /// Waits until the call asks, or is over.
    async fn is_asked(&mut self, made: &Made) -> Result<bool> {
        let end = monotonic() + SOON;
        loop {
            let send = self.caller.get(&format!("/v1/sends/{}", made.send)).await?;
            if send["status"] == "waiting" || send["finished_at"].is_string() {
                return Ok(send["status"] == "waiting");
            }
            ensure!(monotonic() < end, "{}: {send}", made.mark);
            pause(Duration::from_millis(20)).await;
        }
    }

    /// Answers the question; a second answer is not taken.
    async fn answer(&mut self, made: &Made) -> Result<()> {
        self.asked(made).await?;
        for (n, expected) in [&["accepted", "already_settled"][..], &["already_settled"]]
            .into_iter()
            .enumerate()
        {
            let accept = json!({ "action": "accept", "content": { "sure": true } });
            let result = json!({ "call_id": made.call_id(), "question": 1, "output": accept });
            let path = format!("/v1/sessions/{}/tool-results", made.session);
            let key = format!("{}-answer-{n}", made.mark);
            let body = json!({ "results": [result] });
            let posted = self.caller.post(&path, &body, &key).await?.json()?;
            let status = posted["results"][0]["status"].as_str().unwrap_or_default();
            ensure!(expected.contains(&status), "{}: {posted}", made.mark);
        }
        Ok(())
    }

    /// Brings every call to the place where it is when the processes are killed.
    async fn reach(&mut self, all: &[Made]) -> Result<()> {
        for made in all {
            if made.case.answer == Answer::Before {
                self.answer(made).await?;
            }
        }
        for made in all {
            match made.may_hold() {
                Some(mark) => self.server.held(mark, SOON).await?,
                None => self.asked(made).await?,
            }
        }
        Ok(())
    }

    /// Lets the calls go on whose sessions cannot be written any longer, up to the write.
    async fn lock(&mut self, all: &[Made]) -> Result<RowLock> {
        let locked = all.iter().filter(|made| made.case.is_locked);
        let rows = locked
            .clone()
            .map(|made| format!("'{}'", made.session.trim_start_matches("ses_")));
        let rows = rows.collect::<Vec<_>>().join(", ");
        let rows = format!(
            "SELECT FROM session_hot WHERE session_id IN ({rows}) ORDER BY session_id FOR UPDATE"
        );
        let lock = RowLock::hold(&self.cluster.postgres, "mainspring", &rows)?;
        for made in locked {
            self.server.release(&made.mark);
        }
        let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
        self.cluster
            .until("a write that waits", SOON, async |cluster| {
                Ok(cluster.query(waits)? != "0")
            })
            .await?;
        Ok(lock)
    }

    /// Kills the victims, and ends what they had asked the database for and did not get.
    fn kill(&mut self, victims: Victims, lock: Option<RowLock>) -> Result<()> {
        let cluster = &mut self.cluster;
        blocking(|| match victims {
            Victims::Worker => cluster.workers[any_of(3)].kill(),
            Victims::Workers => cluster.workers.iter_mut().for_each(Process::kill),
            Victims::Schedulers => cluster.schedulers.iter_mut().for_each(Process::kill),
            Victims::All => {
                let all = cluster.workers.iter_mut().chain(&mut cluster.schedulers);
                all.for_each(Process::kill);
                cluster.postgres.stop();
                cluster.redis.stop();
            }
        });
        if lock.is_some() && victims != Victims::All {
            // Otherwise the database goes on with the statement of a dead process.
            let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
            cluster.query(end)?;
        }
        drop(lock);
        Ok(())
    }

    /// Brings everything up again, the workers last.
    async fn revive(&mut self, all: &[Made], victims: Victims) -> Result<()> {
        if victims == Victims::All {
            let cluster = &mut self.cluster;
            blocking(|| {
                cluster
                    .postgres
                    .restart()
                    .and_then(|()| cluster.redis.restart())
            })?;
        }
        for n in 0..self.cluster.schedulers.len() {
            if !self.cluster.schedulers[n].is_alive() {
                self.cluster.replace_scheduler(n)?;
            }
        }
        for made in all {
            if made.case.answer == Answer::Meanwhile {
                self.answer(made).await?;
            }
        }
        for n in 0..self.cluster.workers.len() {
            if !self.cluster.workers[n].is_alive() {
                self.cluster.replace_worker(n)?;
            }
        }
        self.cluster.all_ready()
    }

    async fn ended(&mut self, made: &Made) -> Result<Value> {
        let end = monotonic() + SOON;
        let path = format!("/v1/sends/{}?wait=5s", made.send);
        loop {
            let send = self.caller.get(&path).await?;
            if send["finished_at"].is_string() || monotonic() > end {
                return Ok(send);
            }
        }
    }

    /// Checks how a call ended, and what its server saw of it.
    async fn judge(&mut self, made: &Made, victims: Victims) -> Result<End> {
        let Made { case, mark, .. } = made;
        let ended = self.ended(made).await?;
        let seen = self.server.seen(mark);
        let told = format!("{mark}: {seen:?}, {ended}");
        ensure!(
            ended["status"] == "completed" && ended["rounds"] == 2,
            "{told}"
        );
        let said = ended["output_text"].as_str().unwrap_or_default();
        let end = if said.contains(UNKNOWN) {
            End::Unknown
        } else {
            End::Done
        };
        ensure!(
            end == End::Unknown || said.contains(&format!("did {mark}")),
            "{told}"
        );
        let (may_be_unknown, calls) = match victims {
            Victims::Workers | Victims::All => {
                ensure!(end == case.end, "{told}");
                (case.end == End::Unknown, case.calls..=case.calls)
            }
            // The call may have been another worker's.
            Victims::Worker => (
                case.end == End::Unknown,
                1..=case.calls.max(case.undisturbed()),
            ),
            // Nothing of the call is lost with a scheduler.
            Victims::Schedulers => (false, case.undisturbed()..=case.undisturbed()),
        };
        ensure!(may_be_unknown || end == End::Done, "{told}");
        ensure!(calls.contains(&seen.calls), "{told}");
        // Neither lost nor doubled.
        ensure!(
            seen.acted <= 1 && (end == End::Unknown || seen.acted == 1),
            "{told}"
        );
        if case.is_task() {
            ensure!(seen.created == 1, "{told}");
        }
        let mut accepted = seen.accepted.clone();
        accepted.dedup();
        ensure!(
            accepted == seen.accepted,
            "one question was answered twice: {told}"
        );
        if !case.tool.ends_with("keyed") {
            ensure!(accepted.len() <= 1, "the answer was given twice: {told}");
        }
        Ok(end)
    }

    /// Kills the victims while one call of each case is where it says, over both transports.
    async fn round(&mut self, n: usize, victims: Victims) -> Result<()> {
        let begun = monotonic();
        let mut all = Vec::new();
        for case in CASES {
            for (way, server) in [("web", "web".to_owned()), ("piped", piped(&case))] {
                let mark = format!("{}-{way}-{n}", case.name);
                all.push(self.make(case, &server, mark).await?);
            }
        }
        self.reach(&all).await?;
        let lock = match victims {
            Victims::Schedulers => None,
            Victims::Worker | Victims::Workers | Victims::All => Some(self.lock(&all).await?),
        };
        self.kill(victims, lock)?;
        self.revive(&all, victims).await?;
        for made in &all {
            self.server.release(&made.mark);
        }
        for made in &all {
            let is_asked = match made.case.answer {
                Answer::Never | Answer::Before | Answer::Meanwhile => false,
                Answer::After => true,
                Answer::IfAsked => self.is_asked(made).await?,
            };
            if is_asked {
                self.answer(made).await?;
            }
        }
        let mut unknown = 0;
        for made in &all {
            unknown += usize::from(self.judge(made, victims).await? == End::Unknown);
        }
        let took = monotonic().saturating_sub(begun);
        say(&format!(
            "{victims:?}: {} calls, {unknown} unknown, {took:?}",
            all.len()
        ));
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_processes_neither_lose_nor_double_mcp_tasks_and_questions() -> Result<()> {
    let server = McpServer::start().await?;
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("config.toml");
    std::fs::write(&file, config(&server)?)?;
    let environment = [("MAINSPRING_CONFIG", file.to_str().context("UTF-8")?)];
    let recipe = Recipe {
        environment: &environment,
        ..Recipe::default()
    };
    let Some(cluster) = Cluster::start(recipe).await? else {
        return Ok(());
    };
    let caller = RetryingClient::new(cluster.urls(), 0);
    let mut world = World {
        cluster,
        server,
        caller,
    };
    let end = monotonic() + fault_duration();
    let victims = [
        Victims::Workers,
        Victims::Schedulers,
        Victims::All,
        Victims::Worker,
    ];
    let mut n = 0;
    while n < victims.len() || monotonic() < end {
        world.round(n, victims[n % victims.len()]).await?;
        n += 1;
    }
    world.cluster.audit()?;
    let fallen = world.cluster.fallen();
    ensure!(fallen.is_empty(), "ended by themselves: {fallen:?}");
    world.cluster.passed();
    Ok(())
}
