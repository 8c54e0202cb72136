#include "train/gradient_graph.h"

#include <algorithm>
#include <cmath>
#include <fnmatch.h>
#include <map>
#include <set>

#include "base/text.h"
#include "train/internal/backward.h"
#include "train/internal/rules.h"

namespace varda::train {
namespace {

using onnx::Node;
using tensor::DType;

constexpr std::size_t kNamedMax = 8;                 // names in a message
constexpr std::size_t kOwnNormalizationRankMax = 5;  // of oneDNN

bool is_real(const Fact* fact) {
  return fact != nullptr && (fact->dtype == DType::kFp32 || fact->dtype == DType::kFp64);
}

bool matches(const std::string& name, const std::vector<std::string>& patterns) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
  });
}

constexpr std::string_view kQuantized = "quantized models cannot be trained";

bool is(const Node& node, std::string_view op) { return node.domain.empty() && node.op_type == op; }

bool quantizes(const Node& node) {
  for (const char* part : {"uantizeLinear", "QLinear", "Integer"})
    if (node.op_type.find(part) != std::string::npos) return true;
  return false;
}

std::string listed(const std::set<std::string>& names) {
  std::vector<std::string> first;
  for (const std::string& name : names)
    if (first.size() < kNamedMax) first.push_back("\"" + name + "\"");
  const std::size_t more = names.size() - first.size();
  return join(first) + (more > 0 ? " and " + std::to_string(more) + " more" : "");
}

/// Inputs that hold weights, by operator.
struct Reader {
  std::string_view op;
  std::size_t first, last;
};
constexpr Reader kReaders[] = {
    {"MatMul", 0, 1},
    {"Gemm", 0, 2},
    {"Einsum", 0, 1},
    {"Conv", 1, 2},
    {"ConvTranspose", 1, 2},
    {"Gather", 0, 0},
    {"BatchNormalization", 1, 2},
    {"PRelu", 1, 1},
    {"InstanceNormalization", 1, 2},
    {"LayerNormalization", 1, 2},
};
constexpr std::string_view kArithmetic[] = {"Add", "Sub", "Mul", "Div", "Sum"};
// A weight may pass through these before a node reads it.
constexpr std::string_view kMovements[] = {"Identity", "Reshape",   "Transpose", "Squeeze",
                                           "Cast",     "Unsqueeze", "Flatten"};

template <typename Range>
bool contains(const Range& range, std::string_view item) {
  return std::find(std::begin(range), std::end(range), item) != std::end(range);
}

/// The inputs of the node and of the nodes in its subgraphs, such as branches of If.
std::vector<std::string> tensors_read(const Node& node) {
  std::vector<std::string> out = node.inputs;
  std::vector<onnx::Attribute> todo = node.attributes;
  while (!todo.empty()) {
    const auto graph = onnx::parse_graph(todo.back());
    todo.pop_back();
    if (!graph.ok()) continue;  // another attribute
    for (const onnx::ValueInfo& output : graph->outputs) out.push_back(output.name);
    for (const Node& inner : graph->nodes) {
      out.insert(out.end(), inner.inputs.begin(), inner.inputs.end());
      todo.insert(todo.end(), inner.attributes.begin(), inner.attributes.end());
    }
  }
  return out;
}

/// All weights, also those to freeze.
std::set<std::string> find_weights(const onnx::Graph& graph, const Facts& facts) {
  std::map<std::string, std::string> constants;  // tensors that are an initializer, maybe moved
  for (const onnx::Tensor& tensor : graph.initializers) {
    const auto fact = facts.find(tensor.name);
    if (fact != facts.end() && is_real(&fact->second) && !tensor.dims.empty())
      constants[tensor.name] = tensor.name;
  }
  std::set<std::string> weights, learned;
  for (const Node& node : graph.nodes) {
    if (!node.domain.empty()) continue;
    const auto is_learned = [&](const std::string& input) { return learned.contains(input); };
    const bool arithmetic = contains(kArithmetic, node.op_type) &&
                            std::any_of(node.inputs.begin(), node.inputs.end(), is_learned);
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const auto constant = constants.find(node.inputs[i]);
      if (constant == constants.end()) continue;
      const bool reads =
          std::any_of(std::begin(kReaders), std::end(kReaders), [&](const Reader& reader) {
            return reader.op == node.op_type && i >= reader.first && i <= reader.last;
          });
      if (!reads && !arithmetic) continue;
      weights.insert(constant->second);
      learned.insert(node.inputs[i]);
    }
    if (const auto moved = constants.find(node.input(0));
        moved != constants.end() && contains(kMovements, node.op_type))
      constants[node.output(0)] = moved->second;
    if (std::any_of(node.inputs.begin(), node.inputs.end(), is_learned))
      learned.insert(node.outputs.begin(), node.outputs.end());
  }
  return weights;
}

