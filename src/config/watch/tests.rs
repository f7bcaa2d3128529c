use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use tempfile::TempDir;
use tokio::time::timeout;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::fmt::MakeWriter;

use super::*;

/// Longer than any test: what is noticed then, the watch has noticed.
const NEVER: Duration = Duration::from_secs(3600);

/// Nothing here takes so long, unless it never comes.
const PATIENCE: Duration = Duration::from_secs(20);

/// Long enough to see that nothing comes, many times the settling.
const WHILE: Duration = Duration::from_millis(300);

const WATCHED: Pace = Pace {
    settle: Duration::from_millis(20),
    reread: NEVER,
};

const POLLED: Pace = Pace {
    settle: Duration::from_millis(20),
    reread: Duration::from_millis(20),
};

/// The volume of a ConfigMap as the kubelet's atomic writer lays it.
struct Volume {
    root: TempDir,
    generation: usize,
}

impl Volume {
    fn holding(text: &str) -> Self {
        let mut volume = Self {
            root: tempfile::tempdir().expect("a directory"),
            generation: 0,
        };
        volume.swap(text);
        std::os::unix::fs::symlink("..data/volery.yaml", volume.file()).expect("a link");
        volume
    }

    fn file(&self) -> PathBuf {
        self.root.path().join("volery.yaml")
    }

    /// A new dated directory, `..data` renamed onto it in one go, the old directory removed.
    fn swap(&mut self, text: &str) {
        self.generation += 1;
        let inside = |name: &str| self.root.path().join(name);
        let dated = format!("..2026_01_05_09_00_00.{}", self.generation);
        std::fs::create_dir(inside(&dated)).expect("a directory");
        std::fs::write(inside(&dated).join("volery.yaml"), text).expect("a file");
        let old = std::fs::read_link(inside("..data")).ok();
        std::os::unix::fs::symlink(&dated, inside("..data_tmp")).expect("a link");
        std::fs::rename(inside("..data_tmp"), inside("..data")).expect("a swap");
        if let Some(old) = old {
            std::fs::remove_dir_all(self.root.path().join(old)).expect("removed");
        }
    }
}

fn holds(text: &str) -> Content {
    Content::Bytes(text.as_bytes().to_vec())
}

async fn next(watch: &mut FileWatch) -> Content {
    let changed = timeout(PATIENCE, watch.changed()).await;
    changed.expect("the change is noticed").clone()
}

async fn no_more(watch: &mut FileWatch) {
    if let Ok(content) = timeout(WHILE, watch.changed()).await {
        panic!("nothing has changed, and yet there is {content:?}");
    }
}

/// Fails as inotify does where the node has none left, counting the tries.
fn exhausted(tries: &Arc<AtomicUsize>) -> Box<Opener> {
    let tries = Arc::clone(tries);
    Box::new(move |_, _| {
        tries.fetch_add(1, Ordering::SeqCst);
        // EMFILE: what inotify_init says then.
        Err(notify::Error::io(io::Error::from_raw_os_error(24)))
    })
}

#[tokio::test]
async fn every_one_of_ten_swaps_of_a_configmap_is_one_change() {
    let mut volume = Volume::holding("generation 0");
    let mut watch = FileWatch::begin(&volume.file(), WATCHED);
    assert_eq!(*watch.content(), holds("generation 0"));
    for generation in 1..=10 {
        let text = format!("generation {generation}");
        volume.swap(&text);
        assert_eq!(next(&mut watch).await, holds(&text));
        no_more(&mut watch).await;
    }
}

#[tokio::test]
async fn of_two_swaps_within_50_ms_the_second_is_what_stays() {
    let mut volume = Volume::holding("old");
    let mut watch = FileWatch::begin(&volume.file(), WATCHED);
    volume.swap("first");
    tokio::time::sleep(Duration::from_millis(40)).await;
    volume.swap("second");
    let mut seen = vec![next(&mut watch).await];
    if seen != [holds("second")] {
        seen.push(next(&mut watch).await);
    }
    assert_eq!(seen.last(), Some(&holds("second")), "{seen:?}");
    no_more(&mut watch).await;
}

#[tokio::test]
async fn a_swap_to_the_same_content_is_no_change() {
    let mut volume = Volume::holding("the same");
    let mut watch = FileWatch::begin(&volume.file(), WATCHED);
    volume.swap("the same");
    no_more(&mut watch).await;
    volume.swap("another");
    assert_eq!(next(&mut watch).await, holds("another"));
}

#[tokio::test]
async fn editors_write_in_place_or_rename_over_and_files_go_and_come_back() {
    let root = tempfile::tempdir().expect("a directory");
    let file = root.path().join("volery.yaml");
    std::fs::write(&file, "one").expect("a file");
    let mut watch = FileWatch::begin(&file, WATCHED);

    std::fs::write(&file, "two, in place").expect("written");
    assert_eq!(next(&mut watch).await, holds("two, in place"));
    for text in ["three, replaced", "four, replaced again"] {
        let beside = root.path().join("volery.yaml.new");
        std::fs::write(&beside, text).expect("a file");
        std::fs::rename(&beside, &file).expect("replaced");
        assert_eq!(next(&mut watch).await, holds(text));
    }
    // As vi does it.
    std::fs::rename(&file, root.path().join("volery.yaml~")).expect("moved away");
    std::fs::write(&file, "five, written anew").expect("a file");
    let mut last = next(&mut watch).await;
    if matches!(last, Content::Unreadable { .. }) {
        last = next(&mut watch).await;
    }
    assert_eq!(last, holds("five, written anew"));

    std::fs::write(&file, "").expect("truncated");
    assert_eq!(next(&mut watch).await, holds(""));
    std::fs::remove_file(&file).expect("removed");
    let gone = next(&mut watch).await;
    assert!(
        matches!(
            &gone,
            Content::Unreadable {
                kind: io::ErrorKind::NotFound,
                ..
            }
        ),
        "{gone:?}"
    );
    no_more(&mut watch).await;
    std::fs::write(&file, "six, back").expect("a file");
    assert_eq!(next(&mut watch).await, holds("six, back"));
}

