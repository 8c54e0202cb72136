#include "training/comparison.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "training/internal/predictor.h"
#include "training/internal/text.h"
#include "training/metrics.h"

namespace varda::training {
namespace {

namespace comparison {

using codec::Json;
using tensor::Tensor;

constexpr int kTimedRuns = 31, kWarmUpRuns = 5;
constexpr std::chrono::milliseconds kTimedMax{500};

/// One model with its counts over a slice.
class Side {
 public:
  Side(Predictor predictor, const Settings& settings)
      : predictor_(std::move(predictor)), settings_(settings) {}

  Predictor& predictor() { return predictor_; }

  Status answer(const Tensor& input) {
    TRY(output_, predictor_.run(input));
    return {};
  }
  std::size_t width() const { return predictor_.values(); }
  std::span<const float> row(std::size_t i) const {
    return output_.values<float>().subspan(i * width(), width());
  }
  void begin() { metrics_.reset(); }
  Metrics& metrics(std::size_t outputs) {
    if (!metrics_) {
      Metrics::Options options;
      options.task = settings_.task;
      options.outputs = outputs;
      options.loss = settings_.loss;
      options.activation = predictor_.activation();
      options.huber_delta = settings_.huber_delta;
      metrics_ = std::make_unique<Metrics>(options);
    }
    return *metrics_;
  }
  std::map<std::string, double> values() const {
    std::map<std::string, double> out;
    if (!metrics_) return out;
    for (const auto& [name, value] : metrics_->values())
      if (std::isfinite(value)) out.emplace(name, value);
    return out;
  }

 private:
  Predictor predictor_;
  const Settings& settings_;
  Tensor output_;
  std::unique_ptr<Metrics> metrics_;
};

class Comparing {
 public:
  Comparing(const Context& ctx, const ComparisonRequest& request, Side base, Side candidate)
      : ctx_(ctx), request_(request), base_(std::move(base)), candidate_(std::move(candidate)) {}

  Result<Comparison> run() {
    Comparison out;
    for (const ComparisonRequest::Data& one : request_.slices) {
      TRY(Slice slice, slice_of(one));
      if (slice.samples > 0 && out.base.empty()) {
        out.base = base_.values();
        out.candidate = candidate_.values();
        if (request_.settings.task == samples::Task::kClassification) {
          // The metrics of a base with fewer classes lack the samples of the other classes.
          const auto all = static_cast<double>(slice.samples);
          out.base["accuracy"] = static_cast<double>(slice.base_right) / all;
          out.candidate["accuracy"] = static_cast<double>(slice.candidate_right) / all;
        }
      }
      out.slices.push_back(std::move(slice));
    }
    TRY_VOID(time_runs(out));
    out.base_bytes = request_.base.size();
    out.candidate_bytes = request_.candidate.size();
    return out;
  }

 private:
  Result<Slice> slice_of(const ComparisonRequest::Data& part) {
    Slice out{.name = part.name, .classes = {}};
    base_.begin();
    candidate_.begin();
    if (!part.data || part.data->size() == 0) return out;
    const samples::Dataset& data = *part.data;
    std::vector<ClassCounts> classes(
        request_.settings.task == samples::Task::kClassification ? data.outputs() : 0);
    for (std::size_t i = 0; i < classes.size(); ++i)
      classes[i].name = i < data.classes().size() ? data.classes()[i] : std::to_string(i);
    std::vector<std::size_t> all(data.size());
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
    samples::Loader loader(data, std::move(all),
                           static_cast<std::size_t>(request_.settings.batch_size), {}, 0);
    for (;;) {
      TRY(const auto batch, loader.next(ctx_));
      if (!batch) break;
      if (!timed_) {
        const std::size_t row = batch->input.bytes().size() / batch->indices.size();
        tensor::Shape shape = batch->input.shape();
        shape[0] = 1;
        TRY(timed_, Tensor::copy(batch->input.dtype(), shape, batch->input.bytes().first(row)));
      }
      TRY_VOID(base_.answer(batch->input).context("base"));
      TRY_VOID(candidate_.answer(batch->input).context("candidate"));
      TRY_VOID(check_width(data));
      for (std::size_t i = 0; i < batch->indices.size(); ++i) {
        const bool base = add(base_, *batch, i, data.outputs());
        const bool candidate = add(candidate_, *batch, i, data.outputs());
        ++out.samples;
        out.base_right += base ? 1 : 0;
        out.candidate_right += candidate ? 1 : 0;
        out.only_base += base && !candidate ? 1 : 0;
        out.only_candidate += candidate && !base ? 1 : 0;
        if (classes.empty()) continue;
        ClassCounts& counts = classes.at(static_cast<std::size_t>(batch->labels[i]));
        ++counts.samples;
        counts.base_right += base ? 1 : 0;
        counts.candidate_right += candidate ? 1 : 0;
      }
    }
    for (ClassCounts& one : classes)
      if (one.samples > 0) out.classes.push_back(std::move(one));
    return out;
  }

