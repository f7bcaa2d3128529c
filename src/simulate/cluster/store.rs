//! The object store: what etcd and the registry of the real API server do to objects.
//!
//! One counter of revisions for all kinds, generations that count spec changes, deletion with grace and finalizers,
//! immutable fields, and a history of changes from which watches and the controllers' caches are fed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::clock::Clock;
use super::defaults;
use super::journal::Verb;
use super::object::{Key, Kind, Object, map_at, remove, set, text_of};
use super::patch::Patch;
use super::random::{Random, scramble};
use super::refusal::Refusal;
use super::selector;

/// The finalizer of a deletion that waits for its dependents.
pub(super) const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of a deletion that lets go of its dependents.
pub(super) const ORPHAN: &str = "orphan";

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Occurrence {
    Added,
    Modified,
    Deleted,
}

/// What a write is to the cluster. Words have chance of their own, so that what is told moves nothing that happens: the
/// same seed gives the same pods whether anybody tells about them or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    /// Something that things follow from.
    Deed,
    /// An Event, a condition that somebody patches into a Deployment's status, or an autoscaler, which is only told about.
    Word,
}

impl Sort {
    pub(super) const fn of(kind: Kind, part: Part, verb: Verb) -> Self {
        match (kind, part, verb) {
            (Kind::Event | Kind::Autoscaler, _, _)
            | (Kind::Deployment, Part::Status, Verb::Patch) => Self::Word,
            _ => Self::Deed,
        }
    }
}

/// One change of one object.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) revision: u64,
    pub(super) sort: Sort,
    /// The number of deeds up to this change.
    pub(super) turn: u64,
    pub(super) at: Instant,
    pub(super) occurrence: Occurrence,
    /// The object after the change; for a deletion its last state, with the deletion's revision.
    pub(super) object: Arc<Object>,
    pub(super) before: Option<Arc<Object>>,
}

/// The part of an object that a write is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// the object itself
    Main,
    /// its subresource `status`
    Status,
    /// its subresource `scale`
    Scale,
}

/// How an update comes in: the two differ in how a wrong uid is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Via {
    Put,
    Patch,
}

/// What becomes of the dependents of a deleted object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Propagation {
    /// deleted afterwards (what the apps/v1 kinds do when nothing is said)
    #[default]
    Background,
    /// deleted first
    Foreground,
    /// kept, without their owner
    Orphan,
}

/// The options of a deletion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deletion {
    /// refused unless the object has this uid
    pub uid: Option<String>,
    /// refused unless the object has this resourceVersion
    pub resource_version: Option<String>,
    /// what becomes of the dependents
    pub propagation: Propagation,
    /// seconds that a pod is given; its own `terminationGracePeriodSeconds` when not said
    pub grace: Option<i64>,
}

/// What a deletion came to.
#[derive(Clone, Debug)]
pub(super) enum Deleted {
    Gone(Arc<Object>),
    Terminating(Arc<Object>),
}

#[derive(Debug)]
pub(super) struct Store {
    pub(super) clock: Clock,
    pub(super) random: Random,
    /// Chance for words.
    pub(super) random_of_words: Random,
    /// In whose name fields are managed now.
    manager: String,
    revision: u64,
    /// Like the revision, without words.
    turn: u64,
    /// Watches cannot start before this revision.
    oldest: u64,
    /// How often all watches were broken.
    breaks: u64,
    objects: BTreeMap<Kind, BTreeMap<Key, Arc<Object>>>,
    history: BTreeMap<Kind, Vec<Change>>,
}

impl Store {
    pub(super) fn new(clock: Clock, seed: u64) -> Self {
        // A cluster in which things have happened before: nobody may take a small revision for a count.
        Self {
            clock,
            random: Random::seeded(seed),
            random_of_words: Random::seeded(scramble(seed)),
            manager: String::new(),
            revision: 1000,
            turn: 1000,
            oldest: 0,
            breaks: 0,
            objects: BTreeMap::new(),
            history: BTreeMap::new(),
        }
    }

