// Answers of S3 servers: parts are in order of their numbers, and a page that is not the last names
// the next one.
//
// Input: the XML of an answer.
#include "registry/bucket_answers.h"

#include <string_view>

#include "base/check.h"

using namespace varda;  // NOLINT: a program of one file

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view xml(reinterpret_cast<const char*>(data), size);
  (void)registry::parse_listing(xml);
  if (const auto id = registry::parse_upload_id(xml); id.ok()) CHECK(!id->empty());
  const auto page = registry::parse_parts(xml);
  if (!page.ok()) return 0;
  int last = 0;
  for (const registry::BucketPart& part : page->parts) {
    CHECK(part.number > last && part.number <= registry::BucketPart::kNumberMax);
    CHECK(!part.tag.empty());
    last = part.number;
  }
  CHECK(page->after == 0 || page->after == last);
  const std::string body = registry::write_parts(page->parts);
  for (const registry::BucketPart& part : page->parts)
    if (part.number == 1) CHECK(registry::xml_text(body, "ETag") == part.tag);
  return 0;
}
