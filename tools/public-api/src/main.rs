//! Compares the public API of each published crate with the list that is committed beside it.
//!
//! `cargo run -p requeue-public-api -- FOLDER` reads `FOLDER/CRATE.json`, which rustdoc wrote, for every
//! crate that has a `public-api.txt`, and fails if the two differ. With `--update` it writes the
//! lists instead. `scripts/public-api` runs rustdoc and then this.

use std::error::Error;
use std::path::Path;
use std::{env, fs};

/// The crates whose API users rely on. The binary and the test support have none.
const CRATES: [&str; 9] = [
    "requeue",
    "requeue-jobs",
    "requeue-disk",
    "requeue-redis",
    "requeue-postgres",
    "requeue-http",
    "requeue-push",
    "requeue-bridge",
    "requeue-server",
];

fn main() -> Result<(), Box<dyn Error>> {
    let mut args: Vec<String> = env::args().skip(1).collect();
    let update = args.iter().position(|arg| arg == "--update").map(|at| args.remove(at)).is_some();
    let [folder] = args.as_slice() else {
        return Err("usage: requeue-public-api [--update] FOLDER".into());
    };
    let mut changed = Vec::new();
    for name in CRATES {
        let json = Path::new(folder).join(name.replace('-', "_")).with_extension("json");
        let list = Path::new("crates").join(name).join("public-api.txt");
        let actual = listing(&json)?;
        if update {
            fs::write(&list, actual)?;
            continue;
        }
        let expected = fs::read_to_string(&list).unwrap_or_default();
        if actual != expected {
            print_difference(name, &expected, &actual);
            changed.push(name);
        }
    }
    if changed.is_empty() {
        return Ok(());
    }
    let crates = changed.join(", ");
    Err(format!("the public API of {crates} changed: if that is intended, run `scripts/public-api --update` and commit the lists").into())
}

/// One line per public item. What the compiler derives for every type is left out.
fn listing(json: &Path) -> Result<String, Box<dyn Error>> {
    let api = public_api::Builder::from_rustdoc_json(json)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build()
        .map_err(|error| format!("{}: {error}", json.display()))?;
    Ok(api.items().map(|item| format!("{item}\n")).collect())
}

fn print_difference(name: &str, expected: &str, actual: &str) {
    println!("{name}:");
    let only_in = |lines: &str, other: &str, sign: char| {
        for line in lines.lines().filter(|line| !other.lines().any(|known| known == *line)) {
            println!("{sign} {line}");
        }
    };
    only_in(expected, actual, '-');
    only_in(actual, expected, '+');
}
