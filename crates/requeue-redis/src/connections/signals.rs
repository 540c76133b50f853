//! The pub/sub connection: receives messages, and subscribes again after it reconnects.

use super::connection::{RedisConnection, dial_pubsub};
use super::health::NOTIFICATIONS_DOWN;
use super::outcome::text;
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
    let (health, address) = (&settings.health, settings.address.to_string());
    let down = "waiting claims notice new jobs up to a second late: no subscription";
    loop {
        let since = Instant::now();
        match subscribe(&settings, &target, &channels).await {
            Ok((connection, sink, stream)) => {
                health.resolve(NOTIFICATIONS_DOWN, &address);
                on_signal(Signal::Resumed);
                let (wanted, channels) = (&mut wanted, &mut channels);
                forward(&settings, wanted, channels, &on_signal, connection, sink, stream).await;
                health.report(NOTIFICATIONS_DOWN, &address, &format!("{down}: it has ended"));
            }
            Err(reason) => {
                health.report(NOTIFICATIONS_DOWN, &address, &format!("{down}: {reason}"));
            }
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
) -> Result<(RedisConnection, PubSubSink, PubSubStream), String> {
    let connection = target.connection().await.ok_or("there is no connection")?;
    let connecting = async {
        let dialled = dial_pubsub(settings, &connection.endpoint).await;
        let (mut sink, stream) = dialled.map_err(|error| error.to_string())?.split();
        sink.subscribe(channels).await.map_err(|error| text(&error))?;
        Ok::<_, String>((sink, stream))
    };
    let late = |_| format!("no reply from {}", connection.endpoint);
    let limit = settings.options.connect_timeout;
    let (sink, stream) = timeout(limit, connecting).await.map_err(late)??;
    Ok((connection, sink, stream))
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
    let limit = settings.options.response_timeout;
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
