#include "oip/npy.h"

#include <span>
#include <string>

#include "tensor/npy.h"

namespace varda::oip {

Result<tensor::Tensor> parse_npy(std::string_view bytes) {
  TRY(const tensor::NpyHeader header, tensor::parse_npy_header(bytes));
  const std::string_view data = bytes.substr(header.data_at);
  if (data.size() != header.data_bytes) {
    return Error(Code::kInvalid, "the NumPy file has " + std::to_string(data.size()) +
                                     " bytes of data; its header says " +
                                     std::to_string(header.data_bytes));
  }
  return tensor::Tensor::copy(header.dtype, header.shape, std::as_bytes(std::span(data)));
}

}  // namespace varda::oip
