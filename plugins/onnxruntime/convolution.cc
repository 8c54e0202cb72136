#include "convolution.h"

#include <new>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace varda_onednn {

namespace {

using dnnl::memory;
using Tag = memory::format_tag;

constexpr std::size_t kAlignment = 64;
constexpr auto kFp32 = memory::data_type::f32;

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

memory::desc plain(const memory::dims& dims) {
  memory::dims strides(dims.size(), 1);
  for (std::size_t i = dims.size() - 1; i-- > 0;) strides[i] = strides[i + 1] * dims[i + 1];
  return {dims, kFp32, strides};
}
memory::desc any(const memory::dims& dims) { return {dims, kFp32, Tag::any}; }

// oneDNN has an axis of its own for groups.
memory::dims grouped(const Sizes& sizes) {
  if (sizes.group == 1) return sizes.weights;
  memory::dims out = sizes.weights;
  out[0] /= sizes.group;
  out.insert(out.begin(), sizes.group);
  return out;
}

/// A primitive with tensors in the layouts that oneDNN prefers. Inputs in other layouts are copied
/// before the run, and outputs after it.
class Prepared {
 public:
  struct Place {
    int argument;
    memory::desc outer, inner;
    enum class Kind { kInput, kOutput } kind;
  };

  Prepared(Workspace& workspace, dnnl::primitive primitive, const memory::desc& scratch,
           std::vector<Place> places)
      : workspace_(workspace), primitive_(std::move(primitive)), scratch_(scratch) {
    std::size_t at = aligned(scratch.get_size());
    for (Place& place : places) {
      Slot slot{std::move(place), std::nullopt, at};
      const auto& [argument, outer, inner, kind] = slot.place;
      if (outer != inner) {
        const bool input = kind == Place::Kind::kInput;
        const memory::desc &from = input ? outer : inner, &to = input ? inner : outer;
        slot.reorder = dnnl::reorder(
            dnnl::reorder::primitive_desc(workspace.engine(), from, workspace.engine(), to));
        at += aligned(inner.get_size());
      }
      slots_.push_back(std::move(slot));
    }
    bytes_ = at;
  }

  /// `data` has an address for each place, in the order of the constructor.
  void run(const std::vector<void*>& data) {
    std::byte* block = workspace_.reserve(bytes_);
    const dnnl::engine& engine = workspace_.engine();
    std::unordered_map<int, memory> arguments;
    arguments.emplace(DNNL_ARG_SCRATCHPAD, memory(scratch_, engine, block));
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      const Slot& slot = slots_[i];
      const memory outer(slot.place.outer, engine, data[i]);
      if (!slot.reorder) {
        arguments.emplace(slot.place.argument, outer);
        continue;
      }
      memory inner(slot.place.inner, engine, block + slot.at);
      if (slot.place.kind == Place::Kind::kInput) copy(*slot.reorder, outer, inner);
      arguments.emplace(slot.place.argument, std::move(inner));
    }
    primitive_.execute(workspace_.stream(), arguments);
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      const Slot& slot = slots_[i];
      if (slot.reorder && slot.place.kind == Place::Kind::kOutput)
        copy(*slot.reorder, arguments.at(slot.place.argument),
             memory(slot.place.outer, engine, data[i]));
    }
    workspace_.stream().wait();
  }

 private:
  struct Slot {
    Place place;
    std::optional<dnnl::reorder> reorder;
    std::size_t at;  // of the copy in the workspace
  };

  void copy(const dnnl::reorder& reorder, const memory& from, const memory& to) {
    reorder.execute(workspace_.stream(), {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
  }

  Workspace& workspace_;
  dnnl::primitive primitive_;
  memory::desc scratch_;
  std::vector<Slot> slots_;
  std::size_t bytes_ = 0;
};

using Place = Prepared::Place;
using Kind = Place::Kind;

}  // namespace

void Workspace::Free::operator()(std::byte* block) const {
  ::operator delete(block, std::align_val_t(kAlignment));
}

Workspace::Workspace() : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {}

std::byte* Workspace::reserve(std::size_t bytes) {
  if (bytes <= bytes_ && block_ != nullptr) return block_.get();
  block_.reset();
  bytes_ = 0;
  block_.reset(static_cast<std::byte*>(::operator new(bytes, std::align_val_t(kAlignment))));
  bytes_ = bytes;
  return block_.get();
}

struct Convolution::Primitives {
  Primitives(Workspace& space, const Sizes& all, Bias with)
      : workspace(space), sizes(all), bias(with) {
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    dilations = sizes.dilations;
    for (memory::dim& one : dilations) --one;  // 0 is a dense kernel
    weights = grouped(sizes);
  }

