// The parts of a request to the registry: path, Content-Range, version document.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "codec/digest.h"
#include "codec/json.h"

namespace varda::registry {

struct VersionKey {
  std::string ns, name, version;
  friend auto operator<=>(const VersionKey&, const VersionKey&) = default;
};

/// A path below /v1/.
struct Route {
  enum class Kind { kBlobs, kBlob, kChunks, kModels, kVersions, kVersion, kNames };
  Kind kind = Kind::kBlobs;
  codec::Sha256 digest;  // kBlob; kChunks: the blob that the list describes
  bool named = false;    // kBlob: a file name follows the digest, which only reads may have
  VersionKey key;        // kVersion; without `version` for kVersions
  std::string holder;    // kNames
};
/// `path` is still percent-encoded. kNotFound: no such path. kInvalid: a bad digest or name.
Result<Route> parse_route(std::string_view path);

/// "sha256:HEX". kInvalid otherwise.
Result<codec::Sha256> parse_digest(std::string_view text);
std::string write_digest(const codec::Sha256& digest);

struct ContentRange {
  std::uint64_t first = 0, length = 0, total = 0;
};
/// "bytes 0-99/200" (RFC 9110, 14.4) with a known total. kInvalid otherwise.
Result<ContentRange> parse_content_range(std::string_view text);

/// The value of Upload-Copy: bytes of another blob, which the registry appends to a piece.
struct CopySource {
  codec::Sha256 digest;
  std::uint64_t first = 0, length = 0;
};
/// Limit of one request, so that its time is bounded.
inline constexpr std::uint64_t kCopyBytesMax = 256 << 20;
/// "sha256:HEX bytes 100-899". kInvalid otherwise.
Result<CopySource> parse_copy_source(std::string_view text);
std::string write_copy_source(const CopySource& source);
/// The bytes [first, last].
struct ByteRange {
  std::uint64_t first = 0, last = 0;
};
/// "bytes=0-99" (RFC 9110, 14.1.2): one range with both ends. kInvalid otherwise.
Result<ByteRange> parse_range(std::string_view text);

/// The document of one version.
struct Version {
  static constexpr std::size_t kMetricsMax = 64, kLineageMax = 64, kTextBytesMax = 253;

  codec::Sha256 digest;
  std::optional<std::uint64_t> size_bytes;
  std::string format;
  codec::Json metrics = codec::Json::object();  // numbers or short texts by name
  std::vector<std::string> lineage;
  std::optional<codec::Sha256> chunks;  // digest of the list of chunks
  std::string created_at;

  /// kInvalid names the member.
  static Result<Version> from_json(const codec::Json& json);
  codec::Json to_json() const;
};

}  // namespace varda::registry
