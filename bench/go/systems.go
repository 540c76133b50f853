package main

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)

type (
	plainQueue    = workqueue.TypedInterface[string]
	delayingQueue = workqueue.TypedDelayingInterface[string]
	limitingQueue = workqueue.TypedRateLimitingInterface[string]
)

// A workload is given the layer that its Rust twin uses, and no more.
type constructors struct {
	plain    func() plainQueue
	metered  func() plainQueue
	delaying func() delayingQueue
	limiting func(base, max time.Duration) limitingQueue
}

var systems = map[string]constructors{
	"client-go": {
		plain: func() plainQueue { return workqueue.NewTyped[string]() },
		metered: func() plainQueue {
			return workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{
				Name: "bench", MetricsProvider: prometheusMetrics{},
			})
		},
		delaying: func() delayingQueue { return workqueue.NewTypedDelayingQueue[string]() },
		limiting: func(base, max time.Duration) limitingQueue {
			return workqueue.NewTypedRateLimitingQueue(exponential(base, max))
		},
	},
	"controller-runtime": {
		plain: func() plainQueue { return priorityqueue.New[string]("") },
		metered: func() plainQueue {
			return priorityqueue.New("bench", func(o *priorityqueue.Opts[string]) {
				o.MetricProvider = prometheusMetrics{}
			})
		},
		delaying: func() delayingQueue { return priorityqueue.New[string]("") },
		limiting: func(base, max time.Duration) limitingQueue {
			return priorityqueue.New("", func(o *priorityqueue.Opts[string]) {
				o.RateLimiter = exponential(base, max)
			})
		},
	},
}

func exponential(base, max time.Duration) workqueue.TypedRateLimiter[string] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[string](base, max)
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