  dnnl::convolution_forward::primitive_desc forward_description() const {
    using dnnl::convolution_forward;
    constexpr auto kKind = dnnl::prop_kind::forward_training;
    constexpr auto kWay = dnnl::algorithm::convolution_direct;
    const auto description =
        bias == Bias::kAdded
            ? convolution_forward::desc(kKind, kWay, any(sizes.x), any(weights),
                                        plain({sizes.weights[0]}), any(sizes.y), sizes.strides,
                                        dilations, sizes.before, sizes.after)
            : convolution_forward::desc(kKind, kWay, any(sizes.x), any(weights), any(sizes.y),
                                        sizes.strides, dilations, sizes.before, sizes.after);
    return {description, attributes, workspace.engine()};
  }

  Prepared make_forward() const {
    const auto made = forward_description();
    std::vector<Place> places = {
        {DNNL_ARG_SRC, plain(sizes.x), made.src_desc(), Kind::kInput},
        {DNNL_ARG_WEIGHTS, plain(weights), made.weights_desc(), Kind::kInput},
        {DNNL_ARG_DST, plain(sizes.y), made.dst_desc(), Kind::kOutput}};
    if (bias == Bias::kAdded)
      places.push_back({DNNL_ARG_BIAS, made.bias_desc(), made.bias_desc(), Kind::kInput});
    return {workspace, dnnl::convolution_forward(made), made.scratchpad_desc(), std::move(places)};
  }

  Prepared make_backward_data() const {
    using dnnl::convolution_backward_data;
    const convolution_backward_data::desc description(
        dnnl::algorithm::convolution_direct, any(sizes.x), any(weights), any(sizes.y),
        sizes.strides, dilations, sizes.before, sizes.after);
    const convolution_backward_data::primitive_desc made(description, attributes,
                                                         workspace.engine(), forward_description());
    return {workspace,
            convolution_backward_data(made),
            made.scratchpad_desc(),
            {{DNNL_ARG_DIFF_DST, plain(sizes.y), made.diff_dst_desc(), Kind::kInput},
             {DNNL_ARG_WEIGHTS, plain(weights), made.weights_desc(), Kind::kInput},
             {DNNL_ARG_DIFF_SRC, plain(sizes.x), made.diff_src_desc(), Kind::kOutput}}};
  }

  Prepared make_backward_weights() const {
    using dnnl::convolution_backward_weights;
    constexpr auto kWay = dnnl::algorithm::convolution_direct;
    const auto description =
        bias == Bias::kAdded
            ? convolution_backward_weights::desc(
                  kWay, any(sizes.x), any(weights), plain({sizes.weights[0]}), any(sizes.y),
                  sizes.strides, dilations, sizes.before, sizes.after)
            : convolution_backward_weights::desc(kWay, any(sizes.x), any(weights), any(sizes.y),
                                                 sizes.strides, dilations, sizes.before,
                                                 sizes.after);
    const convolution_backward_weights::primitive_desc made(
        description, attributes, workspace.engine(), forward_description());
    std::vector<Place> places = {
        {DNNL_ARG_SRC, plain(sizes.x), made.src_desc(), Kind::kInput},
        {DNNL_ARG_DIFF_DST, plain(sizes.y), made.diff_dst_desc(), Kind::kInput},
        {DNNL_ARG_DIFF_WEIGHTS, plain(weights), made.diff_weights_desc(), Kind::kOutput}};
    if (bias == Bias::kAdded)
      places.push_back(
          {DNNL_ARG_DIFF_BIAS, made.diff_bias_desc(), made.diff_bias_desc(), Kind::kOutput});
    return {workspace, convolution_backward_weights(made), made.scratchpad_desc(),
            std::move(places)};
  }

  Workspace& workspace;
  const Sizes sizes;
  const Bias bias;
  dnnl::primitive_attr attributes;
  memory::dims dilations, weights;
  // Made at the first use.
  std::optional<Prepared> forward, backward_data, backward_weights;
};

Convolution::Convolution(Workspace& workspace, const Sizes& sizes, Bias bias)
    : primitives_(std::make_unique<Primitives>(workspace, sizes, bias)) {}

Convolution::~Convolution() = default;

namespace {
void* address(const float* data) { return const_cast<float*>(data); }
}  // namespace

void Convolution::forward(const float* x, const float* weights, const float* bias, float* y) {
  Primitives& p = *primitives_;
  if (!p.forward) p.forward.emplace(p.make_forward());
  std::vector<void*> data = {address(x), address(weights), y};
  if (p.bias == Bias::kAdded) data.push_back(address(bias));
  p.forward->run(data);
}

