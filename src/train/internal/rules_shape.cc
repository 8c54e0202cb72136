// Gradients of operators that move, repeat, select or sum values.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "train/internal/rules.h"

namespace varda::train {
namespace {

using onnx::Node;
using tensor::Shape;
using Integers = Backward::Integers;

Status reshaped(Backward& b, Node& node) {
  const std::string& x = node.input(0);
  if (b.needs(x)) b.give(x, b.reshape(b.gradient(node.output(0)), b.shape(x)));
  return {};
}

Status transposed(Backward& b, Node& node) {
  const std::string& x = node.input(0);
  if (!b.needs(x)) return {};
  const std::size_t rank = b.shape(x).size();
  Integers permutation = node.integers("perm"), inverse(rank);
  if (permutation.empty()) {
    permutation.resize(rank);
    std::iota(permutation.rbegin(), permutation.rend(), 0);
  }
  for (std::size_t i = 0; i < rank; ++i)
    inverse.at(static_cast<std::size_t>(permutation.at(i))) = static_cast<std::int64_t>(i);
  b.give(x, b.transpose(b.gradient(node.output(0)), inverse));
  return {};
}

Status expanded(Backward& b, Node& node) {
  const std::string &x = node.input(0), &y = node.output(0);
  if (b.needs(x)) b.give(x, b.sum_to(b.gradient(y), b.shape(y), b.shape(x)));
  return {};
}

Status tiled(Backward& b, Node& node) {
  const std::string& x = node.input(0);
  if (!b.needs(x)) return {};
  TRY(const Integers repeats, b.values(node.input(1)));
  const Shape& shape = b.shape(x);
  Shape split;
  Integers axes;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    axes.push_back(static_cast<std::int64_t>(split.size()));
    split.push_back(repeats.at(i));
    split.push_back(shape[i]);
  }
  b.give(x, b.reshape(b.sum(b.reshape(b.gradient(node.output(0)), split), axes), shape));
  return {};
}

Status concatenated(Backward& b, Node& node) {
  const std::string dy = b.gradient(node.output(0));
  TRY(const std::int64_t axis, axis_of(node.integer("axis", 0), b.shape(node.output(0)).size()));
  std::int64_t begin = 0;
  for (const std::string& x : node.inputs) {
    const std::int64_t end = begin + b.shape(x).at(static_cast<std::size_t>(axis));
    if (b.needs(x)) b.give(x, b.slice(dy, axis, begin, end));
    begin = end;
  }
  return {};
}

Status split(Backward& b, Node& node) {
  const std::string& x = node.input(0);
  if (!b.needs(x)) return {};
  std::vector<std::string> parts;
  for (const std::string& y : node.outputs) {
    const std::string dy = b.gradient(y);
    parts.push_back(dy.empty() ? b.zeros(b.shape(y)) : dy);
  }
  b.give(x, b.emit("Concat", std::move(parts), {{"axis", node.integer("axis", 0)}}));
  return {};
}

std::string reversed(Backward& b, const std::string& x, std::int64_t axis) {
  return b.emit("Slice",
                {x, b.integers({-1}), b.integers({std::numeric_limits<std::int64_t>::min()}),
                 b.integers({axis}), b.integers({-1})});
}

Status sliced(Backward& b, Node& node) {
  const std::string& x = node.input(0);
  if (!b.needs(x)) return {};
  const Shape &shape = b.shape(x), &result = b.shape(node.output(0));
  TRY(const Integers starts, b.values(node.input(1)));
  Integers axes(starts.size()), steps(starts.size(), 1);
  std::iota(axes.begin(), axes.end(), 0);
  if (!node.input(3).empty()) {
    TRY(axes, b.values(node.input(3)));
  }
  if (!node.input(4).empty()) {
    TRY(steps, b.values(node.input(4)));
  }
  std::string dy = b.gradient(node.output(0));
  Shape current = result;
  Integers before(shape.size(), 0), after(shape.size(), 0);
  for (std::size_t i = 0; i < starts.size(); ++i) {
    TRY(const std::int64_t axis, axis_of(axes.at(i), shape.size()));
    const auto at = static_cast<std::size_t>(axis);
    const std::int64_t size = shape[at];
    std::int64_t step = steps.at(i), start = starts[i] < 0 ? starts[i] + size : starts[i];
    start = std::clamp<std::int64_t>(start, 0, size);
    if (step < 0 && result[at] > 0) {  // the same values in ascending order
      start = std::min(start, size - 1) + (result[at] - 1) * step;
      step = -step;
      dy = reversed(b, dy, axis);
    }
    if (step > 1 && result[at] > 0) {  // zeros between the values: [n] -> [n, 1] -> [n, step]
      Shape column = current;
      column.insert(column.begin() + axis + 1, 1);
      Integers none(column.size(), 0), gap(column.size(), 0);
      gap[at + 1] = step - 1;
      current[at] *= step;
      dy = b.reshape(b.pad(b.reshape(dy, column), none, gap), current);
    }
    before[at] = start;
    after[at] = size - before[at] - current[at];  // negative: the last gap is cut
  }
  b.give(x, b.pad(dy, before, after));
  return {};
}

/// A linear map along one axis: each value of the output is a sum of shares of the input's values.
class Mix {
 public:
  using Shares = std::vector<std::pair<std::int64_t, double>>;  // index and share
  explicit Mix(std::int64_t inputs) : inputs_(inputs) {}

