//! The programs of the bed, built from pinned Go modules and cached outside the source tree.

use std::{
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use sha2::{Digest as _, Sha256};

/// Where each program is.
pub struct Programs {
    pub etcd: PathBuf,
    pub kube_apiserver: PathBuf,
    pub kube_controller_manager: PathBuf,
    pub kubectl: PathBuf,
    pub prometheus: PathBuf,
}

/// A Go module under `tests/bed/` whose `tool` lines name programs.
struct Module {
    folder: &'static str,
    flags: &'static [&'static str],
    programs: &'static [&'static str],
}

/// The version stamped into the Kubernetes programs: they refuse to start without one.
const CONTROL_PLANE: Module = Module {
    folder: "control-plane",
    flags: &[
        "-trimpath",
        "-ldflags",
        "-s -w -X k8s.io/component-base/version.gitVersion=v1.36.3 -X k8s.io/component-base/version.gitMajor=1 \
         -X k8s.io/component-base/version.gitMinor=36",
    ],
    programs: &[
        "server",
        "kube-apiserver",
        "kube-controller-manager",
        "kubectl",
    ],
};

/// Without the service discoveries that pull in every cloud's client; file, http and static ones stay.
const PROMETHEUS: Module = Module {
    folder: "prometheus",
    flags: &["-trimpath", "-tags", "remove_all_sd", "-ldflags", "-s -w"],
    programs: &["prometheus"],
};

impl Programs {
    /// Finds the programs, building what is missing: minutes the first time, so progress goes to stderr.
    ///
    /// # Errors
    /// When Go is missing, a build fails, or the cache cannot be written.
    pub fn ensure() -> Result<Self, String> {
        let control_plane = CONTROL_PLANE.ensure()?;
        let prometheus = PROMETHEUS.ensure()?;
        Ok(Self {
            etcd: control_plane.join("server"),
            kube_apiserver: control_plane.join("kube-apiserver"),
            kube_controller_manager: control_plane.join("kube-controller-manager"),
            kubectl: control_plane.join("kubectl"),
            prometheus: prometheus.join("prometheus"),
        })
    }
}

impl Module {
    fn ensure(&self) -> Result<PathBuf, String> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/bed")
            .join(self.folder);
        let cache = cache_folder()?;
        let built = cache.join(format!("{}-{}", self.folder, self.key(&source)?));
        let complete = || {
            self.programs
                .iter()
                .all(|program| built.join(program).is_file())
        };
        if complete() {
            return Ok(built);
        }
        fs::create_dir_all(&cache).map_err(|e| format!("{}: {e}", cache.display()))?;
        let lock =
            File::create(cache.join("lock")).map_err(|e| format!("{}: {e}", cache.display()))?;
        lock.lock()
            .map_err(|e| format!("locking {}: {e}", cache.display()))?;
        if complete() {
            return Ok(built);
        }
        self.build(&source, &cache, &built)?;
        Ok(built)
    }

    /// What the outcome of the build depends on.
    fn key(&self, source: &Path) -> Result<String, String> {
        let mut hash = Sha256::new();
        for file in ["go.mod", "go.sum"] {
            let path = source.join(file);
            hash.update(fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?);
        }
        let version = Command::new("go")
            .arg("version")
            .current_dir(source)
            .output()
            .map_err(|e| {
                format!(
                    "the test bed builds its control plane with Go, and `go version` failed: {e}"
                )
            })?;
        if !version.status.success() {
            return Err(format!(
                "`go version` failed: {}",
                String::from_utf8_lossy(&version.stderr).trim()
            ));
        }
        hash.update(&version.stdout);
        hash.update(self.flags.join("\0"));
        Ok(hash
            .finalize()
            .iter()
            .take(6)
            .map(|byte| format!("{byte:02x}"))
            .collect())
    }

    /// Into a folder beside the final one, then renamed: a build that was killed leaves nothing that looks finished.
    fn build(&self, source: &Path, cache: &Path, built: &Path) -> Result<(), String> {
        let unfinished = tempfile::Builder::new()
            .prefix("building-")
            .tempdir_in(cache)
            .map_err(|e| format!("{}: {e}", cache.display()))?;
        let started = Instant::now();
        progress(&format!(
            "building {} (once; {})",
            self.programs.join(", "),
            built.display()
        ));
        let mut go = Command::new("setpriv")
            .args(["--pdeathsig", "TERM", "--", "go", "build"])
            .args(self.flags)
            .arg("-o")
            .arg(unfinished.path().join(""))
            .arg("tool")
            .current_dir(source)
            .stdin(Stdio::null())
            .spawn()
            .map_err(|e| format!("`go build` does not start: {e}"))?;
        let mut next = Duration::from_secs(30);
        let status = loop {
            if let Some(status) = go.try_wait().map_err(|e| e.to_string())? {
                break status;
            }
            if started.elapsed() > next {
                progress(&format!(
                    "still building {} after {} s",
                    self.folder,
                    started.elapsed().as_secs()
                ));
                next += Duration::from_secs(30);
            }
            std::thread::sleep(Duration::from_millis(200));
        };
        if !status.success() {
            return Err(format!(
                "`go build` of tests/bed/{} ended with {status}",
                self.folder
            ));
        }
        progress(&format!(
            "built {} in {} s",
            self.folder,
            started.elapsed().as_secs()
        ));
        let _ = fs::remove_dir_all(built);
        let finished = unfinished.keep();
        fs::rename(&finished, built)
            .map_err(|e| format!("{} to {}: {e}", finished.display(), built.display()))
    }
}

fn cache_folder() -> Result<PathBuf, String> {
    let base = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::home_dir().map(|home| home.join(".cache")))
        .ok_or(
            "neither XDG_CACHE_HOME nor a home folder is set: nowhere to keep the built programs",
        )?;
    Ok(base.join("volery/bed"))
}

fn progress(line: &str) {
    let _ = writeln!(std::io::stderr(), "test bed: {line}");
}
