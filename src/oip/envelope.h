// An answer passed on: the words around its tensors are changed, the tensors stay as they came.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "codec/json.h"
#include "oip/infer.h"

namespace varda::oip {

/// An answer to an inference, opened as far as it takes to send it on. What is in `data` is not read.
struct Envelope {
  std::string model_name;
  std::string model_version;
  std::string id;
  codec::Json parameters = nullptr;  // an object, or null: none
  std::string_view outputs;          // the array as it came, in *body
  std::string_view binary;           // what follows the JSON, in *body
  bool has_binary = false;           // the answer came with oip::kJsonLengthHeader
  std::shared_ptr<const std::string> body;
};

/// kInvalid: no answer of the protocol, as parse_infer_response() has it, but for the numbers in `data`, of which only brackets and
/// strings are looked at.
Result<Envelope> open_infer_response(std::shared_ptr<const std::string> body, std::optional<std::string_view> json_length,
                                     const Limits& limits = {});

/// The answer under other words; the id stays. `parameters` take the place of the old ones; null leaves none.
Message reseal(const Envelope& envelope, std::string_view model_name, std::string_view model_version,
               const codec::Json& parameters);

}  // namespace varda::oip
