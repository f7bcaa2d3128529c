//! The one cluster of the run.

use std::{
    path::Path,
    sync::{Arc, Mutex},
};

use kube::Client;
use tempfile::TempDir;
use tokio::{sync::OnceCell, task::JoinHandle};

use crate::{
    audit::Audit,
    control_plane::{ControlPlane, Who},
    kubelet::Kubelet,
    metrics::Metrics,
    programs::Programs,
    prometheus::Prometheus,
};

/// Everything that runs for the length of the run.
pub struct Bed {
    pub programs: Arc<Programs>,
    pub control_plane: ControlPlane,
    pub kubelet: Arc<Kubelet>,
    pub metrics: Arc<Metrics>,
    pub metrics_port: u16,
    pub prometheus: Prometheus,
    pub audit: Audit,
    /// May do everything.
    pub client: Client,
    pub data: TempDir,
    tasks: [JoinHandle<()>; 2],
}

static BED: OnceCell<Result<Mutex<Option<Arc<Bed>>>, String>> = OnceCell::const_new();

/// The bed, started by whoever asks first.
///
/// # Errors
/// Why it did not start, the same for everybody who asks.
pub async fn get() -> Result<Arc<Bed>, String> {
    // On a task of its own, so that the children belong to a thread that lives as long as the run.
    let bed = BED.get_or_init(async || {
        let started = tokio::spawn(Bed::start())
            .await
            .unwrap_or_else(|e| Err(e.to_string()));
        started
            .map(|bed| Mutex::new(Some(Arc::new(bed))))
            .map_err(|error| {
                eprintln!("test bed: it does not start: {error}");
                format!(
                    "the test bed does not start: {}",
                    error.lines().next().unwrap_or_default()
                )
            })
    });
    match bed.await {
        Ok(bed) => bed
            .lock()
            .unwrap()
            .clone()
            .ok_or_else(|| "the test bed is stopped already".to_owned()),
        Err(error) => Err(error.clone()),
    }
}

/// Stops what was started. Trials that still run lose their cluster.
pub async fn stop() {
    if let Some(Ok(bed)) = BED.get() {
        let bed = bed.lock().unwrap().take();
        if let Some(bed) = bed {
            bed.tasks.iter().for_each(JoinHandle::abort);
            // Set to look into a cluster after its tests: its folder stays, with all logs.
            if std::env::var_os("VOLERY_BED_KEEP").is_some() {
                eprintln!("test bed: kept {}", bed.data.path().display());
                std::mem::forget(bed);
            }
        }
    }
}

impl Bed {
    async fn start() -> Result<Self, String> {
        // Both TLS clients of the tree use the same provider; whoever is first installs it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let programs = tokio::task::spawn_blocking(Programs::ensure);
        let programs = Arc::new(programs.await.map_err(|e| e.to_string())??);
        sweep();
        // Ports are free when they are chosen, and may be taken when they are used.
        for _ in 0..3 {
            match Self::on(&programs).await {
                Err(error) if error.contains("address already in use") => {}
                bed => return bed,
            }
        }
        Self::on(&programs).await
    }

    async fn on(programs: &Arc<Programs>) -> Result<Self, String> {
        let prefix = format!("{FOLDER}{}-", std::process::id());
        let data = tempfile::Builder::new()
            .prefix(&prefix)
            .tempdir()
            .map_err(|e| format!("a temporary folder: {e}"))?;
        let control_plane = ControlPlane::start(programs, &data).await?;
        let client = control_plane.api_server.client(Who::Bed).await?;
        let (kubelet, kubelet_task) =
            Kubelet::start(control_plane.api_server.client(Who::Kubelet).await?);
        let (metrics, port, metrics_task) = Metrics::start(Arc::clone(&kubelet))
            .await
            .map_err(|e| format!("the metrics endpoint: {e}"))?;
        let prometheus = Prometheus::start(programs, &data, port).await?;
        let audit = Audit::new(control_plane.audit_log.clone(), client.clone());
        Ok(Self {
            programs: Arc::clone(programs),
            control_plane,
            kubelet,
            metrics,
            metrics_port: port,
            prometheus,
            audit,
            client,
            data,
            tasks: [kubelet_task, metrics_task],
        })
    }
}

const FOLDER: &str = "volery-bed-";

/// Removes the folders of runs that were killed.
fn sweep() {
    let Ok(entries) = std::env::temp_dir().read_dir() else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let process = name
            .to_str()
            .and_then(|name| name.strip_prefix(FOLDER))
            .and_then(|rest| rest.split('-').next());
        if process
            .is_some_and(|id| id.parse::<u32>().is_ok() && !Path::new("/proc").join(id).exists())
        {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}
