// Gradients of convolutions and poolings with any number of spatial axes.
#include <algorithm>
#include <limits>

#include "train/internal/rules.h"

namespace varda::train {
namespace {

using onnx::Node;
using tensor::Shape;
using Integers = Backward::Integers;

// From here on, the forms for many channels are faster: ResNet-18 at 64x64 takes 630 ms a step, not
// 730, and LeNet with 6 channels would take 5.0 ms, not 3.6 (2 cores with AVX-512, one thread).
constexpr std::int64_t kManyChannels = 16;
constexpr std::int64_t kTapsMax = 64;  // each tap of a kernel is three nodes

/// Windows move over the spatial axes of `large` [N,C,...]; each gives a place of `small`
/// [N,M,...].
struct Windows {
  Shape large, small;
  Integers kernel, strides, dilations;
  Integers before;  // padding of `large`
  Integers after;   // padding that the windows really touch; negative: they leave so much unread
  std::int64_t group = 1;
};

Integers or_ones(Integers values, std::size_t count) {
  if (values.empty()) values.assign(count, 1);
  return values;
}

Result<Windows> windows_of(const Node& node, const Shape& large, const Shape& small,
                           Integers kernel) {
  const std::size_t rank = large.size() - 2;
  Windows out{large, small, std::move(kernel), {}, {}, {}, {}, node.integer("group", 1)};
  out.strides = or_ones(node.integers("strides"), rank);
  out.dilations = or_ones(node.integers("dilations"), rank);
  const Integers pads = node.integers("pads");
  const std::string automatic = node.text("auto_pad", "NOTSET");
  if (out.kernel.size() != rank || out.strides.size() != rank || out.dilations.size() != rank ||
      small.size() != large.size() || (!pads.empty() && pads.size() != 2 * rank))
    return Error(Code::kInvalid, "the number of strides, dilations or pads differs from the axes");
  for (std::size_t i = 0; i < rank; ++i) {
    const std::int64_t reach =
        (small[i + 2] - 1) * out.strides[i] + (out.kernel[i] - 1) * out.dilations[i] + 1;
    const std::int64_t total = std::max<std::int64_t>(reach - large[i + 2], 0);
    std::int64_t before = pads.empty() ? 0 : pads[i];
    if (automatic == "SAME_UPPER") before = total / 2;
    // ConvTranspose with output_shape shares out the padding like SAME_LOWER.
    if (automatic == "SAME_LOWER" ||
        (automatic == "NOTSET" && node.find("output_shape") != nullptr))
      before = (total + 1) / 2;
    if (automatic == "VALID") before = 0;
    out.before.push_back(before);
    out.after.push_back(reach - large[i + 2] - before);
  }
  return out;
}

/// `before` and `after` as ONNX lists them, without negative values.
Integers pads_of(const Windows& w) {
  Integers out = w.before;
  for (const std::int64_t after : w.after) out.push_back(std::max<std::int64_t>(after, 0));
  return out;
}

/// Spreads `small` over `large`: the gradient of a convolution's input, for any stride.
std::string spread(Backward& b, const Windows& w, const std::string& small,
                   const std::string& weights) {
  Integers unread;
  for (const std::int64_t after : w.after) unread.push_back(std::max<std::int64_t>(-after, 0));
  return b.emit("ConvTranspose", {small, weights},
                {{"kernel_shape", w.kernel},
                 {"strides", w.strides},
                 {"dilations", w.dilations},
                 {"pads", pads_of(w)},
                 {"output_padding", unread},
                 {"group", w.group}});
}

Integers spatial_axes(const Shape& shape) {
  Integers out;
  for (std::size_t i = 2; i < shape.size(); ++i) out.push_back(static_cast<std::int64_t>(i));
  return out;
}

std::int64_t taps_of(const Windows& w) {
  std::int64_t out = 1;
  for (const std::int64_t size : w.kernel) out *= size;
  return out;
}

/// The gradient of weights [M,C,kernel]: for each place of the kernel, one product of matrices.
/// Fast for many channels.
///
///   dW[m,c,tap] = sum over n and places p of small[n,m,p] * large[n,c,p * stride + tap * dilation]
std::string weight_gradient_by_taps(Backward& b, const Windows& w, const std::string& large,
                                    const std::string& small) {
  const std::size_t rank = w.kernel.size();
  const std::int64_t channels = w.large[1], maps = w.small[1];
  Integers before = {0, 0}, after = {0, 0};
  before.insert(before.end(), w.before.begin(), w.before.end());
  for (const std::int64_t size : w.after) after.push_back(std::max<std::int64_t>(size, 0));
  const std::string data = b.transpose(b.pad(large, before, after), swapped(w.large.size()));
  const std::string rows = b.reshape(b.transpose(small, swapped(w.small.size())), {maps, -1});
  const std::int64_t taps = taps_of(w);
  const Integers axes = spatial_axes(w.large);
  std::vector<std::string> products;
  for (std::int64_t tap = 0; tap < taps; ++tap) {
    Integers begin(rank), end(rank);
    std::int64_t remaining = tap;
    for (std::size_t i = rank; i-- > 0;) {
      begin[i] = remaining % w.kernel[i] * w.dilations[i];
      end[i] = begin[i] + (w.small[i + 2] - 1) * w.strides[i] + 1;
      remaining /= w.kernel[i];
    }
    const std::string part = b.emit("Slice", {data, b.integers(begin), b.integers(end),
                                              b.integers(axes), b.integers(w.strides)});
    products.push_back(
        b.emit("Gemm", {rows, b.reshape(part, {channels, -1})}, {{"transB", std::int64_t{1}}}));
  }
  Shape shape = {maps, channels};
  shape.insert(shape.end(), w.kernel.begin(), w.kernel.end());
  if (taps == 1) return b.reshape(products.front(), shape);
  const std::string stacked = b.emit("Concat", products, {{"axis", std::int64_t{0}}});
  return b.reshape(b.transpose(b.reshape(stacked, {taps, maps, channels}), {1, 2, 0}), shape);
}

/// The gradient of weights [M,C/group,kernel]: a convolution in which batch and channels change
/// places, and strides and dilations too. Fast for few channels.
///
///   dW[m,c] = sum over n of conv(large[n,c], small[n,m])
std::string weight_gradient(Backward& b, const Windows& w, const std::string& large,
                            const std::string& small) {
  if (w.group == 1 && w.large[1] >= kManyChannels && taps_of(w) <= kTapsMax)
    return weight_gradient_by_taps(b, w, large, small);
  const std::int64_t samples = w.large[0], channels = w.large[1] / w.group;
  std::string data = large;
  Shape spatial(w.large.begin() + 2, w.large.end());
  if (w.group == 1) {
    data = b.transpose(data, swapped(w.large.size()));
  } else {
    // [N, group * C, ...] -> [C, group * N, ...]
    Shape grouped = {samples, w.group, channels}, merged = {channels, w.group * samples};
    grouped.insert(grouped.end(), spatial.begin(), spatial.end());
    merged.insert(merged.end(), spatial.begin(), spatial.end());
    Integers order = {2, 1, 0};
    for (std::size_t i = 3; i < grouped.size(); ++i) order.push_back(static_cast<std::int64_t>(i));
    data = b.reshape(b.transpose(b.reshape(data, grouped), order), merged);
  }
  const std::string filters = b.transpose(small, swapped(w.small.size()));
  Integers kernel(w.small.begin() + 2, w.small.end());
  std::string out = b.emit("Conv", {data, filters},
                           {{"kernel_shape", kernel},
                            {"strides", w.dilations},
                            {"dilations", w.strides},
                            {"pads", pads_of(w)},
                            {"group", w.group}});
  // Rows that no window read make the result larger than the kernel.
  Integers none(w.large.size(), 0), cut(w.large.size(), 0);
  for (std::size_t i = 0; i < w.kernel.size(); ++i)
    if (w.after[i] < 0) cut[i + 2] = -(-w.after[i] / w.dilations[i]);
  out = b.pad(out, none, cut);
  return b.transpose(out, swapped(w.large.size()));
}

void give_bias(Backward& b, const Node& node) {
  const std::string& bias = node.input(2);
  if (bias.empty() || !b.needs(bias)) return;
  Integers axes = spatial_axes(b.shape(node.output(0)));
  axes.insert(axes.begin(), 0);
  b.give(bias, b.reshape(b.sum(b.gradient(node.output(0)), axes), b.shape(bias)));
}

/// Whether flipped() gives the gradient: stride 1, and no more padding than the kernel reaches.
bool is_flippable(const Windows& w) {
  for (std::size_t i = 0; i < w.kernel.size(); ++i) {
    const std::int64_t reach = (w.kernel[i] - 1) * w.dilations[i];
    if (w.group != 1 || w.strides[i] != 1 || reach < w.before[i] || reach < w.after[i])
      return false;
  }
  return true;
}

/// The gradient of a convolution's input as a convolution with the kernel turned around.
std::string flipped(Backward& b, const Windows& w, const std::string& dy,
                    const std::string& weights) {
  const std::size_t rank = w.kernel.size();
  bool point = true;
  Integers pads;
  for (std::size_t i = 0; i < rank; ++i) {
    pads.push_back((w.kernel[i] - 1) * w.dilations[i] - w.before[i]);
    point = point && w.kernel[i] == 1;
  }
  for (std::size_t i = 0; i < rank; ++i)
    pads.push_back((w.kernel[i] - 1) * w.dilations[i] - w.after[i]);
  std::string turned = b.transpose(weights, swapped(rank + 2));
  if (!point)
    turned = b.emit("Slice", {turned, b.integers(Integers(rank, -1)),
                              b.integers(Integers(rank, std::numeric_limits<std::int64_t>::min())),
                              b.integers(spatial_axes(w.large)), b.integers(Integers(rank, -1))});
  return b.emit("Conv", {dy, turned},
                {{"kernel_shape", w.kernel}, {"dilations", w.dilations}, {"pads", pads}});
}

/// Whether Varda's own operators compute the convolution: FP32 with one to three spatial axes.
bool is_own(const Backward& b, const Windows& w) {
  return b.operators() == Operators::kOneDnn && b.dtype() == tensor::DType::kFp32 &&
         w.kernel.size() >= 1 && w.kernel.size() <= 3;
}

/// The gradients as one node, so that copies of `y`'s gradient in other layouts are shared. A
/// convolution with constant weights stays: the engine stores those in a faster layout.
void own_conv(Backward& b, const Windows& w, Node& node) {
  const std::string x = node.input(0), weights = node.input(1), bias = node.input(2);
  const Backward::Attributes windows = {
      {"strides", w.strides}, {"dilations", w.dilations}, {"pads", pads_of(w)}, {"group", w.group}};
  const bool with_bias = !bias.empty() && b.needs(bias);
  const std::vector<bool> wanted = {b.needs(x), b.needs(weights) || with_bias, with_bias};
  Backward::Attributes attributes = windows;
  attributes.push_back({"wanted", Integers{wanted[0], wanted[1], wanted[2]}});
  const std::vector<std::string> gradients = b.emit_own(
      "ConvGradient", {x, weights, b.gradient(node.output(0))}, wanted, std::move(attributes));
  if (wanted[0]) b.give(x, gradients[0]);
  if (b.needs(weights)) b.give(weights, gradients[1]);
  if (with_bias) b.give(bias, gradients[2]);
  if (!b.needs(weights)) return;
  node.domain = kOwnDomain;
  node.attributes = windows;
  node.attributes.push_back({"y_shape", Integers(w.small.begin(), w.small.end())});
}

Status conv(Backward& b, Node& node) {
  const std::string &x = node.input(0), &weights = node.input(1), &y = node.output(0);
  const Shape& shape = b.shape(weights);
  TRY(const Windows w, windows_of(node, b.shape(x), b.shape(y), {shape.begin() + 2, shape.end()}));
  if (is_own(b, w)) {
    own_conv(b, w, node);
    return {};
  }
  const std::string dy = b.gradient(y);
  if (b.needs(x))
    b.give(x, w.large[1] >= kManyChannels && is_flippable(w) ? flipped(b, w, dy, weights)
                                                             : spread(b, w, dy, weights));
  if (b.needs(weights)) b.give(weights, weight_gradient(b, w, x, dy));
  give_bias(b, node);
  return {};
}

// The same windows, in which input and output change places.
Status conv_transpose(Backward& b, Node& node) {
  const std::string &x = node.input(0), &weights = node.input(1), &y = node.output(0);
  const Shape& shape = b.shape(weights);
  TRY(const Windows w, windows_of(node, b.shape(y), b.shape(x), {shape.begin() + 2, shape.end()}));
  const std::string dy = b.gradient(y);
  if (b.needs(x))
    b.give(x, b.emit("Conv", {dy, weights},
                     {{"kernel_shape", w.kernel},
                      {"strides", w.strides},
                      {"dilations", w.dilations},
                      {"pads", pads_of(w)},
                      {"group", w.group}}));
  if (b.needs(weights)) b.give(weights, weight_gradient(b, w, dy, x));
  give_bias(b, node);
  return {};
}

// The operator's second output names the place of each maximum in the flat input.
Status max_pool(Backward& b, Node& node) {
  const std::string x = node.input(0), y = node.output(0);
  if (!b.needs(x)) return {};
  if (node.integer("storage_order", 0) != 0)
    return Error(Code::kUnsupported, "its storage_order is column major");
  if (node.output(1).empty()) {
    node.outputs.resize(2);
    node.outputs[1] = b.fresh(y + "/indices");
  }
  const Shape& shape = b.shape(x);
  TRY(const std::size_t total, tensor::elements(shape));
  const std::string flat = b.emit("ScatterElements",
                                  {b.zeros({static_cast<std::int64_t>(total)}),
                                   b.reshape(node.output(1), {-1}), b.reshape(b.gradient(y), {-1})},
                                  {{"axis", std::int64_t{0}}, {"reduction", std::string("add")}});
  b.give(x, b.reshape(flat, shape));
  return {};
}

/// For each place of the output, one over the number of values in the window.
Result<std::string> shares(Backward& b, const Windows& w, bool padding_counts,
                           const Integers& pads_after) {
  Shape shape = w.small;
  shape[0] = shape[1] = 1;
  TRY(const std::size_t total, tensor::elements(shape));
  std::vector<double> out(total, 1);
  for (std::size_t flat = 0; flat < total; ++flat) {
    std::size_t remaining = flat;
    for (std::size_t i = w.kernel.size(); i-- > 0;) {
      const auto size = static_cast<std::size_t>(w.small[i + 2]);
      const std::int64_t begin =
          static_cast<std::int64_t>(remaining % size) * w.strides[i] - w.before[i];
      remaining /= size;
      std::int64_t count = 0;
      for (std::int64_t tap = 0; tap < w.kernel[i]; ++tap) {
        const std::int64_t at = begin + tap * w.dilations[i];
        // A window may reach beyond the padding (ceil_mode); such places never count.
        if (padding_counts ? at < w.large[i + 2] + pads_after[i] : at >= 0 && at < w.large[i + 2])
          ++count;
      }
      out[flat] /= static_cast<double>(std::max<std::int64_t>(count, 1));
    }
  }
  return b.reals(shape, out);
}

Status average_pool(Backward& b, Node& node) {
  const std::string &x = node.input(0), &y = node.output(0);
  if (!b.needs(x)) return {};
  TRY(Windows w, windows_of(node, b.shape(x), b.shape(y), node.integers("kernel_shape")));
  const Integers pads = node.integers("pads");
  Integers pads_after;
  for (std::size_t i = 0; i < w.kernel.size(); ++i)
    pads_after.push_back(pads.empty() ? std::max<std::int64_t>(w.after[i], 0)
                                      : pads.at(i + w.kernel.size()));
  TRY(const std::string share, shares(b, w, node.integer("count_include_pad", 0) != 0, pads_after));
  w.group = w.large[1];
  Shape ones = {w.large[1], 1};
  ones.insert(ones.end(), w.kernel.begin(), w.kernel.end());
  const std::vector<double> kernel(static_cast<std::size_t>(w.group * taps_of(w)), 1);
  b.give(x, spread(b, w, b.emit("Mul", {b.gradient(y), share}), b.reals(ones, kernel)));
  return {};
}

Status global_average_pool(Backward& b, Node& node) {
  const std::string& x = node.input(0);
  if (!b.needs(x)) return {};
  const Shape& shape = b.shape(x);
  double count = 1;
  for (std::size_t i = 2; i < shape.size(); ++i) count *= static_cast<double>(shape[i]);
  b.give(x, b.expand(b.emit("Mul", {b.gradient(node.output(0)), b.number(1 / count)}), shape));
  return {};
}

Status global_max_pool(Backward& b, Node& node) {
  const std::string &x = node.input(0), &y = node.output(0);
  if (!b.needs(x)) return {};
  const std::string hit =
      b.emit("Cast", {b.emit("Equal", {x, y})}, {{"to", onnx::data_type_of(b.dtype())}});
  const std::string share = b.emit("Div", {b.gradient(y), b.sum(hit, spatial_axes(b.shape(x)))});
  b.give(x, b.emit("Mul", {hit, share}));
  return {};
}

constexpr RuleEntry kConvolutionRules[] = {
    {"AveragePool", average_pool},      {"Conv", conv},
    {"ConvTranspose", conv_transpose},  {"GlobalAveragePool", global_average_pool},
    {"GlobalMaxPool", global_max_pool}, {"MaxPool", max_pool},
};

}  // namespace

std::span<const RuleEntry> convolution_rules() { return kConvolutionRules; }

}  // namespace varda::train
