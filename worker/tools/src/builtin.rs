//! Tools that work in the session's workspace, and a clock.
//!
//! | tools | need |
//! |---|---|
//! | `apply_patch`, `edit_file`, `write_file` | a workspace; they change only what the session read as it is now |
//! | `glob`, `grep`, `list_dir`, `read_file` | a workspace |
//! | `shell` | a workspace and a way to run commands |
//! | `command_output`, `command_start`, `command_stop` | the same, and the database |
//! | `current_time`, `pass_turn` | nothing |
//! | `web_fetch` | its settings |
//! | `schedule_wakeup`, `list_wakeups`, `cancel_wakeup` | a store: [`register_wakeups`] |
//!
//! [`register`] registers the ones that the settings allow. No path from a model can leave its
//! session's directory, not even through symbolic links. Commands are different: what they can
//! reach depends on how they are run, see [`Shell`].

use std::sync::Arc;

use mainspring_runtime::{OsEntropy, SystemClock};
use mainspring_shared::entropy::Entropy;
use mainspring_shared::store::Store;
use mainspring_shared::time::Clock;

pub use crate::sandbox::{Launcher, Outside, TASK, conceal, confine, run_child};
pub use crate::settings::{
    ENVIRONMENT_DEFAULT, IsolationSettings, Limits, Settings, Shell, Template, WorkspaceSettings,
    allowed,
};
pub use crate::shell::commands::Background;
pub use crate::shell::{Launch, ShellBackend, ShellCommand};

use crate::agents::wakeups::{self, Wakeups};
use crate::catalogue::{insert_all, make_all};
use crate::current_time;
use crate::files::workspace::Workspace;
use crate::files::{self, FileTools, leftovers};
use crate::http::{Caller, CallerSettings, Vault};
use crate::pass_turn;
use crate::sandbox::cell::{Cells, Isolating};
use crate::sandbox::{CHILDREN_MAX, ChildRole, Isolated, Jail, JailSettings};
use crate::shell::commands::{self, Commands};
use crate::shell::{self, Local, Runs, Templated};
use crate::skills::{PlaceFiles, Shelf, WithSkillFiles};
use crate::web;
use mainspring_worker::tool::{Tool, Tools, ToolsError};

/// Registers the tools that the settings allow. Everything that the settings name must be
/// available: a worker that cannot sandbox commands as configured does not start.
pub fn register(
    settings: Settings,
    clock: Arc<dyn Clock>,
    tools: &mut Tools,
) -> Result<(), ToolsError> {
    insert_all(&current_time::TOOLS, &clock, tools)?;
    insert_all(&pass_turn::TOOLS, &(), tools)?;
    if let Some(web) = &settings.web {
        tools.insert(web::fetch(web, &clock)?)?;
    }
    let backend = backend(&settings)?;
    if settings.workspace.is_none() && backend.is_some() {
        return Err(refused("the shell needs a workspace"));
    }
    let workspace = open(&settings)?;
    if let Some(isolation) = settings.isolation.clone() {
        isolate(isolation, &settings, workspace.as_ref(), &clock, tools)?;
    }
    let Some(workspace) = workspace else {
        return Ok(());
    };
    if let (Some(own), Some(database)) = (&settings.background, settings.database.clone()) {
        let (store, lifecycle) = (own.store.clone(), own.lifecycle.clone());
        let sweeping = leftovers::run(workspace.clone(), database, store, clock.clone(), lifecycle);
        own.lifecycle.spawn(sweeping);
    }
    let placing: Arc<dyn Tool> = Arc::new(PlaceFiles {
        workspace: workspace.clone(),
    });
    let skills = settings.skills;
    if let Some(launcher) = settings.launcher {
        let jail = JailSettings {
            launcher,
            workspace: Some(workspace.clone()),
            environment: settings.environment,
            limits: settings.limits,
            children_max: CHILDREN_MAX,
        };
        let jail = Jail::new(jail, &settings.shell, clock.clone());
        let jail = Arc::new(jail.map_err(refused)?);
        return confined(jail, (workspace, placing), backend, &clock, (tools, skills));
    }
    tools.insert_internal(placing.clone());
    let skills = placed(skills, placing);
    let mut insert = |tool| tools.insert(beside(skills.as_ref(), tool));
    let place = FileTools {
        workspace: workspace.clone(),
        clock: clock.clone(),
    };
    make_all(&files::TOOLS, &place).try_for_each(&mut insert)?;
    let Some(backend) = backend else {
        return Ok(());
    };
    if let Some(background) = settings.background {
        let (workspace, backend, clock) = (workspace.clone(), backend.clone(), clock.clone());
        let commands = Arc::new(Commands::new(background, workspace, backend, clock));
        make_all(&commands::TOOLS, &commands).try_for_each(&mut insert)?;
    }
    let runs = Runs {
        workspace,
        backend,
        clock,
    };
    make_all(&shell::TOOLS, &runs).try_for_each(&mut insert)
}

/// Gives the skills the tool that places their files in the workspace.
fn placed(skills: Option<Arc<Shelf>>, placing: Arc<dyn Tool>) -> Option<Arc<Shelf>> {
    skills.inspect(|skills| skills.place_with(placing))
}

/// Wraps a workspace tool so that it finds the files of its agent's skills there.
fn beside(skills: Option<&Arc<Shelf>>, inner: Arc<dyn Tool>) -> Arc<dyn Tool> {
    match skills {
        Some(shelf) => Arc::new(WithSkillFiles {
            inner,
            shelf: shelf.clone(),
        }),
        None => inner,
    }
}

