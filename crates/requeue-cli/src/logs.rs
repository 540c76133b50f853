//! Logging of the server.

use crate::error::{CliError, Result};
use crate::output::{json_printable, printable, printable_except};
use clap::ValueEnum;
use std::io::{self, IsTerminal};
use tracing::Metadata;
use tracing_subscriber::filter::{FilterExt, LevelFilter, filter_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt};

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Log options")]
pub(crate) struct LogArgs {
    /// Log level: error, warn, info, debug or trace; or a filter such as info,requeue_server=debug
    #[arg(
        long,
        value_name = "FILTER",
        env = "REQUEUE_LOG",
        hide_env_values = true,
        default_value = "info"
    )]
    log: String,
    /// Format of the log, which is written to stderr
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = Format::Text)]
    log_format: Format,
    /// OpenTelemetry collector to send spans to over HTTP, such as http://127.0.0.1:4318
    #[cfg(feature = "otel")]
    #[arg(long, value_name = "URL")]
    otlp: Option<String>,
}

impl LogArgs {
    /// Logs errors only, as text.
    pub(crate) fn errors_only() -> Self {
        LogArgs {
            log: "error".to_owned(),
            log_format: Format::Text,
            #[cfg(feature = "otel")]
            otlp: None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
}

/// Parts of the drivers of Postgres and RabbitMQ that log less, whatever the filter is. At the level debug,
/// they would log the bodies of jobs. Their warnings about lost connections say less than the problem that
/// is reported.
const DRIVERS: [(&str, LevelFilter); 4] = [
    ("lapin", LevelFilter::ERROR),
    ("tokio_postgres", LevelFilter::WARN),
    ("tokio_postgres::query", LevelFilter::WARN),
    ("deadpool", LevelFilter::ERROR),
];

/// Active logging. Dropping it sends the remaining spans.
pub(crate) struct Logs {
    #[cfg(feature = "otel")]
    provider: Option<opentelemetry_sdk::trace::SdkTracerProvider>,
}

/// Starts logging to stderr and, with `--otlp`, sending spans to a collector.
pub(crate) fn start(args: &LogArgs) -> Result<Logs> {
    let filter = EnvFilter::try_new(&args.log).map_err(|error| {
        let message = format!("--log {:?} is not a valid filter: {error}", args.log);
        CliError::usage(message)
            .hint("use a level (--log debug) or --log info,requeue_server=debug")
    })?;
    let filter = DRIVERS.iter().fold(filter, |filter, (target, level)| {
        let directive = format!("{target}={level}");
        filter.add_directive(directive.parse().expect("a valid directive"))
    });
    let lines: Box<dyn Layer<Registry> + Send + Sync> = match args.log_format {
        Format::Json => Box::new(fmt::layer().json().with_writer(|| EscapedStderr(json_printable))),
        // The escape sequences of the colours are not escaped. Those in a message are: the formatter
        // does it.
        Format::Text if std::io::stderr().is_terminal() => {
            let escape = |text: &str| printable_except(text, '\u{1b}');
            Box::new(fmt::layer().with_ansi(true).with_writer(move || EscapedStderr(escape)))
        }
        Format::Text => {
            Box::new(fmt::layer().with_ansi(false).with_writer(|| EscapedStderr(printable)))
        }
    };
    // The span of a request is a seventh of its work in user mode. Below the level debug, a request
    // has a line only if it fails, and that line names the method and the path.
    let has_requests = filter.max_level_hint().is_none_or(|level| level >= LevelFilter::DEBUG);
    let filter = filter.and(filter_fn(move |what| has_requests || !is_request(what)));
    let layers = vec![lines.with_filter(filter).boxed()];
    #[cfg(feature = "otel")]
    let (layers, provider) = with_spans(args, layers)?;
    tracing_subscriber::registry().with(layers).init();
    Ok(Logs {
        #[cfg(feature = "otel")]
        provider,
    })
}

/// Returns whether this is the span of a request to the server.
fn is_request(what: &Metadata<'_>) -> bool {
    what.is_span() && what.name() == "request" && what.target().starts_with("requeue_server")
}

/// Writes log lines to stderr, and escapes what a terminal would interpret. The formatter writes each
/// line as a whole.
struct EscapedStderr<F>(F);

impl<F: Fn(&str) -> String> io::Write for EscapedStderr<F> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let shown = (self.0)(&String::from_utf8_lossy(line));
        io::stderr().lock().write_all(shown.as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

#[cfg(feature = "otel")]
type Layers = Vec<Box<dyn Layer<Registry> + Send + Sync>>;

#[cfg(feature = "otel")]
fn with_spans(
    args: &LogArgs,
    mut layers: Layers,
) -> Result<(Layers, Option<opentelemetry_sdk::trace::SdkTracerProvider>)> {
    use opentelemetry::trace::TracerProvider;
    use opentelemetry_otlp::{SpanExporter, WithExportConfig};
    use opentelemetry_sdk::Resource;
    use opentelemetry_sdk::trace::SdkTracerProvider;

    let Some(url) = &args.otlp else { return Ok((layers, None)) };
    // Only plain HTTP: a collector on this machine can forward spans over TLS.
    if !url.starts_with("http://") {
        let message = format!("--otlp {url:?} does not begin with http://");
        let hint = "use the address of a collector on this machine: http://127.0.0.1:4318";
        return Err(CliError::usage(message).hint(hint));
    }
    let endpoint = match url.trim_end_matches('/') {
        traces if traces.ends_with("/v1/traces") => traces.to_owned(),
        collector => format!("{collector}/v1/traces"),
    };
    let exporter = SpanExporter::builder().with_http().with_endpoint(endpoint).build();
    let exporter = exporter.map_err(|error| CliError::usage(format!("--otlp {url:?}: {error}")))?;
    let provider = SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_resource(Resource::builder().with_service_name("requeue").build())
        .build();
    let tracer = provider.tracer("requeue");
    // The exporter makes HTTP requests itself; spans of those would be exported in turn.
    let filter = EnvFilter::new("info,hyper=off,reqwest=off,opentelemetry=off");
    layers.push(tracing_opentelemetry::layer().with_tracer(tracer).with_filter(filter).boxed());
    Ok((layers, Some(provider)))
}

impl Drop for Logs {
    fn drop(&mut self) {
        #[cfg(feature = "otel")]
        if let Some(provider) = &self.provider {
            // The program is about to end: an error here would not help anybody.
            let _ = provider.shutdown();
        }
    }
}
