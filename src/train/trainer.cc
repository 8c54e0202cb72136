#include "train/trainer.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/check.h"
#include "onnx/model.h"
#include "onnx/upgrade.h"
#include "onnx/weights.h"
#include "train/frozen_part.h"
#include "train/internal/checkpoint.h"
#include "train/trace.h"

namespace varda::train {
namespace {

using tensor::DType;
using tensor::Named;
using tensor::Tensor;

/// The model with these initializers as inputs.
onnx::Model with_inputs(onnx::Model model, const std::set<std::string>& names) {
  for (const onnx::Tensor& tensor : model.graph.initializers) {
    if (!names.contains(tensor.name)) continue;
    auto& dims =
        model.graph.inputs
            .emplace_back(onnx::ValueInfo{.name = tensor.name, .data_type = tensor.data_type})
            .shape.emplace();
    for (const std::int64_t size : tensor.dims) dims.push_back({.size = size});
  }
  std::erase_if(model.graph.initializers,
                [&](const onnx::Tensor& tensor) { return names.contains(tensor.name); });
  return model;
}

bool is_own(const onnx::Model& model) { return model.opsets.contains(std::string(kOwnDomain)); }

std::uint64_t values_of(const tensor::Shape& shape) {
  std::uint64_t out = 1;
  for (const std::int64_t size : shape)
    out *= static_cast<std::uint64_t>(std::max<std::int64_t>(size, 1));
  return out;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         std::ranges::equal(a.bytes(), b.bytes());
}

enum class Rows {
  kReversed,
  kFirst,  // every row is the first one
};
/// A copy with other rows along the first axis.
Result<Tensor> with_rows(const Tensor& tensor, Rows wanted) {
  TRY(Tensor out, Tensor::allocate(tensor.dtype(), tensor.shape()));
  const std::span<const std::byte> from = tensor.bytes();
  const std::span<std::byte> to = out.mutable_bytes();
  const auto rows = static_cast<std::size_t>(tensor.shape().empty() ? 1 : tensor.shape().front());
  const std::size_t row = from.size() / std::max<std::size_t>(rows, 1);
  for (std::size_t i = 0; i < rows; ++i)
    std::ranges::copy(from.subspan(wanted == Rows::kFirst ? 0 : (rows - 1 - i) * row, row),
                      to.subspan(i * row).begin());
  return out;
}

class FrozenModel final : public FrozenPart {
 public:
  FrozenModel(std::unique_ptr<infer::Model> model, std::string name, tensor::Shape shape)
      : model_(std::move(model)), name_(std::move(name)), shape_(std::move(shape)) {}

  Result<Tensor> run(std::span<const Named> inputs) override {
    TRY(const std::vector<Named> outputs,
        model_->run(std::vector<Named>(inputs.begin(), inputs.end()), {}));
    const Tensor& features = outputs.at(0).tensor;
    if (features.dtype() != DType::kFp32 || features.shape() != shape_)
      return Error(Code::kInternal, "the frozen layers computed another shape");
    return features;
  }
  const std::string& name() const override { return name_; }
  const tensor::Shape& shape() const override { return shape_; }

 private:
  const std::unique_ptr<infer::Model> model_;
  const std::string name_;
  const tensor::Shape shape_;
};

class TrainerImpl final : public Trainer {
 public:
  TrainerImpl(infer::Engine& engine, onnx::Bytes file, const Options& options)
      : engine_(engine), file_(std::move(file)), options_(options) {}

  Status start(std::span<const Named> example) {
    TRY(forward_, onnx::parse(file_));
    for (const onnx::Tensor& tensor : forward_.graph.initializers)
      if (tensor.external)
        return Error(Code::kUnsupported, "tensor \"" + tensor.name +
                                             "\" has its values in another file; store them in "
                                             "the model's file");
    TRY_VOID(onnx::upgrade(forward_));
    TRY(facts_, trace(engine_, forward_, example));
    TRY(graph_, gradient_graph(options_.operators));
    std::vector<std::size_t> sizes;
    for (const GradientGraph::Weight& weight : graph_.weights) {
      TRY_VOID(add_weight(weight.name));
      sizes.push_back(weights_.back().tensor.size());
    }
    for (const GradientGraph::Statistics& one : graph_.statistics) {
      TRY_VOID(add_weight(one.mean));
      TRY_VOID(add_weight(one.variance));
    }
    TRY(optimizer_, Optimizer::create(options_.optimizer, sizes));
    // A weight without a place in the file is reported before hours of training.
    TRY_VOID(save());
    TRY_VOID(load_gradients());
    return {};
  }

