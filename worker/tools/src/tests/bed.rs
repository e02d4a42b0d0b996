//! A workspace, and a directory next to it that no tool may reach.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mainspring_runtime::SystemClock;
use mainspring_shared::agent::AgentSpec;
use mainspring_shared::id::{BootId, SendId, SessionId, SessionKey, TenantId};
use mainspring_shared::memory::Account;
use mainspring_shared::message::plain_text;
use mainspring_shared::tool::ToolEntry;
use serde_json::Value;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::builtin::{Settings, WorkspaceSettings, register};
use mainspring_worker::tool::{Executor, Invocation, Offers, Tool, ToolError, Tools};

/// The contents of the file outside.
pub(crate) const SECRET: &str = "what nobody may read";

pub(crate) fn session(n: u128) -> SessionKey {
    SessionKey {
        tenant: TenantId::DEFAULT,
        session: SessionId(Uuid::from_u128(n)),
    }
}

/// The tools of one worker, and the session that uses them.
#[derive(Debug)]
pub(crate) struct Bed {
    dir: Arc<TempDir>,
    offers: Offers,
    pub(crate) session: SessionKey,
}

impl Bed {
    /// A worker with the settings for this root.
    pub(crate) async fn new(settings: impl FnOnce(PathBuf) -> Settings) -> Self {
        let dir = Arc::new(tempfile::tempdir().expect("a directory"));
        let outside = dir.path().join("outside");
        std::fs::create_dir(&outside).expect("makes");
        std::fs::write(outside.join("secret"), SECRET).expect("writes");
        Self::on(dir, settings, session(1)).await
    }

    /// A worker with file tools only, and a directory for each session.
    pub(crate) async fn files() -> Self {
        Self::new(files).await
    }

    /// Another worker on the same directory.
    pub(crate) async fn other_worker(&self) -> Self {
        Self::on(self.dir.clone(), files, self.session).await
    }

    async fn on(
        dir: Arc<TempDir>,
        settings: impl FnOnce(PathBuf) -> Settings,
        session: SessionKey,
    ) -> Self {
        let mut tools = Tools::default();
        let settings = settings(dir.path().join("root"));
        register(settings, Arc::new(SystemClock::new()), &mut tools).expect("registers");
        let names: Vec<_> = tools.names().map(str::to_owned).collect();
        let agent = AgentSpec {
            tools: names.into_iter().map(ToolEntry::Named).collect(),
            ..AgentSpec::default()
        };
        Self {
            offers: tools.offers(&SystemClock::new(), &agent, None).await,
            dir,
            session,
        }
    }

    /// The same worker's tools, for another session.
    pub(crate) fn for_session(&self, n: u128) -> Self {
        Self {
            dir: self.dir.clone(),
            offers: self.offers.clone(),
            session: session(n),
        }
    }

    pub(crate) fn outside(&self) -> PathBuf {
        self.dir.path().join("outside")
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.dir.path().join("root")
    }

    /// The session's directory.
    pub(crate) fn home(&self) -> PathBuf {
        let home = self.root().join(self.session.session.to_string());
        std::fs::create_dir_all(&home).expect("makes");
        home
    }

    /// Writes a file into the session's directory.
    pub(crate) fn put(&self, path: &str, content: impl AsRef<[u8]>) {
        let file = self.home().join(path);
        std::fs::create_dir_all(file.parent().expect("has one")).expect("makes");
        std::fs::write(file, content).expect("writes");
    }

    /// The contents of a file in the session's directory.
    pub(crate) fn get(&self, path: &str) -> String {
        std::fs::read_to_string(self.home().join(path)).expect("reads")
    }

    pub(crate) fn offers(&self) -> &Offers {
        &self.offers
    }

    pub(crate) fn tool(&self, name: &str) -> Arc<dyn Tool> {
        match &self.offers.get(name).expect("is on offer").place {
            Executor::Here(tool) => tool.clone(),
            Executor::Outside { .. } => panic!("{name} is outside"),
        }
    }

    /// A call as the kernel would make it: its arguments fit the schema.
    pub(crate) fn invocation(&self, name: &str, arguments: &Value) -> Invocation {
        static CALLS: AtomicU64 = AtomicU64::new(1);
        let offer = self.offers.get(name).expect("is on offer");
        let call = CALLS.fetch_add(1, Ordering::Relaxed);
        Invocation {
            // Processes are found by it, so no other test run may use the same one.
            call_id: format!("call_{}_{call}", std::process::id()),
            arguments: offer.checked(arguments).expect("fit the schema"),
            said: None,
            session: self.session,
            send_id: SendId(Uuid::from_u128(9)),
            boot: BootId(Uuid::nil()),
            attempt: 1,
            stop: CancellationToken::new(),
            skills: mainspring_worker::tool::Skills::default(),
            account: Account::default(),
            progress: mainspring_worker::tool::Progress::default(),
            kept: mainspring_worker::tool::Kept::default(),
            inquiring: mainspring_worker::tool::Inquiring::default(),
        }
    }

    pub(crate) async fn try_call(&self, name: &str, arguments: Value) -> Result<String, ToolError> {
        let invocation = self.invocation(name, &arguments);
        let output = self.tool(name).call(invocation).await?;
        Ok(plain_text(&output.content))
    }

    /// Makes a call that must succeed.
    pub(crate) async fn call(&self, name: &str, arguments: Value) -> String {
        let said = self.try_call(name, arguments.clone()).await;
        said.unwrap_or_else(|error| panic!("{name} {arguments}: {error}"))
    }

    /// Makes a call that must fail; returns what the model is told.
    pub(crate) async fn refused(&self, name: &str, arguments: Value) -> String {
        match self.try_call(name, arguments.clone()).await {
            Ok(said) => panic!("{name} {arguments} is not refused: {said}"),
            Err(error) => error.to_string(),
        }
    }
}

pub(crate) fn files(root: PathBuf) -> Settings {
    Settings {
        workspace: Some(WorkspaceSettings::per_session(root)),
        ..Settings::default()
    }
}

/// All paths below a directory, with the contents of files.
pub(crate) fn tree(dir: &Path) -> Vec<(PathBuf, Option<Vec<u8>>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).expect("reads") {
        let path = entry.expect("reads").path();
        if path.is_dir() && !path.is_symlink() {
            found.extend(tree(&path));
            found.push((path, None));
        } else {
            let content = std::fs::read(&path).ok();
            found.push((path, content));
        }
    }
    found.sort();
    found
}