    /// Has the fields that are written from now on managed by `manager`.
    pub(super) fn written_by(&mut self, manager: &str) {
        manager.clone_into(&mut self.manager);
    }

    /// Notes who manages a Deployment's number: of all managed fields the only one that anybody asks about here.
    fn note_manager(&self, object: &mut Value) {
        let entry = json!({
            "manager": self.manager,
            "operation": "Update",
            "apiVersion": "apps/v1",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": {"f:replicas": {}}},
        });
        set(object, &["metadata", "managedFields"], json!([entry]));
    }

    /// The newest revision.
    pub(super) const fn revision(&self) -> u64 {
        self.revision
    }

    /// The oldest revision from which a watch can start.
    pub(super) const fn oldest(&self) -> u64 {
        self.oldest
    }

    /// How often all watches were broken.
    pub(super) const fn breaks(&self) -> u64 {
        self.breaks
    }

    /// Breaks every watch.
    pub(super) const fn break_watches(&mut self) {
        self.breaks += 1;
    }

    /// Forgets the history, as a compaction does, and breaks every watch: none can go on from where it was.
    pub(super) const fn compact(&mut self) {
        self.revision += 1;
        self.turn += 1;
        self.oldest = self.revision;
        self.break_watches();
    }

    pub(super) fn find(&self, kind: Kind, key: &Key) -> Option<&Arc<Object>> {
        self.objects.get(&kind)?.get(key)
    }

    pub(super) fn get(&self, kind: Kind, key: &Key) -> Result<Arc<Object>, Refusal> {
        self.find(kind, key)
            .cloned()
            .ok_or_else(|| Refusal::not_found(kind, &key.name))
    }

    /// All objects of a kind, in order of namespace and name.
    pub(super) fn all(&self, kind: Kind) -> impl Iterator<Item = &Arc<Object>> {
        self.objects
            .get(&kind)
            .into_iter()
            .flat_map(BTreeMap::values)
    }