  Result<Step> step(const Batch& batch, double learning_rate) override {
    TRY(const std::vector<Named> outputs, run(batch));
    if (!sums_.empty()) add_to_sums(outputs);
    const auto gradient = [&](std::size_t i) {
      return sums_.empty() ? outputs.at(kFirstGradient + i).tensor.values<float>()
                           : std::span<const float>(sums_[i]);
    };
    TRY(const double scale, gradient_scale(gradient));
    update_weights(gradient, learning_rate, scale);
    sums_.clear();
    update_statistics(outputs);
    return result(outputs);
  }

  Result<Step> accumulate(const Batch& batch) override {
    TRY(const std::vector<Named> outputs, run(batch));
    if (sums_.empty())
      for (std::size_t i = 0; i < graph_.weights.size(); ++i)
        sums_.emplace_back(weights_[i].tensor.size());
    add_to_sums(outputs);
    update_statistics(outputs);
    return result(outputs);
  }

  std::vector<std::vector<float>> take_gradients() override { return std::exchange(sums_, {}); }

  Status apply(std::span<const std::vector<float>> gradients, double learning_rate) override {
    CHECK(gradients.size() == graph_.weights.size());
    const auto gradient = [&](std::size_t i) { return std::span<const float>(gradients[i]); };
    TRY(const double scale, gradient_scale(gradient));
    update_weights(gradient, learning_rate, scale);
    return {};
  }

  Result<Tensor> predict(std::span<const Named> batch) override {
    if (predictor_ == nullptr) {
      TRY(predictor_, load(with_inputs(forward_, stored_names())));
    }
    return predict_with(*predictor_, batch);
  }

  std::vector<std::string> weights() const override {
    std::vector<std::string> out;
    for (const GradientGraph::Weight& weight : graph_.weights) out.push_back(weight.name);
    return out;
  }
  Result<std::unique_ptr<FrozenPart>> separate(const Batch& check,
                                               std::uint64_t values_max) override {
    std::set<std::string> trained;
    for (const GradientGraph::Weight& weight : graph_.weights) trained.insert(weight.name);
    auto parts = split_frozen(forward_, facts_, trained, graph_.output);
    if (!parts || values_of(parts->shape) / values_of({parts->shape.front()}) > values_max)
      return std::unique_ptr<FrozenPart>();
    GradientOptions options = options_.gradients;
    options.operators = operators_;
    options.freeze.clear();
    options.train = trained;
    auto graph = make_gradient_graph(parts->rest, facts_, options);
    if (!graph.ok() || !has_same_weights(*graph)) return std::unique_ptr<FrozenPart>();
    TRY(auto rest, load(graph->model));
    graph->model = {};
    TRY(auto beginning, load(parts->beginning));
    auto part = std::make_unique<FrozenModel>(std::move(beginning), parts->features, parts->shape);
    TRY(auto predictor, load(with_inputs(parts->rest, stored_names())));
    TRY(const bool same, computes_same(check, *part, *graph, *rest, *predictor));
    if (!same) return std::unique_ptr<FrozenPart>();
    forward_ = std::move(parts->rest);
    graph_ = std::move(*graph);
    model_ = std::move(rest);
    predictor_ = std::move(predictor);
    return std::unique_ptr<FrozenPart>(std::move(part));
  }

  const tensor::Shape& output_shape() const override { return graph_.output_shape; }
  Activation activation() const override { return graph_.activation; }
  std::uint64_t steps() const override { return optimizer_->steps(); }
  std::span<const Named> values() const override { return weights_; }

