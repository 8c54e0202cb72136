#include "training/internal/streaming.h"

#include <algorithm>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "codec/digest.h"
#include "onnx/metadata.h"
#include "train/last_layer.h"
#include "train/slda.h"
#include "training/internal/predictor.h"
#include "training/internal/text.h"

namespace varda::training {
namespace {

namespace streaming {

using train::LastLayer;
using train::StreamingLda;

constexpr std::string_view kState = "varda.slda";          // the state in base64
constexpr std::string_view kLayer = "varda.slda.weights";  // SHA-256 of the layer that it gave

std::string digest_of_layer(const onnx::Model& model, const LastLayer& layer) {
  codec::Sha256Stream digest;
  for (const std::string* name : {&layer.weights, &layer.bias}) {
    const onnx::Tensor* tensor = model.graph.initializer(*name);
    if (tensor == nullptr) continue;
    const auto value = tensor->value();
    if (!value.ok()) continue;
    const auto bytes = value->bytes();
    digest.update({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }
  return digest.finish().hex();
}

/// The state that the file carries, unless another training has changed the layer since.
std::optional<StreamingLda> state_of(const onnx::Model& model, const LastLayer& layer) {
  const auto stored = onnx::metadata(model, kState);
  if (!stored) return std::nullopt;
  if (onnx::metadata(model, kLayer) != digest_of_layer(model, layer)) {
    log::warn("state of the streaming layer ignored, another training changed the layer");
    return std::nullopt;
  }
  const auto bytes = codec::unbase64(*stored);
  auto state = bytes.ok() ? StreamingLda::decode(*bytes) : Result<StreamingLda>(bytes.error());
  if (!state.ok() || state->features() != static_cast<std::size_t>(layer.inputs)) {
    log::warn("state of the streaming layer ignored, it does not fit the model");
    return std::nullopt;
  }
  return std::move(*state);
}

}  // namespace streaming

}  // namespace

Result<Streamed> stream(const Context& ctx, infer::Engine& engine, const RunData& data,
                        const Request& request, const std::function<void(std::uint64_t)>& report) {
  using namespace streaming;
  TRY(const onnx::Model model, onnx::parse(request.model));
  TRY(const LastLayer layer, train::find_last_layer(model));
  const std::size_t classes = data.train().outputs();
  if (classes < static_cast<std::size_t>(layer.classes) || classes > StreamingLda::kClassesMax)
    return invalid("the model has " + std::to_string(layer.classes) +
                   " classes, the training data have " + std::to_string(classes));
  const bool has_old = request.old && request.old->size() > 0;
  auto state = state_of(model, layer);
  if (!state && !has_old)
    return invalid(
        "continual.slda needs samples of the classes that the model knows: give old "
        "data, or a model that slda has trained");
  const auto threads = static_cast<unsigned>(
      request.settings.threads > 0 ? request.settings.threads
                                   : std::max(1u, std::thread::hardware_concurrency()));
  TRY(Predictor features, Predictor::open(engine, train::features_model(model, layer), threads));
  Streamed out;
  StreamingLda lda =
      state ? std::move(*state) : StreamingLda(static_cast<std::size_t>(layer.inputs));
  const auto learn = [&](const samples::Dataset& from, std::vector<std::size_t> order) -> Status {
    samples::Loader loader(from, std::move(order),
                           static_cast<std::size_t>(request.settings.batch_size), {}, 0);
    for (;;) {
      TRY(const auto batch, loader.next(ctx));
      if (!batch) return {};
      TRY(const tensor::Tensor rows, features.run(batch->input));
      const std::size_t width = features.values();
      for (std::size_t i = 0; i < batch->indices.size(); ++i)
        TRY_VOID(lda.update(rows.values<float>().subspan(i * width, width), batch->labels[i])
                     .context(from.place(batch->indices[i])));
      out.samples += batch->indices.size();
      report(out.samples);
    }
  };
  if (lda.samples() == 0) {
    std::vector<std::size_t> all(request.old->size());
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
    TRY_VOID(learn(*request.old, std::move(all)));
  }
  TRY_VOID(learn(data.train(), data.split().train));
  TRY(const train::LinearLayer learned,
      lda.layer(request.settings.continual.slda->shrinkage, classes));
  TRY(out.model, train::replace_last_layer(request.model, learned));
  TRY(onnx::Model changed, onnx::parse(out.model));
  onnx::set_metadata(changed, kState, codec::base64(lda.encode()));
  onnx::set_metadata(changed, kLayer, digest_of_layer(changed, layer));
  out.model = onnx::serialize(changed);
  return out;
}

}  // namespace varda::training
