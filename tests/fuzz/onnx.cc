// ONNX model files.
//
// A model that parses is written and parsed again to the same bytes. Its own weights in their own
// place leave the model as it is, and the file's other bytes too. Values of other files never make
// a model that does not parse.
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>

#include "onnx/external.h"
#include "onnx/model.h"
#include "onnx/upgrade.h"
#include "onnx/weights.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace varda;
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  const auto read = [](const std::string& path, std::uint64_t, std::uint64_t count) {
    if (path.starts_with('/') || path.starts_with("../")) std::abort();
    return count < 4096 ? Result<std::string>(std::string(count, 'v')) : Error(Code::kNotFound, "");
  };
  const auto embedded = onnx::embed_external(bytes, read);
  auto model = onnx::parse(bytes);
  if (!model.ok()) {
    (void)onnx::replace_weights(bytes, {});
    return 0;
  }
  if (embedded.ok() && !onnx::parse(*embedded).ok()) std::abort();
  const std::string written = onnx::serialize(*model);
  const auto again = onnx::parse(written);
  if (!again.ok() || onnx::serialize(*again) != written) std::abort();

  if (const auto same = onnx::replace_weights(bytes, {}); !same.ok() || *same != bytes)
    std::abort();
  std::map<std::string, tensor::Tensor> weights;
  for (const onnx::Tensor& initializer : model->graph.initializers)
    if (auto value = initializer.value(); value.ok() && value->dtype() != tensor::DType::kBytes)
      weights.emplace(initializer.name, std::move(value).value());
  const auto replaced = onnx::replace_weights(bytes, weights);
  if (!replaced.ok()) std::abort();
  if (*onnx::replace_weights(*replaced, weights) != *replaced) std::abort();

  if (onnx::upgrade(*model).ok() && !onnx::parse(onnx::serialize(*model)).ok()) std::abort();
  return 0;
}
