package main

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/workqueue"
)

type (
	plainQueue    = workqueue.TypedInterface[string]
	delayingQueue = workqueue.TypedDelayingInterface[string]
	limitingQueue = workqueue.TypedRateLimitingInterface[string]
)

func newPlain() plainQueue { return workqueue.NewTyped[string]() }

func newMetered() plainQueue {
	return workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{
		Name: "bench", MetricsProvider: prometheusMetrics{},
	})
}

func newDelaying() delayingQueue { return workqueue.NewTypedDelayingQueue[string]() }

func newLimiting(base, max time.Duration) limitingQueue {
	return workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](base, max))
}

// Real Prometheus metrics with the buckets that controller-runtime uses.
type prometheusMetrics struct{}

func gauge(name string) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Name: name})
}

func counter(name string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: name})
}

func histogram(name string) prometheus.Histogram {
	buckets := prometheus.ExponentialBuckets(10e-9, 10, 12)
	return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Buckets: buckets})
}

func (prometheusMetrics) NewDepthMetric(string) workqueue.GaugeMetric { return gauge("depth") }

func (prometheusMetrics) NewAddsMetric(string) workqueue.CounterMetric { return counter("adds") }

func (prometheusMetrics) NewLatencyMetric(string) workqueue.HistogramMetric {
	return histogram("latency")
}

func (prometheusMetrics) NewWorkDurationMetric(string) workqueue.HistogramMetric {
	return histogram("work")
}

func (prometheusMetrics) NewUnfinishedWorkSecondsMetric(string) workqueue.SettableGaugeMetric {
	return gauge("unfinished")
}

func (prometheusMetrics) NewLongestRunningProcessorSecondsMetric(string) workqueue.SettableGaugeMetric {
	return gauge("longest")
}

func (prometheusMetrics) NewRetriesMetric(string) workqueue.CounterMetric {
	return counter("retries")
}
