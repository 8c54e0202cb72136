// An answer passed on: the words around its tensors are changed, the tensors stay as they came.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "codec/json.h"
#include "oip/infer.h"

namespace varda::oip {

/// An answer to an inference, opened as far as it takes to send it on. What is in `data` is counted and not read.
struct Envelope {
  std::string model_name;
  std::string model_version;  // its first 128 bytes
  std::string id;
  codec::Json parameters = nullptr;  // an object, or null: none
  std::string_view outputs;          // the array as it came, in *body
  std::string_view binary;           // what follows the JSON, in *body
  bool has_binary = false;           // the answer came with oip::kJsonLengthHeader
  std::shared_ptr<const std::string> body;
};

/// kInvalid: no answer of the protocol, as parse_infer_response() has it, or one without outputs. Of `data` the elements are
/// counted; whether they fit their type is not looked at, but that text is text and a number none.
Result<Envelope> open_infer_response(std::shared_ptr<const std::string> body, std::optional<std::string_view> json_length,
                                     const Limits& limits = {});

/// What of a request concerns whoever sends it on.
struct Preamble {
  std::string id;
  std::optional<std::chrono::microseconds> timeout;  // parameter "timeout"
};
/// Of what cannot be read there is nothing: that is told by those who read the request itself.
Preamble read_preamble(const std::shared_ptr<const std::string>& body, std::optional<std::string_view> json_length,
                       const Limits& limits = {});

/// The answer under other words; the id stays. `parameters` take the place of the old ones; null leaves none.
Message reseal(const Envelope& envelope, std::string_view model_name, std::string_view model_version,
               const codec::Json& parameters);

}  // namespace varda::oip
