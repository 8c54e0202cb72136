// A model.yaml compiled against some models, with a request through the result if it fits. The
// input: the YAML, a NUL, and bytes for the request's picture and the model's numbers.
#include <array>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "codec/image.h"
#include "codec/yaml.h"
#include "input.h"
#include "transform/pipeline.h"

namespace {

using varda::tensor::DType;
using varda::tensor::Named;
using varda::tensor::Shape;
using varda::tensor::Spec;
using varda::tensor::Tensor;

struct Model {
  std::vector<Spec> inputs;
  std::vector<Spec> outputs;
  std::vector<Shape> run_shapes;  // shapes of the outputs in a run
};

const std::array<Model, 3> kModels = {{
    {{{"x", DType::kFp32, {-1, 3, 4, 5}}}, {{"logits", DType::kFp32, {-1, 6}}}, {{1, 6}}},
    {{{"x", DType::kFp16, {1, -1, -1, 1}}},
     {{"boxes", DType::kFp32, {1, -1, 4}}, {"scores", DType::kFp32, {1, -1, 2}}},
     {{1, 3, 4}, {1, 3, 2}}},
    {{{"x", DType::kUint8, {-1, 20}}, {"image", DType::kFp32, {1}}},
     {{"boxes", DType::kFp32, {-1, 4}}, {"scores", DType::kFp32, {-1}}},
     {{5, 4}, {5}}},
}};

// Arbitrary numbers, repeated as needed.
Tensor numbers(const Shape& shape, std::string_view bytes) {
  Tensor out = Tensor::allocate(DType::kFp32, shape).value();
  const auto to = out.mutable_bytes();
  for (std::size_t i = 0; i < to.size() && !bytes.empty(); ++i)
    to[i] = static_cast<std::byte>(bytes[i % bytes.size()]);
  return out;
}

void run(const varda::transform::Pipeline& pipeline, const Model& model, std::string_view bytes) {
  varda::transform::Prepared prepared;
  if (pipeline.takes_images()) {
    // Uses the picture as it is, or a valid sample, so that the later steps run.
    std::vector<Named> inputs = {
        {"image", Tensor::of_strings({1}, std::vector{std::string(bytes)}).value()}};
    auto own = pipeline.before(inputs);
    auto sound = own.ok() ? std::move(own) : pipeline.before(pipeline.sample().value());
    CHECK(sound.ok());
    CHECK(varda::tensor::fits(sound->inputs[0].tensor.shape(), model.inputs[0].shape));
    prepared = std::move(sound).value();
  }
  std::vector<Named> raw;
  for (std::size_t i = 0; i < model.outputs.size(); ++i)
    raw.push_back({model.outputs[i].name, numbers(model.run_shapes[i], bytes)});
  const auto answer = pipeline.after(prepared, raw, {});
  CHECK(answer.ok());
  CHECK(answer->size() == pipeline.outputs().size());
  for (std::size_t i = 0; i < answer->size(); ++i) {
    CHECK((*answer)[i].tensor.dtype() == pipeline.outputs()[i].dtype);
    CHECK(varda::tensor::fits((*answer)[i].tensor.shape(), pipeline.outputs()[i].shape));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  varda::fuzz::Input input(data, size);
  const auto yaml =
      varda::codec::parse_yaml(input.until('\0'), {.depth_max = 20, .nodes_max = 1000});
  if (!yaml.ok()) return 0;
  varda::transform::Declaration declaration;
  if (const auto* pre = yaml->find("preprocess");
      pre != nullptr && !varda::transform::read_preprocess(*pre, declaration).ok())
    return 0;
  if (const auto* post = yaml->find("postprocess");
      post != nullptr && !varda::transform::read_postprocess(*post, declaration).ok())
    return 0;
  // Sizes that would slow every run are not the subject of this test.
  const varda::transform::Limits limits{
      .images_max = 2, .pixels_max = 1 << 14, .tensor_bytes_max = 1 << 16};
  for (const Model& model : kModels) {
    const auto pipeline =
        varda::transform::Pipeline::compile(declaration, model.inputs, model.outputs, {}, limits);
    if (pipeline.ok()) run(*pipeline, model, input.rest());
  }
  return 0;
}
