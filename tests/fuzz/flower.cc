// Messages of Flower clients, and the arrays of NumPy inside.
//
// The first byte selects the parser: a message, or one array. Arrays that read as floats read the
// same after they were written.
#include <bit>
#include <cstring>
#include <string>
#include <vector>

#include "base/check.h"
#include "flower/array.h"
#include "flower/messages.h"
#include "input.h"

namespace {

using namespace varda::flower;  // NOLINT: a program of one file
namespace tensor = varda::tensor;

void check_array(std::string_view bytes) {
  const auto array = Array::parse(bytes);
  if (!array.ok()) return;
  CHECK(array->size() <= bytes.size());
  std::vector<float> values(array->size());
  if (!array->to_floats(values).ok()) return;
  const std::string written =
      tensor::npy_header(tensor::DType::kFp32, array->shape()) +
      std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  const auto again = Array::parse(written);
  CHECK(again.ok() && again->shape() == array->shape());
  std::vector<float> read(values.size());
  CHECK(again->to_floats(read).ok());
  CHECK(values.empty() || std::memcmp(read.data(), values.data(), values.size() * 4) == 0);
}

void check_message(std::string_view bytes) {
  constexpr MessageLimits kLimits{.tensors_max = 8, .scalars_max = 8, .text_bytes_max = 256};
  const auto message = parse_client_message(bytes, kLimits);
  if (!message.ok()) return;
  if (const auto* fit = std::get_if<FitAnswer>(&*message)) {
    CHECK(fit->parameters.tensors.size() <= 8 && fit->metrics.size() <= 8);
    for (const std::string_view tensor : fit->parameters.tensors) {
      CHECK(tensor.data() >= bytes.data() &&
            tensor.data() + tensor.size() <= bytes.data() + bytes.size());
      check_array(tensor);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  varda::fuzz::Input input(data, size);
  if (input.byte() % 2 == 0) {
    check_message(input.rest());
  } else {
    check_array(input.rest());
  }
  return 0;
}
