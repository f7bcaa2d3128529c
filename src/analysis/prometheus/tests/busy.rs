//! A Prometheus that has too much to do is left alone (case K58).

use std::sync::Mutex;

use super::super::super::stub::Stub;
use super::*;

fn refusal(status: u16, headers: &[(HeaderName, &str)]) -> axum::response::Response {
    let mut response = body(status, "slow down");
    for (name, value) in headers {
        response.headers_mut().insert(name, value.parse().unwrap());
    }
    response
}

fn throttled(status: u16, seconds: u64) -> Unavailable {
    Unavailable::Throttled {
        status,
        message: "slow down".to_owned(),
        pause: Duration::from_secs(seconds),
    }
}

/// Lets this much time pass at once.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

const ALMOST: Duration = Duration::from_millis(500);

#[tokio::test]
async fn it_is_not_asked_again_before_the_time_it_named() {
    for status in [429, 503] {
        let busy = std::sync::Arc::new(Mutex::new(true));
        let mood = std::sync::Arc::clone(&busy);
        let stub = Stub::start(move |_| {
            let response = if *mood.lock().unwrap() {
                refusal(status, &[(RETRY_AFTER, "30")])
            } else {
                vector(&[])
            };
            std::future::ready(response)
        })
        .await;
        let client = stub.client();
        let other = client.clone();
        let first = client.query("up", GENEROUS).await.unwrap_err();
        assert_eq!(first, throttled(status, 30));
        assert!(first.concerns_all_queries());
        assert_eq!(other.query("up", GENEROUS).await, Err(first.clone()));
        pass(Duration::from_secs(30) - ALMOST).await;
        assert_eq!(client.query("up", GENEROUS).await, Err(first.clone()));
        assert_eq!(stub.asked().len(), 1, "while it is left alone");
        pass(ALMOST).await;
        assert_eq!(other.query("up", GENEROUS).await, Err(first));
        assert_eq!(stub.asked().len(), 2, "once, when its time has come");
        *busy.lock().unwrap() = false;
        pass(Duration::from_secs(30)).await;
        assert!(client.query("up", GENEROUS).await.is_ok());
        assert!(other.query("up", GENEROUS).await.is_ok());
    }
}

#[tokio::test]
async fn a_503_that_names_no_time_is_an_answer_like_any_other() {
    let stub = Stub::start(|_| async { refusal(503, &[]) }).await;
    let client = stub.client();
    for _ in 0..2 {
        let reason = client.query("up", GENEROUS).await.unwrap_err();
        assert!(matches!(reason, Unavailable::Status { status: 503, .. }));
    }
    assert_eq!(stub.asked().len(), 2);
}

#[tokio::test]
async fn without_a_time_the_pauses_double_up_to_a_minute_and_an_answer_ends_them() {
    let stub = Stub::start(|query| async move {
        match query.as_str() {
            "up" => refusal(429, &[(RETRY_AFTER, "soon")]),
            _ => body(400, "no"),
        }
    })
    .await;
    let client = stub.client();
    for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
        let reason = client.query("up", GENEROUS).await.unwrap_err();
        assert_eq!(reason, throttled(429, seconds));
        pass(Duration::from_secs(seconds)).await;
    }
    let reason = client.query("nonsense", GENEROUS).await.unwrap_err();
    assert!(matches!(reason, Unavailable::Status { status: 400, .. }));
    let reason = client.query("up", GENEROUS).await.unwrap_err();
    assert_eq!(reason, throttled(429, 1));
}

#[tokio::test]
async fn a_date_is_taken_by_the_clock_of_the_server_and_no_wish_ends_all_checks() {
    let at = "Mon, 05 Jan 2026 09:00:00 GMT";
    let later = "Mon, 05 Jan 2026 09:00:12 GMT";
    for (headers, seconds) in [
        (vec![(DATE, at), (RETRY_AFTER, later)], 12),
        (vec![(DATE, later), (RETRY_AFTER, at)], 0),
        (vec![(RETRY_AFTER, "100000")], 60),
    ] {
        let answer = headers.clone();
        let reason = answer_to(move || refusal(429, &answer)).await;
        assert_eq!(reason, throttled(429, seconds), "{headers:?}");
    }
}

#[tokio::test]
async fn questions_that_were_under_way_together_count_once() {
    let stub = Stub::start(|_| async { refusal(429, &[]) }).await;
    let client = stub.client();
    for seconds in [1, 2] {
        let four = (0..4).map(|_| client.query("up", GENEROUS));
        for answer in futures::future::join_all(four).await {
            assert_eq!(answer, Err(throttled(429, seconds)));
        }
        pass(Duration::from_secs(seconds)).await;
    }
}

#[test]
fn the_log_says_who_wants_what() {
    assert_eq!(
        throttled(429, 90).to_string(),
        "Prometheus has too much to do (HTTP 429): slow down; it is left alone for 1m30s"
    );
}