  void add(const Shares& shares) {
    matrix_.resize(matrix_.size() + static_cast<std::size_t>(inputs_));
    for (const auto& [index, share] : shares) *(matrix_.end() - inputs_ + index) += share;
    copies_ = copies_ && shares.size() == 1 && shares[0].second == 1;
    indices_.push_back(shares[0].first);
  }
  /// The gradient of the input from that of the output. Changes the axis in `shape`.
  std::string reverse(Backward& b, std::string dy, Shape& shape, std::int64_t axis) const {
    const auto at = static_cast<std::size_t>(axis);
    const std::int64_t outputs = std::exchange(shape[at], inputs_);
    if (const std::int64_t times = outputs / inputs_; repeats(times)) {
      Shape blocks = shape;
      blocks.insert(blocks.begin() + axis + 1, times);
      return times == 1 ? dy : b.reshape(b.sum(b.reshape(dy, blocks), {axis + 1}), shape);
    }
    Integers order(shape.size());
    std::iota(order.begin(), order.end(), 0);
    std::swap(order[at], order.back());
    const bool last = at + 1 == shape.size();
    if (!last) dy = b.transpose(dy, order);
    dy = b.emit("MatMul", {dy, b.reals({outputs, inputs_}, matrix_)});
    return last ? dy : b.transpose(dy, order);
  }

 private:
  /// Whether each value is copied to so many neighbours.
  bool repeats(std::int64_t times) const {
    bool out = copies_ && times * inputs_ == static_cast<std::int64_t>(indices_.size());
    for (std::size_t i = 0; out && i < indices_.size(); ++i)
      out = indices_[i] == static_cast<std::int64_t>(i) / times;
    return out;
  }