  Status set_values(std::span<const Named> values) override {
    std::vector<Tensor*> places;
    for (const Named& one : values) {
      const auto place = std::ranges::find(weights_, one.name, &Named::name);
      if (place == weights_.end())
        return Error(Code::kInvalid, "\"" + one.name + "\" is no trained tensor of the model");
      if (one.tensor.dtype() != DType::kFp32 || one.tensor.shape() != place->tensor.shape())
        return Error(Code::kInvalid, "tensor \"" + one.name + "\" is " +
                                         std::string(tensor::to_string(one.tensor.dtype())) + " " +
                                         tensor::to_string(one.tensor.shape()) +
                                         "; the model has FP32 " +
                                         tensor::to_string(place->tensor.shape()));
      places.push_back(&place->tensor);
    }
    for (std::size_t i = 0; i < places.size(); ++i)
      std::ranges::copy(values[i].tensor.values<float>(),
                        places[i]->mutable_values<float>().begin());
    sums_.clear();
    return {};
  }

  void reset_optimizer() override {
    std::vector<std::vector<float>> state = optimizer_->state();
    for (std::vector<float>& values : state) std::ranges::fill(values, 0.0f);
    CHECK(optimizer_->restore(0, std::move(state)).ok());
  }

  Result<std::string> save() const override {
    std::map<std::string, Tensor> values;
    for (const Named& weight : weights_) values.emplace(weight.name, weight.tensor);
    return onnx::replace_weights(file_.view, values);
  }

  std::string checkpoint() const override {
    Checkpoint out;
    out.steps = steps();
    for (const Named& weight : weights_) {
      const auto values = weight.tensor.values<float>();
      out.weights.push_back({weight.name, {values.begin(), values.end()}});
    }
    for (const std::vector<float>& values : optimizer_->state()) out.state.push_back({"", values});
    return out.encode();
  }

  Status restore(std::string_view bytes) override {
    TRY(Checkpoint read, Checkpoint::decode(bytes));
    bool fits = read.weights.size() == weights_.size();
    for (std::size_t i = 0; fits && i < weights_.size(); ++i)
      fits = read.weights[i].name == weights_[i].name &&
             read.weights[i].values.size() == weights_[i].tensor.size();
    if (!fits) return Error(Code::kInvalid, "the checkpoint belongs to another model");
    std::vector<std::vector<float>> state;
    for (Checkpoint::Item& item : read.state) state.push_back(std::move(item.values));
    TRY_VOID(optimizer_->restore(read.steps, std::move(state)));
    sums_.clear();
    for (std::size_t i = 0; i < weights_.size(); ++i)
      std::ranges::copy(read.weights[i].values, weights_[i].tensor.mutable_values<float>().begin());
    return {};
  }

 private:
  std::set<std::string> stored_names() const {
    std::set<std::string> names;
    for (const Named& weight : weights_) names.insert(weight.name);
    return names;
  }

  Result<Tensor> predict_with(infer::Model& model, std::span<const Named> batch) const {
    std::vector<Named> inputs(batch.begin(), batch.end());
    inputs.insert(inputs.end(), weights_.begin(), weights_.end());
    TRY(const std::vector<Named> outputs,
        model.run(inputs, std::vector<std::string>{graph_.output}));
    return outputs.at(0).tensor;
  }

  bool has_same_weights(const GradientGraph& other) const {
    return std::ranges::equal(graph_.weights, other.weights, {}, &GradientGraph::Weight::name,
                              &GradientGraph::Weight::name) &&
           std::ranges::equal(graph_.statistics, other.statistics, {},
                              &GradientGraph::Statistics::mean, &GradientGraph::Statistics::mean);
  }

