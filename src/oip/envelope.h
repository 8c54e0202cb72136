// Forwards a response with other metadata: the tensors stay as received.
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

/// An inference response, parsed only as far as forwarding requires. Elements of `data` are
/// counted, not parsed.
struct Envelope {
  std::string model_name;
  std::string model_version;  // the first 128 bytes
  std::string id;
  codec::Json parameters = nullptr;  // an object, or null: none
  std::string_view outputs;          // the unparsed array, in *body
  std::string_view binary;           // the bytes after the JSON, in *body
  bool has_binary = false;           // the response had oip::kJsonLengthHeader
  std::shared_ptr<const std::string> body;
};

/// kInvalid: a malformed response, as for parse_infer_response(), or one without outputs. Elements
/// of `data` are counted; the only check is that they are text or numbers, as the type requires.
Result<Envelope> open_infer_response(std::shared_ptr<const std::string> body,
                                     std::optional<std::string_view> json_length,
                                     const Limits& limits = {});

/// The parts of a request that matter for forwarding.
struct Preamble {
  std::string id;
  std::optional<std::chrono::microseconds> timeout;  // parameter "timeout"
};
/// Unreadable parts stay empty: the parser of the request reports them.
Preamble read_preamble(const std::shared_ptr<const std::string>& body,
                       std::optional<std::string_view> json_length, const Limits& limits = {});

/// The response with other names; the id stays. `parameters` replace the old ones; null removes
/// them.
Message reseal(const Envelope& envelope, std::string_view model_name,
               std::string_view model_version, const codec::Json& parameters);

}  // namespace varda::oip
