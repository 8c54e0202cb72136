// Tensors in JSON text, for requests and responses.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "codec/json_reader.h"
#include "oip/infer.h"

namespace varda::oip::internal {

/// A body split into the JSON and the bytes after it.
struct Parts {
  std::shared_ptr<const std::string> body;
  std::string_view json;
  std::string_view binary;
};
Result<Parts> split(std::shared_ptr<const std::string> body,
                    std::optional<std::string_view> json_length);

/// Reads arrays of tensors, assigning the binary part in the order of the JSON.
class TensorReader {
 public:
  TensorReader(const Parts& parts, const Limits& limits)
      : parts_(parts), limits_(limits), binary_(parts.binary) {}

  /// The reader must be at the array of "inputs" or "outputs"; `what` is "input" or "output", for
  /// messages.
  Result<std::vector<tensor::Named>> read(codec::JsonReader& reader, std::string_view what);
  /// kInvalid: unused bytes remain in the binary part.
  Status finish() const;

 private:
  Result<tensor::Named> read_one(codec::JsonReader& reader);

  const Parts& parts_;
  const Limits& limits_;
  std::string_view binary_;
};

/// Appends {"name":…,"shape":…,"datatype":…,"data":[…]}, or with parameters.binary_data_size.
void write_tensor(const tensor::Named& tensor, Encoding encoding, std::string& out);
/// The encoding to use: FP16, BF16 and strings that are not UTF-8 become binary, since JSON cannot
/// hold them.
Encoding encoding_for(const tensor::Tensor& tensor, Encoding encoding);
void write_string(std::string_view text, std::string& out);
/// Reads "shape": at most `rank_max` numbers, none negative. Errors stay in `reader`.
tensor::Shape read_shape(codec::JsonReader& reader, std::size_t rank_max);
/// Reads "parameters". kInvalid: larger than the limit, or not JSON.
Result<codec::Json> read_parameters(codec::JsonReader& reader, const Limits& limits);

}  // namespace varda::oip::internal
