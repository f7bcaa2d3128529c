//! README.md is true: its commands run, what it names exists, its configuration loads, and its log lines are those of the log.
//! So are the commands, files and links of the pages in `docs/`.
//!
//! What they say about kubectl is tried on the test bed: `tests/bed/scenarios/break_glass.rs`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use volery::analysis::Query;
use volery::config::Loaded;
use volery::daemon;
use volery::rollout::plan::{Blocked, Images, Status, Unsettled};
use volery::rollout::{Turn, Urgency};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn readme() -> String {
    std::fs::read_to_string(root().join("README.md")).unwrap()
}

/// README and every page of `docs/`: where it is, and its text.
fn pages() -> Vec<(PathBuf, String)> {
    let docs = std::fs::read_dir(root().join("docs")).unwrap();
    let docs = docs
        .map(|file| file.unwrap().path())
        .filter(|file| file.extension().is_some_and(|extension| extension == "md"));
    let pages: Vec<PathBuf> = [root().join("README.md")].into_iter().chain(docs).collect();
    assert!(pages.len() > 1, "{pages:?}");
    let text = |page: PathBuf| {
        let text = std::fs::read_to_string(&page).unwrap();
        (page, text)
    };
    pages.into_iter().map(text).collect()
}

/// Every line of code of all pages.
fn all_code() -> Vec<String> {
    pages().iter().flat_map(|(_, text)| code(text)).collect()
}

/// The fenced blocks, each with its language.
fn blocks(text: &str) -> Vec<(String, String)> {
    let mut parts = text.split("```");
    let mut blocks = Vec::new();
    while let (Some(_), Some(block)) = (parts.next(), parts.next()) {
        let (language, body) = block.split_once('\n').unwrap_or((block, ""));
        blocks.push((language.trim().to_owned(), body.to_owned()));
    }
    blocks
}

/// The code spans outside of blocks.
fn spans(text: &str) -> Vec<String> {
    let prose: String = text.split("```").step_by(2).collect();
    let spans = prose.split('`').skip(1).step_by(2);
    spans
        .map(|span| span.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect()
}

/// Every line of code, of blocks and of spans, without its comment.
fn code(text: &str) -> Vec<String> {
    let blocks = blocks(text);
    let lines = blocks.iter().flat_map(|(_, body)| body.lines());
    let lines = lines.map(|line| {
        line.split(" #")
            .next()
            .unwrap_or_default()
            .trim()
            .to_owned()
    });
    lines.chain(spans(text)).collect()
}

fn loads(file: &Path) {
    let loaded = daemon::load(file).unwrap();
    assert!(
        loaded.problems.is_empty(),
        "{}: {:?}",
        file.display(),
        loaded.problems
    );
    Loaded::into_valid(loaded).unwrap();
}

#[test]
fn every_simulation_runs() {
    let simulations: Vec<String> = all_code()
        .into_iter()
        .filter(|line| line.starts_with("cargo run"))
        .collect();
    assert!(simulations.len() >= 2, "{simulations:?}");
    for simulation in simulations {
        let (_, arguments) = simulation.split_once(" -- ").expect("arguments of volery");
        let arguments: Vec<&str> = arguments.split_whitespace().collect();
        assert_eq!(arguments[0], "simulate", "{simulation}");
        let output = Command::new(env!("CARGO_BIN_EXE_volery"))
            .args(&arguments)
            .current_dir(root())
            .output()
            .unwrap();
        assert!(output.status.success(), "{simulation}: {output:?}");
        assert!(!output.stdout.is_empty(), "{simulation} says nothing");
    }
}

/// Every command of the binary is one that it has, with those arguments: with `--help` it still refuses what it does not know.
#[test]
fn every_order_and_question_is_one_that_the_binary_takes() {
    let text = readme();
    let (_, section) = text.split_once("## Steering a rollout").unwrap();
    let rows = section.split("\n## ").next().unwrap();
    let told: BTreeSet<&str> = rows
        .lines()
        .filter_map(|line| line.strip_prefix("| `volery ")?.split([' ', '`']).next())
        .collect();
    let commands: BTreeSet<String> = all_code()
        .into_iter()
        .filter_map(|line| line.strip_prefix("volery ").map(str::to_owned))
        .collect();
    assert!(commands.len() >= 12, "{commands:?}");
    let run = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_volery"))
            .args(arguments)
            .output()
            .unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    for command in &commands {
        let mut arguments: Vec<&str> = command.split_whitespace().collect();
        let usage = format!("Usage: volery {}", arguments[0]);
        arguments.push("--help");
        assert!(run(&arguments).contains(&usage), "{command}");
    }
    // And none is left out.
    let help = run(&["help"]);
    let (_, list) = help.split_once("Commands:").unwrap();
    let has: BTreeSet<&str> = list
        .lines()
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next())
        .filter(|verb| !matches!(*verb, "run" | "simulate" | "check" | "help"))
        .collect();
    assert_eq!(told, has);
}

