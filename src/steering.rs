//! What an operator types: orders to services, and questions about them.

mod query;

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use volery::cluster::{Cluster, Depth, NoFence, Scope, connect};
use volery::config::parse_duration;
use volery::operator::{self, DeploymentName, OrderError, Report, Service, Waited};
use volery::rollout::command::{Answer, Answered, Leave, Verb};
use volery::telemetry::log;

use crate::complain;

/// Not everything was done.
const REFUSED: u8 = 1;

/// Nobody answered.
const OPEN: u8 = 2;

/// Orders and questions.
#[derive(Subcommand)]
pub enum Command {
    #[command(flatten)]
    Order(Order),
    #[command(flatten)]
    Question(Question),
}

/// What changes something.
#[derive(Subcommand)]
pub enum Order {
    /// End the open rollout: back to the accepted version, at once.
    #[command(after_help = EXIT_CODES)]
    Abort(OneOrder),
    /// Skip the checks that are left, not availability; at R = 0 accept the waiting version.
    #[command(after_help = EXIT_CODES)]
    Promote(OneOrder),
    /// Let nothing move: no rollout opens, no step is taken, no check counts.
    #[command(after_help = EXIT_CODES)]
    Hold(ManyOrders),
    /// Let what is on hold go on; check what is frozen again.
    #[command(after_help = EXIT_CODES)]
    Resume(ManyOrders),
    /// Try the rejected version again, from its first step.
    #[command(after_help = EXIT_CODES)]
    Retry(OneOrder),
    /// Roll the waiting or rejected version out without checks.
    #[command(after_help = EXIT_CODES)]
    Bypass(OneOrder),
    /// Replace every pod by one of the same version, without checks, by the steps of a rollout.
    #[command(after_help = EXIT_CODES)]
    Restart(OneOrder),
    /// Go back to a version of the history, without checks, by the steps of a rollout.
    #[command(after_help = EXIT_CODES)]
    Undo {
        /// Its revision, see volery history [default: the one before].
        #[arg(long, value_name = "REVISION")]
        to: Option<u64>,
        #[command(flatten)]
        order: OneOrder,
    },
    /// Give the service back to Kubernetes: history back, un-paused, nothing of Volery's left.
    #[command(after_help = EXIT_CODES)]
    Release {
        /// Put the accepted template on the Deployment first, should it have another.
        #[arg(long, conflicts_with = "original")]
        accepted: bool,
        /// Let Kubernetes roll out whatever the Deployment says, unchecked.
        #[arg(long)]
        original: bool,
        #[command(flatten)]
        order: ManyOrders,
    },
}

/// What changes nothing.
#[derive(Subcommand)]
pub enum Question {
    /// List the versions of a service, newest first: those that ran, the one on trial, the one that failed.
    History {
        /// The name of its Deployment.
        service: DeploymentName,
        #[command(flatten)]
        place: Place,
    },
    /// Ask a service's success expressions now, about the pods that run, and show values and verdicts.
    ///
    /// Nothing of it counts for a rollout. While one is open its canary pods are asked about, else the Deployment's own
    /// pods play the canary.
    #[command(after_help = query::EXIT_CODES)]
    Query(Box<query::Arguments>),
    /// Tell how services stand, from the cluster alone.
    Status(Status),
    /// Wait until the template that the Deployment has now is rolled out, or is not.
    #[command(
        after_help = "Exit code: 0 when it is the accepted version, 1 when it was rolled back, frozen, cancelled or \
                      superseded or cannot be waited for, 2 when it is not over in time."
    )]
    Wait {
        /// The name of its Deployment.
        service: DeploymentName,
        /// How long to wait [default: as long as it takes].
        #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
        timeout: Option<Duration>,
        #[command(flatten)]
        place: Place,
    },
}

const EXIT_CODES: &str = "Exit code: 0 when it is done, 1 when it is refused or cannot be ordered, 2 when nobody answered.";

/// Which cluster, and where in it.
#[derive(Args)]
pub struct Place {
    /// The namespace [default: that of the kubeconfig's context, or the pod's own].
    #[arg(short, long)]
    namespace: Option<String>,
    /// The context of the kubeconfig (KUBECONFIG, ~/.kube/config) [default: its current one].
    #[arg(long)]
    context: Option<String>,
}

/// An order to one service.
#[derive(Args)]
pub struct OneOrder {
    /// The name of its Deployment.
    service: DeploymentName,
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    patience: Patience,
}

/// An order to one service, or to many.
#[derive(Args)]
pub struct ManyOrders {
    /// The name of its Deployment.
    #[arg(required_unless_present_any = ["all", "all_namespaces"], conflicts_with_all = ["all", "all_namespaces"])]
    service: Option<DeploymentName>,
    /// Every service of the namespace that it concerns.
    #[arg(long)]
    all: bool,
    /// Every service of all namespaces that it concerns.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    patience: Patience,
}

