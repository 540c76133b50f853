"""What tests do at RabbitMQ beside the programs under test.

    rabbit.py URL declare EXCHANGE QUEUE KEY     a durable direct exchange, and a queue with a binding
    rabbit.py URL publish EXCHANGE FROM TO       messages with the ids m-FROM … and x-delay; TO is not included
    rabbit.py URL consume QUEUE                  a line of JSON for each message, until the program is killed
    rabbit.py URL drain QUEUE                    the same for the messages that are in the queue now
"""

import json
import sys

import pika

HOUR = 3_600_000  # in milliseconds


def declare(channel, exchange, queue, key):
    channel.exchange_declare(exchange, "direct", durable=True)
    channel.queue_declare(queue, durable=True)
    channel.queue_bind(queue, exchange, key)


def publish(channel, exchange, first, end):
    channel.confirm_delivery()
    for n in range(int(first), int(end)):
        properties = pika.BasicProperties(
            message_id=f"m-{n}", headers={"x-delay": HOUR}, delivery_mode=pika.DeliveryMode.Persistent
        )
        channel.basic_publish(exchange, "", f"{n}".encode(), properties, mandatory=True)


def show(channel, method, properties, body):
    message = {"headers": properties.headers, "message_id": properties.message_id, "body": body.decode()}
    print(json.dumps(message), flush=True)
    channel.basic_ack(method.delivery_tag)


def consume(channel, queue):
    channel.basic_consume(queue, show)
    channel.start_consuming()


def drain(channel, queue):
    while True:
        method, properties, body = channel.basic_get(queue)
        if method is None:
            return
        show(channel, method, properties, body)


def main(url, command, *args):
    connection = pika.BlockingConnection(pika.URLParameters(url))
    commands = {"declare": declare, "publish": publish, "consume": consume, "drain": drain}
    commands[command](connection.channel(), *args)
    connection.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
