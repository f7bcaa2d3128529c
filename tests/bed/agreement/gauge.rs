//! What Prometheus says on both stages. A script's step must not end before its deed is done, however slow the machine is: so from the
//! first check of that step on there is no data, until the daemon has answered the deed.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use crate::prometheus::pods_named;

/// The measured value of `my_errors` of the pods that are asked about.
#[derive(Clone, Default)]
pub struct Gauge {
    said: Arc<Mutex<Said>>,
}

#[derive(Default)]
struct Said {
    asked_about: BTreeSet<String>,
    /// Without data as soon as so many pods were asked about.
    held_at: Option<usize>,
    errors: Option<f64>,
}

impl Gauge {
    pub fn held_at(canary_pods: Option<usize>) -> Self {
        let gauge = Self::default();
        gauge.said.lock().unwrap().held_at = canary_pods;
        gauge
    }

    pub fn release(&self) {
        self.said.lock().unwrap().held_at = None;
    }

    /// From now on, held or not.
    pub fn set(&self, errors: f64) {
        self.said.lock().unwrap().errors = Some(errors);
    }

    /// The sample of each pod in a question about `my_errors{..., pod="NAME"} == 0`, as it is judged or its left side.
    pub fn answer(&self, query: &str) -> Option<f64> {
        let mut said = self.said.lock().unwrap();
        said.asked_about.extend(pods_named(query));
        let held = said.held_at.is_some_and(|at| said.asked_about.len() >= at);
        let errors = match (said.errors, held) {
            (Some(errors), _) => errors,
            (None, false) => 0.0,
            (None, true) => return None,
        };
        Some(match (query.contains("bool"), errors == 0.0) {
            (false, _) => errors,
            (true, true) => 1.0,
            (true, false) => 0.0,
        })
    }
}
