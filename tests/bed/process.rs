//! Child processes that never outlive the test run.

use std::{
    ffi::OsStr,
    fs::File,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use tokio::{
    process::{Child, Command},
    time::{Instant, sleep},
};

/// A command that the kernel kills when the thread that started it ends, so also when the test run itself is killed.
///
/// `setpriv` sets the parent-death signal: doing it from Rust would need unsafe code.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "KILL", "--"])
        .arg(program)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}

/// Starts `command`. The signal of [`command`] is tied to the *thread* that starts it, so that must be a runtime worker, which lives as
/// long as the run, and not a thread of the test harness, which ends with its trial.
pub async fn spawn(mut command: Command) -> Result<Child, String> {
    tokio::spawn(async move {
        let program = format!(
            "{:?}",
            command.as_std().get_args().nth(3).unwrap_or_default()
        );
        command.spawn().map_err(|e| {
            format!("{program} does not start (is `setpriv` of util-linux installed?): {e}")
        })
    })
    .await
    .map_err(|e| e.to_string())?
}

/// A program that serves for the whole run, with its log file; dropping it kills it.
pub struct Service {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

impl Service {
    /// Starts it, its output going to `NAME.log` in this folder.
    pub async fn start(
        name: &'static str,
        mut command: Command,
        folder: &Path,
    ) -> Result<Self, String> {
        let log = folder.join(format!("{name}.log"));
        let file = File::create(&log).map_err(|e| format!("{}: {e}", log.display()))?;
        let other = file.try_clone().map_err(|e| e.to_string())?;
        command.stdout(file).stderr(other);
        Ok(Self {
            name,
            child: spawn(command).await?,
            log,
        })
    }

    /// Waits until `probe` succeeds.
    ///
    /// # Errors
    /// When the program ends, or after two minutes, with the end of its log.
    pub async fn ready<F>(&mut self, mut probe: impl FnMut() -> F) -> Result<(), String>
    where
        F: Future<Output = Result<(), String>>,
    {
        let end = Instant::now() + Duration::from_secs(120);
        let reason = loop {
            if let Some(status) = self.child.try_wait().map_err(|e| e.to_string())? {
                break format!("ended with {status}");
            }
            match probe().await {
                Ok(()) => return Ok(()),
                Err(error) if Instant::now() > end => break format!("is not ready: {error}"),
                Err(_) => sleep(Duration::from_millis(100)).await,
            }
        };
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        let tail = lines[lines.len().saturating_sub(15)..].join("\n");
        Err(format!(
            "{} {reason}, and this is the end of its log:\n{tail}",
            self.name
        ))
    }
}

/// Distinct free ports on loopback. Held all together until all are known; somebody else can still take one before it is used.
pub fn free_ports<const N: usize>() -> std::io::Result<[u16; N]> {
    let mut ports = [0; N];
    let mut held = Vec::new();
    for port in &mut ports {
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        *port = listener.local_addr()?.port();
        held.push(listener);
    }
    Ok(ports)
}
