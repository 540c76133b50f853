//! `cargo run -p docs-site -- [--out FOLDER] [--repository URL]` writes the documentation as a static site.
//!
//! The folder is replaced; by default, it is `target/site`. `URL/PATH` is where files can be seen that are not part of the
//! site, for example `https://github.com/OWNER/NAME/blob/main`. Without it, links to them become plain text.

use docs_site::{Site, read_sources};
use std::path::{Path, PathBuf};
use std::{env, fs, process};

const USAGE: &str = "usage: docs-site [--out FOLDER] [--repository URL]";

fn main() {
    if let Err(error) = run() {
        eprintln!("{error}");
        process::exit(1);
    }
}

fn run() -> Result<(), String> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let mut out = root.join("target/site");
    let mut repository = None;
    let mut args = env::args().skip(1);
    while let Some(arg) = args.next() {
        let value = args.next().ok_or(USAGE)?;
        match arg.as_str() {
            "--out" => out = PathBuf::from(value),
            "--repository" => repository = Some(value.trim_end_matches('/').to_owned()),
            _ => return Err(USAGE.to_owned()),
        }
    }
    let sources = read_sources(root)?;
    let files = Site::parse(root, &sources, repository.as_deref())?.render()?;
    write(&out, &files).map_err(|error| format!("{}: {error}", out.display()))?;
    println!("{} pages: {}", sources.len(), out.join("index.html").display());
    Ok(())
}

/// Replaces the folder. One that is not a site is left alone.
fn write(out: &Path, files: &docs_site::Files) -> std::io::Result<()> {
    if out.exists() {
        let is_site = out.join("style.css").exists() || fs::read_dir(out)?.next().is_none();
        if !is_site {
            return Err(std::io::Error::other("exists and is not a site that this program wrote"));
        }
        fs::remove_dir_all(out)?;
    }
    for (path, content) in files {
        let path = out.join(path);
        fs::create_dir_all(path.parent().expect("a file of the site is in its folder"))?;
        fs::write(path, content)?;
    }
    Ok(())
}
