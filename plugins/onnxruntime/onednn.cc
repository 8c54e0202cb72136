// varda-operators-onednn.so: ONNX Runtime's custom operators for convolutions that are trained.
//
//   y = varda.Conv(x, weights[, bias])            strides, dilations, pads, group, y_shape
//   dx, dweights, dbias = varda.ConvGradient(x, weights, dy)
//                                                 strides, dilations, pads, group, wanted
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

/// The attributes of a node.
struct Attributes {
  Integers strides, dilations, before, after, y_shape, wanted;
  std::int64_t group = 1;
};

Attributes attributes_of(const Shared& shared, const OrtKernelInfo* info, bool gradient) {
  Attributes out;
  out.strides = list(shared, info, "strides");
  out.dilations = list(shared, info, "dilations");
  const Integers pads = list(shared, info, "pads");
  const std::size_t axes = out.strides.size();
  (gradient ? out.wanted : out.y_shape) = list(shared, info, gradient ? "wanted" : "y_shape");
  shared.check(shared.api.KernelInfoGetAttribute_int64(info, "group", &out.group));
  if (axes == 0 || out.dilations.size() != axes || pads.size() != 2 * axes ||
      (gradient ? out.wanted.size() != 3 : out.y_shape.size() != axes + 2))
    shared.check(shared.api.CreateStatus(ORT_INVALID_ARGUMENT, "attributes of different lengths"));
  const auto middle = pads.begin() + static_cast<std::ptrdiff_t>(axes);
  out.before.assign(pads.begin(), middle);
  out.after.assign(middle, pads.end());
  return out;
}

/// A node of a session. ONNX Runtime may run the session on several threads.
class Kernel {
 public:
  Kernel(Shared& shared, Attributes attributes)
      : shared_(shared), attributes_(std::move(attributes)) {}

  const OrtApi& api() const { return shared_.api; }

  void forward(OrtKernelContext* context) {
    const OrtValue* x = input(context, 0);
    const OrtValue* weights = input(context, 1);
    std::size_t count = 0;
    shared_.check(shared_.api.KernelContext_GetInputCount(context, &count));
    const OrtValue* bias = count > 2 ? input(context, 2) : nullptr;
    float* y = output(context, 0, attributes_.y_shape);
    const std::scoped_lock lock(shared_.mutex);
    prepare(shape_of(shared_, x), shape_of(shared_, weights), attributes_.y_shape, bias != nullptr);
    convolution_->forward(values(x), values(weights), bias == nullptr ? nullptr : values(bias), y);
  }

  void backward(OrtKernelContext* context) {
    const OrtValue* x = input(context, 0);
    const OrtValue* weights = input(context, 1);
    const OrtValue* gradient = input(context, 2);
    const Integers x_shape = shape_of(shared_, x), weights_shape = shape_of(shared_, weights);
    const auto wanted = [&](std::size_t index, const Integers& shape) {
      return attributes_.wanted[index] != 0 ? output(context, index, shape) : nullptr;
    };
    float* dx = wanted(0, x_shape);
    float* dweights = wanted(1, weights_shape);
    float* dbias = wanted(2, {weights_shape.at(0)});
    const std::scoped_lock lock(shared_.mutex);
    prepare(x_shape, weights_shape, shape_of(shared_, gradient), dbias != nullptr);
    convolution_->backward(values(x), values(weights), values(gradient), dx, dweights, dbias);
  }

 private:
  const OrtValue* input(OrtKernelContext* context, std::size_t index) const {
    const OrtValue* out = nullptr;
    shared_.check(shared_.api.KernelContext_GetInput(context, index, &out));
    return out;
  }
  float* output(OrtKernelContext* context, std::size_t index, const Integers& shape) const {
    OrtValue* value = nullptr;
    shared_.check(
        shared_.api.KernelContext_GetOutput(context, index, shape.data(), shape.size(), &value));
    return const_cast<float*>(values(value));
  }
  const float* values(const OrtValue* value) const {
    void* data = nullptr;
    // The API has no function for a constant tensor.
    shared_.check(shared_.api.GetTensorMutableData(const_cast<OrtValue*>(value), &data));
    return static_cast<const float*>(data);
  }

