//! `volery query`: trying expressions on the pods that run.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use volery::analysis::{self, Query};
use volery::chain::chain;
use volery::cluster::Depth;
use volery::config::{self, PrometheusSettings, PrometheusUrl};
use volery::daemon;
use volery::operator::{self, DeploymentName};

use super::{Place, REFUSED, print, reach};
use crate::{complain, variable};

/// How long a single query may take where no file says how often there are checks.
const CHECK_INTERVAL: Duration = config::DEFAULT_QUERY_TIMEOUT;

/// What is tried, and where.
#[derive(Args)]
pub struct Arguments {
    /// The name of its Deployment, or of its entry in the file.
    service: DeploymentName,
    /// The configuration file: where Prometheus is, and the expressions.
    #[arg(long, value_name = "FILE", required_unless_present_all = ["prometheus", "expressions"])]
    config: Option<PathBuf>,
    /// An expression to try instead of those of the file; may be given several times.
    #[arg(long = "expr", id = "expressions", value_name = "EXPR")]
    expressions: Vec<String>,
    /// Where Prometheus is, such as a forwarded port, instead of where the file says.
    #[arg(long, value_name = "URL")]
    prometheus: Option<PrometheusUrl>,
    #[command(flatten)]
    place: Place,
}

pub(super) const EXIT_CODES: &str = "Exit code: 0 when all passed, 1 when something failed, has no data or could not be answered, 2 when nothing can be \
     asked.";

pub(super) async fn query(arguments: Arguments) -> ExitCode {
    match ask(arguments).await {
        Ok(code) => code,
        Err(problem) => complain(&problem),
    }
}

/// What is asked of which Prometheus.
struct Question {
    place: Place,
    deployment: String,
    prometheus: PrometheusSettings,
    queries: Vec<Query>,
    check_interval: Duration,
}

async fn ask(arguments: Arguments) -> Result<ExitCode, String> {
    let question = question(arguments)?;
    let (cluster, namespace) = reach(question.place).await?;
    let sight = cluster
        .sight(&namespace, &question.deployment, Depth::Pods)
        .await
        .map_err(|error| operator::problem(&error))?;
    let cast = operator::cast(&sight).map_err(|unusable| unusable.to_string())?;
    if cast.pods.canary.is_empty() {
        return Err(format!(
            "{}: there is no running pod to ask about",
            cast.service
        ));
    }
    let metrics =
        analysis::metrics(Some(&question.prometheus), &variable).map_err(|error| chain(&error))?;
    print(&format!("{cast}\nPrometheus: {}", question.prometheus.url));
    let tried = operator::try_out(
        &metrics,
        question.check_interval,
        &question.queries,
        &cast.pods,
    )
    .await;
    for tried in &tried {
        print(&format!("\n{tried}"));
    }
    let (summary, code) = match operator::summary(&tried) {
        Ok(summary) => (summary, 0),
        Err(summary) => (summary, REFUSED),
    };
    print(&format!("\n{summary}"));
    Ok(ExitCode::from(code))
}

fn question(arguments: Arguments) -> Result<Question, String> {
    let Arguments {
        service: DeploymentName(name),
        config,
        expressions,
        prometheus,
        mut place,
    } = arguments;
    let given: Vec<Query> = expressions
        .iter()
        .map(|text| Query::parse(text).map_err(|error| format!("--expr: {error}")))
        .collect::<Result<_, _>>()?;
    let (settings, entry) = match config {
        Some(file) => from_file(&file, &name, &place, given.is_empty())?,
        None => (None, None),
    };
    let prometheus = match (settings, prometheus) {
        (Some(settings), Some(url)) => settings.at(url),
        (Some(settings), None) => settings,
        (None, Some(url)) => PrometheusSettings::new(url),
        (None, None) => {
            return Err(
                "the file does not say where Prometheus is: say it there as prometheus-base-url, or here with \
                 --prometheus"
                    .to_owned(),
            );
        }
    };
    let Some(entry) = entry else {
        return Ok(Question {
            place,
            deployment: name,
            prometheus,
            queries: given,
            check_interval: CHECK_INTERVAL,
        });
    };
    let queries = if given.is_empty() {
        Query::of(&entry)
    } else {
        given
    };
    if queries.is_empty() {
        return Err(format!(
            "{name} has no success expressions: try some with --expr"
        ));
    }
    place.namespace = Some(entry.namespace);
    Ok(Question {
        place,
        deployment: entry.deployment,
        prometheus,
        queries,
        check_interval: entry.check_interval,
    })
}

/// How the file says that Prometheus is asked, and its entry of this name. With expressions of one's own there need be
/// none.
fn from_file(
    file: &Path,
    name: &str,
    place: &Place,
    needs_entry: bool,
) -> Result<(Option<PrometheusSettings>, Option<config::Service>), String> {
    let loaded = daemon::load(file).map_err(|error| chain(&error))?;
    for problem in &loaded.problems {
        // Nobody is left to be told when stderr is closed.
        let _ = writeln!(std::io::stderr(), "warning: {}:{problem}", file.display());
    }
    let is_meant = |service: &&config::Service| {
        let is_here = place
            .namespace
            .as_ref()
            .is_none_or(|n| *n == service.namespace);
        is_here && (service.deployment == name || service.name.as_str() == name)
    };
    let mut meant = loaded.config.services.values().filter(is_meant);
    let entry = meant.next();
    if let (Some(first), Some(second)) = (entry, meant.next()) {
        return Err(format!(
            "{name} may be {}/{} or {}/{}: say which namespace with -n",
            first.namespace, first.deployment, second.namespace, second.deployment
        ));
    }
    if entry.is_none() && needs_entry {
        let is_refused = loaded
            .refused
            .iter()
            .any(|refused| refused.as_str() == name);
        let names: Vec<String> = loaded
            .config
            .services
            .keys()
            .map(ToString::to_string)
            .collect();
        return Err(if is_refused {
            format!(
                "the entry {name} in {} cannot be used as it is",
                file.display()
            )
        } else {
            format!(
                "{} has no entry for {name}{}; its entries: {}",
                file.display(),
                place
                    .namespace
                    .as_ref()
                    .map_or_else(String::new, |namespace| format!(
                        " in namespace {namespace}"
                    )),
                names.join(", ")
            )
        });
    }
    Ok((loaded.config.prometheus.clone(), entry.cloned()))
}