/// The commands are these; one more needs somebody who tries it.
#[test]
fn every_cargo_command_is_known() {
    let commands: BTreeSet<String> = all_code()
        .into_iter()
        .filter(|line| line.starts_with("cargo ") && !line.contains(" simulate "))
        .collect();
    assert_eq!(commands, BTreeSet::from(["cargo test".to_owned()]));
}

#[test]
fn every_file_and_folder_exists() {
    // A word by itself or in a command of cargo, docker or kubectl's -k; elsewhere `deploy/X` is a Deployment.
    let is_path = |word: &str| {
        ["config/", "deploy/", "docs/", "tests/", "src/", ".ci/"]
            .iter()
            .any(|folder| word.starts_with(folder))
    };
    let words = all_code().into_iter().flat_map(|line| {
        let commands = ["cargo ", "docker ", "kubectl apply -k "];
        let is_command = commands.iter().any(|command| line.starts_with(command));
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        if is_command || words.len() == 1 {
            words
        } else {
            Vec::new()
        }
    });
    let mut named: BTreeSet<PathBuf> = words
        .filter(|word| is_path(word))
        .map(|word| root().join(word))
        .collect();
    for (page, text) in pages() {
        let links = text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
            .filter(|link| !link.starts_with('#') && !link.contains("://"))
            .map(|link| link.split('#').next().unwrap());
        named.extend(links.map(|link| page.parent().unwrap().join(link)));
    }
    assert!(named.len() >= 6, "{named:?}");
    for path in &named {
        assert!(
            path.exists(),
            "a page names {}, which is not there",
            path.display()
        );
    }
    assert!(readme().contains("docker build"));
    assert!(root().join("Dockerfile").is_file());
}

#[test]
fn every_link_within_a_page_leads_to_a_heading() {
    let anchor = |line: &str| {
        line.trim_start_matches('#')
            .trim()
            .to_lowercase()
            .replace(' ', "-")
    };
    for (page, text) in pages() {
        let headings: BTreeSet<String> = text
            .lines()
            .filter(|l| l.starts_with('#'))
            .map(anchor)
            .collect();
        for link in text.split("](#").skip(1) {
            let link = link.split(')').next().unwrap();
            let page = page.display();
            assert!(
                headings.contains(link),
                "{page}: #{link} is none of {headings:?}"
            );
        }
    }
}

#[test]
fn every_configuration_loads() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("volery.yaml");
    let blocks: Vec<(String, String)> = blocks(&readme())
        .into_iter()
        .filter(|(language, _)| language == "yaml")
        .collect();
    assert!(!blocks.is_empty());
    for (_, text) in blocks {
        std::fs::write(&file, text).unwrap();
        loads(&file);
    }
    let mut files: Vec<PathBuf> = std::fs::read_dir(root().join("config"))
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    files.push(root().join("deploy/volery.yaml"));
    files.iter().for_each(|file| loads(file));
}

fn page_of_expressions() -> String {
    std::fs::read_to_string(root().join("docs/expressions.md")).unwrap()
}

/// Success expressions stand there without the service around them.
#[test]
fn every_shown_list_of_expressions_is_one_of_a_service() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("volery.yaml");
    let lists: Vec<String> = blocks(&page_of_expressions())
        .into_iter()
        .filter(|(language, _)| language == "yaml")
        .map(|(_, text)| text)
        .collect();
    assert!(lists.len() >= 5, "{lists:?}");
    for list in lists {
        assert!(list.starts_with("success:\n"), "{list}");
        let service = "prometheus-base-url: http://prometheus:9090/\nnamespace: workers\norders: \n  breakpoint: 50%\n  \
                       step: 10%\n  abort: 2m\n  max_step_duration: 10m\n  check_success_step_duration: 2m\n";
        let list: String = list.lines().map(|line| format!("  {line}\n")).collect();
        std::fs::write(&file, format!("{service}{list}")).unwrap();
        loads(&file);
    }
}

