//! The `volery` command.

mod checking;
mod simulation;
mod steering;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::error;
use volery::analysis::{Metrics, PrometheusError};
use volery::chain::chain;
use volery::cluster::{LeaseName, OwnPod};
use volery::config::{Config, FileWatch, Pace, Reading, parse_duration};
use volery::daemon::{self, AlertsOf, Candidacy, Ground, Lifetime, Timing};
use volery::notify::{Alerts, Carrier, Http};
use volery::telemetry::exposition::Exposition;
use volery::telemetry::health::{self, Health};
use volery::telemetry::log::{self, Clock};
use volery::telemetry::reloads::Reloads;

/// Progressive rollouts for queue workers: plain Deployments, a few pods at a time, judged by Prometheus.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Watch over the services of a configuration file and roll their new versions out.
    ///
    /// Works with a kubeconfig (KUBECONFIG, ~/.kube/config) or, inside a cluster, with the pod's own account.
    Run {
        /// The configuration file.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// How long a registered service must have been absent from a valid file before it is given back.
        #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = parse_duration)]
        release_after: Duration,
        /// The Lease, in the daemon's own namespace, by which one of several daemons acts [default: none, this one is
        /// alone].
        #[arg(long, value_name = "NAME", requires = "identity")]
        lease: Option<String>,
        /// Who it is among them: in a cluster the name of its pod.
        #[arg(long, value_name = "NAME", env = "POD_NAME")]
        identity: Option<String>,
        /// Where /livez, /readyz and /metrics are served, such as 0.0.0.0:8080 [default: nowhere].
        #[arg(long, value_name = "ADDRESS")]
        listen: Option<SocketAddr>,
        #[command(flatten)]
        log: LogArguments,
    },
    /// Tell everything that is wrong or doubtful in configuration files, each with its place.
    #[command(after_help = checking::AFTER_HELP)]
    Check(checking::Arguments),
    /// Play a rollout of a configured service on a simulated cluster, in virtual time: no cluster, hours in a second.
    #[command(
        long_about = simulation::LONG_ABOUT,
        after_help = simulation::AFTER_HELP
    )]
    Simulate(Box<simulation::Arguments>),
    #[command(flatten)]
    Steering(steering::Command),
}

/// What is logged, and how.
#[derive(Args)]
struct LogArguments {
    /// What is logged: error, warn, info, debug, trace, or a filter such as `info,volery=debug`.
    #[arg(
        id = "log",
        long = "log",
        value_name = "LEVEL",
        env = "VOLERY_LOG",
        default_value = "info"
    )]
    filter: String,
    /// How lines are written; text has colours on a terminal unless NO_COLOR is set.
    #[arg(
        id = "log_format",
        long = "log-format",
        value_name = "FORMAT",
        env = "VOLERY_LOG_FORMAT",
        default_value = "text"
    )]
    format: log::Format,
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Run {
            config,
            release_after,
            lease,
            identity,
            listen,
            log,
        } => {
            // clap has seen to it that whoever names a Lease has a name.
            let stands = lease.zip(identity);
            run_forever(&config, release_after, stands, listen, &log)
        }
        Command::Check(arguments) => checking::main(&arguments),
        Command::Simulate(arguments) => simulation::main(&arguments),
        Command::Steering(command) => steering::main(command),
    }
}

/// By which Lease it is decided whether this daemon acts, and the daemon's name there.
type Stands = (String, String);

fn run_forever(
    config: &Path,
    release_after: Duration,
    stands: Option<Stands>,
    listen: Option<SocketAddr>,
    log: &LogArguments,
) -> ExitCode {
    if let Err(error) = log::install(log.format, &log.filter, log::wall_clock()) {
        return complain(&chain(&error));
    }
    // The only provider there is; a second installation would be refused, and there is none.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            return fail(&anyhow::Error::new(error).context("the runtime cannot be started"));
        }
    };
    match runtime.block_on(run(config, release_after, stands, listen)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

fn fail(failure: &anyhow::Error) -> ExitCode {
    error!("{}", chain(failure.as_ref()));
    ExitCode::FAILURE
}

/// Says what keeps a command from being carried out at all: exit code 2, as for arguments that are none.
fn complain(problem: &str) -> ExitCode {
    use std::io::Write as _;
    // Nobody is left to be told when stderr is closed.
    let _ = writeln!(std::io::stderr(), "error: {problem}");
    ExitCode::from(2)
}

async fn run(
    file: &Path,
    release_after: Duration,
    stands: Option<Stands>,
    listen: Option<SocketAddr>,
) -> anyhow::Result<()> {
    let health = Health::default();
    let reloads = Reloads::default();
    let probes = match listen {
        Some(address) => Some(tokio::spawn(health::serve(
            health::bind(address).await?,
            health.clone(),
            Exposition::of(&reloads),
        ))),
        None => None,
    };
    let probes = async {
        match probes {
            Some(probes) => probes.await,
            None => std::future::pending().await,
        }
    };
    let (end, lifetime) = watch::channel(Lifetime::Running);
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        end.send_replace(Lifetime::Ending);
    });
    let client = volery::cluster::connect(None).await?;
    let candidacy = stands.map(|(lease, identity)| Candidacy {
        lease: LeaseName {
            namespace: client.default_namespace().to_owned(),
            name: lease,
        },
        identity,
        timing: Timing::default(),
    });
    let (readings, following) = follow(file);
    let clock = log::wall_clock();
    let daemon = daemon::run(
        readings,
        Ground {
            client,
            metrics: Box::new(metrics),
            alerts: alerts(&clock),
            clock,
            health,
            reloads,
            candidacy,
            pod: OwnPod::of(&variable),
            release_after,
            lifetime,
        },
    );
    tokio::select! {
        ended = daemon => Ok(ended?),
        broken = probes => Ok(broken??),
        Err(broken) = following => Err(broken.into()),
    }
}

/// What a file says now, and a task that goes on to tell what it says whenever it changes.
fn follow(file: &Path) -> (watch::Receiver<Arc<Reading>>, JoinHandle<()>) {
    let file = file.to_owned();
    let mut content = FileWatch::begin(&file, Pace::default());
    let first = daemon::read(&file, content.content());
    let (told, readings) = watch::channel(Arc::new(first));
    let task = tokio::spawn(async move {
        loop {
            let reading = daemon::read(&file, content.changed().await);
            told.send_replace(Arc::new(reading));
        }
    });
    (readings, task)
}

fn metrics(config: &Config) -> Result<Arc<dyn Metrics>, PrometheusError> {
    volery::analysis::metrics(config.prometheus.as_ref(), &variable)
}

fn alerts(clock: &Clock) -> Box<AlertsOf> {
    let clock = clock.clone();
    let carrier: Arc<dyn Carrier> = Arc::new(Http::new());
    Box::new(move |config| Alerts::new(config.channels.values(), &variable, &carrier, &clock))
}

/// An environment variable.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
