// varda-operators-onednn.so: ONNX Runtime's custom operators for networks that are trained.
//
//   y = varda.Conv(x, weights[, bias])            strides, dilations, pads, group, y_shape
//   dx, dweights, dbias = varda.ConvGradient(x, weights, dy)
//                                                 strides, dilations, pads, group, wanted
//   y, mean, variance = varda.BatchNormalization(x, scale, bias)                   epsilon
//   dx, dscale, dbias = varda.BatchNormalizationGradient(x, scale, mean, variance, dy)   epsilon
//
// `pads` is the padding that the windows touch. `wanted` has 1 for each wanted output. The engine
// runs a training graph with weights as inputs, where ONNX Runtime's own convolutions have no
// blocked layout.
#include <array>
#include <cstdio>
#include <exception>
#include <memory>
#include <mutex>
#include <omp.h>
#include <string>
#include <utility>
#include <vector>

#include "convolution.h"
#include "operators_abi.h"

namespace {

using varda_onednn::BatchNormalization;
using varda_onednn::Convolution;
using varda_onednn::Sizes;
using varda_onednn::Workspace;
using Integers = std::vector<std::int64_t>;

/// An error of ONNX Runtime, on its way out of a kernel.
struct Failure {
  OrtStatus* status;
};

struct Shared {
  const OrtApi& api;
  const int threads;  // 0: oneDNN's choice
  std::mutex mutex;   // the workspace serves one operator at a time
  Workspace workspace;

  void check(OrtStatus* status) const {
    if (status != nullptr) throw Failure{status};
  }
};

/// Calls `body`, and turns each exception into a status.
template <typename F>
OrtStatus* guarded(const OrtApi& api, F&& body) {
  try {
    body();
    return nullptr;
  } catch (const Failure& failure) {
    return failure.status;
  } catch (const dnnl::error& e) {
    return api.CreateStatus(e.status == dnnl_out_of_memory ? ORT_FAIL : ORT_EP_FAIL,
                            (std::string("oneDNN: ") + e.what()).c_str());
  } catch (const std::exception& e) {
    return api.CreateStatus(ORT_FAIL, e.what());
  }
}

Integers list(const Shared& shared, const OrtKernelInfo* info, const char* name) {
  std::size_t count = 0;
  shared.check(shared.api.KernelInfoGetAttributeArray_int64(info, name, nullptr, &count));
  Integers out(count);
  shared.check(shared.api.KernelInfoGetAttributeArray_int64(info, name, out.data(), &count));
  return out;
}

Integers shape_of(const Shared& shared, const OrtValue* value) {
  OrtTensorTypeAndShapeInfo* info = nullptr;
  shared.check(shared.api.GetTensorTypeAndShape(value, &info));
  const std::unique_ptr<OrtTensorTypeAndShapeInfo, void (*)(OrtTensorTypeAndShapeInfo*)> owner(
      info, shared.api.ReleaseTensorTypeAndShapeInfo);
  std::size_t rank = 0;
  shared.check(shared.api.GetDimensionsCount(info, &rank));
  Integers out(rank);
  shared.check(shared.api.GetDimensions(info, out.data(), rank));
  return out;
}

/// A node of a session. ONNX Runtime may run the session on several threads.
class Kernel {
 public:
  explicit Kernel(Shared& shared) : shared_(shared) {}
  virtual ~Kernel() = default;
  virtual void run(OrtKernelContext* context) = 0;
  const OrtApi& api() const { return shared_.api; }

 protected:
  const OrtValue* input(OrtKernelContext* context, std::size_t index) const {
    const OrtValue* out = nullptr;
    shared_.check(api().KernelContext_GetInput(context, index, &out));
    return out;
  }
  float* output(OrtKernelContext* context, std::size_t index, const Integers& shape) const {
    OrtValue* value = nullptr;
    shared_.check(
        api().KernelContext_GetOutput(context, index, shape.data(), shape.size(), &value));
    return const_cast<float*>(values(value));
  }
  const float* values(const OrtValue* value) const {
    void* data = nullptr;
    // The API has no function for a constant tensor.
    shared_.check(api().GetTensorMutableData(const_cast<OrtValue*>(value), &data));
    return static_cast<const float*>(data);
  }
  /// OpenMP has the number for each thread that starts parallel work.
  void limit_threads() const {
    if (shared_.threads > 0) omp_set_num_threads(shared_.threads);
  }

  Shared& shared_;
};

class ConvKernel : public Kernel {
 public:
  ConvKernel(Shared& shared, const OrtKernelInfo* info)
      : Kernel(shared),
        strides_(list(shared, info, "strides")),
        dilations_(list(shared, info, "dilations")) {
    const Integers pads = list(shared, info, "pads");
    shared.check(api().KernelInfoGetAttribute_int64(info, "group", &group_));
    const std::size_t axes = strides_.size();
    if (axes == 0 || dilations_.size() != axes || pads.size() != 2 * axes)
      shared.check(api().CreateStatus(ORT_INVALID_ARGUMENT, "attributes of different lengths"));
    const auto middle = pads.begin() + static_cast<std::ptrdiff_t>(axes);
    before_.assign(pads.begin(), middle);
    after_.assign(middle, pads.end());
  }

