// Answers of S3 servers as values. Their XML is described in the Amazon S3 API Reference.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace varda::registry {

/// The text of the first element of that name, with entities replaced. Nothing: no such element.
std::optional<std::string> xml_text(std::string_view xml, std::string_view name);

struct BucketObject {
  std::string key;
  std::uint64_t size_bytes = 0;
  WallTime modified;
};
/// One page of ListObjectsV2.
struct BucketListing {
  std::vector<BucketObject> objects;
  std::string continuation;  // of the next page; "": this is the last page
};
/// kUnavailable: the answer is incomplete or of another kind, as from a proxy.
Result<BucketListing> parse_listing(std::string_view xml);

struct BucketPart {
  static constexpr int kNumberMax = 10'000;
  int number = 0;  // from 1
  std::uint64_t size_bytes = 0;
  std::string tag;         // the ETag as the server wrote it
  WallTime modified = {};  // absent from some servers' lists
};
/// One page of ListParts.
struct BucketParts {
  std::vector<BucketPart> parts;
  int after = 0;  // the next page follows this number; 0: this is the last page
};
/// kUnavailable: as parse_listing().
Result<BucketParts> parse_parts(std::string_view xml);

/// The upload's identifier in an answer to CreateMultipartUpload. kUnavailable: as parse_listing().
Result<std::string> parse_upload_id(std::string_view xml);

/// The body of CompleteMultipartUpload.
std::string write_parts(const std::vector<BucketPart>& parts);

}  // namespace varda::registry