  std::int64_t inputs_;
  std::vector<double> matrix_;  // [outputs, inputs]
  Integers indices_;
  bool copies_ = true;
};

/// The index that Pad copies to a place, which may be outside of the input.
std::int64_t source_of(const std::string& mode, std::int64_t place, std::int64_t size) {
  if (mode == "wrap") return (place % size + size) % size;
  if (mode == "reflect" && size > 1) {
    const std::int64_t period = 2 * (size - 1);
    place = (place % period + period) % period;
    return std::min(place, period - place);
  }
  return std::clamp<std::int64_t>(place, 0, size - 1);
}

Status padded(Backward& b, Node& node) {
  const std::string& x = node.input(0);
  if (!b.needs(x)) return {};
  TRY(const Integers pads, b.values(node.input(1)));
  const std::size_t rank = b.shape(x).size();
  Integers axes(rank);
  std::iota(axes.begin(), axes.end(), 0);
  if (!node.input(3).empty()) {
    TRY(axes, b.values(node.input(3)));
  }
  const std::string mode = node.text("mode", "constant");
  std::string dy = b.gradient(node.output(0));
  Shape current = b.shape(node.output(0));
  Integers before(rank, 0), after(rank, 0);
  for (std::size_t i = 0; i < axes.size(); ++i) {
    TRY(const std::int64_t axis, axis_of(axes[i], rank));
    const auto at = static_cast<std::size_t>(axis);
    if (mode == "constant") {
      before[at] = -pads.at(i);
      after[at] = -pads.at(i + axes.size());
      continue;
    }
    const std::int64_t size = b.shape(x)[at];
    if (size == 0 || (pads[i] == 0 && pads.at(i + axes.size()) == 0)) continue;
    Mix mix(size);
    for (std::int64_t place = -pads.at(i); place < current[at] - pads[i]; ++place)
      mix.add({{source_of(mode, place, size), 1}});
    dy = mix.reverse(b, dy, current, axis);
  }
  b.give(x, b.pad(dy, before, after));
  return {};
}

// The rows that Gather read get the sum of the gradients of all reads.
Status gathered(Backward& b, Node& node) {
  const std::string &x = node.input(0), &indices = node.input(1);
  if (!b.needs(x)) return {};
  const Shape &shape = b.shape(x), &picked = b.shape(indices);
  TRY(const std::int64_t axis, axis_of(node.integer("axis", 0), shape.size()));
  std::string dy = b.gradient(node.output(0));
  Shape rows = shape;  // with the axis in front
  std::rotate(rows.begin(), rows.begin() + axis, rows.begin() + axis + 1);
  if (axis != 0) {
    // dy has the axes of the indices after `axis` others; they come first.
    Integers permutation(shape.size() - 1 + picked.size());
    std::iota(permutation.begin(), permutation.end(), 0);
    std::rotate(permutation.begin(), permutation.begin() + axis,
                permutation.begin() + axis + static_cast<std::int64_t>(picked.size()));
    dy = b.transpose(dy, permutation);
  }
  Shape columns = picked;
  columns.push_back(1);
  const std::string wide = b.find(indices)->dtype == tensor::DType::kInt64
                               ? indices
                               : b.emit("Cast", {indices}, {{"to", std::int64_t{7}}});
  std::string out = b.emit("ScatterND", {b.zeros(rows), b.reshape(wide, columns), dy},
                           {{"reduction", std::string("add")}});
  if (axis != 0) {
    Integers back(shape.size());
    std::iota(back.begin(), back.end(), 0);
    std::rotate(back.begin(), back.begin() + 1, back.begin() + axis + 1);
    out = b.transpose(out, back);
  }
  b.give(x, std::move(out));
  return {};
}

Status gathered_elements(Backward& b, Node& node) {
  const std::string& x = node.input(0);
  if (b.needs(x))
    b.give(x, b.emit("ScatterElements",
                     {b.zeros(b.shape(x)), node.input(1), b.gradient(node.output(0))},
                     {{"axis", node.integer("axis", 0)}, {"reduction", std::string("add")}}));
  return {};
}

Status gathered_nd(Backward& b, Node& node) {
  const std::string& x = node.input(0);
  if (!b.needs(x)) return {};
  if (node.integer("batch_dims", 0) != 0) return Error(Code::kUnsupported, "it has batch_dims");
  b.give(x, b.emit("ScatterND", {b.zeros(b.shape(x)), node.input(1), b.gradient(node.output(0))},
                   {{"reduction", std::string("add")}}));
  return {};
}

// Places that the updates replaced pass nothing to the data.
Status scattered_nd(Backward& b, Node& node) {
  const std::string &data = node.input(0), &indices = node.input(1), &updates = node.input(2);
  const std::string reduction = node.text("reduction", "none"), dy = b.gradient(node.output(0));
  if (reduction != "none" && reduction != "add")
    return Error(Code::kUnsupported, "its reduction is " + reduction);
  if (b.needs(data))
    b.give(data,
           reduction == "add" ? dy : b.emit("ScatterND", {dy, indices, b.zeros(b.shape(updates))}));
  if (b.needs(updates)) b.give(updates, b.emit("GatherND", {dy, indices}));
  return {};
}

Status scattered_elements(Backward& b, Node& node) {
  const std::string &data = node.input(0), &indices = node.input(1), &updates = node.input(2);
  const std::string reduction = node.text("reduction", "none"), dy = b.gradient(node.output(0));
  const Backward::Attributes axis = {{"axis", node.integer("axis", 0)}};
  if (reduction != "none" && reduction != "add")
    return Error(Code::kUnsupported, "its reduction is " + reduction);
  if (b.needs(data))
    b.give(data, reduction == "add"
                     ? dy
                     : b.emit("ScatterElements", {dy, indices, b.zeros(b.shape(updates))}, axis));
  if (b.needs(updates)) b.give(updates, b.emit("GatherElements", {dy, indices}, axis));
  return {};
}

// Each value went into all later sums, so each gradient is the sum of all later ones.
Status cumulated(Backward& b, Node& node) {
  const std::string& x = node.input(0);
  if (b.needs(x))
    b.give(x, b.emit("CumSum", {b.gradient(node.output(0)), node.input(1)},
                     {{"exclusive", node.integer("exclusive", 0)},
                      {"reverse", std::int64_t{node.integer("reverse", 0) == 0 ? 1 : 0}}}));
  return {};
}

Status triangle(Backward& b, Node& node) {
  const std::string& x = node.input(0);
  if (!b.needs(x)) return {};
  std::vector<std::string> inputs = {b.gradient(node.output(0))};
  if (!node.input(1).empty()) inputs.push_back(node.input(1));
  b.give(x, b.emit("Trilu", std::move(inputs), {{"upper", node.integer("upper", 1)}}));
  return {};
}

/// The output's gradient with the reduced axes back, as size 1.
Result<std::string> kept(Backward& b, const Node& node, const std::string& of) {
  TRY(const Integers axes, reduced_axes(b, node));
  Shape shape = b.shape(node.input(0));
  for (const std::int64_t axis : axes) shape.at(static_cast<std::size_t>(axis)) = 1;
  return b.reshape(of, shape);
}

Status reduced_sum(Backward& b, Node& node) {
  const std::string& x = node.input(0);
  if (!b.needs(x)) return {};
  TRY(std::string dy, kept(b, node, b.gradient(node.output(0))));
  if (node.op_type == "ReduceMean") {
    TRY(const Integers axes, reduced_axes(b, node));
    double count = 1;
    for (const std::int64_t axis : axes)
      count *= static_cast<double>(b.shape(x)[static_cast<std::size_t>(axis)]);
    dy = b.emit("Mul", {dy, b.number(1 / count)});
  }
  b.give(x, b.expand(dy, b.shape(x)));
  return {};
}

// ReduceMax and ReduceMin: the gradient goes to the values that equal the result, in equal shares.
Status reduced_extreme(Backward& b, Node& node) {
  const std::string &x = node.input(0), &y = node.output(0);
  if (!b.needs(x)) return {};
  TRY(const Integers axes, reduced_axes(b, node));
  TRY(const std::string dy, kept(b, node, b.gradient(y)));
  TRY(const std::string value, kept(b, node, y));
  const std::string hit =
      b.emit("Cast", {b.emit("Equal", {x, value})}, {{"to", onnx::data_type_of(b.dtype())}});
  const std::string share = b.emit("Div", {dy, b.sum(hit, axes)});
  b.give(x, b.emit("Mul", {hit, share}));
  return {};
}

// y = |x|
Status reduced_l2(Backward& b, Node& node) {
  const std::string &x = node.input(0), &y = node.output(0);
  if (!b.needs(x)) return {};
  TRY(const std::string share, kept(b, node, b.emit("Div", {b.gradient(y), y})));
  b.give(x, b.emit("Mul", {x, share}));
  return {};
}

Status reduced_l1(Backward& b, Node& node) {
  const std::string& x = node.input(0);
  if (!b.needs(x)) return {};
  TRY(const std::string dy, kept(b, node, b.gradient(node.output(0))));
  b.give(x, b.emit("Mul", {b.emit("Sign", {x}), dy}));
  return {};
}

// The shares of Softmax: exp(x - y).
Status reduced_log_sum(Backward& b, Node& node) {
  const std::string &x = node.input(0), &y = node.output(0);
  if (!b.needs(x)) return {};
  TRY(const std::string dy, kept(b, node, b.gradient(y)));
  TRY(const std::string value, kept(b, node, y));
  b.give(x, b.emit("Mul", {b.emit("Exp", {b.emit("Sub", {x, value})}), dy}));
  return {};
}

// y = log(sum(x))
Status reduced_log(Backward& b, Node& node) {
  const std::string &x = node.input(0), &y = node.output(0);
  if (!b.needs(x)) return {};
  TRY(const std::string share, kept(b, node, b.emit("Div", {b.gradient(y), b.emit("Exp", {y})})));
  b.give(x, b.expand(share, b.shape(x)));
  return {};
}

Status reduced_square(Backward& b, Node& node) {
  const std::string& x = node.input(0);
  if (!b.needs(x)) return {};
  TRY(const std::string dy, kept(b, node, b.gradient(node.output(0))));
  b.give(x, b.emit("Mul", {b.emit("Mul", {x, dy}), b.number(2)}));
  return {};
}

/// The place in the input that Resize reads for a place of the output, in FP32 as in the engine.
Result<float> resized_from(const Node& node, std::int64_t place, float scale, std::int64_t size,
                           std::int64_t result) {
  const std::string mode = node.text("coordinate_transformation_mode", "half_pixel");
  const auto x = static_cast<float>(place);
  const float centered = (x + 0.5f) / scale - 0.5f;
  if (mode == "half_pixel") return centered;
  if (mode == "pytorch_half_pixel") return result > 1 ? centered : 0.0f;
  if (mode == "asymmetric") return x / scale;
  if (mode == "tf_half_pixel_for_nn") return (x + 0.5f) / scale;
  if (mode == "align_corners")
    return result > 1 ? x * static_cast<float>(size - 1) / static_cast<float>(result - 1) : 0.0f;
  return Error(Code::kUnsupported, "its coordinates are " + mode);
}

Result<Mix::Shares> resize_shares(const Node& node, float from, std::int64_t size) {
  const auto inside = [&](float place) {
    return std::clamp<std::int64_t>(static_cast<std::int64_t>(place), 0, size - 1);
  };
  const std::string mode = node.text("mode", "nearest");
  if (mode == "linear") {
    const float place = std::clamp(from, 0.0f, static_cast<float>(size - 1));
    const double share = static_cast<double>(place - std::floor(place));
    return Mix::Shares{{inside(place), 1 - share}, {inside(place + 1), share}};
  }
  if (mode != "nearest") return Error(Code::kUnsupported, "its mode is " + mode);
  const std::string rounding = node.text("nearest_mode", "round_prefer_floor");
  float place = std::round(from);
  if (rounding == "floor" || (rounding == "round_prefer_floor" && from - std::floor(from) == 0.5f))
    place = std::floor(from);
  if (rounding == "ceil") place = std::ceil(from);
  return Mix::Shares{{inside(place), 1}};
}

Status resized(Backward& b, Node& node) {
  const std::string& x = node.input(0);
  if (!b.needs(x)) return {};
  if (node.integer("antialias", 0) != 0) return Error(Code::kUnsupported, "it has antialias");
  if (node.text("keep_aspect_ratio_policy", "stretch") != "stretch")
    return Error(Code::kUnsupported, "it keeps the aspect ratio");
  const Shape &shape = b.shape(x), &result = b.shape(node.output(0));
  std::vector<float> scales(shape.size());
  for (std::size_t i = 0; i < shape.size(); ++i)
    scales[i] = static_cast<float>(result.at(i)) / static_cast<float>(shape[i]);
  if (!node.input(2).empty()) {
    TRY(const std::vector<float> given, b.floats(node.input(2)));
    Integers axes = node.integers("axes");
    if (axes.empty()) {
      axes.resize(shape.size());
      std::iota(axes.begin(), axes.end(), 0);
    }
    for (std::size_t i = 0; i < given.size(); ++i) {
      TRY(const std::int64_t axis, axis_of(axes.at(i), shape.size()));
      scales[static_cast<std::size_t>(axis)] = given[i];
    }
  }
  std::string dy = b.gradient(node.output(0));
  Shape current = result;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (scales[i] == 1 || shape[i] == 0) continue;
    Mix mix(shape[i]);
    for (std::int64_t place = 0; place < result[i]; ++place) {
      TRY(const float from, resized_from(node, place, scales[i], shape[i], result[i]));
      TRY(const Mix::Shares shares, resize_shares(node, from, shape[i]));
      mix.add(shares);
    }
    dy = mix.reverse(b, dy, current, static_cast<std::int64_t>(i));
  }
  b.give(x, dy);
  return {};
}

