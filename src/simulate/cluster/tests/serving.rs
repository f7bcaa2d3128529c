//! The API server as `kube` sees it.

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, ObjectReference, Pod, PodTemplate};
use kube::api::{
    DeleteParams, ListParams, Patch as KubePatch, PatchParams, PostParams, Preconditions,
    WatchEvent, WatchParams,
};
use kube::runtime::watcher;
use kube::{Api, ResourceExt};

use super::*;

fn code(error: &kube::Error) -> (u16, String) {
    let kube::Error::Api(status) = error else {
        panic!("not an answer of the server: {error}")
    };
    (status.code, status.reason.clone())
}

fn typed<K: serde::de::DeserializeOwned>(manifest: Value) -> K {
    serde_json::from_value(manifest).unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_object_is_created_read_changed_and_deleted() {
    let cluster = cluster();
    let api: Api<Deployment> = Api::namespaced(cluster.client("test"), NAMESPACE);
    let created = api
        .create(
            &PostParams::default(),
            &typed(deployment(NAMESPACE, X, 0, V1)),
        )
        .await
        .unwrap();
    assert_eq!(created.metadata.generation, Some(1));
    let spec = created.spec.clone().unwrap();
    assert_eq!(
        (spec.revision_history_limit, spec.progress_deadline_seconds),
        (Some(10), Some(600))
    );
    let error = api
        .create(
            &PostParams::default(),
            &typed(deployment(NAMESPACE, X, 0, V1)),
        )
        .await
        .unwrap_err();
    assert_eq!(code(&error), (409, "AlreadyExists".to_owned()));

    let mut stale = created.clone();
    cluster.scale(NAMESPACE, X, 1).unwrap();
    stale.metadata.labels = None;
    let error = api
        .replace(X, &PostParams::default(), &stale)
        .await
        .unwrap_err();
    assert_eq!(code(&error), (409, "Conflict".to_owned()));
    stale.metadata.resource_version = None;
    let replaced = api
        .replace(X, &PostParams::default(), &stale)
        .await
        .unwrap();
    assert_eq!(
        (
            replaced.metadata.generation,
            replaced.spec.unwrap().replicas
        ),
        (Some(3), Some(0))
    );

    let wrong = Preconditions {
        uid: Some("another".to_owned()),
        resource_version: None,
    };
    let error = api
        .delete(X, &DeleteParams::default().preconditions(wrong))
        .await
        .unwrap_err();
    assert_eq!(code(&error), (409, "Conflict".to_owned()));
    let right = Preconditions {
        uid: created.uid(),
        resource_version: None,
    };
    assert!(
        api.delete(X, &DeleteParams::default().preconditions(right))
            .await
            .unwrap()
            .is_right()
    );
    let error = api.get(X).await.unwrap_err();
    assert_eq!(code(&error), (404, "NotFound".to_owned()));
    assert_eq!(api.get_opt(X).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn a_json_patch_applies_whole_or_is_refused() {
    let cluster = with_x(Lags::default()).await;
    let api: Api<Deployment> = Api::namespaced(cluster.client("test"), NAMESPACE);
    let patch =
        |operations: Value| KubePatch::<()>::Json(serde_json::from_value(operations).unwrap());
    let parameters = PatchParams::default();
    let before = api.get(X).await.unwrap();
    let failing = patch(json!([
        {"op": "add", "path": "/spec/paused", "value": true},
        {"op": "test", "path": "/metadata/uid", "value": "another"},
    ]));
    let error = api.patch(X, &parameters, &failing).await.unwrap_err();
    assert_eq!(code(&error), (422, "Invalid".to_owned()));
    assert_eq!(api.get(X).await.unwrap(), before);

    // Not paused is an absent field: only null tests for it.
    let paused = |was: Value| {
        patch(json!([
            {"op": "test", "path": "/spec/paused", "value": was},
            {"op": "add", "path": "/spec/paused", "value": true},
        ]))
    };
    assert_eq!(
        code(
            &api.patch(X, &parameters, &paused(json!(false)))
                .await
                .unwrap_err()
        )
        .0,
        422
    );
    let patched = api
        .patch(X, &parameters, &paused(Value::Null))
        .await
        .unwrap();
    assert_eq!(patched.spec.unwrap().paused, Some(true));
    assert_eq!(
        code(
            &api.patch(X, &parameters, &paused(Value::Null))
                .await
                .unwrap_err()
        )
        .0,
        422
    );
}

#[tokio::test(start_paused = true)]
async fn a_merge_patch_with_a_resource_version_is_refused_when_the_object_has_changed() {
    let cluster = cluster();
    let api: Api<PodTemplate> = Api::namespaced(cluster.client("test"), NAMESPACE);
    let template = deployment(NAMESPACE, X, 1, V1)["spec"]["template"].clone();
    let manifest = json!({"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "state"}, "template": template});
    let created = api
        .create(&PostParams::default(), &typed(manifest))
        .await
        .unwrap();
    let note = |text: &str| {
        let version = created.resource_version();
        KubePatch::Merge(
            json!({"metadata": {"resourceVersion": version, "annotations": {"note": text}}}),
        )
    };
    let changed = api
        .patch("state", &PatchParams::default(), &note("one"))
        .await
        .unwrap();
    assert_ne!(changed.resource_version(), created.resource_version());
    let error = api
        .patch("state", &PatchParams::default(), &note("two"))
        .await
        .unwrap_err();
    assert_eq!(code(&error), (409, "Conflict".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_write_that_changes_nothing_makes_no_new_version() {
    let cluster = with_x(Lags::default()).await;
    let before = get(&cluster, Kind::Deployment, X);
    cluster.set_image(NAMESPACE, X, V1).unwrap();
    assert_eq!(get(&cluster, Kind::Deployment, X), before);
}

#[tokio::test(start_paused = true)]
async fn equal_templates_compare_equal_in_every_kind_that_carries_one() {
    let cluster = with_x(Lags::default()).await;
    let given = deployment(NAMESPACE, X, 1, V1)["spec"]["template"].clone();
    let state = cluster
        .create(&json!({"apiVersion": "v1", "kind": "PodTemplate",
            "metadata": {"namespace": NAMESPACE, "name": "state"}, "template": given}))
        .unwrap();
    let mut of_replica_set = replica_set(&cluster, V1)
        .at("/spec/template")
        .unwrap()
        .clone();
    of_replica_set["metadata"]["labels"]
        .as_object_mut()
        .unwrap()
        .remove("pod-template-hash");
    let x = get(&cluster, Kind::Deployment, X);
    assert_eq!(state.at("/template"), x.at("/spec/template"));
    assert_eq!(Some(&of_replica_set), x.at("/spec/template"));
    insta::assert_snapshot!(serde_json::to_string_pretty(x.at("/spec").unwrap()).unwrap());
}

#[tokio::test(start_paused = true)]
async fn unknown_fields_survive() {
    let cluster = cluster();
    let mut manifest = deployment(NAMESPACE, X, 2, V1);
    manifest["spec"]["template"]["spec"]["fieldOfTheFuture"] = json!({"a": [1]});
    cluster.apply(&manifest).unwrap();
    settle(&cluster).await;
    let x = get(&cluster, Kind::Deployment, X);
    assert_eq!(
        x.at("/spec/template/spec/fieldOfTheFuture"),
        Some(&json!({"a": [1]}))
    );
    assert_eq!(
        replica_set(&cluster, V1).at("/spec/template/spec/fieldOfTheFuture"),
        Some(&json!({"a": [1]}))
    );
}

#[tokio::test(start_paused = true)]
async fn what_the_real_server_does_not_take_is_refused() {
    let cluster = with_x(Lags::default()).await;
    let mut other_selector = deployment(NAMESPACE, X, 1, V1);
    other_selector["spec"]["selector"]["matchLabels"] = json!({"app": "other"});
    other_selector["spec"]["template"]["metadata"]["labels"] =
        json!({"app": "other", "new": "yes"});
    assert_eq!(cluster.apply(&other_selector).unwrap_err().code, 422);
    other_selector["metadata"]["name"] = json!("other");
    other_selector["spec"]["template"]["metadata"]["labels"] = json!({"app": X});
    assert_eq!(cluster.apply(&other_selector).unwrap_err().code, 422);
    let x = get(&cluster, Kind::Deployment, X);
    let mut two_owners = replica_set_for(&x, "two", V1);
    let owner = two_owners["metadata"]["ownerReferences"][0].clone();
    two_owners["metadata"]["ownerReferences"] = json!([owner, owner]);
    assert_eq!(cluster.create(&two_owners).unwrap_err().code, 422);
}

#[tokio::test(start_paused = true)]
async fn the_scale_subresource_reads_and_writes_the_number() {
    let cluster = with_x(Lags::default()).await;
    let api: Api<Deployment> = Api::namespaced(cluster.client("hpa"), NAMESPACE);
    let mut scale = api.get_scale(X).await.unwrap();
    assert_eq!(scale.status.as_ref().unwrap().replicas, 10);
    assert_eq!(
        scale.status.as_ref().unwrap().selector.as_deref(),
        Some("app=orders")
    );
    scale.spec.as_mut().unwrap().replicas = Some(3);
    api.replace_scale(X, &PostParams::default(), &scale)
        .await
        .unwrap();
    let error = api
        .replace_scale(X, &PostParams::default(), &scale)
        .await
        .unwrap_err();
    assert_eq!(code(&error), (409, "Conflict".to_owned()));
    settle(&cluster).await;
    assert_eq!(pods(&cluster, V1), 3);
}

#[tokio::test(start_paused = true)]
async fn lists_and_watches_follow_their_selectors() {
    let cluster = with_x(Lags::default()).await;
    cluster
        .apply(&deployment(NAMESPACE, "bills", 2, "bills:v1"))
        .unwrap();
    settle(&cluster).await;
    let api: Api<Pod> = Api::namespaced(cluster.client("test"), NAMESPACE);
    let all = api
        .list(&ListParams::default().labels("app in (orders,bills)"))
        .await
        .unwrap();
    assert_eq!(all.items.len(), 12);
    let bills = api
        .list(&ListParams::default().labels("app=bills"))
        .await
        .unwrap();
    assert_eq!(bills.items.len(), 2);

    let version = bills.metadata.resource_version.unwrap();
    let watched = api
        .watch(
            &WatchParams::default().labels("app=bills,!out").timeout(100),
            &version,
        )
        .await
        .unwrap();
    let name = bills.items[0].name_any();
    let label = |value: Value| Patch::Merge(json!({"metadata": {"labels": {"out": value}}}));
    for value in [json!("yes"), json!("still"), Value::Null] {
        cluster
            .patch(Kind::Pod, NAMESPACE, &name, label(value))
            .unwrap();
    }
    cluster.restart_containers(NAMESPACE, &name).unwrap();
    let events: Vec<WatchEvent<Pod>> = watched.try_collect().await.unwrap();
    let seen: Vec<&str> = events
        .iter()
        .map(|event| match event {
            WatchEvent::Added(_) => "added",
            WatchEvent::Modified(_) => "modified",
            WatchEvent::Deleted(_) => "deleted",
            WatchEvent::Bookmark(_) => "bookmark",
            WatchEvent::Error(_) => "error",
        })
        .filter(|event| *event != "bookmark")
        .collect();
    assert_eq!(seen, ["deleted", "added", "modified"]);
}

/// Counts what a watcher sees of the ReplicaSets.
async fn watch_for(
    cluster: &Cluster,
    config: watcher::Config,
    time: Duration,
) -> (usize, usize, usize, Vec<String>) {
    let api: Api<ReplicaSet> = Api::namespaced(cluster.client("watcher"), NAMESPACE);
    let (mut starts, mut applied, mut deleted, mut errors) = (0, 0, 0, Vec::new());
    let mut stream = watcher(api, config).boxed();
    let watching = async {
        while let Some(event) = stream.next().await {
            match event {
                Ok(watcher::Event::Init) => starts += 1,
                Ok(watcher::Event::Apply(_) | watcher::Event::InitApply(_)) => applied += 1,
                Ok(watcher::Event::Delete(_)) => deleted += 1,
                Ok(watcher::Event::InitDone) => {}
                Err(error) => errors.push(error.to_string()),
            }
        }
    };
    // Ends by the clock: a watcher goes on for ever.
    let _ = tokio::time::timeout(time, watching).await;
    (starts, applied, deleted, errors)
}

#[tokio::test(start_paused = true)]
async fn a_watcher_of_kube_follows_for_hours_with_one_list() {
    for config in [
        watcher::Config::default(),
        watcher::Config::default().streaming_lists(),
    ] {
        let cluster = with_x(Lags::default()).await;
        let user = cluster.clone();
        let changes = tokio::spawn(async move {
            for round in 0..12_u32 {
                sleep(minutes(30)).await;
                user.scale(NAMESPACE, X, 5 + round % 2).unwrap();
            }
        });
        let (starts, applied, deleted, errors) = watch_for(&cluster, config, minutes(8 * 60)).await;
        changes.await.unwrap();
        assert_eq!((starts, deleted, errors), (1, 0, Vec::<String>::new()));
        assert!(applied > 24, "{applied}");
        let journal = cluster.journal();
        let watches = journal
            .requests_by("watcher")
            .filter(|request| request.verb == Verb::Watch)
            .count();
        // One each 290 seconds.
        assert!((90..=110).contains(&watches), "{watches}");
        assert!(
            journal
                .requests_by("watcher")
                .filter(|request| request.verb == Verb::List)
                .count()
                <= 1
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_expired_watch_is_answered_410_and_the_watcher_lists_again() {
    let cluster = with_x(Lags::default()).await;
    let user = cluster.clone();
    tokio::spawn(async move {
        sleep(minutes(3)).await;
        user.expire_watches();
    });
    let (starts, _, _, errors) = watch_for(&cluster, watcher::Config::default(), minutes(20)).await;
    assert_eq!(starts, 2);
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].contains("too old resource version"), "{errors:?}");
}

#[tokio::test(start_paused = true)]
async fn a_watch_of_a_lagging_client_shows_changes_late() {
    let cluster = with_x(Lags::default()).await;
    let late = Lags {
        deployments: Lag::of(Duration::from_secs(5)),
        ..Lags::default()
    };
    let (client, _) = cluster.client_with(ClientOptions {
        lags: late,
        ..ClientOptions::of("late")
    });
    let api: Api<Deployment> = Api::namespaced(client, NAMESPACE);
    let version = api
        .list(&ListParams::default())
        .await
        .unwrap()
        .metadata
        .resource_version
        .unwrap();
    let mut events = api
        .watch(&WatchParams::default(), &version)
        .await
        .unwrap()
        .boxed();
    let before = cluster.elapsed();
    cluster.scale(NAMESPACE, X, 3).unwrap();
    events.try_next().await.unwrap().unwrap();
    let waited = cluster.elapsed() - before;
    assert!(
        waited >= Duration::from_secs(5) && waited < Duration::from_secs(6),
        "{waited:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn events_of_kubes_recorder_are_served_in_both_forms() {
    use kube::runtime::events::{Event as Notice, EventType, Recorder};
    let cluster = with_x(Lags::default()).await;
    let recorder = Recorder::new(cluster.client("volery"), "volery".into());
    let about = ObjectReference {
        api_version: Some("apps/v1".to_owned()),
        kind: Some("Deployment".to_owned()),
        name: Some(X.to_owned()),
        namespace: Some(NAMESPACE.to_owned()),
        ..ObjectReference::default()
    };
    let notice = Notice {
        type_: EventType::Normal,
        reason: "Registered".to_owned(),
        note: Some("10 pods, none touched".to_owned()),
        action: "Register".to_owned(),
        secondary: None,
    };
    recorder.publish(&notice, &about).await.unwrap();
    recorder.publish(&notice, &about).await.unwrap();
    let api: Api<Event> = Api::namespaced(cluster.client("kubectl"), NAMESPACE);
    let events = api
        .list(&ListParams::default().fields(&format!("regarding.name={X}")))
        .await
        .unwrap();
    assert_eq!(events.items.len(), 1);
    assert_eq!(
        events.items[0].message.as_deref(),
        Some("10 pods, none touched")
    );
    assert_eq!(events.items[0].involved_object.name.as_deref(), Some(X));
    assert_eq!(events.items[0].series.as_ref().unwrap().count, Some(2));
}

#[tokio::test(start_paused = true)]
async fn an_event_made_in_core_v1_is_counted_by_a_patch_in_core_v1() {
    let cluster = with_x(Lags::default()).await;
    let api: Api<Event> = Api::namespaced(cluster.client("volery"), NAMESPACE);
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "x.1"},
        "involvedObject": {"kind": "Deployment", "name": X, "namespace": NAMESPACE},
        "reason": "Checking", "message": "step 1/2", "type": "Normal", "count": 1,
        "firstTimestamp": "2026-01-05T08:00:00Z", "lastTimestamp": "2026-01-05T08:00:00Z",
    });
    let made = api
        .create(&PostParams::default(), &typed(event.clone()))
        .await
        .unwrap();
    let again = api.create(&PostParams::default(), &typed(event)).await;
    assert!(matches!(again, Err(kube::Error::Api(status)) if status.code == 409));
    let read: Event = patch(&api, json!({})).await.unwrap();
    assert_eq!(read, made, "an empty patch changes nothing");
    let later = "2026-01-05T09:00:00Z";
    let stale = json!({"metadata": {"resourceVersion": "1"}, "count": 2});
    assert!(patch(&api, stale).await.is_err());
    let raised = json!({"count": 2, "lastTimestamp": later});
    let raised: Event = patch(&api, raised).await.unwrap();
    assert_eq!(raised.count, Some(2));
    assert_eq!(
        raised
            .last_timestamp
            .map(|time| time.0.to_string())
            .as_deref(),
        Some(later)
    );
    assert_eq!(raised.first_timestamp, made.first_timestamp);

    async fn patch(api: &Api<Event>, patch: serde_json::Value) -> kube::Result<Event> {
        let params = PatchParams::default();
        api.patch("x.1", &params, &kube::api::Patch::Merge(patch))
            .await
    }
}

#[tokio::test(start_paused = true)]
async fn a_condition_of_another_is_kept_by_the_deployment_controller_and_taken_off_alone() {
    let cluster = with_x(Lags::default()).await;
    let api: Api<Deployment> = Api::namespaced(cluster.client("volery"), NAMESPACE);
    let patch = async |condition: serde_json::Value| {
        let patch = json!({"status": {"conditions": [condition]}});
        api.patch_status(
            X,
            &PatchParams::default(),
            &kube::api::Patch::Strategic(patch),
        )
        .await
        .unwrap()
    };
    let types = |x: &Deployment| {
        let conditions = x.status.clone().and_then(|status| status.conditions);
        let conditions = conditions.unwrap_or_default().into_iter();
        let mut types: Vec<String> = conditions.map(|condition| condition.type_).collect();
        types.sort();
        types
    };
    let before = api.get(X).await.unwrap();
    let ours = json!({"type": "volery.dev/Rollout", "status": "True", "reason": "AtRest"});
    let shown = patch(ours).await;
    assert_eq!(shown.spec, before.spec);
    assert_eq!(shown.metadata.generation, before.metadata.generation);
    assert_eq!(
        types(&shown),
        ["Available", "Progressing", "volery.dev/Rollout"]
    );
    cluster.scale(NAMESPACE, X, 5).unwrap();
    cluster.settle(Duration::from_secs(60)).await;
    let scaled = api.get(X).await.unwrap();
    let status = scaled.status.clone().unwrap();
    assert_eq!(
        status.available_replicas,
        Some(5),
        "the controller wrote it"
    );
    assert_eq!(types(&scaled), types(&shown));
    let gone = patch(json!({"type": "volery.dev/Rollout", "$patch": "delete"})).await;
    assert_eq!(types(&gone), ["Available", "Progressing"]);
}

#[tokio::test(start_paused = true)]
async fn leases_are_served() {
    let cluster = cluster();
    let api: Api<Lease> = Api::namespaced(cluster.client("volery"), "volery");
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "volery"},
        "spec": {"holderIdentity": "one"}});
    let first: Lease = api
        .create(&PostParams::default(), &typed(lease))
        .await
        .unwrap();
    let mut second = first.clone();
    second.spec.as_mut().unwrap().holder_identity = Some("two".to_owned());
    api.replace("volery", &PostParams::default(), &second)
        .await
        .unwrap();
    assert_eq!(
        code(
            &api.replace("volery", &PostParams::default(), &first)
                .await
                .unwrap_err()
        )
        .0,
        409
    );
}

#[tokio::test(start_paused = true)]
async fn apply_removes_what_the_manifest_no_longer_says_and_leaves_the_rest_alone() {
    let cluster = cluster();
    let mut manifest = deployment(NAMESPACE, X, 2, V1);
    let container = "/spec/template/spec/containers/0";
    manifest.pointer_mut(container).unwrap()["env"] =
        json!([{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]);
    manifest["spec"]["template"]["metadata"]["annotations"] = json!({"note": "first"});
    cluster.apply(&manifest).unwrap();
    cluster.set_paused(NAMESPACE, X, true).unwrap();
    cluster.scale(NAMESPACE, X, 5).unwrap();
    manifest.pointer_mut(container).unwrap()["env"] = json!([{"name": "B", "value": "3"}]);
    manifest["spec"]["template"]["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("annotations");
    manifest["spec"].as_object_mut().unwrap().remove("replicas");
    let x = cluster.apply(&manifest).unwrap();
    assert_eq!(
        x.at(container).unwrap()["env"],
        json!([{"name": "B", "value": "3"}])
    );
    assert_eq!(x.at("/spec/template/metadata/annotations"), None);
    assert!(
        x.is_set("/spec/paused"),
        "what the manifest never said is left alone"
    );
    assert_eq!(
        x.replicas(),
        1,
        "a number that is no longer said falls back to the default"
    );
}

#[tokio::test(start_paused = true)]
async fn rollout_status_waits_while_a_paused_deployment_has_a_newer_template() {
    let cluster = with_paused_x(Lags::default()).await;
    let status = |cluster: &Cluster| RolloutStatus::of(&get(cluster, Kind::Deployment, X));
    assert_eq!(status(&cluster), RolloutStatus::Done);
    cluster.set_image(NAMESPACE, X, V2).unwrap();
    assert_eq!(status(&cluster), RolloutStatus::Waiting);
    sleep(minutes(60)).await;
    assert_eq!(status(&cluster), RolloutStatus::Waiting);
    cluster.set_paused(NAMESPACE, X, false).unwrap();
    settle(&cluster).await;
    assert_eq!(status(&cluster), RolloutStatus::Done);
    cluster.scale(NAMESPACE, X, 0).unwrap();
    settle(&cluster).await;
    assert_eq!(status(&cluster), RolloutStatus::Done);
}

/// What a small controller made with kube does: it notes on X how many replicas it saw available.
async fn take_notes(client: kube::Client) {
    let api: Api<Deployment> = Api::namespaced(client, NAMESPACE);
    let mut events = watcher(api.clone(), watcher::Config::default()).boxed();
    while let Some(event) = events.next().await {
        let Ok(watcher::Event::Apply(x) | watcher::Event::InitApply(x)) = event else {
            continue;
        };
        let seen = x
            .status
            .and_then(|status| status.available_replicas)
            .unwrap_or_default()
            .to_string();
        if x.metadata.annotations.unwrap_or_default().get("seen") != Some(&seen) {
            let patch = KubePatch::Merge(json!({"metadata": {"annotations": {"seen": seen}}}));
            api.patch(X, &PatchParams::default(), &patch).await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_gives_the_same_timeline_with_a_controller_of_kube_in_it() {
    async fn timeline() -> Vec<String> {
        let jitter = Lag {
            fixed: Duration::ZERO,
            jitter: milliseconds(300),
        };
        let options = Options {
            seed: 3,
            lags: Lags::all(jitter),
            ..Options::default()
        };
        let cluster = Cluster::start(options);
        let controller = tokio::spawn(take_notes(cluster.client("notes")));
        cluster.apply(&deployment(NAMESPACE, X, 10, V1)).unwrap();
        settle(&cluster).await;
        cluster.break_watches();
        cluster.set_image(NAMESPACE, X, V2).unwrap();
        settle(&cluster).await;
        controller.abort();
        assert_eq!(
            get(&cluster, Kind::Deployment, X).annotation("seen"),
            Some("10")
        );
        cluster
            .journal()
            .writes
            .iter()
            .map(ToString::to_string)
            .collect()
    }
    let first = timeline().await;
    assert!(
        first
            .iter()
            .filter(|write| write.contains(" notes "))
            .count()
            > 3
    );
    assert_eq!(timeline().await, first);
}
