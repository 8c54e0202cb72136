// predict with tensors: requests from files, and answers as text and JSON.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "codec/json.h"
#include "oip/infer.h"

namespace varda::app {

/// An Open Inference Protocol request in JSON. kInvalid names the file.
Result<oip::InferRequest> read_json_request(const std::string& file);
/// One input for each "NAME=FILE.npy". kInvalid names the flag or the file.
Result<oip::InferRequest> read_npy_request(const std::vector<std::string>& inputs);

/// {"name", "datatype", "shape", "data"} for each output, data in row-major order. Bytes that are
/// not UTF-8 become U+FFFD. NaN and infinities become null, since JSON has neither.
codec::Json outputs_json(const oip::InferResponse& response);
/// A line for each output: name, type, shape and the first values.
std::string outputs_text(const oip::InferResponse& response);

}  // namespace varda::app
