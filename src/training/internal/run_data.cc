#include "training/internal/run_data.h"

#include <algorithm>
#include <utility>

#include "codec/digest.h"
#include "codec/json.h"
#include "training/internal/text.h"
#include "training/settings.h"

namespace varda::training {
namespace {

using codec::Json;
using samples::Task;

constexpr std::size_t kIdentitySamples = 8;

/// The fingerprint covers files, not the way to read them, such as the preprocessing. So some
/// samples have a part, as the model sees them.
Result<Json> identity_of_data(const samples::Dataset& data) {
  std::vector<std::size_t> some;
  const std::size_t stride = std::max<std::size_t>(1, data.size() / kIdentitySamples);
  for (std::size_t i = 0; i < data.size() && some.size() < kIdentitySamples; i += stride)
    some.push_back(i);
  codec::Sha256Stream digest;
  const auto update = [&](const auto& values) {
    const auto bytes = std::as_bytes(std::span(values));
    digest.update({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  };
  if (!some.empty()) {
    TRY(const samples::Batch batch, data.read(some, {}, 0));
    update(batch.input.bytes());
    update(batch.labels);
    update(batch.targets);
  }
  Json classes = Json::array();
  for (const std::string& name : data.classes()) classes.push_back(name);
  return Json::object({{"fingerprint", data.fingerprint()},
                       {"samples", digest.finish().hex()},
                       {"classes", std::move(classes)}});
}

}  // namespace

Result<std::string> identity_of(const Request& request) {
  Json settings = to_json(request.settings);
  settings.erase("threads");
  settings.erase("featureCache");
  Json json = Json::object(
      {{"settings", std::move(settings)}, {"model", codec::Sha256::of(request.model).hex()}});
  TRY(Json train, identity_of_data(*request.train));
  json.set("data", std::move(train));
  if (request.evaluation) {
    TRY(Json evaluation, identity_of_data(*request.evaluation));
    json.set("evaluation", std::move(evaluation));
  } else {
    json.set("holdOut", request.hold_out);
  }
  return codec::Sha256::of(codec::write_json(codec::sorted(json))).hex();
}

bool RunData::is_classification() const { return request_.settings.task == Task::kClassification; }

Status RunData::prepare(const Context& ctx) {
  if (train().size() == 0) return invalid("the training data have no samples");
  if (!request_.evaluation && !(request_.hold_out >= 0 && request_.hold_out < 1))
    return invalid("holdOut must be a number at least 0 and below 1, not " +
                   number_text(request_.hold_out));
  if (is_classification()) TRY_VOID(check_classes());
  if (request_.evaluation) {
    if (evaluation().size() == 0) return invalid("the evaluation data have no samples");
    if (evaluation().outputs() != train().outputs() || evaluation().classes() != train().classes())
      return invalid("the evaluation data have other classes (" + listed(evaluation().classes()) +
                     ") than the training data (" + listed(train().classes()) + ")");
  }
  if (request_.evaluation || request_.hold_out == 0) {
    split_.train.resize(train().size());
    for (std::size_t i = 0; i < split_.train.size(); ++i) split_.train[i] = i;
    if (request_.evaluation) {
      split_.evaluation.resize(evaluation().size());
      for (std::size_t i = 0; i < split_.evaluation.size(); ++i) split_.evaluation[i] = i;
    }
  } else {
    std::vector<std::int64_t> labels;
    if (is_classification()) {
      TRY(labels, read_labels(ctx));
    }
    split_ = hold_out(train().size(), labels, request_.hold_out, request_.settings.seed);
    if (split_.evaluation.empty())
      return invalid(
          "the training data have too few samples to hold some out for the "
          "evaluation; add samples, or set holdOut: 0");
  }
  if (request_.settings.early_stopping && split_.evaluation.empty())
    return invalid("earlyStopping needs an evaluation; set holdOut above 0");
  return {};
}

Status RunData::check_classes() const {
  std::size_t present = 0, last = 0;
  const std::vector<std::uint64_t> counts = train().class_counts();
  for (std::size_t i = 0; i < counts.size(); ++i)
    if (counts[i] > 0) {
      ++present;
      last = i;
    }
  if (present >= std::min<std::size_t>(request_.classes_min, 2)) return {};
  return invalid("all training data have the class \"" +
                 (last < train().classes().size() ? train().classes()[last] : std::string("0")) +
                 "\"; classification needs samples of two classes or more");
}

/// The class of each sample.
Result<std::vector<std::int64_t>> RunData::read_labels(const Context& ctx) const {
  std::vector<std::size_t> all(train().size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
  std::vector<std::int64_t> out;
  samples::Loader loader(train(), std::move(all),
                         static_cast<std::size_t>(request_.settings.batch_size), {}, 0);
  for (;;) {
    TRY(const auto batch, loader.next(ctx));
    if (!batch) break;
    out.insert(out.end(), batch->labels.begin(), batch->labels.end());
  }
  if (out.size() != train().size())
    return Error(Code::kInternal, "the data have another number of labels than samples");
  return out;
}

std::string RunData::describe_outputs() const {
  return std::to_string(train().outputs()) +
         (request_.settings.task == Task::kRegression ? " targets" : " classes") +
         (train().classes().empty() ? "" : " (" + listed(train().classes()) + ")");
}

bool RunData::fits(std::size_t values) const {
  const bool one_for_two = is_classification() &&
                           request_.settings.loss == train::Loss::kBinaryCrossEntropy &&
                           values == 1 && train().outputs() == 2;
  return values == train().outputs() || one_for_two;
}

Status RunData::check_head(std::int64_t classes) const {
  if (fits(static_cast<std::size_t>(classes))) return {};
  return invalid("head.classes is " + std::to_string(classes) + "; the training data have " +
                 describe_outputs());
}

Status RunData::check_outputs(std::size_t values) const {
  if (fits(values)) return {};
  return invalid("the model has " + std::to_string(values) +
                 " outputs for a sample, the training data have " + describe_outputs() +
                 "; set head: {classes: " + std::to_string(train().outputs()) +
                 "}, or give the model's labels");
}

std::vector<float> RunData::balanced_weights() const {
  const std::vector<std::uint64_t> counts = train().class_counts();
  double samples = 0, classes = 0;
  for (const std::uint64_t count : counts) {
    samples += static_cast<double>(count);
    classes += count > 0 ? 1 : 0;
  }
  std::vector<float> out;
  for (const std::uint64_t count : counts)
    out.push_back(
        count == 0 ? 0 : static_cast<float>(samples / (classes * static_cast<double>(count))));
  return out;
}

std::string RunData::class_name(std::int64_t label) const {
  const auto at = static_cast<std::size_t>(label);
  return at < train().classes().size() ? train().classes()[at] : std::to_string(label);
}

std::string RunData::label_names(std::span<const float> values, float threshold) const {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < values.size(); ++i)
    if (values[i] > threshold) names.push_back(class_name(static_cast<std::int64_t>(i)));
  return names.empty() ? "none" : listed(names);
}

}  // namespace varda::training
