//! Messages, over a connection of their own.

use super::connection::{RedisConnection, dial_pubsub};
use super::server::Backoff;
use super::{Settings, Signal, Target};
use futures_util::StreamExt;
use redis::aio::{PubSubSink, PubSubStream};
use std::sync::Arc;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, sleep, timeout};

pub(super) type Tell = Box<dyn Fn(Signal<'_>) + Send + Sync>;

/// Tells of all messages on the channels that are wanted, over all reconnects.
pub(super) async fn listen(
    settings: Arc<Settings>,
    target: Arc<Target>,
    mut wanted: UnboundedReceiver<String>,
    tell: Tell,
) {
    // Who only puts jobs needs no such connection.
    let Some(first) = wanted.recv().await else { return };
    let mut channels = vec![first];
    let mut backoff = Backoff::new(&settings);
    loop {
        let since = Instant::now();
        // Why it ended is no news: calls meet the same, and tell it.
        if let Some((connection, sink, stream)) = subscribe(&settings, &target, &channels).await {
            tell(Signal::Resumed);
            pass_on(&settings, &mut wanted, &mut channels, &tell, connection, sink, stream).await;
        }
        if since.elapsed() > settings.options.longest_backoff {
            backoff = Backoff::new(&settings);
        }
        sleep(backoff.next()).await;
    }
}

/// Connects to where calls go too, and subscribes to all.
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

/// Passes messages on until the connection is over, or that of the calls.
async fn pass_on(
    settings: &Settings,
    wanted: &mut UnboundedReceiver<String>,
    channels: &mut Vec<String>,
    tell: &Tell,
    connection: RedisConnection,
    mut sink: PubSubSink,
    mut stream: PubSubStream,
) {
    let limit = settings.options.answer_timeout;
    loop {
        tokio::select! {
            message = stream.next() => match message {
                Some(message) => tell(Signal::Message {
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
                    Ok(Ok(())) => tell(Signal::Resumed),
                    _ => return,
                }
            }
            // A server that calls leave, for example because it is no longer master.
            () = connection.ended() => return,
            () = sleep(settings.probe()) => match timeout(limit, sink.ping::<redis::Value>()).await {
                Ok(Ok(_)) => {}
                _ => return,
            },
        }
    }
}