/// What is told of services.
#[derive(Args)]
pub struct Status {
    /// The name of its Deployment [default: every service of the namespace].
    #[arg(conflicts_with = "all_namespaces")]
    service: Option<DeploymentName>,
    /// Every service of all namespaces.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
    /// How it is written.
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    output: Output,
    /// Go on, and write it anew whenever it changes; drawn in place on a terminal.
    #[arg(short, long)]
    watch: bool,
    #[command(flatten)]
    place: Place,
}

/// How an answer is written.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people.
    Table,
    /// For programs.
    Json,
}

/// How long an answer is waited for.
#[derive(Args)]
struct Patience {
    /// How long to wait for Volery's answer.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_duration)]
    timeout: Duration,
}

/// Runs a command to its exit code.
pub fn main(command: Command) -> ExitCode {
    // The only provider there is; a second installation would be refused, and there is none.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    match runtime {
        Ok(runtime) => runtime.block_on(run(command)),
        Err(error) => complain(&format!("the runtime cannot be started: {error}")),
    }
}

async fn run(command: Command) -> ExitCode {
    match command {
        Command::Order(order) => give(order).await,
        Command::Question(Question::History { service, place }) => history(service, place).await,
        Command::Question(Question::Query(arguments)) => query::query(*arguments).await,
        Command::Question(Question::Status(status)) => tell_status(status).await,
        Command::Question(Question::Wait {
            service,
            timeout,
            place,
        }) => wait(service, timeout, place).await,
    }
}

async fn give(order: Order) -> ExitCode {
    let (verb, order) = match order {
        Order::Abort(order) => (Verb::Abort, order.into()),
        Order::Promote(order) => (Verb::Promote, order.into()),
        Order::Hold(order) => (Verb::Hold, order),
        Order::Resume(order) => (Verb::Resume, order),
        Order::Retry(order) => (Verb::Retry, order.into()),
        Order::Bypass(order) => (Verb::Bypass, order.into()),
        Order::Restart(order) => (Verb::Restart, order.into()),
        Order::Undo { to, order } => (Verb::Undo { to }, order.into()),
        Order::Release {
            accepted,
            original,
            order,
        } => {
            let leave = match (accepted, original) {
                (true, _) => Leave::Accepted,
                (false, true) => Leave::Original,
                (false, false) => Leave::AsItIs,
            };
            (Verb::Release(leave), order)
        }
    };
    give_verb(verb, order).await
}

impl From<OneOrder> for ManyOrders {
    fn from(order: OneOrder) -> Self {
        Self {
            service: Some(order.service),
            all: false,
            all_namespaces: false,
            place: order.place,
            patience: order.patience,
        }
    }
}

/// The cluster, and the namespace that is meant.
async fn reach(place: Place) -> Result<(Cluster, String), String> {
    let client = connect(place.context.as_deref())
        .await
        .map_err(|error| volery::chain::chain(&error))?;
    let namespace = place
        .namespace
        .unwrap_or_else(|| client.default_namespace().to_owned());
    Ok((
        Cluster::new(client, log::wall_clock(), Arc::new(NoFence)),
        namespace,
    ))
}

async fn give_verb(verb: Verb, order: ManyOrders) -> ExitCode {
    let (cluster, namespace) = match reach(order.place).await {
        Ok(reached) => reached,
        Err(problem) => return fail(&problem),
    };
    let patience = order.patience.timeout;
    let given = match order.service {
        Some(DeploymentName(deployment)) => {
            let service = Service {
                namespace,
                deployment,
            };
            let outcome = operator::give(&cluster, &service, verb, patience).await;
            vec![(service, outcome)]
        }
        None => {
            let (scope, place) = if order.all_namespaces {
                (Scope::Cluster, "any namespace".to_owned())
            } else {
                let place = format!("namespace {namespace}");
                (Scope::Namespace(namespace), place)
            };
            match operator::give_all(&cluster, &scope, verb, patience).await {
                Ok(given) if given.is_empty() => {
                    return fail(&format!(
                        "{verb}: there is no service in {place} that it concerns"
                    ));
                }
                Ok(given) => given,
                Err(error) => return fail(&operator::problem(&error)),
            }
        }
    };
    let mut worst = 0;
    for (service, outcome) in given {
        worst = worst.max(tell_outcome(&service, verb, outcome));
    }
    ExitCode::from(worst)
}

/// Says what came of an order; its exit code.
fn tell_outcome(service: &Service, verb: Verb, outcome: Result<Answer, OrderError>) -> u8 {
    match outcome {
        Ok(Answer {
            outcome: Answered::Done,
            message,
            ..
        }) => {
            print(&format!("{service}: {verb}: {message}"));
            0
        }
        Ok(Answer { message, .. }) => {
            let _ = writeln!(std::io::stderr(), "{service}: {verb} refused: {message}");
            REFUSED
        }
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "{service}: {verb}: {error}");
            if error.is_open() { OPEN } else { REFUSED }
        }
    }
}