 protected:
  Convolution& prepared(const Integers& x, const Integers& weights, const Integers& y,
                        Convolution::Bias bias) {
    limit_threads();
    Sizes sizes{.x = x,
                .weights = weights,
                .y = y,
                .strides = strides_,
                .dilations = dilations_,
                .before = before_,
                .after = after_,
                .group = group_};
    if (convolution_ == nullptr || sizes != sizes_) {
      convolution_ = std::make_unique<Convolution>(shared_.workspace, sizes, bias);
      sizes_ = std::move(sizes);
    }
    return *convolution_;
  }

 private:
  const Integers strides_, dilations_;
  Integers before_, after_;
  std::int64_t group_ = 1;
  Sizes sizes_;
  std::unique_ptr<Convolution> convolution_;
};

class ForwardConv final : public ConvKernel {
 public:
  ForwardConv(Shared& shared, const OrtKernelInfo* info)
      : ConvKernel(shared, info), y_shape_(list(shared, info, "y_shape")) {}

  void run(OrtKernelContext* context) override {
    const OrtValue* x = input(context, 0);
    const OrtValue* weights = input(context, 1);
    std::size_t count = 0;
    shared_.check(api().KernelContext_GetInputCount(context, &count));
    const OrtValue* bias = count > 2 ? input(context, 2) : nullptr;
    float* y = output(context, 0, y_shape_);
    const std::scoped_lock lock(shared_.mutex);
    prepared(shape_of(shared_, x), shape_of(shared_, weights), y_shape_,
             bias == nullptr ? Convolution::Bias::kNone : Convolution::Bias::kAdded)
        .forward(values(x), values(weights), bias == nullptr ? nullptr : values(bias), y);
  }

 private:
  const Integers y_shape_;
};

class ConvGradient final : public ConvKernel {
 public:
  ConvGradient(Shared& shared, const OrtKernelInfo* info)
      : ConvKernel(shared, info), wanted_(list(shared, info, "wanted")) {
    if (wanted_.size() != 3)
      shared.check(api().CreateStatus(ORT_INVALID_ARGUMENT, "`wanted` needs three values"));
  }

  void run(OrtKernelContext* context) override {
    const OrtValue* x = input(context, 0);
    const OrtValue* weights = input(context, 1);
    const OrtValue* gradient = input(context, 2);
    const Integers x_shape = shape_of(shared_, x), weights_shape = shape_of(shared_, weights);
    const auto wanted = [&](std::size_t index, const Integers& shape) {
      return wanted_[index] != 0 ? output(context, index, shape) : nullptr;
    };
    float* dx = wanted(0, x_shape);
    float* dweights = wanted(1, weights_shape);
    float* dbias = wanted(2, {weights_shape.at(0)});
    const std::scoped_lock lock(shared_.mutex);
    prepared(x_shape, weights_shape, shape_of(shared_, gradient),
             dbias == nullptr ? Convolution::Bias::kNone : Convolution::Bias::kAdded)
        .backward(values(x), values(weights), values(gradient), dx, dweights, dbias);
  }

 private:
  const Integers wanted_;
};

class NormalizationKernel : public Kernel {
 public:
  NormalizationKernel(Shared& shared, const OrtKernelInfo* info) : Kernel(shared) {
    shared.check(api().KernelInfoGetAttribute_float(info, "epsilon", &epsilon_));
  }

 protected:
  BatchNormalization& prepared(const Integers& x) {
    limit_threads();
    if (normalization_ == nullptr || x != x_) {
      normalization_ = std::make_unique<BatchNormalization>(shared_.workspace, x, epsilon_);
      x_ = x;
    }
    return *normalization_;
  }

