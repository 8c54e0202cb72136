// Content negotiation: in which form the client wants the answer, and in which form its body comes.
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
  /// Compact JSON of whole objects: what objects in the store may be answered with as they are.
  bool verbatim() const { return format == Format::kJson && as == As::kObject && !pretty; }
};

/// A media range of Accept with its parameters.
struct MediaRange {
  std::string type;  // "application/json", lower case
  double quality = 1;
  std::optional<std::string> as, version, group;
};
/// By quality, then in their order. Empty: the header was absent.
std::vector<MediaRange> parse_accept(const net::Request& request);

/// What an object or a collection is answered with; 406 when nothing fits.
Outcome<Output> negotiate(const net::Request& request);
/// For streams: a watch is always JSON here.
Outcome<Output> negotiate_watch(const net::Request& request);
/// The form errors take: YAML where the client prefers it, else JSON.
Output::Format error_format(const net::Request& request);

struct BodyOptions {
  std::size_t depth_max = 200;
  std::vector<std::string>* duplicates = nullptr;
};
/// The media type of the body: "application/json" where none is given.
std::string content_type(const net::Request& request);
/// A JSON or YAML body as a tree. 415 for other types; the Error of a parse is the parser's.
Outcome<Result<codec::Json>> read_tree(const net::Request& request, const BodyOptions& options);

/// Bytes of an answer, with a newline at the end as Kubernetes has it.
std::string render(const codec::Json& value, const Output& output);
std::string_view media_type(Output::Format format);

}  // namespace varda::apiserver