    /// All objects of a kind in a namespace, in order of name.
    pub(super) fn within<'a>(
        &'a self,
        kind: Kind,
        namespace: &'a str,
    ) -> impl Iterator<Item = &'a Arc<Object>> {
        self.objects
            .get(&kind)
            .into_iter()
            .flat_map(move |objects| objects.range(Key::new(namespace, "")..))
            .take_while(move |(key, _)| key.namespace == namespace)
            .map(|(_, object)| object)
    }

    /// The n-th change of a kind since the cluster began.
    pub(super) fn change(&self, kind: Kind, index: usize) -> Option<&Change> {
        self.history.get(&kind)?.get(index)
    }

    /// The index of the first change of a kind after a revision.
    pub(super) fn changes_after(&self, kind: Kind, revision: u64) -> usize {
        self.history.get(&kind).map_or(0, |changes| {
            changes.partition_point(|change| change.revision <= revision)
        })
    }

    /// POST
    pub(super) fn create(
        &mut self,
        kind: Kind,
        namespace: &str,
        object: Value,
    ) -> Result<Arc<Object>, Refusal> {
        if !text_of(
            object.get("metadata").unwrap_or(&Value::Null),
            "resourceVersion",
        )
        .is_empty()
        {
            return Err(Refusal::bad_request(
                "resourceVersion should not be set on objects to be created",
            ));
        }
        let given = Object::new(object);
        if !given.namespace().is_empty() && given.namespace() != namespace {
            return Err(Refusal::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        let name = match (given.name(), given.text("/metadata/generateName")) {
            ("", "") => {
                let cause = "metadata.name: Required value: name or generateName is required";
                return Err(Refusal::invalid(kind, &Key::new(namespace, ""), cause));
            }
            ("", prefix) => format!("{prefix}{}", self.random.suffix(5)),
            (name, _) => name.to_owned(),
        };
        let key = Key::new(namespace, &name);
        if self.find(kind, &key).is_some() {
            return Err(Refusal::already_exists(kind, &name));
        }
        let sort = Sort::of(kind, Part::Main, Verb::Create);
        let mut object = given.into_json();
        if kind == Kind::Event {
            defaults::event_to_stored(&mut object);
        }
        if kind.has_status() {
            remove(&mut object, &["status"]);
        }
        set(&mut object, &["apiVersion"], json!(kind.api_version()));
        set(&mut object, &["kind"], json!(kind.name()));
        if let Some(metadata) = map_at(&mut object, &["metadata"]) {
            metadata.insert("name".to_owned(), json!(name));
            metadata.insert("namespace".to_owned(), json!(namespace));
            let random = match sort {
                Sort::Deed => &mut self.random,
                Sort::Word => &mut self.random_of_words,
            };
            metadata.insert("uid".to_owned(), json!(random.uid()));
            metadata.insert(
                "creationTimestamp".to_owned(),
                json!(self.clock.timestamp()),
            );
            for derived in [
                "deletionTimestamp",
                "deletionGracePeriodSeconds",
                "managedFields",
            ] {
                metadata.remove(derived);
            }
            if generation_counts(kind) {
                metadata.insert("generation".to_owned(), json!(1));
            } else {
                metadata.remove("generation");
            }
        }
        if kind == Kind::Pod {
            set(
                &mut object,
                &["status"],
                json!({"phase": "Pending", "qosClass": "BestEffort"}),
            );
        }
        defaults::fill(kind, &mut object);
        if kind == Kind::Deployment {
            self.note_manager(&mut object);
        }
        let object = Object::new(object);
        validate(kind, &key, &object)?;
        Ok(self.record(kind, &key, sort, object.into_json(), None))
    }

    /// PUT
    pub(super) fn replace(
        &mut self,
        kind: Kind,
        key: &Key,
        part: Part,
        new: Value,
    ) -> Result<Arc<Object>, Refusal> {
        let old = self.get(kind, key)?;
        if part == Part::Scale {
            return self.rescale(kind, key, &old, &new);
        }
        self.update(kind, key, part, Via::Put, &old, new)
    }

    /// PATCH
    pub(super) fn patch(
        &mut self,
        kind: Kind,
        key: &Key,
        part: Part,
        patch: &Patch,
    ) -> Result<Arc<Object>, Refusal> {
        let old = self.get(kind, key)?;
        if part == Part::Scale {
            let scale = patch.apply(&scale_of(&old))?;
            return self.rescale(kind, key, &old, &scale);
        }
        let new = patch.apply(old.json())?;
        self.update(kind, key, part, Via::Patch, &old, new)
    }

    /// PATCH of an event as core/v1 shows it.
    pub(super) fn patch_core_event(
        &mut self,
        key: &Key,
        patch: &Patch,
    ) -> Result<Arc<Object>, Refusal> {
        let old = self.get(Kind::Event, key)?;
        let mut shown = old.json().clone();
        defaults::event_to_core(&mut shown);
        let new = patch.apply(&shown)?;
        self.update(Kind::Event, key, Part::Main, Via::Patch, &old, new)
    }

    fn rescale(
        &mut self,
        kind: Kind,
        key: &Key,
        old: &Arc<Object>,
        scale: &Value,
    ) -> Result<Arc<Object>, Refusal> {
        let scale = Object::new(scale.clone());
        let mut new = old.json().clone();
        set(&mut new, &["spec", "replicas"], json!(scale.replicas()));
        set(
            &mut new,
            &["metadata", "resourceVersion"],
            json!(scale.text("/metadata/resourceVersion")),
        );
        self.update(kind, key, Part::Main, Via::Put, old, new)
    }

    fn update(
        &mut self,
        kind: Kind,
        key: &Key,
        part: Part,
        via: Via,
        old: &Arc<Object>,
        new: Value,
    ) -> Result<Arc<Object>, Refusal> {
        let given = Object::new(new);
        if given.name() != key.name || !["", key.namespace.as_str()].contains(&given.namespace()) {
            return Err(Refusal::bad_request(format!(
                "the name of the object ({}) does not match the name on the URL ({})",
                given.name(),
                key.name
            )));
        }
        if !["", old.uid()].contains(&given.uid()) {
            return Err(match via {
                Via::Put => Refusal::conflict(
                    kind,
                    &key.name,
                    &format!(
                        "Precondition failed: UID in precondition: {}, UID in object meta: {}",
                        given.uid(),
                        old.uid()
                    ),
                ),
                Via::Patch => {
                    Refusal::invalid(kind, key, "metadata.uid: Invalid value: field is immutable")
                }
            });
        }
        let revision = given.text("/metadata/resourceVersion");
        if !revision.is_empty() && revision != old.text("/metadata/resourceVersion") {
            return Err(Refusal::modified(kind, &key.name));
        }
        let mut new = given.into_json();
        if kind == Kind::Event {
            defaults::event_to_stored(&mut new);
        }
        keep_what_is_not_written(kind, part, old, &mut new);
        defaults::fill(kind, &mut new);
        let mut candidate = Object::new(new);
        if kind == Kind::Deployment && candidate.replicas() != old.replicas() {
            self.note_manager(candidate.json_mut());
        }
        if part == Part::Main {
            validate(kind, key, &candidate)?;
            validate_update(kind, key, old, &candidate)?;
            if generation_moves(kind, old, &candidate) {
                let generation = json!(old.generation() + 1);
                set(
                    candidate.json_mut(),
                    &["metadata", "generation"],
                    generation,
                );
            }
        }
        let finished = candidate.is_terminating()
            && candidate.at("/metadata/finalizers").is_none()
            && candidate.number("/metadata/deletionGracePeriodSeconds") == 0;
        if finished {
            return Ok(self.forget(kind, key, &candidate));
        }
        if candidate == **old {
            // The real store, too, does not write what is there already.
            return Ok(Arc::clone(old));
        }
        let verb = match via {
            Via::Put => Verb::Replace,
            Via::Patch => Verb::Patch,
        };
        let sort = Sort::of(kind, part, verb);
        Ok(self.record(
            kind,
            key,
            sort,
            candidate.into_json(),
            Some(Arc::clone(old)),
        ))
    }

    /// DELETE
    pub(super) fn delete(
        &mut self,
        kind: Kind,
        key: &Key,
        deletion: &Deletion,
    ) -> Result<Deleted, Refusal> {
        let old = self.get(kind, key)?;
        for (name, wanted, actual) in [
            ("UID", deletion.uid.as_deref(), old.uid()),
            (
                "ResourceVersion",
                deletion.resource_version.as_deref(),
                old.text("/metadata/resourceVersion"),
            ),
        ] {
            if let Some(wanted) = wanted.filter(|wanted| *wanted != actual) {
                return Err(Refusal::conflict(
                    kind,
                    &key.name,
                    &format!(
                        "the {name} in the precondition ({wanted}) does not match the {name} in record ({actual}). The \
                         object might have been deleted and then recreated"
                    ),
                ));
            }
        }
        let mut new = old.json().clone();
        let grace = if kind == Kind::Pod {
            pod_grace(&old, deletion.grace)
        } else {
            0
        };
        let finalizer = match deletion.propagation {
            Propagation::Background => None,
            Propagation::Foreground => Some(FOREGROUND),
            Propagation::Orphan => Some(ORPHAN),
        };
        if let Some(finalizer) = finalizer.filter(|finalizer| !old.has_finalizer(finalizer))
            && !old.is_terminating()
            && let Some(metadata) = map_at(&mut new, &["metadata"])
            && let Some(list) = metadata
                .entry("finalizers")
                .or_insert_with(|| json!([]))
                .as_array_mut()
        {
            list.push(json!(finalizer));
        }
        let kept = new.pointer("/metadata/finalizers").is_some();
        if grace == 0 && !kept {
            return Ok(Deleted::Gone(self.forget(kind, key, &old)));
        }
        let shorter =
            old.is_terminating() && grace < old.number("/metadata/deletionGracePeriodSeconds");
        if old.is_terminating() && !shorter {
            return Ok(Deleted::Terminating(old));
        }
        let seconds = u64::try_from(grace).unwrap_or_default();
        let end = self.clock.timestamp_in(Duration::from_secs(seconds));
        set(&mut new, &["metadata", "deletionTimestamp"], json!(end));
        set(
            &mut new,
            &["metadata", "deletionGracePeriodSeconds"],
            json!(grace),
        );
        if old.generation() > 0 {
            set(
                &mut new,
                &["metadata", "generation"],
                json!(old.generation() + 1),
            );
        }
        Ok(Deleted::Terminating(self.record(
            kind,
            key,
            Sort::Deed,
            new,
            Some(old),
        )))
    }

    fn record(
        &mut self,
        kind: Kind,
        key: &Key,
        sort: Sort,
        mut object: Value,
        before: Option<Arc<Object>>,
    ) -> Arc<Object> {
        self.revision += 1;
        if sort == Sort::Deed {
            self.turn += 1;
        }
        set(
            &mut object,
            &["metadata", "resourceVersion"],
            json!(self.revision.to_string()),
        );
        let object = Arc::new(Object::new(object));
        self.objects
            .entry(kind)
            .or_default()
            .insert(key.clone(), Arc::clone(&object));
        let occurrence = if before.is_some() {
            Occurrence::Modified
        } else {
            Occurrence::Added
        };
        self.remember(kind, sort, occurrence, Arc::clone(&object), before);
        object
    }

    fn forget(&mut self, kind: Kind, key: &Key, last: &Object) -> Arc<Object> {
        self.revision += 1;
        self.turn += 1;
        let before = self.objects.entry(kind).or_default().remove(key);
        let mut object = last.json().clone();
        set(
            &mut object,
            &["metadata", "resourceVersion"],
            json!(self.revision.to_string()),
        );
        let object = Arc::new(Object::new(object));
        self.remember(
            kind,
            Sort::Deed,
            Occurrence::Deleted,
            Arc::clone(&object),
            before,
        );
        object
    }

    fn remember(
        &mut self,
        kind: Kind,
        sort: Sort,
        occurrence: Occurrence,
        object: Arc<Object>,
        before: Option<Arc<Object>>,
    ) {
        let change = Change {
            revision: self.revision,
            sort,
            turn: self.turn,
            at: self.clock.now(),
            occurrence,
            object,
            before,
        };
        self.history.entry(kind).or_default().push(change);
    }
}

/// The subresource `scale` of a workload.
pub(super) fn scale_of(object: &Object) -> Value {
    json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {
            "name": object.name(),
            "namespace": object.namespace(),
            "uid": object.uid(),
            "resourceVersion": object.text("/metadata/resourceVersion"),
            "creationTimestamp": object.text("/metadata/creationTimestamp"),
        },
        "spec": {"replicas": object.replicas()},
        "status": {
            "replicas": object.status("replicas"),
            "selector": selector::as_text(object.at("/spec/selector")),
        },
    })
}

