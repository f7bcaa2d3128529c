//! What the daemon says, each line with its virtual time.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tracing::subscriber::DefaultGuard;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use volery::simulate::cluster::Cluster;

/// A log that can be read while it is written.
#[derive(Clone)]
pub struct Log {
    cluster: Cluster,
    lines: Arc<Mutex<Vec<(Duration, String)>>>,
}

impl Log {
    /// Catches everything that this thread logs until the guard is dropped.
    pub fn catch(cluster: &Cluster) -> (Self, DefaultGuard) {
        let log = Self {
            cluster: cluster.clone(),
            lines: Arc::default(),
        };
        let level = std::env::var("VOLERY_LOG").unwrap_or_else(|_| "info".to_owned());
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .without_time()
            .with_target(false)
            .with_env_filter(EnvFilter::new(level))
            .with_writer(log.clone())
            .finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    pub fn add(&self, line: impl Into<String>) {
        let at = self.cluster.elapsed();
        self.lines.lock().unwrap().push((at, line.into()));
    }

    pub fn lines(&self) -> Vec<(Duration, String)> {
        self.lines.lock().unwrap().clone()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.add(String::from_utf8_lossy(bytes).trim_end());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}
