#include "registry/request.h"

#include <limits>

#include "base/text.h"
#include "meta/object.h"
#include "net/url.h"

namespace varda::registry {
namespace {

using codec::Json;
using codec::Sha256;

constexpr std::string_view kAlgorithm = "sha256:";
constexpr std::string_view kUnit = "bytes ";
constexpr std::string_view kChunks = ".chunks";
constexpr std::size_t kVersionBytesMax = 63;

Error invalid(const std::string& what) { return {Code::kInvalid, what}; }

/// The rule of an InferenceModel's manifest; a leading dot would hide the file.
bool good_version(std::string_view text) {
  return !text.empty() && text.size() <= kVersionBytesMax && text.front() != '.' &&
         text.find_first_not_of(
             "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") ==
             std::string_view::npos;
}

Result<std::string> short_text(const Json& value, std::string_view name) {
  if (!value.is_string() || value.as_string().size() > Version::kTextBytesMax)
    return invalid(std::string(name) + ": must be a text of at most " +
                   std::to_string(Version::kTextBytesMax) + " bytes");
  return value.as_string();
}

Result<Sha256> digest_member(const Json& value, std::string_view name) {
  return parse_digest(value.as_string()).context(name);
}

Status check_metrics(const Json& metrics) {
  if (!metrics.is_object() || metrics.size() > Version::kMetricsMax)
    return invalid("metrics: must be an object with at most " +
                   std::to_string(Version::kMetricsMax) + " members");
  for (const auto& [name, value] : metrics.as_object()) {
    if (name.empty() || name.size() > Version::kTextBytesMax)
      return invalid("metrics: a name must have 1 to " + std::to_string(Version::kTextBytesMax) +
                     " bytes");
    if (!value.is_number()) TRY_VOID(short_text(value, "metrics." + name));
  }
  return {};
}

}  // namespace

Result<Sha256> parse_digest(std::string_view text) {
  if (!text.starts_with(kAlgorithm))
    return invalid("the digest must be sha256: and 64 lower-case hex digits");
  const auto digest = Sha256::parse(text.substr(kAlgorithm.size()));
  if (!digest.ok()) return invalid("the digest must be sha256: and 64 lower-case hex digits");
  return *digest;
}

std::string write_digest(const Sha256& digest) { return std::string(kAlgorithm) + digest.hex(); }

Result<Route> parse_route(std::string_view path) {
  const Error missing(Code::kNotFound, "no such path; see /v1/blobs and /v1/models");
  if (!path.starts_with("/v1/")) return missing;
  std::vector<std::string> parts;
  for (const std::string_view part : split(path.substr(4), '/')) {
    TRY(std::string decoded, net::percent_decode(part));
    parts.push_back(std::move(decoded));
  }
  if (parts.size() > 1 && parts.back().empty()) parts.pop_back();
  Route route;
  if (parts[0] == "blobs") {
    if (parts.size() == 1) return route;
    if (parts.size() > 3) return missing;
    route.named = parts.size() == 3;
    route.kind = Route::Kind::kBlob;
    if (parts.back().ends_with(kChunks)) {
      route.kind = Route::Kind::kChunks;
      parts.back().resize(parts.back().size() - kChunks.size());
    }
    TRY(route.digest, parse_digest(parts[1]));
    return route;
  }
  if (parts[0] == "names") {
    if (parts.size() != 2) return missing;
    route.kind = Route::Kind::kNames;
    if (const std::string wrong = meta::check_dns_label(parts[1]); !wrong.empty())
      return invalid("holder: " + wrong);
    route.holder = parts[1];
    return route;
  }
  if (parts[0] != "models") return missing;
  route.kind = Route::Kind::kModels;
  if (parts.size() == 1) return route;
  if (parts.size() < 4 || parts.size() > 5 || parts[3] != "versions") return missing;
  route.kind = Route::Kind::kVersions;
  if (const std::string wrong = meta::check_dns_label(parts[1]); !wrong.empty())
    return invalid("namespace: " + wrong);
  if (const std::string wrong = meta::check_dns_subdomain(parts[2]); !wrong.empty())
    return invalid("name: " + wrong);
  route.key.ns = parts[1];
  route.key.name = parts[2];
  if (parts.size() == 4) return route;
  route.kind = Route::Kind::kVersion;
  if (!good_version(parts[4]))
    return invalid(
        "version: must be 1 to 63 letters, digits, '.', '_' or '-', and not begin with '.'");
  route.key.version = parts[4];
  return route;
}

Result<ContentRange> parse_content_range(std::string_view text) {
  const Error wrong = invalid("Content-Range must be: bytes FIRST-LAST/TOTAL");
  if (!text.starts_with(kUnit)) return wrong;
  text.remove_prefix(kUnit.size());
  const std::size_t dash = text.find('-'), slash = text.find('/');
  if (dash == std::string_view::npos || slash == std::string_view::npos || slash < dash)
    return wrong;
  const auto first = parse_integer<std::uint64_t>(text.substr(0, dash)),
             last = parse_integer<std::uint64_t>(text.substr(dash + 1, slash - dash - 1)),
             total = parse_integer<std::uint64_t>(text.substr(slash + 1));
  if (!first || !last || !total || *first > *last || *last >= *total) return wrong;
  return ContentRange{.first = *first, .length = *last - *first + 1, .total = *total};
}

Result<CopySource> parse_copy_source(std::string_view text) {
  const Error wrong = invalid("Upload-Copy must be: sha256:HEX bytes FIRST-LAST");
  const std::size_t space = text.find(' ');
  if (space == std::string_view::npos) return wrong;
  TRY(const Sha256 digest, parse_digest(text.substr(0, space)).context("Upload-Copy"));
  text.remove_prefix(space + 1);
  if (!text.starts_with(kUnit)) return wrong;
  text.remove_prefix(kUnit.size());
  const std::size_t dash = text.find('-');
  if (dash == std::string_view::npos) return wrong;
  const auto first = parse_integer<std::uint64_t>(text.substr(0, dash)),
             last = parse_integer<std::uint64_t>(text.substr(dash + 1));
  if (!first || !last || *first > *last || *last == std::numeric_limits<std::uint64_t>::max())
    return wrong;
  return CopySource{.digest = digest, .first = *first, .length = *last - *first + 1};
}

std::string write_copy_source(const CopySource& source) {
  return write_digest(source.digest) + " bytes " + std::to_string(source.first) + "-" +
         std::to_string(source.first + source.length - 1);
}

Result<ByteRange> parse_range(std::string_view text) {
  const Error wrong = invalid("Range must be: bytes=FIRST-LAST");
  constexpr std::string_view kRangeUnit = "bytes=";
  if (!text.starts_with(kRangeUnit)) return wrong;
  text.remove_prefix(kRangeUnit.size());
  const std::size_t dash = text.find('-');
  if (dash == std::string_view::npos) return wrong;
  const auto first = parse_integer<std::uint64_t>(text.substr(0, dash)),
             last = parse_integer<std::uint64_t>(text.substr(dash + 1));
  if (!first || !last || *first > *last) return wrong;
  return ByteRange{.first = *first, .last = *last};
}

Result<Version> Version::from_json(const Json& json) {
  if (!json.is_object()) return invalid("the version must be a JSON object");
  if (!json.contains("digest")) return invalid("digest: required");
  Version out;
  for (const auto& [name, value] : json.as_object()) {
    if (name == "digest") {
      TRY(out.digest, digest_member(value, name));
    } else if (name == "size") {
      if (!value.is_integer() || value.as_integer() < 0)
        return invalid("size: must be a number of bytes");
      out.size_bytes = static_cast<std::uint64_t>(value.as_integer());
    } else if (name == "format") {
      TRY(out.format, short_text(value, name));
    } else if (name == "metrics") {
      TRY_VOID(check_metrics(value));
      out.metrics = value;
    } else if (name == "lineage") {
      if (!value.is_array() || value.size() > kLineageMax)
        return invalid("lineage: must be an array of at most " + std::to_string(kLineageMax) +
                       " names");
      for (const Json& parent : value.as_array()) {
        TRY(std::string text, short_text(parent, name));
        out.lineage.push_back(std::move(text));
      }
    } else if (name == "chunks") {
      TRY(out.chunks, digest_member(value, name));
    } else if (name == "createdAt") {
      TRY(out.created_at, short_text(value, name));
    } else {
      return invalid("unknown member \"" + name + "\"");
    }
  }
  return out;
}

Json Version::to_json() const {
  Json out = Json::object({{"digest", write_digest(digest)}});
  if (size_bytes) out.set("size", *size_bytes);
  if (!format.empty()) out.set("format", format);
  if (!metrics.empty()) out.set("metrics", metrics);
  if (!lineage.empty()) {
    Json names = Json::array();
    for (const std::string& parent : lineage) names.push_back(parent);
    out.set("lineage", std::move(names));
  }
  if (chunks) out.set("chunks", write_digest(*chunks));
  if (!created_at.empty()) out.set("createdAt", created_at);
  return out;
}

}  // namespace varda::registry
