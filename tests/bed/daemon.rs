//! The daemon under test, as a process with its namespace's account.

use std::{
    path::{Path, PathBuf},
    process::ExitStatus,
    sync::{Arc, Mutex},
};

use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, BufReader},
    process::Child,
    time::Instant,
};

use crate::{process, wait::eventually};

/// A running `volery run`; dropping it kills it.
pub struct Daemon {
    child: Child,
    started: Instant,
    log: Arc<Mutex<Vec<Line>>>,
}

/// A line of its output, stdout and stderr together.
#[derive(Clone, Debug)]
pub struct Line {
    pub at: Instant,
    pub text: String,
}

/// What a daemon is started with; starting again gives a new process with the same.
#[derive(Clone, Debug)]
pub struct Setup {
    pub config: PathBuf,
    pub kubeconfig: PathBuf,
    pub extra_args: Vec<String>,
    pub env: Vec<(String, String)>,
}

impl Setup {
    /// Starts `volery run --config FILE`, lines going to `log` as well.
    pub async fn start(&self, log: Arc<Mutex<Vec<Line>>>) -> Daemon {
        let mut command = process::command(env!("CARGO_BIN_EXE_volery"));
        command
            .args(["run", "--config"])
            .arg(&self.config)
            .args(&self.extra_args)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("NO_COLOR", "1")
            .envs(self.env.iter().cloned())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped());
        let started = Instant::now();
        let mut child = process::spawn(command).await.expect("the daemon starts");
        tokio::spawn(collect(
            child.stdout.take().expect("piped"),
            Arc::clone(&log),
        ));
        tokio::spawn(collect(
            child.stderr.take().expect("piped"),
            Arc::clone(&log),
        ));
        Daemon {
            child,
            started,
            log,
        }
    }

    /// Replaces the config file's text, in one rename as an editor does.
    pub fn write_config(&self, text: &str) {
        write(&self.config, text);
    }
}

fn write(path: &Path, text: &str) {
    let beside = path.with_extension("new");
    std::fs::write(&beside, text)
        .and_then(|()| std::fs::rename(&beside, path))
        .expect("the config file can be written");
}

async fn collect(output: impl AsyncRead + Unpin, log: Arc<Mutex<Vec<Line>>>) {
    let mut lines = BufReader::new(output).lines();
    while let Ok(Some(text)) = lines.next_line().await {
        log.lock().unwrap().push(Line {
            at: Instant::now(),
            text,
        });
    }
}

impl Daemon {
    /// The id of the process, for measuring it.
    pub fn id(&self) -> u32 {
        self.child.id().expect("it runs")
    }

    /// SIGKILL, and wait until it is gone.
    pub async fn kill(mut self) {
        self.child.kill().await.expect("the daemon can be killed");
    }

    /// Sends a signal, such as `STOP`.
    pub async fn signal(&self, name: &str) {
        let sent = tokio::process::Command::new("kill")
            .args([&format!("-{name}"), &self.id().to_string()])
            .status()
            .await;
        assert!(
            sent.is_ok_and(|status| status.success()),
            "the daemon can be sent SIG{name}"
        );
    }

    /// SIGTERM, and wait until it has ended.
    pub async fn terminate(mut self) -> ExitStatus {
        self.signal("TERM").await;
        tokio::time::timeout(std::time::Duration::from_secs(60), self.child.wait())
            .await
            .expect("the daemon ends within a minute of SIGTERM")
            .expect("its status can be read")
    }

    /// The exit status, once it has ended by itself.
    pub async fn ended(&mut self) -> ExitStatus {
        self.child.wait().await.expect("its status can be read")
    }

    /// Its lines so far.
    pub fn log(&self) -> Vec<Line> {
        let all = self.log.lock().unwrap();
        all.iter()
            .filter(|line| line.at >= self.started)
            .cloned()
            .collect()
    }

    /// Waits for a line of its with this text and returns it.
    pub async fn log_contains(&self, text: &str) -> Line {
        self.log_contains_since(self.started, text).await
    }

    /// [`Self::log_contains`], not looking at lines from before `since`.
    pub async fn log_contains_since(&self, since: Instant, text: &str) -> Line {
        eventually(&format!("a log line with {text:?}"), async || {
            let log = self.log();
            let found = log
                .iter()
                .find(|line| line.at >= since && line.text.contains(text));
            found.cloned().ok_or_else(|| {
                let last = log.last().map_or("", |line| &line.text);
                format!("none of {} lines has it, the last is {last:?}", log.len())
            })
        })
        .await
    }
}
