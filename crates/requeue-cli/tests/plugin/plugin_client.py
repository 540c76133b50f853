"""An application that was written for rabbitmq-delayed-message-exchange.

    python plugin_client.py amqp://localhost orders            with the plugin
    python plugin_client.py amqp://localhost orders.delayed    with requeue: nothing else changes

It publishes delayed messages to the exchange, and consumes them from the queue `billing`, which is bound to the
exchange `orders`. It prints a line of JSON for each message that it publishes or consumes, and ends when all
messages have arrived.
"""

import json
import sys
import threading
import time

import pika

# Delays in milliseconds. None: the message has no header x-delay.
DELAYS = [2400, 600, 1800, None, 3000, 1200]


def log(event, **fields):
    # One write, because both threads print.
    sys.stdout.write(json.dumps({"event": event, "at": time.time(), **fields}) + "\n")
    sys.stdout.flush()


def consume(url, ready):
    channel = pika.BlockingConnection(pika.URLParameters(url)).channel()
    channel.queue_declare("billing", durable=True)
    for routing_key in ("eu", "us"):
        channel.queue_bind("billing", "orders", routing_key)
    channel.basic_qos(prefetch_count=10)
    waiting = len(DELAYS)

    def on_message(channel, method, properties, body):
        nonlocal waiting
        log(
            "consumed",
            exchange=method.exchange,
            routing_key=method.routing_key,
            redelivered=method.redelivered,
            headers=properties.headers,
            message_id=properties.message_id,
            correlation_id=properties.correlation_id,
            content_type=properties.content_type,
            delivery_mode=properties.delivery_mode,
            reply_to=properties.reply_to,
            timestamp=properties.timestamp,
            type=properties.type,
            app_id=properties.app_id,
            priority=properties.priority,
            body=body.decode(),
        )
        channel.basic_ack(method.delivery_tag)
        waiting -= 1
        if waiting == 0:
            channel.stop_consuming()

    channel.basic_consume("billing", on_message)
    ready.set()
    channel.start_consuming()
    channel.connection.close()


def publish(url, exchange):
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.confirm_delivery()
    for n, delay in enumerate(DELAYS):
        headers = {"tenant": "acme", "attempt": n, "tags": ["new", "vip"], "vat": {"rate": 19, "due": True}}
        if delay is not None:
            headers["x-delay"] = delay
        at = time.time()
        # Raises an exception if the broker does not confirm the message, or no queue gets it.
        channel.basic_publish(
            exchange,
            routing_key="us" if n % 2 else "eu",
            body=json.dumps({"order": n, "name": "Zoë"}, ensure_ascii=False).encode(),
            properties=pika.BasicProperties(
                headers=headers,
                message_id=f"order-{n}",
                correlation_id=f"cart-{n}",
                content_type="application/json",
                delivery_mode=pika.DeliveryMode.Persistent,
                reply_to="answers",
                timestamp=1_790_000_000 + n,
                type="order.created",
                app_id="shop",
                priority=n,
            ),
            mandatory=True,
        )
        log("published", message_id=f"order-{n}", delay=delay, published_at=at)
    connection.close()


def main(url, exchange):
    ready = threading.Event()
    consumer = threading.Thread(target=consume, args=(url, ready), daemon=True)
    consumer.start()
    if not ready.wait(timeout=30):
        sys.exit("the consumer did not start")
    publish(url, exchange)
    consumer.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
