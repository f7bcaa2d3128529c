//! What an operator types: orders to services, and questions about them.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use volery::cluster::{Cluster, Scope, connect, connect_in};
use volery::config::parse_duration;
use volery::operator::{self, DeploymentName, OrderError, Service};
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
    let (verb, order) = match command {
        Command::Abort(order) => (Verb::Abort, order.into()),
        Command::Promote(order) => (Verb::Promote, order.into()),
        Command::Hold(order) => (Verb::Hold, order),
        Command::Resume(order) => (Verb::Resume, order),
        Command::Retry(order) => (Verb::Retry, order.into()),
        Command::Bypass(order) => (Verb::Bypass, order.into()),
        Command::Restart(order) => (Verb::Restart, order.into()),
        Command::Undo { to, order } => (Verb::Undo { to }, order.into()),
        Command::Release {
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
    give(verb, order).await
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
    let client = match &place.context {
        Some(context) => connect_in(context).await,
        None => connect().await,
    };
    let client = client.map_err(|error| volery::chain::chain(&error))?;
    let namespace = place
        .namespace
        .unwrap_or_else(|| client.default_namespace().to_owned());
    Ok((Cluster::new(client, log::wall_clock()), namespace))
}

async fn give(verb: Verb, order: ManyOrders) -> ExitCode {
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
        worst = worst.max(tell(&service, verb, outcome));
    }
    ExitCode::from(worst)
}

/// Says what came of an order; its exit code.
fn tell(service: &Service, verb: Verb, outcome: Result<Answer, OrderError>) -> u8 {
    match outcome {
        Ok(Answer {
            outcome: Answered::Done,
            message,
            ..
        }) => {
            // Whoever closed stdout does not want to know.
            let _ = writeln!(std::io::stdout(), "{service}: {verb}: {message}");
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

fn fail(problem: &str) -> ExitCode {
    // Nobody is left to be told when stderr is closed.
    let _ = writeln!(std::io::stderr(), "error: {problem}");
    ExitCode::from(REFUSED)
}
