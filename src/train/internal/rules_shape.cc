// Gradients of operators that move, repeat, select or sum values.
#include <algorithm>
#include <map>
#include <numeric>

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
    const std::int64_t step = steps.at(i), size = shape[at];
    if (step < 1) return Error(Code::kUnsupported, "it slices backwards");
    if (step > 1 && result[at] > 0) {  // zeros between the values: [n] -> [n, 1] -> [n, step]
      Shape column = current;
      column.insert(column.begin() + axis + 1, 1);
      Integers none(column.size(), 0), gap(column.size(), 0);
      gap[at + 1] = step - 1;
      current[at] *= step;
      dy = b.reshape(b.pad(b.reshape(dy, column), none, gap), current);
    }
    const std::int64_t start = starts[i] < 0 ? starts[i] + size : starts[i];
    before[at] = std::clamp<std::int64_t>(start, 0, size);
    after[at] = size - before[at] - current[at];  // negative: the last gap is cut
  }
  b.give(x, b.pad(dy, before, after));
  return {};
}

Status padded(Backward& b, Node& node) {
  const std::string& x = node.input(0);
  if (!b.needs(x)) return {};
  if (node.text("mode", "constant") != "constant")
    return Error(Code::kUnsupported, "it pads with other values than a constant");
  TRY(const Integers pads, b.values(node.input(1)));
  const std::size_t rank = b.shape(x).size();
  Integers axes(rank);
  std::iota(axes.begin(), axes.end(), 0);
  if (!node.input(3).empty()) {
    TRY(axes, b.values(node.input(3)));
  }
  Integers before(rank, 0), after(rank, 0);
  for (std::size_t i = 0; i < axes.size(); ++i) {
    TRY(const std::int64_t axis, axis_of(axes[i], rank));
    before[static_cast<std::size_t>(axis)] = -pads.at(i);
    after[static_cast<std::size_t>(axis)] = -pads.at(i + axes.size());
  }
  b.give(x, b.pad(b.gradient(node.output(0)), before, after));
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

Status reduced_square(Backward& b, Node& node) {
  const std::string& x = node.input(0);
  if (!b.needs(x)) return {};
  TRY(const std::string dy, kept(b, node, b.gradient(node.output(0))));
  b.give(x, b.emit("Mul", {b.emit("Mul", {x, dy}), b.number(2)}));
  return {};
}

// Nearest neighbours at whole scales: each value was copied to a block.
Status resized(Backward& b, Node& node) {
  const std::string& x = node.input(0);
  if (!b.needs(x)) return {};
  const Shape &shape = b.shape(x), &result = b.shape(node.output(0));
  Shape blocks;
  Integers axes;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 0 || result.at(i) % shape[i] != 0 ||
        node.text("mode", "nearest") != "nearest" ||
        node.text("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize" ||
        node.text("coordinate_transformation_mode", "half_pixel") == "align_corners" ||
        (node.text("coordinate_transformation_mode", "half_pixel") == "asymmetric" &&
         node.text("nearest_mode", "round_prefer_floor") != "floor"))
      return Error(Code::kUnsupported,
                   "it does not repeat the nearest values a whole number of times");
    blocks.push_back(shape[i]);
    blocks.push_back(result[i] / shape[i]);
    axes.push_back(static_cast<std::int64_t>(2 * i + 1));
  }
  b.give(x, b.reshape(b.sum(b.reshape(b.gradient(node.output(0)), blocks), axes), shape));
  return {};
}

Status depth_to_space(Backward& b, Node& node) {
  const std::string& x = node.input(0);
  if (!b.needs(x)) return {};
  const bool forward = node.op_type == "DepthToSpace";
  if (forward && node.text("mode", "DCR") != "DCR")
    return Error(Code::kUnsupported, "its mode is not DCR");
  b.give(x, b.emit(forward ? "SpaceToDepth" : "DepthToSpace", {b.gradient(node.output(0))},
                   {{"blocksize", node.integer("blocksize", 1)}}));
  return {};
}

constexpr RuleEntry kShapeRules[] = {
    {"Concat", concatenated},
    {"DepthToSpace", depth_to_space},
    {"Expand", expanded},
    {"Flatten", reshaped},
    {"Gather", gathered},
    {"GatherElements", gathered_elements},
    {"Pad", padded},
    {"ReduceL1", reduced_l1},
    {"ReduceL2", reduced_l2},
    {"ReduceLogSumExp", reduced_log_sum},
    {"ReduceMax", reduced_extreme},
    {"ReduceMean", reduced_sum},
    {"ReduceMin", reduced_extreme},
    {"ReduceSum", reduced_sum},
    {"ReduceSumSquare", reduced_square},
    {"Reshape", reshaped},
    {"Resize", resized},
    {"Slice", sliced},
    {"SpaceToDepth", depth_to_space},
    {"Split", split},
    {"Squeeze", reshaped},
    {"Tile", tiled},
    {"Transpose", transposed},
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
