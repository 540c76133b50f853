//! Finds the fenced code blocks of a Markdown page and splits them into commands.

/// A fenced code block.
pub(super) struct Block {
    /// Line number of the opening fence, from 1.
    pub(super) line: usize,
    /// First word after the backticks: `console`, `sh`, `python` …
    pub(super) language: String,
    /// Text of the comment `<!-- test: … -->` before the block.
    pub(super) mark: Option<String>,
    pub(super) text: String,
}

/// A command, and the output that the page shows below it.
pub(super) struct Example {
    pub(super) line: usize,
    pub(super) command: String,
    /// `None` in `sh` and `bash` blocks, which show no output.
    pub(super) printed: Option<String>,
}

impl Block {
    /// All blocks of a page, in order. Fails on a mark that stands before no block.
    pub(super) fn all(page: &str) -> Result<Vec<Block>, String> {
        let (mut blocks, mut mark) = (Vec::new(), None);
        let mut lines = page.lines().zip(1..);
        while let Some((line, number)) = lines.next() {
            let text = line.trim_start();
            if let Some(rest) = text.strip_prefix("<!-- test:") {
                let rest =
                    rest.strip_suffix("-->").ok_or(format!("{number}: no --> at the end"))?;
                mark = Some(rest.trim().to_owned());
            } else if let Some(info) = text.strip_prefix("```") {
                let language = info.split([' ', ',']).next().unwrap_or_default().to_owned();
                let indent = line.len() - text.len();
                let inside = lines.by_ref().map(|(line, _)| line);
                let inside = inside.take_while(|line| line.trim() != "```");
                let text =
                    inside.map(|line| line.get(indent..).unwrap_or_default().to_owned() + "\n");
                let text = text.collect();
                blocks.push(Block { line: number, language, mark: mark.take(), text });
            } else if !text.is_empty() && mark.is_some() {
                return Err(format!("{number}: the `test:` comment above stands before no block"));
            }
        }
        Ok(blocks)
    }

    /// Whether it shows commands: all shell blocks, and any other that has a line with a prompt.
    pub(super) fn has_commands(&self) -> bool {
        matches!(&*self.language, "console" | "sh" | "bash" | "python")
            || self.text.lines().any(|line| line.starts_with("$ "))
    }

    /// The commands of a shell block. Where lines have the prompt `$ `, the others are output.
    pub(super) fn examples(&self) -> Vec<Example> {
        let has_prompts = !matches!(&*self.language, "sh" | "bash");
        let mut examples: Vec<Example> = Vec::new();
        let mut lines = self.text.lines().zip(self.line + 1..);
        while let Some((line, number)) = lines.next() {
            let begins = if has_prompts { line.strip_prefix("$ ") } else { Some(line) };
            let Some(command) = begins else {
                let printed = examples.last_mut().and_then(|example| example.printed.as_mut());
                printed
                    .expect("a console block begins with a command")
                    .push_str(&format!("{line}\n"));
                continue;
            };
            let mut command = command.to_owned();
            // A command continues after a backslash, and until its quotes are closed.
            while command.ends_with('\\') || command.matches('\'').count() % 2 == 1 {
                command.push('\n');
                command += lines.next().expect("the command ends").0;
            }
            if !command.trim().is_empty() && !command.starts_with('#') {
                examples.push(Example {
                    line: number,
                    command,
                    printed: has_prompts.then(String::new),
                });
            }
        }
        examples
    }
}

/// The inline code of a page, `like this`, with line numbers.
pub(super) fn inline_code(page: &str) -> Vec<(usize, String)> {
    let (mut found, mut number) = (Vec::new(), 1);
    // By paragraph, so that a stray backtick does not turn the rest of the page inside out.
    for paragraph in page.split("\n\n") {
        if !paragraph.trim_start().starts_with("```") {
            let mut line = number;
            for (index, part) in paragraph.split('`').enumerate() {
                if index % 2 == 1 {
                    found.push((line, part.replace('\n', " ")));
                }
                line += part.matches('\n').count();
            }
        }
        number += paragraph.matches('\n').count() + 2;
    }
    found
}
