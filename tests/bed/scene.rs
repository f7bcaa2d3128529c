//! A trial: an async function that gets namespaces of its own on the common cluster, and a full account of them when it fails.

use std::{
    any::Any,
    sync::{Arc, Mutex},
    time::Duration,
};

use libtest_mimic::{Failed, Trial};
use tokio::runtime::Handle;

use crate::{
    bed::{self, Bed},
    namespace::Namespace,
    proxy::Kind,
};

/// So that a trial that hangs fails, with its account, instead of hanging the run.
const LONGEST: Duration = Duration::from_secs(2400);

/// How much later the controller-manager sees what happens, in trials under lag (design section 3, fact 4).
pub const LAG: Duration = Duration::from_millis(500);

/// What a trial works with.
pub struct Scene {
    pub bed: Arc<Bed>,
    name: String,
    lag: Option<Kind>,
    namespaces: Mutex<Vec<Arc<Namespace>>>,
}

impl Scene {
    /// A fresh namespace with a recorder, a daemon account, and everything else a scenario needs.
    pub async fn namespace(&self) -> Arc<Namespace> {
        let namespace = Arc::new(Namespace::create(&self.bed, &self.name).await);
        if let Some(kind) = self.lag {
            namespace.lag(kind, LAG);
        }
        self.namespaces.lock().unwrap().push(Arc::clone(&namespace));
        namespace
    }
}

impl Scene {
    /// Gives a namespace back early: all is well in it, so it is no part of the account of a failure elsewhere.
    pub async fn done(&self, namespace: &Namespace) {
        self.namespaces
            .lock()
            .unwrap()
            .retain(|known| known.name != namespace.name);
        namespace.close().await;
    }
}

/// The trials of the run, as they are registered.
pub struct Trials {
    runtime: Handle,
    trials: Vec<Trial>,
}

impl Trials {
    pub const fn new(runtime: Handle) -> Self {
        Self {
            runtime,
            trials: Vec::new(),
        }
    }

    pub fn into_vec(self) -> Vec<Trial> {
        self.trials
    }

    /// Adds a trial; it fails by panicking.
    pub fn add<F>(
        &mut self,
        name: impl Into<String>,
        trial: impl FnOnce(Arc<Scene>) -> F + Send + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        self.push(name.into(), None, trial);
    }

    /// Adds a trial three times: as it is, and with either watch of the controller-manager delayed.
    pub fn add_with_lags<F>(
        &mut self,
        name: &str,
        trial: impl FnOnce(Arc<Scene>) -> F + Clone + Send + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        self.push(name.to_owned(), None, trial.clone());
        for (kind, text) in [
            (Kind::Deployments, "deployments"),
            (Kind::ReplicaSets, "replicasets"),
        ] {
            let name = format!("{name}, the {text} watch delayed");
            self.push(name, Some(kind), trial.clone());
        }
    }

    fn push<F>(
        &mut self,
        name: String,
        lag: Option<Kind>,
        trial: impl FnOnce(Arc<Scene>) -> F + Send + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let runtime = self.runtime.clone();
        self.trials.push(Trial::test(name.clone(), move || {
            runtime.block_on(run(name, lag, trial))
        }));
    }
}

async fn run<F>(
    name: String,
    lag: Option<Kind>,
    trial: impl FnOnce(Arc<Scene>) -> F,
) -> Result<(), Failed>
where
    F: Future<Output = ()> + Send + 'static,
{
    let scene = Arc::new(Scene {
        bed: bed::get().await?,
        name,
        lag,
        namespaces: Mutex::default(),
    });
    // On a worker thread of the runtime, so that processes started by the trial outlive the harness's thread (see `process::spawn`).
    let task = tokio::spawn(tokio::time::timeout(LONGEST, trial(Arc::clone(&scene))));
    let stop = task.abort_handle();
    let failure = match task.await {
        Ok(Ok(())) => None,
        Ok(Err(_)) => Some(format!("not finished after {LONGEST:?}")),
        Err(error) => Some(
            error
                .try_into_panic()
                .map_or_else(|e| e.to_string(), |payload| message(payload.as_ref())),
        ),
    };
    stop.abort();
    let namespaces: Vec<_> = std::mem::take(&mut *scene.namespaces.lock().unwrap());
    let mut account = String::new();
    for namespace in namespaces {
        if failure.is_some() {
            account.push_str(&namespace.account().await);
        }
        namespace.close().await;
    }
    failure.map_or(
        Ok(()),
        |failure| Err(format!("{failure}\n{account}").into()),
    )
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| payload.downcast_ref::<&str>().copied());
    text.unwrap_or("panicked without a message").to_owned()
}