class Rewriting {
 public:
  Rewriting(const onnx::Model& forward, const Facts& facts, const GradientOptions& options,
            DType dtype)
      : options_(options),
        facts_(facts),
        out_{.model = forward},
        b_(out_.model.graph, facts, dtype, options.operators) {}

  Result<GradientGraph> run() {
    TRY_VOID(choose_weights());
    use_batch_statistics();
    for (const Node& node : graph().nodes)
      for (const std::string& output : node.outputs) producer_[output] = &node;
    TRY_VOID(add_loss());
    std::vector<Node>& nodes = graph().nodes;
    for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) TRY_VOID(reverse(*node));
    connect();
    return std::move(out_);
  }

 private:
  onnx::Graph& graph() { return out_.model.graph; }

  Status choose_weights() {
    if (!options_.train.empty()) {
      weights_ = options_.train;
      mark_needed();
      return {};
    }
    const std::set<std::string> all = find_weights(graph(), facts_);
    for (const std::string& pattern : options_.freeze)
      if (std::none_of(all.begin(), all.end(),
                       [&](const std::string& name) { return matches(name, {pattern}); }))
        return Error(Code::kInvalid, "no weight to freeze has the name \"" + pattern +
                                         "\"; the model has " + listed(all));
    for (const std::string& name : all)
      if (!matches(name, options_.freeze)) weights_.insert(name);
    if (all.empty())
      return is_quantized() ? Error(Code::kUnsupported, std::string(kQuantized))
                            : Error(Code::kInvalid, "the model has no weights to train");
    if (weights_.empty()) return Error(Code::kInvalid, "all weights of the model are frozen");
    mark_needed();
    return {};
  }

  /// Marks the tensors on the way from a weight to the loss.
  void mark_needed() {
    b_.needed.insert(weights_.begin(), weights_.end());
    for (const Node& node : graph().nodes) {
      const std::vector<std::string> inputs = tensors_read(node);
      if (std::none_of(inputs.begin(), inputs.end(),
                       [&](const std::string& input) { return b_.needs(input); }))
        continue;
      for (const std::string& output : node.outputs)
        if (is_real(b_.find(output))) b_.needed.insert(output);
    }
  }

  /// BatchNormalization with a trained scale or bias reads mean and variance of the batch.
  void use_batch_statistics() {
    std::vector<Node> nodes;
    nodes.swap(graph().nodes);
    for (Node& node : nodes) {
      if (node.op_type == "BatchNormalization" && node.domain.empty() && node.inputs.size() == 5 &&
          b_.shape(node.inputs[0]).size() >= 2 &&
          (b_.needs(node.inputs[1]) || b_.needs(node.inputs[2]))) {
        const tensor::Shape shape = b_.shape(node.inputs[0]);
        if (b_.operators() == Operators::kOneDnn && b_.dtype() == DType::kFp32 &&
            shape.size() <= kOwnNormalizationRankMax && node.integer("training_mode", 0) == 0) {
          make_own_normalization(node, shape.at(1));
          graph().nodes.push_back(std::move(node));
          continue;
        }
        Backward::Integers axes;
        double count = 1;
        for (std::size_t i = 0; i < shape.size(); ++i) {
          if (i == 1) continue;
          axes.push_back(static_cast<std::int64_t>(i));
          count *= static_cast<double>(shape[i]);
        }
        const std::string share = b_.number(1 / count);
        const std::string wide_mean = b_.emit("Mul", {b_.sum(node.inputs[0], axes), share});
        const std::string centered = b_.emit("Sub", {node.inputs[0], wide_mean});
        const std::string squares = b_.sum(b_.emit("Mul", {centered, centered}), axes);
        const tensor::Shape channels = {shape.at(1)};
        const std::string mean = b_.reshape(wide_mean, channels);
        const std::string variance = b_.reshape(b_.emit("Mul", {squares, share}), channels);
        for (Node& statistic : b_.take()) graph().nodes.push_back(std::move(statistic));
        out_.statistics.push_back(
            {node.inputs[3], node.inputs[4], mean, variance, double{node.real("momentum", 0.9f)}});
        for (const std::string& name : {mean, variance}) {
          b_.learn(name, {b_.dtype(), channels, {}});
          b_.needed.insert(name);
        }
        node.inputs[3] = mean;
        node.inputs[4] = variance;
      }
      graph().nodes.push_back(std::move(node));
    }
  }

  /// The node computes the statistics of the batch, too.
  void make_own_normalization(Node& node, std::int64_t channels) {
    const std::string y = node.output(0);
    const std::string mean = b_.fresh(y + "/mean"), variance = b_.fresh(y + "/variance");
    out_.statistics.push_back(
        {node.inputs[3], node.inputs[4], mean, variance, double{node.real("momentum", 0.9f)}});
    for (const std::string& name : {mean, variance}) b_.learn(name, {b_.dtype(), {channels}, {}});
    const float epsilon = node.real("epsilon", 1e-5f);
    node.domain = kOwnDomain;
    node.inputs.resize(3);
    node.outputs = {y, mean, variance};
    node.attributes = {{"epsilon", epsilon}};
  }

  const Node* producer(const std::string& tensor) const {
    const auto it = producer_.find(tensor);
    return it != producer_.end() ? it->second : nullptr;
  }

  /// The node that computed a tensor, before nodes that only change names or shapes. Null for an
  /// input of the model.
  const Node* computed_by(std::string tensor) const {
    for (;;) {
      const Node* node = producer(tensor);
      if (node == nullptr || !node->domain.empty() || !contains(kMovements, node->op_type) ||
          node->op_type == "Cast" || node->op_type == "Transpose")
        return node;
      tensor = node->input(0);
    }
  }

  /// The input of an activation, in the shape of the output.
  std::string scores_of(const Node& activation, const tensor::Shape& shape) {
    const std::string& scores = activation.input(0);
    return b_.shape(scores) == shape ? scores : b_.reshape(scores, shape);
  }

  Status add_loss() {
    const std::string& output = out_.output =
        options_.output.empty() ? graph().outputs.front().name : options_.output;
    const tensor::Shape shape = out_.output_shape = b_.shape(output);
    out_.targets = b_.fresh("targets");
    out_.sample_weights = b_.fresh("sample_weights");
    if (shape.empty() || shape[0] < 1)
      return Error(Code::kInvalid, "output \"" + output + "\" has no batch axis");
    tensor::Shape per_sample(shape.size(), 1);
    per_sample[0] = shape[0];
    const std::string weights = b_.reshape(out_.sample_weights, per_sample);
    TRY(const std::string losses, losses_of(output, shape, weights));
    out_.loss = b_.emit("ReduceSum", {losses}, {{"keepdims", std::int64_t{0}}});
    return {};
  }

  /// The losses of all values; gives the gradient of the output or of the scores before it.
  Result<std::string> losses_of(const std::string& output, const tensor::Shape& shape,
                                const std::string& weights) {
    if (options_.loss == Loss::kCrossEntropy) return cross_entropy(output, shape, weights);
    double values = 1;
    for (std::size_t i = 1; i < shape.size(); ++i) values *= static_cast<double>(shape[i]);
    const std::string share = b_.emit("Mul", {weights, b_.number(1 / values)});
    switch (options_.loss) {
      case Loss::kMse:
        return squares(output, shape, share);
      case Loss::kHuber:
        return huber(output, shape, share);
      default:
        return binary_cross_entropy(output, shape, share);
    }
  }

  Result<std::string> cross_entropy(const std::string& output, const tensor::Shape& shape,
                                    const std::string& weights) {
    if (shape.size() != 2 || shape[1] < 2)
      return Error(Code::kInvalid, "cross-entropy takes an output of shape [N,classes], not " +
                                       tensor::to_string(shape) + " of \"" + output + "\"");
    const Node* last = computed_by(output);
    const bool is_softmax = last != nullptr && is(*last, "Softmax");
    const bool is_log = last != nullptr && is(*last, "LogSoftmax");
    std::string scores = output;
    if (is_softmax || is_log) {
      const tensor::Shape& before = b_.shape(last->input(0));
      TRY(const std::int64_t axis, axis_of(last->integer("axis", -1), before.size()));
      const auto classes = before.begin() + axis;
      if (*classes != shape[1] ||
          std::any_of(classes + 1, before.end(), [](std::int64_t size) { return size != 1; }))
        return Error(Code::kInvalid,
                     to_string(*last) + " is not over the classes of output \"" + output + "\"");
      scores = scores_of(*last, shape);
    }
    if (is_softmax) out_.activation = Activation::kProbabilities;
    if (is_log) out_.activation = Activation::kLogProbabilities;
    const std::string logarithms =
        is_log ? output : b_.emit("LogSoftmax", {scores}, {{"axis", std::int64_t{1}}});
    const std::string probabilities = is_softmax ? output : b_.emit("Exp", {logarithms});
    const std::string error = b_.emit("Sub", {probabilities, out_.targets});
    TRY_VOID(give_first(is_softmax || is_log ? last->input(0) : output,
                        b_.emit("Mul", {error, weights}), shape));
    const std::string weighted = b_.emit("Mul", {out_.targets, weights});
    return b_.emit("Neg", {b_.emit("Mul", {logarithms, weighted})});
  }

  // For a score x and a target t: log(1 + exp(x)) - t * x, with the derivative sigmoid(x) - t.
  Result<std::string> binary_cross_entropy(const std::string& output, const tensor::Shape& shape,
                                           const std::string& share) {
    const Node* last = computed_by(output);
    const bool is_sigmoid = last != nullptr && is(*last, "Sigmoid");
    if (is_sigmoid) out_.activation = Activation::kProbabilities;
    const std::string scores = is_sigmoid ? scores_of(*last, shape) : output;
    const std::string chances = is_sigmoid ? output : b_.emit("Sigmoid", {scores});
    const std::string error = b_.emit("Sub", {chances, out_.targets});
    TRY_VOID(
        give_first(is_sigmoid ? last->input(0) : output, b_.emit("Mul", {error, share}), shape));
    const std::string losses =
        b_.emit("Sub", {b_.emit("Softplus", {scores}), b_.emit("Mul", {out_.targets, scores})});
    return b_.emit("Mul", {losses, share});
  }

  Result<std::string> squares(const std::string& output, const tensor::Shape& shape,
                              const std::string& share) {
    const std::string error = b_.emit("Sub", {output, out_.targets});
    const std::string weighted = b_.emit("Mul", {error, share});
    TRY_VOID(give_first(output, b_.emit("Mul", {weighted, b_.number(2)}), shape));
    return b_.emit("Mul", {error, weighted});
  }

  // With the error e and the slope s = clip(e, -delta, delta), the loss is s * (e - s / 2).
  Result<std::string> huber(const std::string& output, const tensor::Shape& shape,
                            const std::string& share) {
    if (!(options_.huber_delta > 0) || !std::isfinite(options_.huber_delta))
      return Error(Code::kInvalid, "the delta of the Huber loss must be above 0");
    const std::string error = b_.emit("Sub", {output, out_.targets});
    const std::string slope =
        b_.emit("Clip", {error, b_.number(-options_.huber_delta), b_.number(options_.huber_delta)});
    const std::string weighted = b_.emit("Mul", {slope, share});
    TRY_VOID(give_first(output, weighted, shape));
    const std::string rest = b_.emit("Sub", {error, b_.emit("Mul", {slope, b_.number(0.5)})});
    return b_.emit("Mul", {rest, weighted});
  }

  /// Begins the way back at a tensor of the forward model; the gradient has the shape `from`.
  Status give_first(const std::string& tensor, std::string gradient, const tensor::Shape& from) {
    if (!b_.needs(tensor))
      return Error(Code::kInvalid,
                   "output \"" + out_.output + "\" depends on no weight that is trained");
    const tensor::Shape& shape = b_.shape(tensor);
    b_.give(tensor, shape == from ? std::move(gradient) : b_.reshape(gradient, shape));
    return {};
  }

  Status reverse(Node& node) {
    const auto has_gradient = [&](const std::string& output) {
      return !output.empty() && !b_.gradient(output).empty();
    };
    if (std::none_of(node.outputs.begin(), node.outputs.end(), has_gradient)) return {};
    const Rule rule = find_rule(node);
    if (rule == nullptr)
      return unknown(node, quantizes(node) ? kQuantized : "its gradient is not known");
    for (const auto* names : {&node.inputs, &node.outputs})
      for (const std::string& name : *names)
        if (!name.empty() && b_.find(name) == nullptr)
          return unknown(node, "the shape of \"" + name + "\" is not known");
    // Other outputs than the first have no part in most rules.
    if (node.op_type != "Split" && !has_gradient(node.output(0)))
      return unknown(node, "the gradient of output \"" + node.outputs.back() + "\" is not known");
    if (Status status = rule(b_, node); !status.ok()) {
      if (status.error().code() != Code::kUnsupported)
        return std::move(status).context(to_string(node));
      return unknown(node, status.error().message());
    }
    return {};
  }

  bool is_quantized() { return std::any_of(graph().nodes.begin(), graph().nodes.end(), quantizes); }

  Error unknown(const Node& node, std::string_view why) const {
    std::vector<std::string> todo = tensors_read(node);
    std::set<std::string> before, seen(todo.begin(), todo.end());
    while (!todo.empty()) {
      const std::string name = std::move(todo.back());
      todo.pop_back();
      if (weights_.contains(name)) before.insert(name);
      if (const Node* made = producer(name))
        for (const std::string& input : made->inputs)
          if (seen.insert(input).second) todo.push_back(input);
    }
    return Error(Code::kUnsupported, to_string(node) + ": " + std::string(why) +
                                         "; to train what is behind it, freeze " + listed(before));
  }

  /// Inputs and outputs of the training model.
  void connect() {
    onnx::Graph& graph = out_.model.graph;
    graph.outputs = {{.name = out_.loss}, {.name = out_.output}};
    const std::int64_t type = onnx::data_type_of(b_.dtype());
    const auto add_input = [&](const std::string& name, const tensor::Shape& shape) {
      auto& dims = graph.inputs.emplace_back(onnx::ValueInfo{.name = name, .data_type = type})
                       .shape.emplace();
      for (const std::int64_t size : shape) dims.push_back({.size = size});
    };
    const tensor::Shape shape = b_.shape(out_.output);
    add_input(out_.targets, shape);
    add_input(out_.sample_weights, {shape[0]});
    std::set<std::string> inputs;
    for (const onnx::Tensor& tensor : graph.initializers) {
      if (!weights_.contains(tensor.name)) continue;
      const std::string gradient = b_.gradient(tensor.name);
      if (gradient.empty()) continue;  // no path to the loss
      inputs.insert(tensor.name);
      add_input(tensor.name, tensor.dims);
      // Two weights may have one gradient, and an output is named once.
      out_.weights.push_back({tensor.name, b_.emit("Identity", {gradient})});
      graph.outputs.push_back({.name = out_.weights.back().gradient});
    }
    for (const auto& statistics : out_.statistics)
      for (const std::string& name : {statistics.batch_mean, statistics.batch_variance})
        graph.outputs.push_back({.name = name});
    for (Node& node : b_.take()) graph.nodes.push_back(std::move(node));
    if (std::any_of(graph.nodes.begin(), graph.nodes.end(),
                    [](const Node& node) { return node.domain == kOwnDomain; }))
      out_.model.opsets[std::string(kOwnDomain)] = 1;
    std::erase_if(graph.initializers,
                  [&](const onnx::Tensor& tensor) { return inputs.contains(tensor.name); });
  }

  const GradientOptions& options_;
  const Facts& facts_;
  GradientGraph out_;
  Backward b_;
  std::set<std::string> weights_;
  std::map<std::string, const Node*> producer_;
};

}  // namespace

Result<GradientGraph> make_gradient_graph(const onnx::Model& forward, const Facts& facts,
                                          const GradientOptions& options) {
  const onnx::Graph& graph = forward.graph;
  if (graph.outputs.empty()) return Error(Code::kInvalid, "the model has no output");
  const std::string& output = options.output.empty() ? graph.outputs.front().name : options.output;
  if (std::none_of(graph.outputs.begin(), graph.outputs.end(),
                   [&](const onnx::ValueInfo& one) { return one.name == output; }))
    return Error(Code::kInvalid, "the model has no output \"" + output + "\"");
  const auto fact = facts.find(output);
  if (fact == facts.end() || !is_real(&fact->second))
    return Error(Code::kInvalid, "output \"" + output + "\" is not FP32");
  return Rewriting(forward, facts, options, fact->second.dtype).run();
}

}  // namespace varda::train
