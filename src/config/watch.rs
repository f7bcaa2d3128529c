//! The file as it changes (cases K47, K48).
//!
//! The kubelet never writes a ConfigMap's file: the file is a link into `..data`, itself a link to a dated directory, and
//! a change is another dated directory and one rename of `..data`. Editors replace files by a rename too. So it is the
//! *directory* that is watched, whatever happens in it makes the file be read again, and only other content is a change.
//! Nothing depends on being told: the file is read again from time to time in any case.

#[cfg(test)]
mod tests;

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::event::{AccessKind, AccessMode};
use notify::{EventKind, RecursiveMode, Watcher};
use tokio::sync::Notify;
use tracing::{debug, info, warn};

use super::load::Content;
use super::units::display_duration;
use crate::chain::chain;

/// How soon a change is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// How long the file is left alone after something happened in its directory: who writes it in place may not have
    /// finished.
    pub settle: Duration,
    /// How often it is read again though nothing is known to have happened.
    pub reread: Duration,
}

impl Default for Pace {
    /// A tenth of a second, and every 30 s (case K47).
    fn default() -> Self {
        Self {
            settle: Duration::from_millis(100),
            reread: Duration::from_secs(30),
        }
    }
}

/// A file whose changes are noticed.
pub struct FileWatch {
    file: PathBuf,
    directory: PathBuf,
    pace: Pace,
    content: Content,
    /// Rings when something happens in the directory.
    bell: Arc<Notify>,
    open: Box<Opener>,
    eye: Option<Eye>,
    standing: Standing,
}

/// Opens an eye that rings a bell; a parameter, so that a test can have none to be had.
type Opener = dyn FnMut(&Path, &Arc<Notify>) -> notify::Result<Eye> + Send;

/// Sees what happens in one directory for as long as it lives.
struct Eye {
    /// Of the directory: another one under the same name is not seen.
    identity: Identity,
    _watcher: Box<dyn Watcher + Send>,
}

/// Device and inode.
type Identity = (u64, u64);

/// What has been told of the eye.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Open,
    Closed,
}

impl FileWatch {
    /// Reads a file, and begins to watch it. It need not exist yet. Where its directory cannot be watched, one warning
    /// says so, and reading it again from time to time takes over (case K48).
    pub fn begin(file: &Path, pace: Pace) -> Self {
        Self::begin_with(file, pace, Box::new(open))
    }

    fn begin_with(file: &Path, pace: Pace, open: Box<Opener>) -> Self {
        let directory = match file.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            Some(_) | None => Path::new("."),
        };
        if is_mounted_alone(file) {
            warn!(
                "{}: this one file is mounted by itself (subPath): what is changed in its ConfigMap never arrives here; \
                 mount the whole ConfigMap as a directory",
                file.display()
            );
        }
        let mut watch = Self {
            file: file.to_owned(),
            directory: directory.to_owned(),
            pace,
            // The eye is opened before, so that no change falls in between.
            content: Content::Bytes(Vec::new()),
            bell: Arc::default(),
            open,
            eye: None,
            standing: Standing::Open,
        };
        watch.keep_open();
        watch.content = Content::of(file);
        watch
    }

    /// What the file holds, as of the last look.
    pub fn content(&self) -> &Content {
        &self.content
    }

    /// Waits until the file holds something else than it did, and returns that. Content that came and went within
    /// [`Pace::settle`] is never seen.
    pub async fn changed(&mut self) -> &Content {
        loop {
            tokio::select! {
                () = self.bell.notified() => tokio::time::sleep(self.pace.settle).await,
                () = tokio::time::sleep(self.pace.reread) => self.keep_open(),
            }
            let content = Content::of(&self.file);
            if content != self.content {
                self.content = content;
                return &self.content;
            }
        }
    }

    /// Opens the eye if there is none, or if the directory is another one by now.
    fn keep_open(&mut self) {
        let directory = identity(&self.directory);
        if let (Some(eye), Some(directory)) = (&self.eye, directory)
            && eye.identity == directory
        {
            return;
        }
        self.eye = None;
        match (self.open)(&self.directory, &self.bell) {
            Ok(eye) => {
                self.eye = Some(eye);
                if self.standing == Standing::Closed {
                    info!(
                        "changes of {} are noticed at once again",
                        self.file.display()
                    );
                }
                self.standing = Standing::Open;
            }
            Err(error) if self.standing == Standing::Closed => debug!("{}", chain(&error)),
            Err(error) => {
                warn!(
                    "{} cannot be watched ({}): it is read again every {} instead",
                    self.directory.display(),
                    chain(&error),
                    display_duration(self.pace.reread)
                );
                self.standing = Standing::Closed;
            }
        }
    }
}

fn open(directory: &Path, bell: &Arc<Notify>) -> notify::Result<Eye> {
    let bell = Arc::clone(bell);
    let mut watcher =
        notify::recommended_watcher(move |happened: notify::Result<notify::Event>| {
            // An error may be about what was missed.
            if happened.map_or(true, |event| may_change(event.kind)) {
                bell.notify_one();
            }
        })?;
    watcher.watch(directory, RecursiveMode::NonRecursive)?;
    let identity = identity(directory).ok_or_else(notify::Error::path_not_found)?;
    Ok(Eye {
        identity,
        _watcher: Box::new(watcher),
    })
}

/// Everything may, but reading: our own would wake us for ever.
fn may_change(kind: EventKind) -> bool {
    !matches!(
        kind,
        EventKind::Access(
            AccessKind::Read | AccessKind::Open(_) | AccessKind::Close(AccessMode::Read)
        )
    )
}

fn identity(directory: &Path) -> Option<Identity> {
    let metadata = std::fs::metadata(directory).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

/// Whether the file itself is a mount point, as a `subPath` makes it: then it stays the file that was mounted, whatever
/// becomes of the one that it was taken from (case K47).
fn is_mounted_alone(file: &Path) -> bool {
    let (Ok(file), Ok(mounts)) = (
        std::fs::canonicalize(file),
        std::fs::read_to_string("/proc/self/mountinfo"),
    ) else {
        return false;
    };
    is_mount_point(&mounts, &file)
}

/// Whether a file is one of the mount points of a `mountinfo`, as proc(5) describes it.
fn is_mount_point(mounts: &str, file: &Path) -> bool {
    mounts
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .any(|point| Path::new(&unescaped(point)) == file)
}

/// The kernel writes blanks and backslashes in octal.
fn unescaped(point: &str) -> String {
    [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ]
    .into_iter()
    .fold(point.to_owned(), |text, (code, c)| text.replace(code, c))
}
