# Installs the message brokers that tests run with, and a client library. To be sourced, after apt.sh.
#
# install_brokers DIR: exports
#   REQUEUE_RABBITMQ   the directory with rabbitmq-server and rabbitmqctl, a Debian package
#   REQUEUE_NATS       the path of nats-server, built with Go into DIR
#   REQUEUE_KAFKA      the directory with the jars of Kafka, copied with Maven into DIR
#   REQUEUE_PIKA       the path of a Python that has pika, a client of RabbitMQ, in a virtual environment in DIR
# If Go, or Java and Maven, or Python with venv, are not installed, the variable is empty, and a message on
# standard error reports it. One run installs, others wait for it.
NATS_VERSION=v2.15.2
KAFKA_VERSION=4.1.0
SLF4J_VERSION=1.7.36 # the version of the interface that Kafka 4.1 uses
PIKA_VERSION=1.3.2

install_brokers() { # directory
    local dir=$1
    mkdir -p "$dir"
    exec {brokers_lock}>"$dir/lock"
    flock "$brokers_lock"
    install_rabbitmq "$dir" && install_nats "$dir" && install_kafka "$dir" && install_pika "$dir" || return
    flock -u "$brokers_lock"
    exec {brokers_lock}>&-
    export REQUEUE_RABBITMQ REQUEUE_NATS REQUEUE_KAFKA REQUEUE_PIKA
}

install_rabbitmq() { # directory
    if ! find_rabbitmq; then
        install_rabbitmq_package >"$1/apt.log" 2>&1 || { cat "$1/apt.log" >&2 && return 1; }
        find_rabbitmq || { echo "the package rabbitmq-server contains no rabbitmq-server" >&2 && return 1; }
    fi
}

# The programs in /usr/sbin would change to the user rabbitmq, so tests use the ones they call.
find_rabbitmq() {
    local sbin
    REQUEUE_RABBITMQ=""
    for sbin in /usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin; do
        if [ -x "$sbin/rabbitmq-server" ] && [ -x "$sbin/rabbitmqctl" ]; then
            REQUEUE_RABBITMQ=$sbin
        fi
    done
    [ -n "$REQUEUE_RABBITMQ" ]
}

# Installs the Debian package. Tests start servers of their own, so the package shall not start one.
install_rabbitmq_package() {
    local policy=/usr/sbin/policy-rc.d created="" status=0 sudo=""
    [ "$(id -u)" = 0 ] || sudo=sudo
    if ! [ -e $policy ]; then
        created=$policy
        printf '#!/bin/sh\nexit 101\n' | $sudo tee $policy && $sudo chmod +x $policy || return
    fi
    apt_install rabbitmq-server || status=$?
    [ -z "$created" ] || $sudo rm -f "$created"
    return $status
}

install_nats() { # directory
    local bin=$1/nats
    REQUEUE_NATS=""
    # What was installed is remembered by its version.
    if [ "$(cat "$bin/installed" 2>/dev/null)" != "$NATS_VERSION" ]; then
        if ! command -v go >/dev/null; then
            echo "no go: tests with NATS are left out" >&2
            return
        fi
        mkdir -p "$bin"
        GOBIN=$bin go install "github.com/nats-io/nats-server/v2@$NATS_VERSION" >"$bin/go.log" 2>&1 ||
            { cat "$bin/go.log" >&2 && return 1; }
        printf '%s\n' "$NATS_VERSION" >"$bin/installed"
    fi
    REQUEUE_NATS=$bin/nats-server
}

install_kafka() { # directory
    local kafka=$1/kafka
    REQUEUE_KAFKA=""
    if ! command -v java >/dev/null; then
        echo "no java: tests with Kafka are left out" >&2
        return
    fi
    if [ "$(cat "$kafka/installed" 2>/dev/null)" != "$KAFKA_VERSION" ]; then
        if ! command -v mvn >/dev/null; then
            echo "no mvn: tests with Kafka are left out" >&2
            return
        fi
        rm -rf "$kafka" && mkdir -p "$kafka"
        kafka_pom >"$kafka/pom.xml"
        mvn -B -q -f "$kafka/pom.xml" dependency:copy-dependencies -DoutputDirectory="$kafka/jars" \
            -DincludeScope=runtime >"$kafka/mvn.log" 2>&1 || { cat "$kafka/mvn.log" >&2 && return 1; }
        printf '%s\n' "$KAFKA_VERSION" >"$kafka/installed"
    fi
    REQUEUE_KAFKA=$kafka/jars
}

kafka_pom() {
    cat <<END
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>requeue</groupId>
  <artifactId>kafka</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_2.13</artifactId>
      <version>$KAFKA_VERSION</version>
    </dependency>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka-tools</artifactId>
      <version>$KAFKA_VERSION</version>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId>
      <artifactId>slf4j-simple</artifactId>
      <version>$SLF4J_VERSION</version>
    </dependency>
  </dependencies>
</project>
END
}

install_pika() { # directory
    local venv=$1/pika
    REQUEUE_PIKA=""
    if [ "$(cat "$venv/installed" 2>/dev/null)" != "$PIKA_VERSION" ] || ! "$venv/bin/python" -c "import pika" 2>/dev/null; then
        if ! python3 -c "import ensurepip, venv" 2>/dev/null; then
            echo "no Python with venv: tests with pika are left out" >&2
            return
        fi
        rm -rf "$venv"
        { python3 -m venv "$venv" &&
            "$venv/bin/python" -m pip install -q --disable-pip-version-check "pika==$PIKA_VERSION"; } >"$1/pip.log" 2>&1 ||
            { cat "$1/pip.log" >&2 && return 1; }
        printf '%s\n' "$PIKA_VERSION" >"$venv/installed"
    fi
    REQUEUE_PIKA=$venv/bin/python
}
