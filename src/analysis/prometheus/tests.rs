//! What a Prometheus on loopback is asked, and what becomes of its answers.

mod access;
mod busy;
mod tls;

use super::super::answer::Answer;
use super::super::stub::{Stub, body, client, vector};
use super::*;

/// Never reached by an answer that comes at all, however slow the machine.
const GENEROUS: Duration = Duration::from_secs(60);

async fn answer_to(
    response: impl Fn() -> axum::response::Response + Clone + Send + Sync + 'static,
) -> Unavailable {
    let stub = Stub::start(move |_| std::future::ready(response())).await;
    stub.client()
        .query("up == bool 1", GENEROUS)
        .await
        .unwrap_err()
}

#[tokio::test]
async fn a_query_is_posted_as_a_form_without_a_time() {
    let stub = Stub::start(|_| async { vector(&[(&[("pod", "a")], "1")]) }).await;
    let query = "my_errors{pod=\"a\",x=~'&=+%ä '} == bool 0";
    let response = stub
        .client()
        .query(query, Duration::from_millis(29_500))
        .await
        .unwrap();
    assert!(matches!(response.answer, Answer::Vector(samples) if samples.len() == 1));
    let asked = stub.asked();
    assert_eq!(asked.len(), 1);
    assert_eq!(
        (asked[0].method.as_str(), asked[0].path.as_str()),
        ("POST", "/api/v1/query")
    );
    assert_eq!(asked[0].address_query, None);
    let parameters: Vec<_> = asked[0]
        .parameters
        .iter()
        .map(|(k, v)| (k.as_str(), v.as_str()))
        .collect();
    assert_eq!(parameters, [("query", query), ("timeout", "29500ms")]);
}

#[tokio::test]
async fn a_path_prefix_is_kept() {
    let stub = Stub::start(|_| async { vector(&[]) }).await;
    for (given, path) in [
        ("", "/api/v1/query"),
        ("/", "/api/v1/query"),
        ("/prometheus", "/prometheus/api/v1/query"),
        ("/a/b%20c/", "/a/b%20c/api/v1/query"),
        ("//", "/api/v1/query"),
    ] {
        let address = format!("http://{}{given}", stub.address);
        client(&address)
            .query("up == bool 1", GENEROUS)
            .await
            .unwrap();
        assert_eq!(stub.asked().last().unwrap().path, path, "{given}");
    }
}

#[tokio::test]
async fn every_status_but_200_is_unavailable_whatever_the_body_says() {
    let good = r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"1"]}]}}"#;
    let error = r#"{"status":"error","errorType":"bad_data","error":"parse error: oh\nno"}"#;
    for status in [201, 204, 400, 401, 404, 422, 500, 503] {
        let reason = answer_to(move || body(status, if status == 204 { "" } else { good })).await;
        assert!(
            matches!(reason, Unavailable::Status { status: s, .. } if s == status),
            "{reason}"
        );
        assert!(!reason.concerns_all_queries());
    }
    let reason = answer_to(move || body(400, error)).await;
    assert_eq!(
        reason.to_string(),
        "Prometheus answered HTTP 400: bad_data: parse error: oh no"
    );
    let reason = answer_to(|| body(502, format!("<h1>Bad</h1>\n{}", "x".repeat(9000)))).await;
    assert!(
        reason
            .to_string()
            .starts_with("Prometheus answered HTTP 502: <h1>Bad</h1> xxx")
    );
    assert!(reason.to_string().len() < 300);
}

