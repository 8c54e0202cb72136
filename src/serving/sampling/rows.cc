#include "serving/sampling/rows.h"

#include <utility>

#include "codec/digest.h"
#include "codec/image.h"
#include "spool/facts.h"
#include "tensor/npy.h"
#include "transform/pipeline.h"

namespace varda::serving::sampling {
namespace {

using spool::Facts;
using tensor::DType;

std::string_view name_of(codec::ImageFormat format) {
  return format == codec::ImageFormat::kPng ? Facts::kPng : Facts::kJpeg;
}

Result<Row> image_row(std::string_view value) {
  if (const auto format = codec::image_format(value))
    return Row{name_of(*format), std::string(value)};
  // JSON carries images in base64.
  const auto bytes = codec::unbase64(value);
  if (bytes.ok())
    if (const auto format = codec::image_format(*bytes)) return Row{name_of(*format), *bytes};
  return Error(Code::kUnsupported, "the request has an image that is neither JPEG nor PNG");
}

bool npy_holds(DType dtype) { return dtype != DType::kBf16 && dtype != DType::kBytes; }

Row npy_row(const tensor::Tensor& tensor, const tensor::Shape& shape, std::size_t from,
            std::size_t bytes) {
  Row out{Facts::kNpy, tensor::npy_header(tensor.dtype(), shape)};
  const auto part = tensor.bytes().subspan(from, bytes);
  out.bytes.append(reinterpret_cast<const char*>(part.data()), part.size());
  return out;
}

Result<std::vector<Row>> rows_of(const tensor::Named& input, const InputShape& model) {
  std::vector<Row> out;
  if (input.name == model.image_input && input.tensor.dtype() == DType::kBytes) {
    for (const std::string_view value : input.tensor.strings()) {
      TRY(Row row, image_row(value));
      out.push_back(std::move(row));
    }
    return out;
  }
  if (!npy_holds(input.tensor.dtype()))
    return Error(Code::kUnsupported, "a .npy file cannot hold the request's values");
  tensor::Shape shape = input.tensor.shape();
  std::size_t rows = 1;
  if (!shape.empty() && (model.batches || shape.front() == 1)) {
    rows = static_cast<std::size_t>(shape.front());
    shape.erase(shape.begin());
  }
  if (rows == 0) return out;
  const std::size_t bytes = input.tensor.bytes().size() / rows;
  for (std::size_t i = 0; i < rows; ++i)
    out.push_back(npy_row(input.tensor, shape, i * bytes, bytes));
  return out;
}

}  // namespace

InputShape input_shape_of(const ModelVersion& version) {
  InputShape out;
  if (version.takes_images()) out.image_input = transform::kImageInput;
  const auto& inputs = version.metadata().inputs;
  out.batches = !inputs.empty() && !inputs[0].shape.empty() && inputs[0].shape[0] == -1;
  return out;
}

Result<std::vector<Row>> rows_of(const InferCall& call, const InputShape& shape,
                                 const oip::Limits& limits) {
  if (const auto format = codec::image_format(*call.body))
    return std::vector<Row>{{name_of(*format), *call.body}};
  std::optional<std::string_view> length;
  if (call.json_length) length = *call.json_length;
  TRY(const oip::InferRequest request, oip::parse_infer_request(call.body, length, limits));
  if (request.inputs.size() != 1)
    return Error(Code::kUnsupported, "samples of several inputs are not kept");
  return rows_of(request.inputs.front(), shape);
}

}  // namespace varda::serving::sampling
