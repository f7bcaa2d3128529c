//! Who asks: credentials and headers, as they are at the moment of each query.

use std::path::Path;

use super::super::super::stub::{Asked, Stub, client_of, vector};
use super::*;
use crate::config::{Config, Login, Secret};

/// The settings of a file that says this of `prometheus`.
fn settings(stub: &Stub, prometheus: &str) -> PrometheusSettings {
    let text = format!(
        "prometheus-base-url: http://{}\nprometheus: {prometheus}\n",
        stub.address
    );
    let loaded = Config::parse(Path::new("volery.yaml"), &text, &|_| Ok(())).unwrap();
    loaded.into_valid().unwrap().prometheus.unwrap()
}

async fn stub() -> Stub {
    Stub::start(|_| async { vector(&[]) }).await
}

fn header(asked: &Asked, name: &str) -> Option<String> {
    let value = asked.headers.get(name)?;
    Some(value.to_str().unwrap().to_owned())
}

#[tokio::test]
async fn a_token_in_a_file_is_read_anew_for_each_query() {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    let stub = stub().await;
    let of_file = format!("{{bearer-token-from-file: {}}}", token.display());
    let client = client_of(&settings(&stub, &of_file));
    let reason = client.query("up", GENEROUS).await.unwrap_err();
    assert!(reason.concerns_all_queries());
    assert_eq!(
        reason
            .to_string()
            .replace(&token.display().to_string(), "/token"),
        "Prometheus cannot be asked: file /token cannot be read: No such file or directory (os error 2)"
    );
    for text in ["", "two\nlines", "n\u{f6}"] {
        std::fs::write(&token, text).unwrap();
        let reason = client.query("up", GENEROUS).await.unwrap_err().to_string();
        let expected = "does not hold a token: expected one line of visible ASCII";
        assert!(reason.ends_with(expected), "{reason}");
    }
    assert!(stub.asked().is_empty());
    for text in ["first", "second\n"] {
        std::fs::write(&token, text).unwrap();
        client.query("up", GENEROUS).await.unwrap();
    }
    let sent: Vec<_> = stub
        .asked()
        .iter()
        .map(|asked| header(asked, "authorization"))
        .collect();
    let bearer = |token: &str| Some(format!("Bearer {token}"));
    assert_eq!(sent, [bearer("first"), bearer("second")]);
}

#[tokio::test]
async fn each_login_and_each_header_is_sent_as_the_server_expects_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("secret");
    std::fs::write(&file, "pass:w\u{f6}rd \n").unwrap();
    let file = file.display();
    let cases = [
        ("{}".to_owned(), vec![("authorization", None)]),
        (
            "{bearer-token-from-env: SECRET}".to_owned(),
            vec![("authorization", Some("Bearer s3cret"))],
        ),
        (
            format!("{{username: volery, password-from-file: {file}}}"),
            // volery:pass:wörd
            vec![("authorization", Some("Basic dm9sZXJ5OnBhc3M6d8O2cmQ="))],
        ),
        (
            "{username: volery, password-from-env: SECRET}".to_owned(),
            vec![("authorization", Some("Basic dm9sZXJ5OnMzY3JldA=="))],
        ),
        (
            "{headers: {X-Scope-OrgID: team a|b, X-Api-Key: {from-env: SECRET}}}".to_owned(),
            vec![
                ("x-scope-orgid", Some("team a|b")),
                ("x-api-key", Some("s3cret")),
                ("authorization", None),
            ],
        ),
        (
            "{headers: {Authorization: {from-env: SECRET}, User-Agent: curl}}".to_owned(),
            vec![
                ("authorization", Some("s3cret")),
                ("user-agent", Some("curl")),
            ],
        ),
    ];
    for (prometheus, expected) in cases {
        let stub = stub().await;
        let client = client_of(&settings(&stub, &prometheus));
        client.query("up", GENEROUS).await.unwrap();
        let asked = stub.asked().remove(0);
        for (name, value) in expected {
            assert_eq!(
                header(&asked, name).as_deref(),
                value,
                "{prometheus}: {name}"
            );
            assert!(asked.headers.get_all(name).iter().count() <= 1);
        }
        let form = header(&asked, "content-type");
        assert_eq!(form.as_deref(), Some("application/x-www-form-urlencoded"));
    }
}

#[tokio::test]
async fn a_user_in_the_address_is_sent_too() {
    let stub = stub().await;
    let client = client(&format!("http://volery:s3cret@{}/", stub.address));
    client.query("up", GENEROUS).await.unwrap();
    assert_eq!(
        header(&stub.asked()[0], "authorization").as_deref(),
        Some("Basic dm9sZXJ5OnMzY3JldA==")
    );
}

#[tokio::test]
async fn what_the_environment_lacks_is_named_and_nothing_is_asked() {
    let stub = stub().await;
    for prometheus in [
        "{bearer-token-from-env: TOKEN}",
        "{username: volery, password-from-env: TOKEN}",
        "{headers: {X-Api-Key: {from-env: TOKEN}}}",
    ] {
        let client = client_of(&settings(&stub, prometheus));
        let reason = client.query("up", GENEROUS).await.unwrap_err();
        assert_eq!(
            reason.to_string(),
            "Prometheus cannot be asked: environment variable TOKEN is not set; set it from a Secret"
        );
    }
    assert!(stub.asked().is_empty());
}

#[tokio::test]
async fn no_secret_is_ever_shown() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "s3cret\u{1}").unwrap();
    let stub = Stub::start(|_| async { body(401, "Unauthorized") }).await;
    let mut shown = Vec::new();
    for prometheus in [
        format!("{{bearer-token-from-file: {}}}", file.display()),
        "{username: volery, password-from-env: SECRET}".to_owned(),
        "{headers: {X-Key: s3cret, X-Api-Key: {from-env: SECRET}}}".to_owned(),
    ] {
        let settings = settings(&stub, &prometheus);
        let client = client_of(&settings);
        let reason = client.query("up", GENEROUS).await.unwrap_err();
        shown.push(format!("{settings:?} {client:?} {reason} {reason:?}"));
    }
    let shown = shown.join("\n");
    assert!(
        shown.contains("HTTP 401") && shown.contains("Bearer"),
        "{shown}"
    );
    assert!(!shown.contains("s3cret"), "{shown}");
}

#[test]
fn a_login_of_the_file_is_not_for_an_address_that_names_a_user() {
    let settings = PrometheusSettings {
        login: Login::Bearer(Secret::Variable("SECRET".to_owned())),
        ..PrometheusSettings::new("https://p/".parse().unwrap())
    };
    let here = settings.at("http://me:s3cret@localhost/".parse().unwrap());
    assert_eq!(here.login, Login::None);
}
