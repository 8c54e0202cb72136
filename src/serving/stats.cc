#include "serving/stats.h"

#include <vector>

namespace varda::serving {
namespace {

std::vector<double> score_buckets() {
  std::vector<double> out;
  for (int i = 1; i <= 20; ++i) out.push_back(i / 20.0);
  return out;
}

}  // namespace

VersionStats::VersionStats(metrics::Registry& registry, const std::string& model,
                           const std::string& version)
    : success(registry.counter("nv_inference_request_success", "Inference requests answered.",
                               {{"model", model}, {"version", version}})),
      failure(registry.counter("nv_inference_request_failure",
                               "Inference requests refused or failed.",
                               {{"model", model}, {"version", version}})),
      abandoned(registry.counter(
          "varda_requests_abandoned_total",
          "Requests not run because the client disconnected while the request waited.",
          {{"model", model}, {"version", version}})),
      inferences(registry.counter("nv_inference_count", "Inferences, each row of a batch counted.",
                                  {{"model", model}, {"version", version}})),
      executions(registry.counter("nv_inference_exec_count", "Runs of the model.",
                                  {{"model", model}, {"version", version}})),
      request_us(registry.counter("nv_inference_request_duration_us",
                                  "Time of requests in the server, summed.",
                                  {{"model", model}, {"version", version}})),
      queue_us(registry.counter("nv_inference_queue_duration_us",
                                "Time requests waited for an instance, summed.",
                                {{"model", model}, {"version", version}})),
      compute_us(registry.counter("nv_inference_compute_infer_duration_us",
                                  "Time of the model's runs, summed.",
                                  {{"model", model}, {"version", version}})),
      compute_input_us(registry.counter("nv_inference_compute_input_duration_us",
                                        "Time of preprocessing, summed.",
                                        {{"model", model}, {"version", version}})),
      compute_output_us(registry.counter("nv_inference_compute_output_duration_us",
                                         "Time of postprocessing, summed.",
                                         {{"model", model}, {"version", version}})),
      predict_seconds(registry.histogram("request_predict_seconds", "Time of the model's runs.",
                                         metrics::latency_buckets(),
                                         {{"model_name", model}, {"model_version", version}})),
      best_score(registry.histogram("varda_model_best_score",
                                    "Score of the best class of each sample, 0 to 1.",
                                    score_buckets(), {{"model", model}, {"version", version}})),
      ready(registry.gauge("varda_model_ready",
                           "1 while this version answers requests that name no version.",
                           {{"model", model}, {"version", version}})),
      load_seconds(registry.gauge("varda_model_load_seconds",
                                  "Seconds to read, prepare and warm the version.",
                                  {{"model", model}, {"version", version}})) {}

ModelStats::ModelStats(metrics::Registry& registry, const std::string& model)
    : switches(registry.counter("varda_model_switches_total", "Changes of the active version.",
                                {{"model", model}})),
      load_failures(registry.counter("varda_model_load_failures_total",
                                     "Versions that did not load or warm.", {{"model", model}})) {}

}  // namespace varda::serving