  /// Compares loss, output, gradients, statistics and prediction with those of the whole model.
  Result<bool> computes_same(const Batch& check, FrozenPart& part, const GradientGraph& graph,
                             infer::Model& rest, infer::Model& predictor) {
    TRY(const Tensor features, part.run(check.inputs));
    TRY(const Tensor kept, Tensor::copy(features.dtype(), features.shape(), features.bytes()));
    const Batch small{{{part.name(), kept}}, check.targets, check.sample_weights};
    TRY(const std::vector<Named> whole, run(check));
    TRY(const std::vector<Named> parts, run_on(rest, graph, small));
    if (!std::ranges::equal(whole, parts, [](const Named& a, const Named& b) {
          return same_bits(a.tensor, b.tensor);
        }))
      return false;
    TRY(const Tensor wanted, predict(check.inputs));
    TRY(const Tensor predicted, predict_with(predictor, small.inputs));
    if (!same_bits(wanted, predicted)) return false;
    // A sample has the same features in another row, and beside other samples.
    for (const Rows rows : {Rows::kReversed, Rows::kFirst}) {
      std::vector<Named> other;
      for (const Named& input : check.inputs) {
        TRY(Tensor changed, with_rows(input.tensor, rows));
        other.push_back({input.name, std::move(changed)});
      }
      TRY(const Tensor again, part.run(other));
      TRY(const Tensor expected, with_rows(kept, rows));
      if (!same_bits(again, expected)) return false;
    }
    return true;
  }

  // The outputs are in the order of make_gradient_graph(): loss, output, gradients, statistics.
  static constexpr std::size_t kFirstGradient = 2;

  Result<GradientGraph> gradient_graph(Operators operators) {
    GradientOptions options = options_.gradients;
    options.operators = operators_ = operators;
    return make_gradient_graph(forward_, facts_, options);
  }

  Status load_gradients() {
    Result<std::unique_ptr<infer::Model>> loaded = load(graph_.model);
    if (!loaded.ok() && loaded.error().code() == Code::kUnavailable && is_own(graph_.model)) {
      // The engine has no oneDNN beside it. Both graphs have the same weights.
      TRY(graph_, gradient_graph(Operators::kStandard));
      loaded = load(graph_.model);
    }
    TRY(model_, std::move(loaded));
    graph_.model = {};
    return {};
  }

  /// kInvalid: the batch does not fit, or the loss is not finite.
  Result<std::vector<Named>> run(const Batch& batch) { return run_on(*model_, graph_, batch); }

  Result<std::vector<Named>> run_on(infer::Model& model, const GradientGraph& graph,
                                    const Batch& batch) const {
    std::vector<Named> inputs = batch.inputs;
    inputs.push_back({graph.targets, batch.targets});
    inputs.push_back({graph.sample_weights, batch.sample_weights});
    const auto trained = static_cast<std::ptrdiff_t>(graph.weights.size());
    inputs.insert(inputs.end(), weights_.begin(), weights_.begin() + trained);
    TRY(std::vector<Named> outputs, model.run(inputs, {}));
    const double loss = outputs.at(0).tensor.values<float>()[0];
    if (!std::isfinite(loss))
      return Error(Code::kInvalid,
                   "the loss is " + std::string(std::isnan(loss) ? "not a number" : "infinite") +
                       "; lower the learning rate, clip the gradients, or check the data");
    return outputs;
  }

  static Step result(const std::vector<Named>& outputs) {
    return {outputs.at(0).tensor.values<float>()[0], outputs.at(1).tensor};
  }

  template <typename Gradient>
  void update_weights(const Gradient& gradient, double learning_rate, double scale) {
    optimizer_->begin_step(learning_rate, scale);
    for (std::size_t i = 0; i < graph_.weights.size(); ++i)
      optimizer_->update(i, weights_[i].tensor.mutable_values<float>(), gradient(i));
  }

  void add_to_sums(const std::vector<Named>& outputs) {
    for (std::size_t i = 0; i < sums_.size(); ++i)
      add_values(sums_[i], outputs.at(kFirstGradient + i).tensor.values<float>());
  }

  /// The factor that limits the norm of all gradients. kInvalid: the norm is not finite.
  template <typename Gradient>
  Result<double> gradient_scale(const Gradient& gradient) {
    if (options_.clip_norm <= 0) return 1.0;
    double squares = 0;
    for (std::size_t i = 0; i < graph_.weights.size(); ++i) squares += squared_norm(gradient(i));
    const double norm = std::sqrt(squares);
    if (!std::isfinite(norm))
      return Error(Code::kInvalid,
                   "the gradients are not finite; lower the learning rate, or check the data");
    return norm > options_.clip_norm ? options_.clip_norm / norm : 1.0;
  }

