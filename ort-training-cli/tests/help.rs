//! Help: every command shows examples, and the examples are commands that the program understands.

mod support;

use support::{Sandbox, program};

fn help(arguments: &[&str]) -> String {
    let output = program().args(arguments).output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

/// The lines of the examples that are commands, as words; quotes keep words together.
fn examples(help: &str) -> Vec<Vec<String>> {
    let (_, examples) = help.split_once("Examples:").expect("no examples");
    examples
        .lines()
        .filter_map(|line| line.trim().strip_prefix("ort-training "))
        .map(|line| {
            // What follows three spaces explains.
            let line = line.split("   ").next().unwrap();
            line.split(' ')
                .map(|word| word.replace('\'', ""))
                .filter(|word| !word.is_empty())
                .collect()
        })
        .collect()
}

#[test]
fn examples_are_understood() {
    let empty = Sandbox::new();
    for command in ["artifacts", "inspect", "train", "verify", "weights"] {
        let examples = examples(&help(&[command, "--help"]));
        assert!(examples.len() >= 4, "{command}: {examples:?}");
        for example in examples {
            assert_eq!(example[0], command);
            let words: Vec<&str> = example.iter().map(String::as_str).collect();
            let run = empty.run(&words);
            // Files are missing, so most fail; but not because the command line was not understood.
            assert!(!run.stderr.contains("Usage:"), "{words:?}: {}", run.stderr);
            assert!(
                run.status == 0 || run.stderr.starts_with("error: "),
                "{words:?}: {run:?}"
            );
        }
    }
    assert!(empty.names().is_empty(), "{:?}", empty.names());
}

#[test]
fn the_program_itself_shows_examples_and_exit_statuses() {
    let help = help(&["--help"]);
    assert_eq!(examples(&help).len(), 4, "{help}");
    for word in ["artifacts", "inspect", "train", "verify", "Exit status: 0"] {
        assert!(help.contains(word), "{word}");
    }
}

#[test]
fn unknown_options_are_refused() {
    let empty = Sandbox::new();
    empty
        .line("train artifacts --data a.npz --epoch 3")
        .refuses(&["--epoch", "--epochs"]);
    empty.line("tran").refuses(&["tran", "train"]);
}
