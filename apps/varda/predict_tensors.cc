#include "predict_tensors.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>

#include "cli/printer.h"
#include "oip/npy.h"
#include "os/file_system.h"
#include "resolved_file.h"
#include "tensor/visit.h"

namespace varda::app {
namespace {

using codec::Json;

constexpr std::size_t kValuesShown = 8;

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

/// Writes the float's shortest decimal: 0.1, not 0.10000000149011612.
Json number(float value) {
  char text[32];
  const char* const end = std::to_chars(text, text + sizeof text, value).ptr;
  double out = value;
  if (std::isfinite(value)) std::from_chars(text, end, out);
  return number(out);
}

template <typename T>
Json element(T value) {
  if constexpr (std::is_floating_point_v<T>) {
    return number(value);
  } else if constexpr (tensor::kIsHalf<T>) {
    return number(static_cast<double>(value.value()));
  } else if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, std::uint64_t>) {
    return Json(value);
  } else {
    return Json(static_cast<std::int64_t>(value));
  }
}

/// The first `count` elements.
Json values_of(const tensor::Tensor& tensor, std::size_t count) {
  Json out = Json::array();
  tensor::visit_dtype(tensor.dtype(), [&]<typename T>(std::type_identity<T>) {
    if constexpr (std::is_same_v<T, tensor::Bytes>) {
      const std::vector<std::string_view> strings = tensor.strings();
      for (std::size_t i = 0; i < count; ++i) out.push_back(std::string(strings[i]));
    } else {
      for (const T value : tensor.values<T>().subspan(0, count)) out.push_back(element(value));
    }
  });
  return out;
}

}  // namespace

Result<oip::InferRequest> read_json_request(const std::string& file) {
  TRY(std::string text, os::read_file(os::real_file_system(), followed(file)));
  return oip::parse_infer_request(std::make_shared<const std::string>(std::move(text)),
                                  std::nullopt)
      .context(file);
}

Result<oip::InferRequest> read_npy_request(const std::vector<std::string>& inputs) {
  oip::InferRequest request;
  for (const std::string& text : inputs) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
      return Error(Code::kInvalid, "--input " + text + ": must be NAME=FILE.npy");
    const std::string name = text.substr(0, equals), file = text.substr(equals + 1);
    const bool twice = std::any_of(request.inputs.begin(), request.inputs.end(),
                                   [&](const tensor::Named& other) { return other.name == name; });
    if (twice) return Error(Code::kInvalid, "--input " + name + " occurs twice");
    TRY(const std::string bytes, os::read_file(os::real_file_system(), followed(file)));
    TRY(tensor::Tensor tensor, oip::parse_npy(bytes).context(file));
    request.inputs.push_back({name, std::move(tensor)});
  }
  return request;
}

Json outputs_json(const oip::InferResponse& response) {
  Json out = Json::array();
  for (const tensor::Named& output : response.outputs) {
    Json shape = Json::array();
    for (const std::int64_t size : output.tensor.shape()) shape.push_back(size);
    out.push_back(Json::object({{"name", output.name},
                                {"datatype", tensor::to_string(output.tensor.dtype())},
                                {"shape", std::move(shape)},
                                {"data", values_of(output.tensor, output.tensor.size())}}));
  }
  return out;
}

std::string outputs_text(const oip::InferResponse& response) {
  std::vector<std::vector<std::string>> rows = {{"OUTPUT", "TYPE", "SHAPE", "VALUES"}};
  for (const tensor::Named& output : response.outputs) {
    std::string values;
    const Json shown = values_of(output.tensor, std::min(output.tensor.size(), kValuesShown));
    for (const Json& value : shown.as_array()) {
      values += values.empty() ? "" : ", ";
      values += value.is_string() ? cli::harmless(value.as_string())
                : value.is_null() ? "NaN or infinite"
                                  : codec::write_json(value);
    }
    if (output.tensor.size() > kValuesShown)
      values += ", … (" + std::to_string(output.tensor.size()) + ")";
    rows.push_back({cli::harmless(output.name),
                    std::string(tensor::to_string(output.tensor.dtype())),
                    tensor::to_string(output.tensor.shape()), values});
  }
  return cli::align(rows);
}

}  // namespace varda::app
