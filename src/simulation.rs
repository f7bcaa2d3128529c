//! `volery simulate`, as a command.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use serde_json::json;
use volery::chain::chain;
use volery::config::parse_duration;
use volery::daemon;
use volery::simulate::scenario::{Bad, Deed, Outage};
use volery::simulate::{Ending, Played, Scenario, clock, play};
use volery::telemetry::log::{self, Format, Paint};

use crate::{LogArguments, complain};

/// What the command does.
pub const LONG_ABOUT: &str = "\
Play a rollout of a configured service on a simulated cluster, in virtual time: no cluster, hours in a second.

The daemon is the real one; Kubernetes and Prometheus are simulated. A running Deployment of the service is registered, \
at 09:00 its image goes from v1 to v2, and what follows is the log that production would print, until the rollout is over \
and all is quiet. Lines that begin with # say what is done to the cluster meanwhile; a summary comes last.

The simulated Prometheus knows no series of yours: every success expression holds, for every pod, until --bad says \
otherwise. So any configuration can be tried as it is.";

/// How it is used.
pub const AFTER_HELP: &str = "\
WHEN is a time since v2 was applied (12m, 1h30m) or the step that the rollout has reached (step3).

Examples:
  volery simulate config/orders.yaml
  volery simulate config/orders.yaml --replicas 40 --bad metrics@step3
  volery simulate config/orders.yaml --bad metrics=2@15m..20m    a bad spell of the second expression
  volery simulate config/orders.yaml --bad crash                 or never-ready, image-pull, unschedulable, no-data
  volery simulate config/orders.yaml --prometheus-down 4m..9m
  volery simulate config/orders.yaml --bad metrics --at 6m 'image v3'      a fix comes while v2 is tried
  volery simulate config/orders.yaml --at 12m 'image v1'                   back to the old version
  volery simulate config/orders.yaml --at 20m 'scale 14' --at step4 'kill for 2m'

Exit code: 0 when the version that was asked for last is promoted, 1 when it is not, 2 when there is nothing to play: a
bad file, an unknown service, a flag that is not understood.";

/// `volery simulate CONFIG`.
#[derive(Args)]
pub struct Arguments {
    /// The configuration file, with which nothing may be wrong.
    config: PathBuf,
    /// The service to roll out [default: the file's first].
    #[arg(long, value_name = "NAME")]
    service: Option<String>,
    /// How many replicas its Deployment has.
    #[arg(long, value_name = "NUMBER", default_value_t = 10, value_parser = clap::value_parser!(u32).range(0..=1000))]
    replicas: u32,
    /// How long a pod takes to become ready, a tenth more or less.
    #[arg(long, value_name = "DURATION", default_value = "20s", value_parser = parse_duration)]
    pod_start: Duration,
    /// How long a pod takes to end.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = parse_duration)]
    pod_stop: Duration,
    /// Something is wrong with a version (v2, if none is named), always or for a while; repeatable. TROUBLE is metrics,
    /// metrics=NUMBER (one expression, by its place in the file), no-data, crash, never-ready, image-pull or
    /// unschedulable.
    #[arg(long, value_name = "[VERSION:]TROUBLE[@WHEN[..WHEN]]", value_parser = Bad::from_str)]
    bad: Vec<Bad>,
    /// Prometheus cannot be reached from the first moment to the second, or for ever; repeatable.
    #[arg(long, value_name = "WHEN[..WHEN]", value_parser = Outage::from_str)]
    prometheus_down: Vec<Outage>,
    /// Something happens; repeatable. DEED, in quotes, is 'image VERSION' (v1: back to the old one), 'scale NUMBER',
    /// 'kill' or 'kill for DURATION' (the daemon, which is then started again), 'resume' (somebody un-pauses the
    /// Deployment) or 'remove' (the service leaves the file).
    #[arg(long, value_names = ["WHEN", "DEED"], num_args = 2, value_parser = NonEmptyStringValueParser::new())]
    at: Vec<String>,
    /// The same seed gives the same output, byte for byte; another one other names and delays.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    log: LogArguments,
}

impl Arguments {
    fn scenario(&self) -> Result<Scenario, String> {
        let mut scenario = Scenario {
            seed: self.seed,
            pod_start: self.pod_start,
            pod_stop: self.pod_stop,
            ..Scenario::good(self.replicas)
        };
        let bad = self.bad.iter().cloned().flat_map(Bad::deeds);
        let outages = self.prometheus_down.iter().cloned().flat_map(Outage::deeds);
        // A version is bad before it is applied.
        scenario.deeds.splice(0..0, bad.chain(outages));
        for pair in self.at.chunks(2) {
            if let [when, what] = pair {
                scenario.deeds.push(Deed {
                    when: when.parse().map_err(|error| format!("--at {error}"))?,
                    what: what.parse().map_err(|error| format!("--at {error}"))?,
                });
            }
        }
        Ok(scenario)
    }
}

/// Plays, and says how it ended.
pub fn main(arguments: &Arguments) -> ExitCode {
    match simulate(arguments) {
        Ok(Ending::Promoted) => ExitCode::SUCCESS,
        Ok(
            Ending::RolledBack
            | Ending::Frozen
            | Ending::Cancelled
            | Ending::Released
            | Ending::Waiting
            | Ending::Unfinished,
        ) => ExitCode::FAILURE,
        Err(problem) => complain(&problem),
    }
}

fn simulate(arguments: &Arguments) -> Result<Ending, String> {
    let loaded = daemon::load(&arguments.config).map_err(|error| chain(&error))?;
    loaded.clone().into_valid().map_err(|error| chain(&error))?;
    let service = play::choose(&loaded, arguments.service.as_deref())
        .map_err(|error| format!("{}: {}", arguments.config.display(), chain(&error)))?;
    let scenario = arguments.scenario()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .map_err(|error| format!("the runtime cannot be started: {error}"))?;
    let Played { summary, .. } = runtime.block_on(async {
        let clock = clock::start();
        let LogArguments { format, filter } = &arguments.log;
        log::install(*format, filter, clock.clone()).map_err(|error| chain(&error))?;
        let paint = Paint(log::colours());
        let format = *format;
        let mut tell = |what: &str| {
            if format == Format::Text {
                print(&paint.dim(&format!("# {:.0}  {what}", clock())));
            }
        };
        play(&loaded, service, &scenario, &mut tell)
            .await
            .map_err(|error| chain(&error))
    })?;
    match arguments.log.format {
        Format::Text => print(&format!("\n{summary}")),
        Format::Json => print(&json!({"summary": summary.json()}).to_string()),
    }
    Ok(summary.ending)
}

/// A line to stdout; a reader who has gone away misses nothing.
fn print(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}