/// Opens the workspace, if one is configured.
fn open(settings: &Settings) -> Result<Option<Arc<Workspace>>, ToolsError> {
    let Some(place) = &settings.workspace else {
        return Ok(None);
    };
    match Workspace::open(place, settings.limits.clone()) {
        Ok(workspace) => Ok(Some(Arc::new(workspace))),
        Err(error) => Err(refused(format!(
            "the workspace {}: {error}",
            place.root.display()
        ))),
    }
}

/// The workspace tools that return only when they are done, so without background commands.
fn in_workspace(
    workspace: &Arc<Workspace>,
    backend: Option<Arc<dyn ShellBackend>>,
    clock: &Arc<dyn Clock>,
) -> Vec<Arc<dyn Tool>> {
    let place = FileTools {
        workspace: workspace.clone(),
        clock: clock.clone(),
    };
    let mut made: Vec<_> = make_all(&files::TOOLS, &place).collect();
    if let Some(backend) = backend {
        let runs = Runs {
            workspace: workspace.clone(),
            backend,
            clock: clock.clone(),
        };
        made.extend(make_all(&shell::TOOLS, &runs));
    }
    made
}

/// Registers the workspace tools when they run only in child processes, never in this worker.
fn confined(
    jail: Arc<Jail>,
    (workspace, placing): (Arc<Workspace>, Arc<dyn Tool>),
    shell: Option<Arc<dyn ShellBackend>>,
    clock: &Arc<dyn Clock>,
    (tools, skills): (&mut Tools, Option<Arc<Shelf>>),
) -> Result<(), ToolsError> {
    let isolated = |inner| {
        Arc::new(Isolated {
            inner,
            jail: jail.clone(),
            role: ChildRole::Tools,
        }) as Arc<dyn Tool>
    };
    let skills = placed(skills, isolated(placing));
    for inner in in_workspace(&workspace, shell, clock) {
        tools.insert(beside(skills.as_ref(), isolated(inner)))?;
    }
    // A background command would run outside the child, so those tools are left out.
    tools.add_per_send(jail);
    Ok(())
}

/// Has the tools of isolated agents run in processes of their own.
fn isolate(
    isolation: IsolationSettings,
    settings: &Settings,
    workspace: Option<&Arc<Workspace>>,
    clock: &Arc<dyn Clock>,
    tools: &mut Tools,
) -> Result<(), ToolsError> {
    let jail = JailSettings {
        launcher: isolation.launcher,
        workspace: workspace.cloned(),
        environment: settings.environment.clone(),
        limits: settings.limits.clone(),
        children_max: isolation.processes_max,
    };
    let jail = Jail::new(jail, &settings.shell, clock.clone());
    let jail = Arc::new(jail.map_err(refused)?);
    let backend = backend(settings)?;
    let named = workspace.map(|workspace| in_workspace(workspace, backend, clock));
    let web = settings.web.iter().map(|web| web::fetch(web, clock));
    let web = web.collect::<Result<Vec<_>, _>>()?;
    let named = named.into_iter().flatten().chain(web);
    let placing = workspace.map(|workspace| {
        Arc::new(PlaceFiles {
            workspace: workspace.clone(),
        }) as Arc<dyn Tool>
    });
    let cells = Cells {
        jail: jail.clone(),
        named: named.map(|tool| (tool.spec().name, tool)).collect(),
        placing,
        shelf: settings.skills.clone(),
        caller: describing(&isolation.outside)?,
        outside: isolation.outside,
        web: settings.web.clone(),
        memory: isolation.memory,
    };
    tools.add_per_send(jail);
    tools.isolate_with(Arc::new(Isolating {
        cells: Arc::new(cells),
        clock: clock.clone(),
    }));
    Ok(())
}

/// A caller that knows the timeouts of HTTP tools but holds no secrets.
fn describing(outside: &Outside) -> Result<Caller, ToolsError> {
    let settings = CallerSettings {
        signing_secrets: Vec::new(),
        vault: Vault::default(),
        ..outside.caller.clone()
    };
    let caller = Caller::new(&settings, Arc::new(SystemClock::new()), Arc::new(OsEntropy));
    caller.map_err(|error| refused(error.to_string()))
}

/// Registers the tools with which agents schedule their own wake-ups, kept in this store.
pub fn register_wakeups(
    store: &Arc<dyn Store>,
    entropy: &Arc<dyn Entropy>,
    tools: &mut Tools,
) -> Result<(), ToolsError> {
    let wakeups = Wakeups {
        store: store.clone(),
        entropy: entropy.clone(),
    };
    insert_all(&wakeups::TOOLS, &wakeups, tools)
}

fn backend(settings: &Settings) -> Result<Option<Arc<dyn ShellBackend>>, ToolsError> {
    let environment = &settings.environment;
    let backend: Arc<dyn ShellBackend> = match &settings.shell {
        Shell::Off => return Ok(None),
        Shell::Local => Arc::new(Local::new(environment).map_err(refused)?),
        Shell::Template(template) => {
            Arc::new(Templated::new(template, environment).map_err(refused)?)
        }
        Shell::Backend(backend) => backend.clone(),
    };
    Ok(Some(backend))
}

fn refused(detail: impl Into<String>) -> ToolsError {
    ToolsError::Settings {
        detail: detail.into(),
    }
}
