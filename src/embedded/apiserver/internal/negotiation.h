// Content negotiation: the form of the answer and the form of the request body.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apiserver/internal/outcome.h"
#include "codec/json.h"
#include "net/http.h"

namespace varda::apiserver {

struct Output {
  enum class Format { kJson, kYaml };
  enum class As { kObject, kTable, kPartial, kPartialList };
  Format format = Format::kJson;
  As as = As::kObject;
  std::string as_version;  // "v1" or "v1beta1" of meta.k8s.io
  bool pretty = false;
  /// Compact JSON of whole objects; stored bytes can be sent unchanged.
  bool verbatim() const { return format == Format::kJson && as == As::kObject && !pretty; }
};

/// A media range of Accept with its parameters.
struct MediaRange {
  std::string type;  // "application/json", lower case
  double quality = 1;
  std::optional<std::string> as, version, group;
};
/// Sorted by quality, then in header order. Empty: the header was absent.
std::vector<MediaRange> parse_accept(const net::Request& request);

/// The form of an object or a collection; 406 if no range fits.
Outcome<Output> negotiate(const net::Request& request);
/// The form of errors: YAML if the client prefers it, else JSON.
Output::Format error_format(const net::Request& request);

/// Values in one body. A tree takes some 40 bytes a value, so a body of 3 MB could become 60 MB.
inline constexpr std::size_t kBodyValuesMax = 250'000;

struct BodyOptions {
  std::size_t depth_max = 200;
  std::vector<std::string>* duplicates = nullptr;
};
/// The media type of the body; "application/json" if the header is absent.
std::string content_type(const net::Request& request);
/// A JSON or YAML body as a tree. 415 for other types; a parse error is returned as the inner
/// Error.
Outcome<Result<codec::Json>> read_tree(const net::Request& request, const BodyOptions& options);

/// The bytes of an answer, with Kubernetes' final newline.
std::string render(const codec::Json& value, const Output& output);
std::string_view media_type(Output::Format format);

}  // namespace varda::apiserver
