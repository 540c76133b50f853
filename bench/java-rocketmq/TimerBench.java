import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLongArray;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/**
 * Publishes timer messages to a RocketMQ broker and consumes them, for the suite `bridge`.
 *
 * <p>Arguments: a topic of its own, the largest number of messages without a confirmation, the bytes of a
 * message, and the address of the name server.
 *
 * <p>Reads one command per line: a word, the number of messages, the interval between them in microseconds
 * (0: as fast as the window permits), and the delays in milliseconds, separated by commas, which are used
 * in turn. The word differs from that of other commands. Prints one line of JSON for each: the seconds from
 * the first publish to the last delivery, and for each message how many nanoseconds after its due time it
 * arrived.
 */
public final class TimerBench {
    private static final long PATIENCE_SECONDS = 60;
    private static final int BATCH = 256;

    private final DefaultMQProducer producer;
    private final String topic;
    private final Semaphore window;
    private final int bytes;
    private final AtomicReference<Throwable> failure = new AtomicReference<>();

    /** The messages that are expected now. */
    private volatile Run run = new Run("none", 0);

    private TimerBench(DefaultMQProducer producer, String topic, int window, int bytes) {
        this.producer = producer;
        this.topic = topic;
        this.window = new Semaphore(window);
        this.bytes = bytes;
    }

    /** The messages of a command, and when each was due and arrived. */
    private static final class Run {
        final String name;
        final long[] dueNanos;
        final AtomicLongArray arrivedNanos;
        final CountDownLatch left;

        Run(String name, int count) {
            this.name = name;
            dueNanos = new long[count];
            arrivedNanos = new AtomicLongArray(count);
            left = new CountDownLatch(count);
        }

        /** A message may be delivered more than once: only the first time counts. */
        void arrived(int number, long now) {
            if (arrivedNanos.compareAndSet(number, 0, now)) {
                left.countDown();
            }
        }
    }

    public static void main(String[] args) {
        // The library logs to the standard output.
        PrintStream results = System.out;
        System.setOut(new PrintStream(OutputStream.nullOutputStream()));
        // The clients have threads that do not end.
        try {
            obey(args, results);
            System.exit(0);
        } catch (Exception error) {
            error.printStackTrace();
            System.exit(1);
        }
    }

    private static void obey(String[] args, PrintStream results) throws Exception {
        String topic = args[0];
        String server = args[3];
        DefaultMQProducer producer = new DefaultMQProducer("publish-" + topic);
        producer.setNamesrvAddr(server);
        producer.setRetryTimesWhenSendAsyncFailed(0);
        producer.start();
        TimerBench bench = new TimerBench(producer, topic, Integer.parseInt(args[1]), Integer.parseInt(args[2]));
        bench.consume(server);
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line;
        while ((line = commands.readLine()) != null) {
            String[] words = line.split(" ");
            long[] delays = Arrays.stream(words[3].split(",")).mapToLong(Long::parseLong).toArray();
            Run run = new Run(words[0], Integer.parseInt(words[1]));
            results.println(bench.measure(run, Long.parseLong(words[2]) * 1000, delays));
        }
    }

    private void consume(String server) throws Exception {
        // The topic has to exist before the consumer starts, or the consumer finds it half a minute later.
        producer.send(new Message(topic, "first 0".getBytes(StandardCharsets.UTF_8)));
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("consume-" + topic);
        consumer.setNamesrvAddr(server);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPullBatchSize(BATCH);
        consumer.setConsumeMessageBatchMaxSize(BATCH);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            long now = System.nanoTime();
            Run current = run;
            for (var message : messages) {
                String[] text = new String(message.getBody(), StandardCharsets.UTF_8).split(" ", 3);
                if (text[0].equals(current.name)) {
                    current.arrived(Integer.parseInt(text[1]), now);
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
    }

    /** Publishes all messages of a run, waits until they have arrived, and returns the result as JSON. */
    private String measure(Run run, long intervalNanos, long[] delays) throws Exception {
        this.run = run;
        int count = run.dueNanos.length;
        long started = System.nanoTime();
        for (int n = 0; n < count; n++) {
            long wait = started + n * intervalNanos - System.nanoTime();
            if (intervalNanos > 0 && wait > 0) {
                TimeUnit.NANOSECONDS.sleep(wait);
            }
            if (!window.tryAcquire(PATIENCE_SECONDS, TimeUnit.SECONDS)) {
                throw new IllegalStateException("no confirmation");
            }
            publish(run, n, delays[n % delays.length]);
        }
        if (!run.left.await(PATIENCE_SECONDS, TimeUnit.SECONDS) || failure.get() != null) {
            throw new IllegalStateException(run.left.getCount() + " messages did not arrive", failure.get());
        }
        long last = 0;
        StringBuilder late = new StringBuilder();
        for (int n = 0; n < count; n++) {
            last = Math.max(last, run.arrivedNanos.get(n) - started);
            late.append(n == 0 ? "" : ",").append(run.arrivedNanos.get(n) - run.dueNanos[n]);
        }
        return "{\"seconds\":" + last / 1e9 + ",\"late_ns\":[" + late + "]}";
    }

    private void publish(Run run, int number, long delayMs) throws Exception {
        StringBuilder text = new StringBuilder(run.name + " " + number + " ");
        while (text.length() < bytes) {
            text.append('x');
        }
        Message message = new Message(topic, text.toString().getBytes(StandardCharsets.UTF_8));
        message.setDelayTimeMs(delayMs);
        run.dueNanos[number] = System.nanoTime() + delayMs * 1_000_000;
        producer.send(message, new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                if (result.getSendStatus() != SendStatus.SEND_OK) {
                    failure.set(new IllegalStateException(result.toString()));
                }
                window.release();
            }

            @Override
            public void onException(Throwable error) {
                failure.set(error);
                window.release();
            }
        });
    }
}
