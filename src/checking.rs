//! `volery check`, as a command.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use volery::analysis::metrics;
use volery::chain::chain;
use volery::check::{FileReport, Report, Strictness, Verdict, ask, check};
use volery::cluster::{Cluster, NoFence, connect, connect_as};
use volery::config::Loaded;
use volery::telemetry::log;

use crate::{complain, variable};

/// How it is used.
pub const AFTER_HELP: &str = "\
Exit code: 0 when nothing is wrong (warnings are let pass, unless --strict), 1 when something is, 2 when a file cannot be
read, or there is no way to the cluster.";

/// `volery check FILE...`.
#[derive(Args)]
pub struct Arguments {
    /// The configuration files, each by itself.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Warnings count as errors.
    #[arg(long)]
    strict: bool,
    /// How it is written.
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: Output,
    /// Ask the cluster and Prometheus too: are the Deployments there and fit, do expressions find data for pods that run,
    /// do the rights suffice, what will registering change. Nothing is written.
    #[arg(long)]
    live: bool,
    #[command(flatten)]
    place: Place,
}

/// Which cluster, what of it, and on whose rights.
#[derive(Args)]
struct Place {
    /// Ask about the services of this namespace only [default: all].
    #[arg(short, long, requires = "live")]
    namespace: Option<String>,
    /// The context of the kubeconfig (KUBECONFIG, ~/.kube/config) [default: its current one, or the pod's own account].
    #[arg(long, requires = "live")]
    context: Option<String>,
    /// Ask on the rights of another account, such as system:serviceaccount:workers:volery; takes the right to impersonate
    /// it.
    #[arg(long = "as", value_name = "ACCOUNT", requires = "live")]
    account: Option<String>,
}

/// How it is written.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people and their editors: a line for each thing found, FILE:LINE:COLUMN first.
    Text,
    /// For programs.
    Json,
}

/// Checks, and says what it comes to.
pub fn main(arguments: &Arguments) -> ExitCode {
    let checked: Vec<(FileReport, Option<Loaded>)> =
        arguments.files.iter().map(|file| check(file)).collect();
    let files = if arguments.live {
        match go_live(checked, &arguments.place) {
            Ok(files) => files,
            Err(problem) => return complain(&problem),
        }
    } else {
        checked.into_iter().map(|(file, _)| file).collect()
    };
    let report = Report { files };
    let text = match arguments.output {
        Output::Text => report.to_string(),
        // Made of strings, numbers and lists: it always serializes.
        Output::Json => serde_json::to_string_pretty(&report.json()).unwrap_or_default(),
    };
    // A reader who has gone away still gets the exit code.
    let _ = writeln!(std::io::stdout(), "{text}");
    let strictness = if arguments.strict {
        Strictness::Strict
    } else {
        Strictness::Lenient
    };
    match report.verdict(strictness) {
        Verdict::Fine => ExitCode::SUCCESS,
        Verdict::Wrong => ExitCode::FAILURE,
        Verdict::Unreadable => ExitCode::from(2),
    }
}

fn go_live(
    checked: Vec<(FileReport, Option<Loaded>)>,
    place: &Place,
) -> Result<Vec<FileReport>, String> {
    // The only provider there is; a second installation would be refused, and there is none.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("the runtime cannot be started: {error}"))?;
    runtime.block_on(async {
        let context = place.context.as_deref();
        let client = match &place.account {
            Some(account) => connect_as(context, account).await,
            None => connect(context).await,
        };
        let client = client.map_err(|error| chain(&error))?;
        let mut files = Vec::new();
        for (mut file, loaded) in checked {
            if let Some(loaded) = loaded {
                // What has been read for one file may have changed before the next.
                let cluster = Cluster::new(client.clone(), log::wall_clock(), Arc::new(NoFence));
                let metrics = metrics(loaded.config.prometheus.as_ref(), &variable)
                    .map_err(|error| chain(&error))?;
                let (remarks, services) =
                    ask(&loaded, &cluster, &metrics, place.namespace.as_deref()).await;
                file.remarks.extend(remarks);
                file.services = services;
            }
            files.push(file);
        }
        Ok(files)
    })
}
