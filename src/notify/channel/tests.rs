use std::collections::VecDeque;
use std::sync::Mutex;

use futures::future::BoxFuture;
use tokio::time::Instant;

use super::*;
use crate::config::{Address, Medium};
use crate::notify::alert::Severity;
use crate::notify::letter::Letter;

pub(crate) fn alert(message: &str) -> Alert {
    Alert {
        id: "0123456789abcdef0123456789abcdef".to_owned(),
        service: "orders".to_owned(),
        namespace: "workers".to_owned(),
        deployment: "orders-worker".to_owned(),
        event: Occasion::Failed,
        severity: Severity::Warning,
        message: message.to_owned(),
        images: vec!["orders:v2".to_owned()],
        rollout: 3,
        time: "2026-01-05T09:00:00Z".parse().unwrap(),
    }
}

/// What the receiver does with one letter.
#[derive(Clone, Copy, Debug)]
enum Answer {
    Status(u16),
    RetryAfter(&'static str),
    Refused,
    Hangs,
}

/// A receiver whose answers are written down beforehand; afterwards it takes everything.
struct Receiver {
    begun: Instant,
    answers: Mutex<VecDeque<Answer>>,
    /// When, in whole milliseconds, and what.
    tries: Mutex<Vec<(u128, String)>>,
}

impl Carrier for Receiver {
    fn post<'a>(&'a self, letter: &'a Letter) -> BoxFuture<'a, Result<Reply, CarrierError>> {
        let body: serde_json::Value = serde_json::from_str(&letter.body).unwrap();
        let told = body["message"].as_str().unwrap().to_owned();
        let at = self.begun.elapsed().as_millis();
        self.tries.lock().unwrap().push((at, told));
        let answer = self.answers.lock().unwrap().pop_front();
        let reply = |status: u16, retry_after: Option<&str>| {
            Ok(Reply {
                status: StatusCode::from_u16(status).unwrap(),
                retry_after: retry_after.map(str::to_owned),
            })
        };
        Box::pin(async move {
            match answer.unwrap_or(Answer::Status(200)) {
                Answer::Status(status) => reply(status, None),
                Answer::RetryAfter(text) => reply(429, Some(text)),
                Answer::Refused => Err(CarrierError::Unreachable("refused".to_owned())),
                Answer::Hangs => std::future::pending().await,
            }
        })
    }
}

fn channel(answers: &[Answer]) -> (Arc<Channel>, Arc<Receiver>) {
    let medium = Medium::Webhook {
        url: Address::Open("http://alerts.ops/".parse().unwrap()),
        header: None,
    };
    let config = config::Channel {
        name: "hook".parse().unwrap(),
        events: Occasion::by_default(),
        medium: medium.clone(),
    };
    let receiver = Arc::new(Receiver {
        begun: now(),
        answers: Mutex::new(answers.iter().copied().collect()),
        tries: Mutex::default(),
    });
    let clock: Clock = Arc::new(|| "2026-01-05T09:00:00Z".parse().unwrap());
    let envelope = Envelope::new(&medium, &|_| None).unwrap();
    let channel = Channel::new(&config, envelope, receiver.clone(), clock);
    (Arc::new(channel), receiver)
}

#[expect(clippy::disallowed_methods, reason = "virtual time")]
fn now() -> Instant {
    Instant::now()
}

/// Tells these one after the other, closes after so many seconds, and returns when which was tried.
async fn tries(answers: &[Answer], told: &[&str], seconds: u64) -> Vec<(u128, String)> {
    let (channel, receiver) = channel(answers);
    let task = tokio::spawn(Arc::clone(&channel).deliver());
    for text in told {
        channel.put(Arc::new(alert(text)));
    }
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    channel.close();
    task.await.unwrap();
    receiver.tries.lock().unwrap().clone()
}

fn at(tries: &[(u128, String)]) -> Vec<(u128, &str)> {
    tries
        .iter()
        .map(|(at, told)| (*at, told.as_str()))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_working_channel_gets_each_alert_once_and_in_order() {
    let tries = tries(&[], &["a", "b"], 3600).await;
    assert_eq!(at(&tries), [(0, "a"), (0, "b")]);
}

#[tokio::test(start_paused = true)]
async fn what_failed_is_tried_again_with_growing_pauses_and_then_every_minute() {
    let answers = [Answer::Status(500), Answer::Refused].repeat(4);
    let tries = tries(&answers, &["a", "b"], 3600).await;
    let seconds = [0, 1, 3, 7, 15, 75, 135, 195, 255].map(|seconds: u128| (seconds * 1000, "a"));
    let mut expected = seconds.to_vec();
    expected.push((255_000, "b"));
    assert_eq!(at(&tries), expected);
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_hangs_is_given_ten_seconds() {
    let tries = tries(&[Answer::Hangs, Answer::Hangs], &["a"], 3600).await;
    assert_eq!(at(&tries), [(0, "a"), (11_000, "a"), (23_000, "a")]);
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_honoured_and_switches_nothing_off_for_good() {
    let answers = [
        Answer::RetryAfter("2"),
        Answer::RetryAfter("Mon, 05 Jan 2026 09:00:30 GMT"),
        Answer::RetryAfter("soon"),
        Answer::RetryAfter("99999999"),
    ];
    let tries = tries(&answers, &["a"], 7200).await;
    let expected = [0, 2, 32, 36, 3636].map(|seconds: u128| (seconds * 1000, "a"));
    assert_eq!(at(&tries), expected);
}

#[tokio::test(start_paused = true)]
async fn an_alert_that_is_not_taken_does_not_stop_those_behind_it() {
    let tries = tries(&[Answer::Status(400)], &["a", "b"], 60).await;
    assert_eq!(at(&tries), [(0, "a"), (0, "b")]);
}

#[tokio::test(start_paused = true)]
async fn the_oldest_gives_way_and_the_end_does_not_wait() {
    let (channel, receiver) = channel(&[Answer::Status(503); 1000]);
    let task = tokio::spawn(Arc::clone(&channel).deliver());
    channel.put(Arc::new(alert("in hand")));
    tokio::time::sleep(Duration::from_millis(10)).await;
    for number in 0..ROOM + 3 {
        channel.put(Arc::new(alert(&number.to_string())));
    }
    assert_eq!(channel.queue.len(), ROOM);
    assert_eq!(channel.queue.take_dropped(), 3);
    channel.close();
    tokio::time::timeout(Duration::from_millis(100), task)
        .await
        .expect("it ends")
        .unwrap();
    let tries = receiver.tries.lock().unwrap().clone();
    assert_eq!(at(&tries), [(0, "in hand"), (10, "in hand")]);
}