Status depth_to_space(Backward& b, Node& node) {
  const std::string& x = node.input(0);
  if (!b.needs(x)) return {};
  const bool forward = node.op_type == "DepthToSpace";
  if (forward && node.text("mode", "DCR") != "DCR") {
    // CRD: [N, C, block, block, H, W] became [N, C, H, block, W, block].
    const Shape& shape = b.shape(x);
    const std::int64_t block = node.integer("blocksize", 1), area = block * block;
    const std::string split =
        b.reshape(b.gradient(node.output(0)),
                  {shape.at(0), shape.at(1) / area, shape.at(2), block, shape.at(3), block});
    b.give(x, b.reshape(b.transpose(split, {0, 1, 3, 5, 2, 4}), shape));
    return {};
  }
  b.give(x, b.emit(forward ? "SpaceToDepth" : "DepthToSpace", {b.gradient(node.output(0))},
                   {{"blocksize", node.integer("blocksize", 1)}}));
  return {};
}

constexpr RuleEntry kShapeRules[] = {
    {"Concat", concatenated},
    {"CumSum", cumulated},
    {"DepthToSpace", depth_to_space},
    {"Expand", expanded},
    {"Flatten", reshaped},
    {"Gather", gathered},
    {"GatherElements", gathered_elements},
    {"GatherND", gathered_nd},
    {"Pad", padded},
    {"ReduceL1", reduced_l1},
    {"ReduceL2", reduced_l2},
    {"ReduceLogSum", reduced_log},
    {"ReduceLogSumExp", reduced_log_sum},
    {"ReduceMax", reduced_extreme},
    {"ReduceMean", reduced_sum},
    {"ReduceMin", reduced_extreme},
    {"ReduceSum", reduced_sum},
    {"ReduceSumSquare", reduced_square},
    {"Reshape", reshaped},
    {"Resize", resized},
    {"ScatterElements", scattered_elements},
    {"ScatterND", scattered_nd},
    {"Slice", sliced},
    {"SpaceToDepth", depth_to_space},
    {"Split", split},
    {"Squeeze", reshaped},
    {"Tile", tiled},
    {"Transpose", transposed},
    {"Trilu", triangle},
    {"Unsqueeze", reshaped},
};

}  // namespace

std::span<const RuleEntry> shape_rules() { return kShapeRules; }

Result<std::int64_t> axis_of(std::int64_t axis, std::size_t rank) {
  const auto size = static_cast<std::int64_t>(rank);
  const std::int64_t out = axis < 0 ? axis + size : axis;
  if (out < 0 || out >= std::max<std::int64_t>(size, 1))
    return Error(Code::kInvalid,
                 "axis " + std::to_string(axis) + " is beyond the rank " + std::to_string(rank));
  return out;
}

Result<Integers> reduced_axes(const Backward& b, const Node& node) {
  const std::size_t rank = b.shape(node.input(0)).size();
  Integers axes = node.integers("axes"), out;
  if (!node.input(1).empty()) {
    TRY(axes, b.values(node.input(1)));
  }
  if (axes.empty() && node.integer("noop_with_empty_axes", 0) == 0) {
    axes.resize(rank);
    std::iota(axes.begin(), axes.end(), 0);
  }
  for (const std::int64_t axis : axes) {
    TRY(const std::int64_t counted, axis_of(axis, rank));
    out.push_back(counted);
  }
  return out;
}

}  // namespace varda::train
