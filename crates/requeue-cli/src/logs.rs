//! What a server logs, and to where.

use crate::failure::{Failure, Result};
use clap::ValueEnum;
use std::io::IsTerminal;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt};

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Logs")]
pub(crate) struct LogArgs {
    /// What is logged: error, warn, info, debug, trace, or by module: info,requeue_server=debug
    #[arg(long, value_name = "FILTER", env = "REQUEUE_LOG", default_value = "info")]
    log: String,
    /// How
    #[arg(long, value_enum, default_value_t = Format::Text)]
    log_format: Format,
    /// Send spans to this collector of OpenTelemetry, by HTTP: http://127.0.0.1:4318
    #[cfg(feature = "otel")]
    #[arg(long, value_name = "URL")]
    otlp: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
}

/// Sends what is left when it is dropped.
pub(crate) struct Logs {
    #[cfg(feature = "otel")]
    provider: Option<opentelemetry_sdk::trace::SdkTracerProvider>,
}

/// Logs from now on: to stderr, and where it is asked for to a collector.
pub(crate) fn start(args: &LogArgs) -> Result<Logs> {
    let filter = EnvFilter::try_new(&args.log).map_err(|error| {
        let told = format!("--log {:?} is no filter: {error}", args.log);
        Failure::usage(told).hint("a level, as in --log debug, or --log info,requeue_server=debug")
    })?;
    let lines: Box<dyn Layer<Registry> + Send + Sync> = match args.log_format {
        Format::Json => Box::new(fmt::layer().json().with_writer(std::io::stderr)),
        Format::Text => {
            let colors = std::io::stderr().is_terminal();
            Box::new(fmt::layer().with_ansi(colors).with_writer(std::io::stderr))
        }
    };
    let layers = vec![lines.with_filter(filter).boxed()];
    #[cfg(feature = "otel")]
    let (layers, provider) = with_spans(args, layers)?;
    tracing_subscriber::registry().with(layers).init();
    Ok(Logs {
        #[cfg(feature = "otel")]
        provider,
    })
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
    // Beyond this machine a collector beside it takes them on, by TLS.
    if !url.starts_with("http://") {
        let told = format!("--otlp {url:?} does not begin with http://");
        return Err(Failure::usage(told).hint("a collector of this machine: http://127.0.0.1:4318"));
    }
    let endpoint = match url.trim_end_matches('/') {
        traces if traces.ends_with("/v1/traces") => traces.to_owned(),
        collector => format!("{collector}/v1/traces"),
    };
    let exporter = SpanExporter::builder().with_http().with_endpoint(endpoint).build();
    let exporter = exporter.map_err(|error| Failure::usage(format!("--otlp {url:?}: {error}")))?;
    let provider = SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_resource(Resource::builder().with_service_name("requeue").build())
        .build();
    let tracer = provider.tracer("requeue");
    // What exports spans makes requests, whose spans would be exported in turn.
    let filter = EnvFilter::new("info,hyper=off,reqwest=off,opentelemetry=off");
    layers.push(tracing_opentelemetry::layer().with_tracer(tracer).with_filter(filter).boxed());
    Ok((layers, Some(provider)))
}

impl Drop for Logs {
    fn drop(&mut self) {
        #[cfg(feature = "otel")]
        if let Some(provider) = &self.provider {
            // Whoever is told that spans are lost cannot help it any more.
            let _ = provider.shutdown();
        }
    }
}
