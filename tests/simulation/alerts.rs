//! What people are told by webhooks (case K55).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use http::StatusCode;
use serde_json::Value;
use volery::config::{Address, Channel, Medium, Occasion};
use volery::notify::{Carrier, CarrierError, Letter, Reply};
use volery::simulate::cluster::{Fault, Kind};

use super::stories::{Story, weathers};
use super::timeline::decisions;
use super::world::{AGENT, Deaths, World, in_virtual_time};

/// How a receiver is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    Takes,
    Hangs,
    Busy,
    Broken,
    Away,
}

/// A receiver in virtual time.
struct Sink {
    mood: Mutex<Mood>,
    taken: Mutex<Vec<Value>>,
}

impl Sink {
    fn new(mood: Mood) -> Arc<Self> {
        Arc::new(Self {
            mood: Mutex::new(mood),
            taken: Mutex::default(),
        })
    }

    fn taken(&self) -> Vec<Value> {
        self.taken.lock().unwrap().clone()
    }

    fn events(&self) -> Vec<String> {
        self.taken().iter().map(event).collect()
    }
}

fn event(alert: &Value) -> String {
    alert["event"].as_str().unwrap().to_owned()
}

impl Carrier for Sink {
    fn post<'a>(&'a self, letter: &'a Letter) -> BoxFuture<'a, Result<Reply, CarrierError>> {
        Box::pin(async move {
            let mood = *self.mood.lock().unwrap();
            let (status, retry_after) = match mood {
                Mood::Takes => {
                    let alert = serde_json::from_str(&letter.body).unwrap();
                    self.taken.lock().unwrap().push(alert);
                    (StatusCode::OK, None)
                }
                Mood::Hangs => std::future::pending().await,
                Mood::Busy => (StatusCode::TOO_MANY_REQUESTS, Some("2".to_owned())),
                Mood::Broken => (StatusCode::INTERNAL_SERVER_ERROR, None),
                Mood::Away => {
                    return Err(CarrierError::Unreachable("connection refused".to_owned()));
                }
            };
            Ok(Reply {
                status,
                retry_after,
            })
        })
    }
}

/// A channel that is told of everything.
fn channel() -> Channel {
    Channel {
        name: "hook".parse().unwrap(),
        medium: Medium::Webhook {
            url: Address::Open("http://alerts.ops/volery".parse().unwrap()),
            header: None,
        },
        events: [
            "started",
            "promoted",
            "failed",
            "frozen",
            "aborted",
            "cancelled",
            "superseded",
            "interrupted",
            "held",
            "waiting",
            "blocked",
        ]
        .map(|word| word.parse::<Occasion>().unwrap())
        .into(),
    }
}

async fn told(story: &Story, sink: Option<&Arc<Sink>>, deaths: Deaths) -> World {
    let world = story.begin(&weathers()[0].1, deaths).await;
    if let Some(sink) = sink {
        world.alert(channel(), Arc::clone(sink) as Arc<dyn Carrier>);
    }
    story.go_on(&world).await;
    world
}

#[test]
fn a_dead_channel_changes_nothing_and_gets_everything_once_it_recovers() {
    for (name, expected) in [
        ("promoted", &["started", "promoted"][..]),
        ("fails at the second step", &["started", "failed"]),
        (
            "frozen at the second step and fixed",
            &["started", "frozen", "started", "promoted"],
        ),
        (
            "superseded in the second step",
            &["started", "superseded", "started", "promoted"],
        ),
        ("cancelled in the second step", &["started", "cancelled"]),
    ] {
        let story = Story::by_name(name);
        let undisturbed: Arc<Mutex<Vec<String>>> = Arc::default();
        in_virtual_time(|| async {
            let world = told(story, None, Deaths::new()).await;
            *undisturbed.lock().unwrap() = decisions(&world.cluster, &world.log);
        });
        for mood in [
            Mood::Takes,
            Mood::Hangs,
            Mood::Busy,
            Mood::Broken,
            Mood::Away,
        ] {
            in_virtual_time(|| async {
                let sink = Sink::new(mood);
                let world = told(story, Some(&sink), Deaths::new()).await;
                let (lines, rest): (Vec<String>, Vec<String>) =
                    decisions(&world.cluster, &world.log)
                        .into_iter()
                        .partition(|line| line.contains(" channel hook: "));
                assert_eq!(rest, *undisturbed.lock().unwrap(), "{name}, {mood:?}");
                let dead = usize::from(mood != Mood::Takes);
                assert_eq!(lines.len(), dead, "{name}, {mood:?}: {lines:#?}");

                *sink.mood.lock().unwrap() = Mood::Takes;
                tokio::time::sleep(Duration::from_secs(120)).await;
                assert_eq!(sink.events(), expected, "{name}, {mood:?}");
                let lines = world.log.lines();
                let again = lines
                    .iter()
                    .filter(|(_, line)| line.contains("channel hook: it takes alerts again"));
                assert_eq!(again.count(), dead, "{name}, {mood:?}");
            });
        }
    }
}