#[tokio::test]
async fn an_error_or_nonsense_under_status_200_is_unavailable() {
    let error = r#"{"status":"error","errorType":"execution","error":"out of memory"}"#;
    let reason = answer_to(move || body(200, error)).await;
    assert_eq!(
        reason.to_string(),
        "Prometheus answered with an error (execution): out of memory"
    );
    for nonsense in [
        "",
        "<html>please log in</html>",
        "{\"status\":\"success\"}",
        "null",
    ] {
        let reason = answer_to(move || body(200, nonsense)).await;
        assert!(
            matches!(reason, Unavailable::Answer(AnswerError::Nonsense(_))),
            "{nonsense}: {reason}"
        );
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_names_the_right_address() {
    let stub = Stub::start(|_| async {
        let mut response = body(302, "");
        response.headers_mut().insert(
            LOCATION,
            http::HeaderValue::from_static("https://prometheus.example/"),
        );
        response
    })
    .await;
    let reason = stub
        .client()
        .query("up == bool 1", GENEROUS)
        .await
        .unwrap_err();
    assert_eq!(
        reason.to_string(),
        "Prometheus redirects to \"https://prometheus.example/\"; put the right address into prometheus-base-url"
    );
    assert_eq!(stub.asked().len(), 1);
}

#[tokio::test]
async fn an_answer_that_does_not_come_is_given_up_at_the_deadline() {
    let stub = Stub::start(|_| std::future::pending()).await;
    let deadline = Duration::from_millis(50);
    let reason = stub
        .client()
        .query("up == bool 1", deadline)
        .await
        .unwrap_err();
    assert_eq!(reason, Unavailable::TimedOut(deadline));
}

#[tokio::test]
async fn a_body_that_does_not_end_is_given_up_at_the_deadline() {
    let stub = Stub::start(|_| async {
        let body = futures::StreamExt::chain(
            futures::stream::iter([Ok::<_, std::io::Error>("{\"status\":")]),
            futures::stream::pending(),
        );
        self::body(200, axum::body::Body::from_stream(body))
    })
    .await;
    let deadline = Duration::from_millis(500);
    let reason = stub
        .client()
        .query("up == bool 1", deadline)
        .await
        .unwrap_err();
    assert_eq!(reason, Unavailable::TimedOut(deadline));
}

#[tokio::test]
async fn a_huge_body_is_not_read_to_its_end() {
    let endless = || {
        let spaces =
            futures::stream::repeat_with(|| Ok::<_, std::io::Error>(vec![b' '; 64 * 1024]));
        body(200, axum::body::Body::from_stream(spaces))
    };
    assert_eq!(answer_to(endless).await, Unavailable::TooLarge);
}

#[tokio::test]
async fn a_body_of_the_largest_size_is_read() {
    let stub = Stub::start(|_| async {
        let answer = r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#;
        body(
            200,
            format!("{answer}{}", " ".repeat(MAX_BODY - answer.len())),
        )
    })
    .await;
    let response = stub.client().query("up == bool 1", GENEROUS).await.unwrap();
    assert_eq!(response.answer, Answer::Vector(vec![]));
}

#[tokio::test]
async fn a_refused_connection_is_unavailable_and_hides_the_password() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let client = client(&format!("http://user:secret@{address}/"));
    let reason = client.query("up == bool 1", GENEROUS).await.unwrap_err();
    assert!(reason.concerns_all_queries());
    let text = reason.to_string();
    assert!(
        text.starts_with("Prometheus cannot be reached: Connection refused"),
        "{text}"
    );
    assert!(!text.contains("secret"));
}

#[tokio::test]
async fn queries_one_after_the_other_share_a_connection_whatever_is_answered() {
    let stub = Stub::start(|query| async move {
        match query.as_str() {
            "a" => vector(&[(&[("pod", "a")], "1")]),
            "b" => body(
                400,
                r#"{"status":"error","errorType":"bad_data","error":"no"}"#,
            ),
            _ => body(500, "x".repeat(100_000)),
        }
    })
    .await;
    let client = stub.client();
    for query in ["a", "b", "c", "a", "b", "c"] {
        let _ = client.clone().query(query, GENEROUS).await;
    }
    assert_eq!(stub.asked().len(), 6);
    assert_eq!(stub.connections(), 1);
}

#[tokio::test]
async fn a_query_takes_no_longer_than_the_configuration_says() {
    let stub = Stub::start(|_| std::future::pending()).await;
    let mut settings = PrometheusSettings::new(format!("http://{}", stub.address).parse().unwrap());
    settings.timeout = Duration::from_millis(50);
    let client = super::super::stub::client_of(&settings);
    let reason = client.query("up == bool 1", GENEROUS).await.unwrap_err();
    assert_eq!(reason, Unavailable::TimedOut(settings.timeout));
    assert_eq!(stub.asked()[0].parameter("timeout"), Some("50ms"));
}

#[tokio::test]
async fn a_connection_that_breaks_is_unavailable() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            drop(stream);
        }
    });
    let reason = client(&format!("http://{address}/"))
        .query("up == bool 1", GENEROUS)
        .await
        .unwrap_err();
    assert!(matches!(reason, Unavailable::Unreachable(_)), "{reason}");
}

#[test]
fn a_password_in_the_address_is_never_shown() {
    let client = client("http://user:secret@prometheus:9090/p");
    assert_eq!(
        format!("{client:?}"),
        r#"Prometheus(PrometheusUrl("http://***@prometheus:9090/p"))"#
    );
}