/// Whether objects of a kind have a generation.
const fn generation_counts(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Deployment | Kind::ReplicaSet | Kind::PodTemplate | Kind::Pod
    )
}

/// Whether an update moves the generation: a change of the spec, for Deployments also of the annotations, because
/// these are copied to ReplicaSets (`PrepareForUpdate` of each registry).
fn generation_moves(kind: Kind, old: &Object, new: &Object) -> bool {
    let differs = |pointer: &str| old.at(pointer) != new.at(pointer);
    match kind {
        Kind::Deployment => differs("/spec") || differs("/metadata/annotations"),
        Kind::ReplicaSet | Kind::Pod => differs("/spec"),
        Kind::PodTemplate => differs("/template"),
        Kind::Event | Kind::Lease | Kind::Autoscaler => false,
    }
}

/// Restores everything that this kind of write cannot change.
fn keep_what_is_not_written(kind: Kind, part: Part, old: &Object, new: &mut Value) {
    let mut keep = |path: &[&str]| match old.at(&format!("/{}", path.join("/"))) {
        Some(value) => set(new, path, value.clone()),
        None => remove(new, path),
    };
    keep(&["apiVersion"]);
    keep(&["kind"]);
    for member in [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "generation",
        "resourceVersion",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "managedFields",
    ] {
        keep(&["metadata", member]);
    }
    if kind.has_status() {
        match part {
            Part::Main | Part::Scale => keep(&["status"]),
            Part::Status => {
                keep(&["spec"]);
                if kind == Kind::Deployment {
                    keep(&["metadata", "labels"]);
                }
                if kind == Kind::Pod {
                    keep(&["metadata", "ownerReferences"]);
                }
            }
        }
    }
    remove(new, &["metadata", "managedFields"]);
}

