//! The directories that sessions work in, and the only access to their contents.
//!
//! Every path is resolved relative to a handle of the session's directory, and the operating system
//! (or cap-std, step by step, where the system cannot) refuses to leave that directory, whatever
//! symbolic links exist and however they change meanwhile. No path is checked first and then opened
//! by name. The real path of a file is looked up only to show it and to find its stamp.

mod session_dir;
mod target;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, DirBuilder, DirBuilderExt as _, OpenOptions, OpenOptionsExt as _};
use mainspring_shared::id::{SessionKey, TenantId};
use rustix::fs::OFlags;

use crate::files::stamps::Stamps;
use crate::settings::{Limits, WorkspaceSettings};
use mainspring_worker::tool::ToolError;

pub(crate) use session_dir::{File, SessionDir, fault, open_regular, read_whole};
pub(crate) use target::Present;

/// Number of file locks. Files that hash to different locks are changed concurrently.
const LOCKS: usize = 64;

/// The directory of all sessions.
#[derive(Debug)]
pub(crate) struct Workspace {
    root: Dir,
    path: PathBuf,
    shared: bool,
    locks: [Mutex<()>; LOCKS],
    pub(crate) limits: Limits,
    pub(crate) stamps: Stamps,
}

impl Workspace {
    /// Opens the directory, and creates it if it is missing.
    pub(crate) fn open(settings: &WorkspaceSettings, limits: Limits) -> io::Result<Self> {
        std::fs::create_dir_all(&settings.root)?;
        let path = settings.root.canonicalize()?;
        Ok(Self {
            root: Dir::open_ambient_dir(&path, ambient_authority())?,
            path,
            shared: settings.shared,
            locks: std::array::from_fn(|_| Mutex::new(())),
            stamps: Stamps::new(limits.stamps_max),
            limits,
        })
    }

    /// The directory of a session, created on first use.
    pub(crate) fn session_dir(&self, session: SessionKey) -> Result<SessionDir, ToolError> {
        let opened = if self.shared {
            self.root.try_clone().map(|dir| (dir, self.path.clone()))
        } else {
            let name = name_of(session);
            let dir = self.own(Path::new(&name));
            dir.map(|dir| (dir, self.path.join(name)))
        };
        match opened {
            Ok((dir, path)) => Ok(SessionDir::new(dir, path, session)),
            Err(error) => {
                tracing::warn!(
                    session.id = %session.session,
                    %error,
                    "could not open the workspace of a session"
                );
                Err(ToolError::reply("the workspace cannot be opened"))
            }
        }
    }

    fn own(&self, name: &Path) -> io::Result<Dir> {
        let mut options = OpenOptions::new();
        // Not even a link to another session's directory is followed.
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW;
        options.read(true).custom_flags(bits(flags));
        match self.root.open_with(name, &options) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let mut private = DirBuilder::new();
                private.mode(0o700);
                match self.root.create_dir_with(name, &private) {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
                    _ => self.root.open_with(name, &options),
                }
            }
            opened => opened,
        }
        .map(|dir| Dir::from_std_file(dir.into_std()))
    }

    /// The sessions that have a directory here; none if all share one.
    pub(crate) fn sessions(&self) -> io::Result<Vec<SessionKey>> {
        if self.shared {
            return Ok(Vec::new());
        }
        let names = self.names()?;
        Ok(names.iter().filter_map(|name| session_of(name)).collect())
    }

    /// The names of everything that is here.
    pub(crate) fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in self.root.entries()? {
            names.extend(entry?.file_name().into_string().ok());
        }
        Ok(names)
    }

    /// Creates an empty file with this name, if it does not exist.
    pub(crate) fn mark(&self, name: &str) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).create(true);
        self.root.open_with(name, &options).map(drop)
    }

    /// Removes the directory of a session with everything in it. Links are removed, not followed.
    pub(crate) fn remove(&self, session: SessionKey) -> io::Result<()> {
        let name = name_of(session);
        if self.root.symlink_metadata(&name)?.is_dir() {
            self.root.remove_dir_all(&name)
        } else {
            self.root.remove_file(&name)
        }
    }

    /// Keeps everyone else in this worker from changing the file until the guard is dropped.
    pub(crate) fn lock(&self, session_dir: &SessionDir, file: &Path) -> MutexGuard<'_, ()> {
        let mut hasher = DefaultHasher::new();
        (session_dir.path(), file).hash(&mut hasher);
        let lock = hasher.finish() as usize % LOCKS;
        let lock = &self.locks[lock];
        // The lock guards the file system, where a change is made whole or not at all, so poisoning
        // is harmless.
        lock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The name of a session's directory: it says whose session it is.
fn name_of(SessionKey { tenant, session }: SessionKey) -> String {
    if tenant == TenantId::DEFAULT {
        session.to_string()
    } else {
        format!("{tenant}.{session}")
    }
}

/// The session whose directory has this name.
fn session_of(name: &str) -> Option<SessionKey> {
    let (tenant, session) = match name.split_once('.') {
        Some((tenant, session)) => (tenant.parse().ok()?, session),
        None => (TenantId::DEFAULT, name),
    };
    let session = session.parse().ok()?;
    let key = SessionKey { tenant, session };
    (name_of(key) == name).then_some(key)
}

/// Converts flags to what `custom_flags` takes.
fn bits(flags: OFlags) -> i32 {
    flags.bits() as i32
}