void Convolution::backward(const float* x, const float* weights, const float* y_gradient,
                           float* x_gradient, float* weights_gradient, float* bias_gradient) {
  Primitives& p = *primitives_;
  if (x_gradient != nullptr) {
    if (!p.backward_data) p.backward_data.emplace(p.make_backward_data());
    p.backward_data->run({address(y_gradient), address(weights), x_gradient});
  }
  if (weights_gradient == nullptr) return;
  if (!p.backward_weights) p.backward_weights.emplace(p.make_backward_weights());
  std::vector<void*> data = {address(x), address(y_gradient), weights_gradient};
  if (p.bias == Bias::kAdded) data.push_back(bias_gradient);
  p.backward_weights->run(data);
}

struct BatchNormalization::Primitives {
  Primitives(Workspace& space, const memory::dims& x, float with_epsilon)
      : workspace(space), data(plain(x)), channels(plain({x[1]})), epsilon(with_epsilon) {
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  }

  dnnl::batch_normalization_forward::primitive_desc forward_description() const {
    return {dnnl::batch_normalization_forward::desc(dnnl::prop_kind::forward_training, data,
                                                    epsilon, flags),
            attributes, workspace.engine()};
  }

  // Layouts are plain, so no tensor is copied.
  Prepared make_forward() const {
    const auto made = forward_description();
    return {workspace,
            dnnl::batch_normalization_forward(made),
            made.scratchpad_desc(),
            {{DNNL_ARG_SRC, data, data, Kind::kInput},
             {DNNL_ARG_SCALE, channels, channels, Kind::kInput},
             {DNNL_ARG_SHIFT, channels, channels, Kind::kInput},
             {DNNL_ARG_DST, data, data, Kind::kOutput},
             {DNNL_ARG_MEAN, channels, channels, Kind::kOutput},
             {DNNL_ARG_VARIANCE, channels, channels, Kind::kOutput}}};
  }

  // oneDNN 2.6 wants a shift here too, and does not read it.
  Prepared make_backward() const {
    using dnnl::batch_normalization_backward;
    const batch_normalization_backward::primitive_desc made(
        batch_normalization_backward::desc(dnnl::prop_kind::backward, data, data, epsilon, flags),
        attributes, workspace.engine(), forward_description());
    return {workspace,
            batch_normalization_backward(made),
            made.scratchpad_desc(),
            {{DNNL_ARG_SRC, data, data, Kind::kInput},
             {DNNL_ARG_SCALE, channels, channels, Kind::kInput},
             {DNNL_ARG_SHIFT, channels, channels, Kind::kInput},
             {DNNL_ARG_MEAN, channels, channels, Kind::kInput},
             {DNNL_ARG_VARIANCE, channels, channels, Kind::kInput},
             {DNNL_ARG_DIFF_DST, data, data, Kind::kInput},
             {DNNL_ARG_DIFF_SRC, data, data, Kind::kOutput},
             {DNNL_ARG_DIFF_SCALE, channels, channels, Kind::kOutput},
             {DNNL_ARG_DIFF_SHIFT, channels, channels, Kind::kOutput}}};
  }

  Workspace& workspace;
  const memory::desc data, channels;
  const float epsilon;
  const dnnl::normalization_flags flags =
      dnnl::normalization_flags::use_scale | dnnl::normalization_flags::use_shift;
  dnnl::primitive_attr attributes;
  std::optional<Prepared> forward, backward;
};

BatchNormalization::BatchNormalization(Workspace& workspace, const memory::dims& x, float epsilon)
    : primitives_(std::make_unique<Primitives>(workspace, x, epsilon)) {}

BatchNormalization::~BatchNormalization() = default;

void BatchNormalization::forward(const float* x, const float* scale, const float* bias, float* y,
                                 float* mean, float* variance) {
  Primitives& p = *primitives_;
  if (!p.forward) p.forward.emplace(p.make_forward());
  p.forward->run({address(x), address(scale), address(bias), y, mean, variance});
}

void BatchNormalization::backward(const float* x, const float* scale, const float* mean,
                                  const float* variance, const float* y_gradient, float* x_gradient,
                                  float* scale_gradient, float* bias_gradient) {
  Primitives& p = *primitives_;
  if (!p.backward) p.backward.emplace(p.make_backward());
  p.backward->run({address(x), address(scale), address(scale), address(mean), address(variance),
                   address(y_gradient), x_gradient, scale_gradient, bias_gradient});
}

}  // namespace varda_onednn