async fn history(DeploymentName(deployment): DeploymentName, place: Place) -> ExitCode {
    let (cluster, namespace) = match reach(place).await {
        Ok(reached) => reached,
        Err(problem) => return fail(&problem),
    };
    let told = match cluster.sight(&namespace, &deployment, Depth::History).await {
        Ok(sight) => operator::history(&sight).map_err(|unusable| unusable.to_string()),
        Err(error) => Err(operator::problem(&error)),
    };
    match told {
        Ok(history) => {
            print(&history);
            ExitCode::SUCCESS
        }
        Err(problem) => fail(&problem),
    }
}

async fn wait(
    DeploymentName(deployment): DeploymentName,
    timeout: Option<Duration>,
    place: Place,
) -> ExitCode {
    let (cluster, namespace) = match reach(place).await {
        Ok(reached) => reached,
        Err(problem) => return fail(&problem),
    };
    let service = Service {
        namespace,
        deployment,
    };
    let line = |text: &dyn std::fmt::Display| format!("{service}: {text}");
    let waited = operator::wait(&cluster, &service, timeout, |text| {
        print(&line(&text));
    })
    .await;
    match waited {
        Waited::Promoted(_) => {
            print(&line(&waited));
            ExitCode::SUCCESS
        }
        Waited::Failed(_) => fail(&line(&waited)),
        Waited::TimedOut(_) => {
            let _ = fail(&line(&waited));
            ExitCode::from(OPEN)
        }
    }
}

async fn tell_status(status: Status) -> ExitCode {
    let (cluster, namespace) = match reach(status.place).await {
        Ok(reached) => reached,
        Err(problem) => return fail(&problem),
    };
    let about = match status.service {
        Some(DeploymentName(deployment)) => About::One(Service {
            namespace,
            deployment,
        }),
        None if status.all_namespaces => About::All(Scope::Cluster),
        None => About::All(Scope::Namespace(namespace)),
    };
    if !status.watch {
        return match look(&cluster, &about).await {
            Ok(reports) => {
                print(&write(&reports, &about, status.output));
                let broken = matches!(about, About::One(_))
                    && reports.iter().any(|report| report.problem.is_some());
                ExitCode::from(if broken { REFUSED } else { 0 })
            }
            Err(problem) => fail(&problem),
        };
    }
    let draws = std::io::stdout().is_terminal() && status.output == Output::Table;
    let mut shown = String::new();
    loop {
        let text = match look(&cluster, &about).await {
            Ok(reports) => write(&reports, &about, status.output),
            Err(problem) if shown.is_empty() => return fail(&problem),
            Err(problem) => format!("{problem}; looking again"),
        };
        if text != shown {
            let told = match (draws, shown.is_empty(), status.output) {
                // Clears the terminal and goes to its top.
                (true, _, _) => print(&format!("\x1b[2J\x1b[H{text}")),
                (false, false, Output::Table) => print(&format!("\n{text}")),
                (false, _, _) => print(&text),
            };
            if told == Told::Nobody {
                return ExitCode::SUCCESS;
            }
            shown = text;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// How often `--watch` looks.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Whom a question is about.
enum About {
    One(Service),
    All(Scope),
}

async fn look(cluster: &Cluster, about: &About) -> Result<Vec<Report>, String> {
    let sights = match about {
        About::One(service) => cluster
            .sight(&service.namespace, &service.deployment, Depth::Surface)
            .await
            .map(|sight| vec![sight]),
        About::All(scope) => cluster.sights(scope).await,
    };
    let sights = sights.map_err(|error| operator::problem(&error))?;
    Ok(sights.iter().map(Report::of).collect())
}

fn write(reports: &[Report], about: &About, output: Output) -> String {
    match (output, about, reports) {
        (Output::Table, About::One(_), [report]) => report.to_string(),
        (Output::Table, _, []) => "no service is registered here".to_owned(),
        (Output::Table, _, reports) => operator::table(reports),
        // Reports are made of strings, numbers and lists: they always serialize.
        (Output::Json, About::One(_), [report]) => {
            serde_json::to_string_pretty(report).unwrap_or_default()
        }
        (Output::Json, _, reports) => serde_json::to_string_pretty(reports).unwrap_or_default(),
    }
}

/// Whether somebody reads.
#[derive(PartialEq, Eq)]
enum Told {
    Somebody,
    Nobody,
}

fn print(text: &str) -> Told {
    let mut stdout = std::io::stdout();
    match writeln!(stdout, "{text}").and_then(|()| stdout.flush()) {
        Ok(()) => Told::Somebody,
        Err(_) => Told::Nobody,
    }
}

fn fail(problem: &str) -> ExitCode {
    // Nobody is left to be told when stderr is closed.
    let _ = writeln!(std::io::stderr(), "error: {problem}");
    ExitCode::from(REFUSED)
}