#[tokio::test]
async fn reading_the_file_is_no_reason_to_read_it_again() {
    let root = tempfile::tempdir().expect("a directory");
    let file = root.path().join("volery.yaml");
    std::fs::write(&file, "one").expect("a file");
    let watch = FileWatch::begin(&file, WATCHED);
    // What happened before the eye was open is over.
    for _ in 0..3 {
        assert_eq!(Content::of(&file), holds("one"));
    }
    assert!(
        timeout(WHILE, watch.bell.notified()).await.is_err(),
        "our own reading rings the bell"
    );
}

#[tokio::test]
async fn a_directory_that_is_replaced_is_found_again() {
    let root = tempfile::tempdir().expect("a directory");
    let directory = root.path().join("etc");
    let file = directory.join("volery.yaml");
    std::fs::create_dir(&directory).expect("a directory");
    std::fs::write(&file, "one").expect("a file");
    let mut watch = FileWatch::begin(
        &file,
        Pace {
            reread: Duration::from_millis(20),
            ..WATCHED
        },
    );
    std::fs::rename(&directory, root.path().join("old")).expect("moved away");
    std::fs::create_dir(&directory).expect("a directory");
    std::fs::write(&file, "two").expect("a file");
    let mut last = next(&mut watch).await;
    if matches!(last, Content::Unreadable { .. }) {
        last = next(&mut watch).await;
    }
    assert_eq!(last, holds("two"));
    // Reading it again from time to time has opened the eye in the new directory.
    watch.keep_open();
    watch.pace = WATCHED;
    std::fs::write(&file, "three").expect("written");
    assert_eq!(next(&mut watch).await, holds("three"));
}

#[tokio::test]
async fn without_inotify_polling_takes_over_after_one_warning() {
    let (lines, _guard) = Lines::catch();
    let mut volume = Volume::holding("old");
    let tries = Arc::new(AtomicUsize::new(0));
    let mut watch = FileWatch::begin_with(&volume.file(), POLLED, exhausted(&tries));
    for generation in 1..=10 {
        let text = format!("generation {generation}");
        volume.swap(&text);
        assert_eq!(next(&mut watch).await, holds(&text));
    }
    no_more(&mut watch).await;
    assert!(
        tries.load(Ordering::SeqCst) > 10,
        "inotify is asked for again each time"
    );
    let told = lines.take();
    assert_eq!(told.matches("WARN").count(), 1, "{told}");
    assert!(
        told.contains("cannot be watched (Too many open files (os error 24)): it is read again every 20ms instead"),
        "{told}"
    );
}

#[tokio::test]
async fn when_inotify_is_to_be_had_again_changes_are_noticed_at_once_again() {
    let (lines, _guard) = Lines::catch();
    let mut volume = Volume::holding("old");
    let mut is_exhausted = true;
    let opener: Box<Opener> = Box::new(move |directory, bell| {
        if std::mem::replace(&mut is_exhausted, false) {
            return Err(notify::Error::new(notify::ErrorKind::MaxFilesWatch));
        }
        open(directory, bell)
    });
    let mut watch = FileWatch::begin_with(&volume.file(), POLLED, opener);
    no_more(&mut watch).await;
    watch.pace = WATCHED;
    volume.swap("new");
    assert_eq!(next(&mut watch).await, holds("new"));
    let told = lines.take();
    assert!(told.contains("are noticed at once again"), "{told}");
}

#[test]
fn a_file_that_is_mounted_by_itself_is_told_from_one_in_a_mounted_directory() {
    let mounts = "\
        1513 1500 0:52 / / rw,relatime master:1 - overlay overlay rw\n\
        1524 1513 8:1 /var/lib/kubelet/pods/9d/volume-subpaths/config/volery/0 /etc/sub\\040path/volery.yaml ro,relatime - ext4 /dev/sda1 rw\n\
        1525 1513 8:1 /var/lib/kubelet/pods/9d/volumes/kubernetes.io~configmap/config /etc/volery ro,relatime - ext4 /dev/sda1 rw\n";
    for (file, expected) in [
        ("/etc/sub path/volery.yaml", true),
        ("/etc/volery/..2026_01_05/volery.yaml", false),
        ("/etc/volery/volery.yaml", false),
        ("/etc/volery.yaml", false),
    ] {
        assert_eq!(is_mount_point(mounts, Path::new(file)), expected, "{file}");
    }
}

#[test]
fn an_ordinary_file_is_not_mounted_alone() {
    let volume = Volume::holding("text");
    assert!(!is_mounted_alone(&volume.file()));
}

/// What is logged by this thread.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    fn catch() -> (Self, DefaultGuard) {
        let lines = Self::default();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(lines.clone())
            .finish();
        (lines, tracing::subscriber::set_default(subscriber))
    }

    fn take(&self) -> String {
        String::from_utf8(std::mem::take(&mut *self.0.lock().expect("whole"))).expect("a text")
    }
}

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("whole").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}