/// What was taken, for people; ids by the order of their first coming.
#[test]
fn what_a_webhook_is_told() {
    let text: Arc<Mutex<String>> = Arc::default();
    for name in [
        "frozen at the second step and fixed",
        "fails at the second step",
        "a candidate waits for replicas",
    ] {
        in_virtual_time(|| async {
            let sink = Sink::new(Mood::Takes);
            told(Story::by_name(name), Some(&sink), Deaths::new()).await;
            let mut text = text.lock().unwrap();
            let _ = writeln!(text, "{name}:");
            for mut alert in sink.taken() {
                assert_eq!(alert["id"].take().as_str().unwrap().len(), 32);
                let _ = writeln!(text, "{}", serde_json::to_string_pretty(&alert).unwrap());
            }
        });
    }
    insta::assert_snapshot!(text.lock().unwrap());
}

/// Which ids came by which event and rollout.
fn ids(alerts: &[Value]) -> BTreeMap<String, BTreeSet<String>> {
    let mut ids: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for alert in alerts {
        let what = format!("{} {}", alert["rollout"], event(alert));
        let id = alert["id"].as_str().unwrap().to_owned();
        ids.entry(what).or_default().insert(id);
    }
    ids
}

#[test]
fn whatever_state_the_daemon_dies_writing_everything_is_told_and_repeats_have_the_same_id() {
    for name in [
        "fails at the second step",
        "frozen at the second step and fixed",
    ] {
        let story = Story::by_name(name);
        let undisturbed = Arc::new(Mutex::new((Vec::new(), Vec::new())));
        in_virtual_time(|| async {
            let sink = Sink::new(Mood::Takes);
            let world = told(story, Some(&sink), Deaths::new()).await;
            *undisturbed.lock().unwrap() = (state_writes(&world), sink.taken());
        });
        let (writes, expected) = undisturbed.lock().unwrap().clone();
        let expected: Vec<String> = ids(&expected).into_keys().collect();
        for write in writes {
            in_virtual_time(|| async {
                let sink = Sink::new(Mood::Takes);
                told(story, Some(&sink), vec![write]).await;
                check(&format!("{name}, killed at {write}"), &sink, &expected);
            });
            in_virtual_time(|| async {
                let sink = Sink::new(Mood::Takes);
                let world = story.begin(&weathers()[0].1, Deaths::new()).await;
                world.alert(channel(), Arc::clone(&sink) as Arc<dyn Carrier>);
                let count = Mutex::new(0);
                world.cluster.intercept(move |request| {
                    let mut count = count.lock().unwrap();
                    if request.agent == AGENT && request.verb.writes() {
                        *count += 1;
                        if *count == write {
                            return Fault::ApplyThenHang;
                        }
                    }
                    Fault::None
                });
                story.go_on(&world).await;
                check(&format!("{name}, unanswered {write}"), &sink, &expected);
                let taken = sink.taken();
                assert_eq!(taken.len(), ids(&taken).len(), "repeated: {taken:#?}");
            });
        }
    }
}

/// Which of the daemon's writes are of the state, counted from 1: what is told follows from those.
fn state_writes(world: &World) -> Vec<u64> {
    world.cluster.read_journal(|journal| {
        (1..)
            .zip(journal.writes_by(AGENT))
            .filter(|(_, write)| write.kind == Kind::PodTemplate)
            .map(|(number, _)| number)
            .collect()
    })
}

fn check(what: &str, sink: &Sink, expected: &[String]) {
    let found = ids(&sink.taken());
    let missing: Vec<&String> = expected
        .iter()
        .filter(|what| !found.contains_key(*what))
        .collect();
    assert!(
        missing.is_empty(),
        "{what}: {missing:?} missing in {found:#?}"
    );
    for (told, ids) in &found {
        assert_eq!(ids.len(), 1, "{what}: {told} has several ids");
    }
}
