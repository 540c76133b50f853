//! The pub/sub connection: receives messages, and subscribes again after it reconnects.

use super::connection::{RedisConnection, dial_pubsub};
use super::server::Backoff;
use super::{Settings, Signal, Target};
use futures_util::StreamExt;
use redis::aio::{PubSubSink, PubSubStream};
use std::sync::Arc;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, sleep, timeout};

/// The callback for messages.
pub(super) type OnSignal = Box<dyn Fn(Signal<'_>) + Send + Sync>;

/// Subscribes to the channels that arrive on `wanted`, and calls `on_signal` for all messages.
/// Reconnects until `wanted` is closed.
pub(super) async fn listen(
    settings: Arc<Settings>,
    target: Arc<Target>,
    mut wanted: UnboundedReceiver<String>,
    on_signal: OnSignal,
) {
    // A process that only puts jobs needs no pub/sub connection.
    let Some(first) = wanted.recv().await else { return };
    let mut channels = vec![first];
    let mut backoff = Backoff::new(&settings);
    loop {
        let since = Instant::now();
        // The reason of a failure is ignored: calls fail for the same reason and report it.
        if let Some((connection, sink, stream)) = subscribe(&settings, &target, &channels).await {
            on_signal(Signal::Resumed);
            forward(&settings, &mut wanted, &mut channels, &on_signal, connection, sink, stream)
                .await;
        }
        if since.elapsed() > settings.options.longest_backoff {
            backoff = Backoff::new(&settings);
        }
        sleep(backoff.next()).await;
    }
}

/// Connects to the server that calls use, and subscribes to all channels.
async fn subscribe(
    settings: &Settings,
    target: &Target,
    channels: &[String],
) -> Option<(RedisConnection, PubSubSink, PubSubStream)> {
    let connection = target.connection().await?;
    let connecting = async {
        let (mut sink, stream) = dial_pubsub(settings, &connection.endpoint).await.ok()?.split();
        sink.subscribe(channels).await.ok()?;
        Some((sink, stream))
    };
    let (sink, stream) = timeout(settings.options.connect_timeout, connecting).await.ok()??;
    Some((connection, sink, stream))
}

/// Passes messages on until this connection ends, or that of the calls.
async fn forward(
    settings: &Settings,
    wanted: &mut UnboundedReceiver<String>,
    channels: &mut Vec<String>,
    on_signal: &OnSignal,
    connection: RedisConnection,
    mut sink: PubSubSink,
    mut stream: PubSubStream,
) {
    let limit = settings.options.answer_timeout;
    loop {
        tokio::select! {
            message = stream.next() => match message {
                Some(message) => on_signal(Signal::Message {
                    channel: message.get_channel_name(),
                    payload: message.get_payload_bytes(),
                }),
                None => return,
            },
            channel = wanted.recv() => {
                let Some(channel) = channel else { return };
                let known = channels.len();
                channels.push(channel);
                while let Ok(channel) = wanted.try_recv() {
                    channels.push(channel);
                }
                match timeout(limit, sink.subscribe(&channels[known..])).await {
                    Ok(Ok(())) => on_signal(Signal::Resumed),
                    _ => return,
                }
            }
            // Calls have left this server, for example because it is no longer master.
            () = connection.ended() => return,
            () = sleep(settings.probe()) => match timeout(limit, sink.ping::<redis::Value>()).await {
                Ok(Ok(_)) => {}
                _ => return,
            },
        }
    }
}