 private:
  float epsilon_ = 0;
  Integers x_;
  std::unique_ptr<BatchNormalization> normalization_;
};

class ForwardNormalization final : public NormalizationKernel {
 public:
  using NormalizationKernel::NormalizationKernel;
  void run(OrtKernelContext* context) override {
    const OrtValue* x = input(context, 0);
    const Integers shape = shape_of(shared_, x), channels = {shape.at(1)};
    const float* scale = values(input(context, 1));
    const float* bias = values(input(context, 2));
    float* y = output(context, 0, shape);
    float* mean = output(context, 1, channels);
    float* variance = output(context, 2, channels);
    const std::scoped_lock lock(shared_.mutex);
    prepared(shape).forward(values(x), scale, bias, y, mean, variance);
  }
};

class NormalizationGradient final : public NormalizationKernel {
 public:
  using NormalizationKernel::NormalizationKernel;
  void run(OrtKernelContext* context) override {
    const OrtValue* x = input(context, 0);
    const Integers shape = shape_of(shared_, x), channels = {shape.at(1)};
    const float* scale = values(input(context, 1));
    const float* mean = values(input(context, 2));
    const float* variance = values(input(context, 3));
    const float* gradient = values(input(context, 4));
    float* dx = output(context, 0, shape);
    float* dscale = output(context, 1, channels);
    float* dbias = output(context, 2, channels);
    const std::scoped_lock lock(shared_.mutex);
    prepared(shape).backward(values(x), scale, mean, variance, gradient, dx, dscale, dbias);
  }
};

template <typename K>
Kernel* make(Shared& shared, const OrtKernelInfo* info) {
  return new K(shared, info);
}

struct Kind {
  const char* name;
  std::size_t inputs, required_inputs;
  std::size_t outputs, required_outputs;
  Kernel* (*make)(Shared& shared, const OrtKernelInfo* info);
};
constexpr std::array<Kind, 4> kKinds = {{
    {"Conv", 3, 2, 1, 1, make<ForwardConv>},
    {"ConvGradient", 3, 3, 3, 0, make<ConvGradient>},
    {"BatchNormalization", 3, 3, 3, 3, make<ForwardNormalization>},
    {"BatchNormalizationGradient", 5, 5, 3, 3, make<NormalizationGradient>},
}};

/// A kind as ONNX Runtime calls it.
struct Operator : OrtCustomOp {
  Operator(Shared& all, const Kind& one) : OrtCustomOp{}, shared(all), kind(one) {
    version = 17;  // the first version with every member that is used here
    GetName = [](const OrtCustomOp* op) { return of(op).kind.name; };
    GetExecutionProviderType = [](const OrtCustomOp*) -> const char* { return nullptr; };
    GetInputTypeCount = [](const OrtCustomOp* op) { return of(op).kind.inputs; };
    GetOutputTypeCount = [](const OrtCustomOp* op) { return of(op).kind.outputs; };
    GetInputType = GetOutputType = [](const OrtCustomOp*, std::size_t) {
      return ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;
    };
    GetInputCharacteristic = [](const OrtCustomOp* op, std::size_t index) {
      return index < of(op).kind.required_inputs ? INPUT_OUTPUT_REQUIRED : INPUT_OUTPUT_OPTIONAL;
    };
    GetOutputCharacteristic = [](const OrtCustomOp* op, std::size_t index) {
      return index < of(op).kind.required_outputs ? INPUT_OUTPUT_REQUIRED : INPUT_OUTPUT_OPTIONAL;
    };
    GetInputMemoryType = [](const OrtCustomOp*, std::size_t) { return OrtMemTypeDefault; };
    GetVariadicInputMinArity = GetVariadicOutputMinArity = [](const OrtCustomOp*) { return 0; };
    GetVariadicInputHomogeneity =
        GetVariadicOutputHomogeneity = [](const OrtCustomOp*) { return 1; };
    CreateKernelV2 = [](const OrtCustomOp* op, const OrtApi* api, const OrtKernelInfo* info,
                        void** kernel) -> OrtStatus* {
      return guarded(*api, [&] { *kernel = of(op).kind.make(of(op).shared, info); });
    };
    KernelComputeV2 = [](void* raw, OrtKernelContext* context) -> OrtStatus* {
      auto& kernel = *static_cast<Kernel*>(raw);
      return guarded(kernel.api(), [&] { kernel.run(context); });
    };
    KernelDestroy = [](void* kernel) { delete static_cast<Kernel*>(kernel); };
  }

  static const Operator& of(const OrtCustomOp* op) { return *static_cast<const Operator*>(op); }

  Shared& shared;
  const Kind& kind;
};

}  // namespace

struct varda_operators {
  explicit varda_operators(const OrtApi& api, int threads) : shared{api, threads, {}, {}} {
    for (const Kind& kind : kKinds) all.push_back(std::make_unique<Operator>(shared, kind));
  }
  varda_operators(const varda_operators&) = delete;
  ~varda_operators() {
    if (domain != nullptr) shared.api.ReleaseCustomOpDomain(domain);
  }

  Shared shared;
  std::vector<std::unique_ptr<Operator>> all;
  OrtCustomOpDomain* domain = nullptr;
};

extern "C" __attribute__((visibility("default"))) varda_operators* varda_operators_add(
    const OrtApi* api, OrtSessionOptions* options, std::uint32_t threads, char* problem,
    std::size_t problem_bytes) {
  std::unique_ptr<varda_operators> out;
  OrtStatus* status = guarded(*api, [&] {
    out = std::make_unique<varda_operators>(*api, static_cast<int>(threads));
    out->shared.check(api->CreateCustomOpDomain("varda", &out->domain));
    for (const auto& one : out->all)
      out->shared.check(api->CustomOpDomain_Add(out->domain, one.get()));
    out->shared.check(api->AddCustomOpDomain(options, out->domain));
  });
  if (status == nullptr) return out.release();
  std::snprintf(problem, problem_bytes, "%s", api->GetErrorMessage(status));
  api->ReleaseStatus(status);
  return nullptr;
}

extern "C" __attribute__((visibility("default"))) void varda_operators_free(
    varda_operators* operators) {
  std::unique_ptr<varda_operators> owner(operators);
}