#[test]
fn every_expression_is_asked_as_often_as_its_page_says() {
    let text = page_of_expressions();
    let (_, table) = text.split_once("| expression | queries |").unwrap();
    let rows: Vec<(&str, &str)> = table
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` | "))
        .collect();
    assert!(rows.len() >= 10, "{rows:?}");
    for (expression, queries) in rows {
        let query = Query::parse(expression).unwrap();
        let once = !queries.starts_with("one for each pod: ");
        assert!(!once || queries == "one |", "{queries}");
        assert_eq!(query.is_asked_once(), once, "{expression}");
    }
}

#[test]
fn the_rules_of_judgement_are_those_of_the_code() {
    let code = std::fs::read_to_string(root().join("src/analysis/verdict.rs")).unwrap();
    let rules: Vec<&str> = code
        .lines()
        .filter_map(|line| line.strip_prefix("//! "))
        .filter(|line| line.starts_with('|'))
        .collect();
    assert!(rules.len() >= 10, "{rules:?}");
    assert!(page_of_expressions().contains(&rules.join("\n")));
}

/// A line with every number, duration and image replaced, up to the first `…`.
fn shape(line: &str) -> String {
    let known = line.split('…').next().unwrap_or_default();
    let words = known.split_whitespace().map(|word| {
        let end = word.trim_end_matches([',', ';', ':']);
        let image = end
            .split_once(":v")
            .is_some_and(|(_, tag)| !tag.is_empty() && tag.chars().all(|c| c.is_ascii_digit()));
        if image {
            return word.replace(end, "IMAGE");
        }
        let mut shape = String::new();
        let mut in_number = false;
        for letter in word.chars() {
            let digit = letter.is_ascii_digit();
            // The unit of a duration belongs to its number.
            let goes_on = in_number && "hms.".contains(letter);
            if digit && !in_number {
                shape.push('0');
            }
            if !digit && !goes_on {
                shape.push(letter);
            }
            in_number = digit || goes_on;
        }
        shape
    });
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn a_shape_has_no_number_and_no_image() {
    assert_eq!(
        shape("step 2/5: canary 8/8 available, checking for 1h30m, every 2m"),
        "step 0/0: canary 0/0 available, checking for 0, every 0"
    );
    assert_eq!(
        shape("at rest: 10 replicas of orders:v1, …; more"),
        "at rest: 0 replicas of IMAGE,"
    );
}

/// What the log has said in the reviewed snapshots, and the statuses that no snapshot has, each in its shape.
fn said() -> Vec<String> {
    let snapshots = std::fs::read_dir(root().join("tests/snapshots")).unwrap();
    let texts = snapshots
        .map(|file| file.unwrap().path())
        .filter(|file| {
            file.file_name()
                .unwrap()
                .to_str()
                .unwrap()
                .starts_with("simulate__")
        })
        .map(|file| std::fs::read_to_string(file).unwrap());
    let mut said = Vec::new();
    for text in texts {
        for line in text
            .lines()
            .filter(|line| line.contains("  INFO ") || line.contains("  WARN "))
        {
            let (_, told) = line
                .split_once(" INFO ")
                .or_else(|| line.split_once(" WARN "))
                .unwrap();
            // After the service's name, and in lines that are the daemon's own from their start.
            said.push(shape(told));
            said.extend(told.split_once(": ").map(|(_, told)| shape(told)));
        }
    }
    said.push(shape(
        &Status::Unsettled {
            reason: Unsettled::Rolling,
        }
        .to_string(),
    ));
    said.push(shape(
        &Status::Blocked(Blocked::ReleaseNeedsDecision {
            deployment: "orders-consumer".to_owned(),
        })
        .to_string(),
    ));
    let x = || "orders-consumer".to_owned();
    said.push(shape(
        &Status::Held {
            at: None,
            deployment: x(),
        }
        .to_string(),
    ));
    said.push(shape(
        &Status::Queued {
            images: Images(vec!["orders:v2".to_owned()]),
            turn: Turn::Waits { ahead: 1, open: 20 },
            urgency: Urgency::Ordinary,
        }
        .to_string(),
    ));
    assert!(said.len() > 100);
    said
}

#[test]
fn every_log_line_is_one_that_the_log_has() {
    let text = readme();
    let (_, section) = text.split_once("## Reading the log").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let rows: Vec<&str> = section
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .collect();
    assert!(rows.len() >= 8, "{rows:?}");
    let said = said();
    for row in rows {
        let shape = shape(row);
        assert!(
            said.iter().any(|said| said.starts_with(&shape)),
            "no line of the log begins like {row:?} ({shape:?})"
        );
    }
}

/// Where README shows lines of the log, they are lines of the log.
#[test]
fn every_line_of_a_shown_log_is_one_that_the_log_has() {
    let said = said();
    let blocks = blocks(&readme());
    let shown: Vec<&str> = blocks
        .iter()
        .flat_map(|(_, body)| body.lines())
        .filter_map(|line| line.split_once(" INFO ").map(|(_, told)| told))
        .collect();
    assert!(!shown.is_empty());
    for line in shown {
        let (_, told) = line.split_once(": ").unwrap();
        let shape = shape(told);
        assert!(
            said.contains(&shape),
            "no line of the log reads {line:?} ({shape:?})"
        );
    }
}