  Status check_width(const samples::Dataset& data) {
    const std::size_t values = candidate_.width();
    const bool one_for_two = values == 1 && data.outputs() == 2;
    if ((values != data.outputs() && !one_for_two) || base_.width() > values)
      return invalid("the models have " + std::to_string(base_.width()) + " and " +
                     std::to_string(values) + " outputs for a sample, the data have " +
                     std::to_string(data.outputs()));
    return {};
  }

  /// Adds the answer to the metrics, and returns whether the answer is right. A regression has no
  /// right answers.
  bool add(Side& side, const samples::Batch& batch, std::size_t i, std::size_t outputs) {
    const auto row = side.row(i);
    if (request_.settings.task == samples::Task::kClassification) {
      const std::int64_t label = batch.labels[i];
      // The loss of a class that a model does not have is not finite.
      if (static_cast<std::size_t>(label) < std::max<std::size_t>(row.size(), 2))
        side.metrics(row.size()).add(row, label);
      return side.metrics(row.size()).predicted_class(row) == label;
    }
    const auto targets = std::span(batch.targets).subspan(i * outputs, outputs);
    Metrics& metrics = side.metrics(outputs);
    metrics.add(row, targets);
    if (request_.settings.task == samples::Task::kRegression) return false;
    const float threshold = metrics.threshold();
    bool right = true;
    for (std::size_t k = 0; k < row.size(); ++k)
      right = right && (row[k] > threshold) == (targets[k] > 0.5f);
    return right;
  }

  /// Runs of both models alternate, so a change of the machine's speed affects both.
  Status time_runs(Comparison& out) {
    if (!timed_) return {};
    std::vector<double> base, candidate;
    const auto timed = [&](Side& side, std::vector<double>& times) -> Status {
      const SteadyTime from = system_clock().now();
      TRY_VOID(side.answer(*timed_));
      times.push_back(
          std::chrono::duration<double, std::milli>(system_clock().now() - from).count());
      return {};
    };
    const SteadyTime begin = system_clock().now();
    for (int i = 0; i < kWarmUpRuns + kTimedRuns; ++i) {
      TRY_VOID(ctx_.check());
      TRY_VOID(timed(base_, base));
      TRY_VOID(timed(candidate_, candidate));
      if (i < kWarmUpRuns && i + 1 < kWarmUpRuns + kTimedRuns) {
        if (system_clock().now() - begin > kTimedMax) break;
        base.clear();
        candidate.clear();
      } else if (system_clock().now() - begin > kTimedMax) {
        break;
      }
    }
    const auto median = [](std::vector<double>& times) {
      const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
      std::nth_element(times.begin(), middle, times.end());
      return *middle;
    };
    out.base_milliseconds = median(base);
    out.candidate_milliseconds = median(candidate);
    return {};
  }

  const Context& ctx_;
  const ComparisonRequest& request_;
  Side base_, candidate_;
  std::optional<Tensor> timed_;  // one sample
};

Json metrics_json(const std::map<std::string, double>& metrics) {
  Json out = Json::object();
  for (const auto& [name, value] : metrics) out.set(name, value);
  return out;
}

double rounded(double milliseconds) { return std::round(milliseconds * 1000) / 1000; }

}  // namespace comparison

}  // namespace

Result<Comparison> compare(const Context& ctx, infer::Engine& engine,
                           const ComparisonRequest& request) {
  const auto threads = static_cast<unsigned>(
      request.settings.threads > 0 ? request.settings.threads
                                   : std::max(1u, std::thread::hardware_concurrency()));
  TRY(Predictor base, Predictor::open(engine, request.base, threads).context("base"));
  TRY(Predictor candidate,
      Predictor::open(engine, request.candidate, threads).context("candidate"));
  return comparison::Comparing(ctx, request, comparison::Side(std::move(base), request.settings),
                               comparison::Side(std::move(candidate), request.settings))
      .run();
}

codec::Json to_json(const Comparison& comparison) {
  using codec::Json;
  Json slices = Json::array();
  for (const Slice& slice : comparison.slices) {
    Json classes = Json::array();
    for (const ClassCounts& one : slice.classes)
      classes.push_back(Json::object({{"name", one.name},
                                      {"samples", one.samples},
                                      {"baseRight", one.base_right},
                                      {"candidateRight", one.candidate_right}}));
    slices.push_back(Json::object({{"name", slice.name},
                                   {"samples", slice.samples},
                                   {"baseRight", slice.base_right},
                                   {"candidateRight", slice.candidate_right},
                                   {"onlyBase", slice.only_base},
                                   {"onlyCandidate", slice.only_candidate},
                                   {"classes", std::move(classes)}}));
  }
  return Json::object(
      {{"round", comparison.round},
       {"selected", Json::object({{"train", comparison.selected_train},
                                  {"evaluate", comparison.selected_evaluate}})},
       {"slices", std::move(slices)},
       {"metrics", Json::object({{"base", comparison::metrics_json(comparison.base)},
                                 {"candidate", comparison::metrics_json(comparison.candidate)}})},
       {"milliseconds",
        Json::object({{"base", comparison::rounded(comparison.base_milliseconds)},
                      {"candidate", comparison::rounded(comparison.candidate_milliseconds)}})},
       {"bytes", Json::object({{"base", comparison.base_bytes},
                               {"candidate", comparison.candidate_bytes}})}});
}

}  // namespace varda::training
