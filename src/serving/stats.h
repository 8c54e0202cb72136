// Metrics of the model server, named as Triton and KServe name them.
#pragma once

#include <string>

#include "base/metrics.h"

namespace varda::serving {

/// Metrics of one version of a model. References into a registry, looked up once at load.
struct VersionStats {
  VersionStats(metrics::Registry& registry, const std::string& model, const std::string& version);

  metrics::Counter& success;     // nv_inference_request_success
  metrics::Counter& failure;     // nv_inference_request_failure
  metrics::Counter& abandoned;   // varda_requests_abandoned_total: the client hung up while queued
  metrics::Counter& inferences;  // nv_inference_count: each row of a batch counts
  metrics::Counter& executions;  // nv_inference_exec_count
  metrics::Counter& request_us;  // nv_inference_request_duration_us
  metrics::Counter& queue_us;    // nv_inference_queue_duration_us
  metrics::Counter& compute_us;  // nv_inference_compute_infer_duration_us
  metrics::Counter&
      compute_input_us;  // nv_inference_compute_input_duration_us: decoding and resizing images
  metrics::Counter&
      compute_output_us;  // nv_inference_compute_output_duration_us: softmax, labels, boxes
  metrics::Histogram& predict_seconds;  // request_predict_seconds
  metrics::Histogram& best_score;       // varda_model_best_score: per sample, 0 to 1
  metrics::Gauge& ready;                // varda_model_ready: 1 while this version is active
  metrics::Gauge& load_seconds;         // varda_model_load_seconds: read, prepare and warm
};

/// Metrics of a model, across its versions.
struct ModelStats {
  ModelStats(metrics::Registry& registry, const std::string& model);

  metrics::Counter& switches;       // varda_model_switches_total
  metrics::Counter& load_failures;  // varda_model_load_failures_total
};

}  // namespace varda::serving