/// Seconds that a pod is given to end: none when it has not been scheduled or has finished.
fn pod_grace(pod: &Object, asked: Option<i64>) -> i64 {
    if pod.text("/spec/nodeName").is_empty()
        || matches!(pod.text("/status/phase"), "Succeeded" | "Failed")
    {
        return 0;
    }
    asked
        .unwrap_or_else(|| {
            pod.at("/spec/terminationGracePeriodSeconds")
                .and_then(Value::as_i64)
                .unwrap_or(30)
        })
        .max(0)
}

fn validate(kind: Kind, key: &Key, object: &Object) -> Result<(), Refusal> {
    let controllers = object
        .owners()
        .iter()
        .filter(|owner| owner.get("controller") == Some(&Value::Bool(true)))
        .count();
    if controllers > 1 {
        let cause = "metadata.ownerReferences: Invalid value: Only one reference can have Controller set to true";
        return Err(Refusal::invalid(kind, key, cause));
    }
    for owner in object.owners() {
        for member in ["apiVersion", "kind", "name", "uid"] {
            if text_of(owner, member).is_empty() {
                let cause = format!(
                    "metadata.ownerReferences.{member}: Invalid value: \"\": must not be empty"
                );
                return Err(Refusal::invalid(kind, key, &cause));
            }
        }
    }
    if matches!(kind, Kind::Deployment | Kind::ReplicaSet) {
        if object.replicas() < 0 {
            let cause = format!(
                "spec.replicas: Invalid value: {}: must be greater than or equal to 0",
                object.replicas()
            );
            return Err(Refusal::invalid(kind, key, &cause));
        }
        let labels = object
            .at("/spec/template/metadata/labels")
            .and_then(Value::as_object);
        if !selector::Requirements::of_spec(object.at("/spec/selector")).select(labels) {
            let cause = "spec.template.metadata.labels: Invalid value: `selector` does not match template `labels`";
            return Err(Refusal::invalid(kind, key, cause));
        }
    }
    let containers = match kind {
        Kind::Deployment | Kind::ReplicaSet => "/spec/template/spec/containers",
        Kind::PodTemplate => "/template/spec/containers",
        Kind::Pod => "/spec/containers",
        Kind::Event | Kind::Lease | Kind::Autoscaler => return Ok(()),
    };
    if object.at(containers).is_none() {
        let cause = format!(
            "{}: Required value",
            containers.trim_start_matches('/').replace('/', ".")
        );
        return Err(Refusal::invalid(kind, key, &cause));
    }
    Ok(())
}

fn validate_update(kind: Kind, key: &Key, old: &Object, new: &Object) -> Result<(), Refusal> {
    if matches!(kind, Kind::Deployment | Kind::ReplicaSet)
        && old.at("/spec/selector") != new.at("/spec/selector")
    {
        return Err(Refusal::invalid(
            kind,
            key,
            "spec.selector: Invalid value: field is immutable",
        ));
    }
    if old.is_terminating() {
        let finalizers = |object: &Object| {
            object
                .at("/metadata/finalizers")
                .and_then(Value::as_array)
                .cloned()
                .unwrap_or_default()
        };
        let before = finalizers(old);
        if finalizers(new)
            .iter()
            .any(|finalizer| !before.contains(finalizer))
        {
            let cause = "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted";
            return Err(Refusal::invalid(kind, key, cause));
        }
    }
    Ok(())
}