  void update_statistics(const std::vector<Named>& outputs) {
    std::size_t at = kFirstGradient + graph_.weights.size(), stored = graph_.weights.size();
    for (const GradientGraph::Statistics& one : graph_.statistics) {
      const auto kept = static_cast<float>(one.momentum);
      for (int part = 0; part < 2; ++part) {
        const auto fresh = outputs.at(at++).tensor.values<float>();
        const auto values = weights_[stored++].tensor.mutable_values<float>();
        for (std::size_t i = 0; i < values.size(); ++i)
          values[i] = kept * values[i] + (1 - kept) * fresh[i];
      }
    }
  }

  /// Adds a writable copy of an initializer.
  Status add_weight(const std::string& name) {
    const onnx::Tensor* initializer = forward_.graph.initializer(name);
    if (initializer == nullptr)
      return Error(Code::kUnsupported, "\"" + name + "\" is no initializer of the model");
    TRY(const Tensor value, initializer->value());
    if (value.dtype() != DType::kFp32)
      return Error(Code::kUnsupported, "weight \"" + name + "\" is " +
                                           std::string(tensor::to_string(value.dtype())) +
                                           "; only FP32 is trained");
    TRY(Tensor own, Tensor::copy(value.dtype(), value.shape(), value.bytes()));
    weights_.push_back({name, std::move(own)});
    return {};
  }

  Result<std::unique_ptr<infer::Model>> load(const onnx::Model& model) {
    const std::string bytes = onnx::serialize(model);
    // With a pattern a step keeps up to twice the memory, and is not faster.
    std::map<std::string, std::string> options = {{"memory_pattern", "off"}};
    if (is_own(model)) options["operators"] = "onednn";
    return engine_.load(
        {.intra_op_threads = options_.threads, .options = std::move(options), .model = bytes});
  }

  infer::Engine& engine_;
  const onnx::Bytes file_;
  const Options options_;
  onnx::Model forward_;  // after separate() only the rest
  Facts facts_;
  Operators operators_ = Operators::kStandard;  // of graph_
  GradientGraph graph_;                         // names only; the engine has the model
  std::unique_ptr<infer::Model> model_, predictor_;
  std::vector<Named> weights_;  // then mean and variance of each BatchNormalization
  std::optional<Optimizer> optimizer_;
  std::vector<std::vector<float>> sums_;  // gradients of accumulate(); empty: none
};

}  // namespace

Result<Tensor> one_hot(std::span<const std::int64_t> labels, std::int64_t classes,
                       double smoothing) {
  TRY(Tensor out,
      Tensor::allocate(DType::kFp32, {static_cast<std::int64_t>(labels.size()), classes}));
  const auto values = out.mutable_values<float>();
  const double rest = smoothing / static_cast<double>(classes);
  std::ranges::fill(values, static_cast<float>(rest));
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] < 0 || labels[i] >= classes)
      return Error(Code::kInvalid, "sample " + std::to_string(i) + " has the label " +
                                       std::to_string(labels[i]) + "; the model has " +
                                       std::to_string(classes) + " classes, from 0");
    values[i * static_cast<std::size_t>(classes) + static_cast<std::size_t>(labels[i])] =
        static_cast<float>(1 - smoothing + rest);
  }
  return out;
}

Tensor equal_weights(std::size_t samples) {
  Tensor out = Tensor::allocate(DType::kFp32, {static_cast<std::int64_t>(samples)}).value();
  std::ranges::fill(out.mutable_values<float>(), 1 / static_cast<float>(samples));
  return out;
}

Result<std::unique_ptr<Trainer>> Trainer::open(infer::Engine& engine, std::string file,
                                               std::span<const Named> example,
                                               const Options& options) {
  auto out = std::make_unique<TrainerImpl>(engine, onnx::Bytes::of(std::move(file)), options);
  TRY_VOID(out->start(example));
  return std::unique_ptr<Trainer>(std::move(out));
}

}  // namespace varda::train