  void prepare(const Integers& x, const Integers& weights, const Integers& y, bool bias) {
    // OpenMP has the number for each thread that starts parallel work.
    if (shared_.threads > 0) omp_set_num_threads(shared_.threads);
    Sizes sizes{.x = x,
                .weights = weights,
                .y = y,
                .strides = attributes_.strides,
                .dilations = attributes_.dilations,
                .before = attributes_.before,
                .after = attributes_.after,
                .group = attributes_.group};
    if (convolution_ != nullptr && sizes == sizes_) return;
    convolution_ = std::make_unique<Convolution>(
        shared_.workspace, sizes, bias ? Convolution::Bias::kAdded : Convolution::Bias::kNone);
    sizes_ = std::move(sizes);
  }

  Shared& shared_;
  const Attributes attributes_;
  Sizes sizes_;
  std::unique_ptr<Convolution> convolution_;
};

/// One of the two operators, as ONNX Runtime calls it.
struct Operator : OrtCustomOp {
  Operator(Shared& all, bool is_gradient) : OrtCustomOp{}, shared(all), gradient(is_gradient) {
    version = 17;  // the first version with every member that is used here
    GetName = [](const OrtCustomOp* op) { return of(op).gradient ? "ConvGradient" : "Conv"; };
    GetExecutionProviderType = [](const OrtCustomOp*) -> const char* { return nullptr; };
    GetInputTypeCount = [](const OrtCustomOp*) -> std::size_t { return 3; };
    GetOutputTypeCount = [](const OrtCustomOp* op) -> std::size_t {
      return of(op).gradient ? 3 : 1;
    };
    GetInputType = GetOutputType = [](const OrtCustomOp*, std::size_t) {
      return ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;
    };
    GetInputCharacteristic = [](const OrtCustomOp* op, std::size_t index) {
      return index == 2 && !of(op).gradient ? INPUT_OUTPUT_OPTIONAL : INPUT_OUTPUT_REQUIRED;
    };
    GetOutputCharacteristic = [](const OrtCustomOp* op, std::size_t) {
      return of(op).gradient ? INPUT_OUTPUT_OPTIONAL : INPUT_OUTPUT_REQUIRED;
    };
    GetInputMemoryType = [](const OrtCustomOp*, std::size_t) { return OrtMemTypeDefault; };
    GetVariadicInputMinArity = GetVariadicOutputMinArity = [](const OrtCustomOp*) { return 0; };
    GetVariadicInputHomogeneity =
        GetVariadicOutputHomogeneity = [](const OrtCustomOp*) { return 1; };
    CreateKernelV2 = [](const OrtCustomOp* op, const OrtApi* api, const OrtKernelInfo* info,
                        void** kernel) -> OrtStatus* {
      return guarded(*api, [&] {
        Shared& shared = of(op).shared;
        *kernel = new Kernel(shared, attributes_of(shared, info, of(op).gradient));
      });
    };
    // One function for each operator, since a kernel does not know its operator.
    KernelComputeV2 = gradient ? compute<&Kernel::backward> : compute<&Kernel::forward>;
    KernelDestroy = [](void* kernel) { delete static_cast<Kernel*>(kernel); };
  }

  static const Operator& of(const OrtCustomOp* op) { return *static_cast<const Operator*>(op); }

  template <void (Kernel::*Run)(OrtKernelContext*)>
  static OrtStatus* compute(void* raw, OrtKernelContext* context) {
    auto& kernel = *static_cast<Kernel*>(raw);
    return guarded(kernel.api(), [&] { (kernel.*Run)(context); });
  }

  Shared& shared;
  const bool gradient;
};

}  // namespace

struct varda_operators {
  explicit varda_operators(const OrtApi& api, int threads) : shared{api, threads, {}, {}} {}
  varda_operators(const varda_operators&) = delete;
  ~varda_operators() {
    if (domain != nullptr) shared.api.ReleaseCustomOpDomain(domain);
  }

  Shared shared;
  std::array<Operator, 2> all = {{{shared, false}, {shared, true}}};
  OrtCustomOpDomain* domain = nullptr;
};

extern "C" __attribute__((visibility("default"))) varda_operators* varda_operators_add(
    const OrtApi* api, OrtSessionOptions* options, std::uint32_t threads, char* problem,
    std::size_t problem_bytes) {
  std::unique_ptr<varda_operators> out;
  OrtStatus* status = guarded(*api, [&] {
    out = std::make_unique<varda_operators>(*api, static_cast<int>(threads));
    out->shared.check(api->CreateCustomOpDomain("varda", &out->domain));
    for (Operator& one : out->all) out->shared.check(api->CustomOpDomain_Add(out->domain, &one));
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
