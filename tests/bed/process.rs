//! Child processes that never outlive the test run.

use std::{ffi::OsStr, fs::File, path::Path, process::Stdio};

use tokio::process::{Child, Command};

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

/// Starts a service of the bed whose output goes to `log`.
pub async fn service(mut command: Command, log: &Path) -> Result<Child, String> {
    let file = File::create(log).map_err(|e| format!("{}: {e}", log.display()))?;
    let other = file.try_clone().map_err(|e| e.to_string())?;
    command.stdout(file).stderr(other);
    spawn(command).await
}

/// The end of a log file, for the message of a service that failed.
pub fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(15)..].join("\n")
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
