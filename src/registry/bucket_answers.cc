#include "registry/bucket_answers.h"

#include "base/text.h"
#include "meta/object.h"

namespace varda::registry {
namespace {

Error incomplete(std::string_view what) {
  return {Code::kUnavailable, "the bucket's answer has no usable " + std::string(what)};
}

/// The content of the element `name` that begins at or after `at`, which moves behind the element.
std::optional<std::string_view> next_element(std::string_view xml, std::string_view name,
                                             std::size_t& at) {
  const std::string open = "<" + std::string(name) + ">", close = "</" + std::string(name) + ">";
  const std::size_t begin = xml.find(open, at);
  if (begin == std::string_view::npos) return std::nullopt;
  const std::size_t end = xml.find(close, begin);
  if (end == std::string_view::npos) return std::nullopt;
  at = end + close.size();
  return xml.substr(begin + open.size(), end - begin - open.size());
}

struct Entity {
  std::string_view name;
  char character;
};
constexpr Entity kEntities[] = {{"&lt;", '<'},    {"&gt;", '>'},  {"&amp;", '&'}, {"&quot;", '"'},
                                {"&apos;", '\''}, {"&#34;", '"'}, {"&#39;", '\''}};

std::string decode(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    std::size_t used = 1;
    char next = text.front();
    for (const Entity& entity : kEntities) {
      if (!text.starts_with(entity.name)) continue;
      used = entity.name.size();
      next = entity.character;
    }
    out += next;
    text.remove_prefix(used);
  }
  return out;
}

std::string encode(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '&') {
      out += "&amp;";
    } else {
      out += c;
    }
  }
  return out;
}

Result<std::uint64_t> size_in(std::string_view xml) {
  const auto size = parse_integer<std::uint64_t>(xml_text(xml, "Size").value_or(""));
  if (!size) return incomplete("Size");
  return *size;
}

/// S3 and its clones mark the last page by "false".
Result<bool> is_truncated(std::string_view xml) {
  const auto text = xml_text(xml, "IsTruncated");
  if (text == "true") return true;
  if (text == "false") return false;
  return incomplete("IsTruncated");
}

}  // namespace

std::optional<std::string> xml_text(std::string_view xml, std::string_view name) {
  std::size_t at = 0;
  const auto content = next_element(xml, name, at);
  if (!content) return std::nullopt;
  return decode(*content);
}

Result<BucketListing> parse_listing(std::string_view xml) {
  BucketListing out;
  TRY(const bool truncated, is_truncated(xml));
  std::size_t at = 0;
  while (const auto item = next_element(xml, "Contents", at)) {
    BucketObject object;
    const auto key = xml_text(*item, "Key");
    if (!key) return incomplete("Key");
    object.key = *key;
    TRY(object.size_bytes, size_in(*item));
    const auto modified = meta::parse_time(xml_text(*item, "LastModified").value_or(""));
    if (!modified.ok()) return incomplete("LastModified");
    object.modified = *modified;
    out.objects.push_back(std::move(object));
  }
  if (!truncated) return out;
  out.continuation = xml_text(xml, "NextContinuationToken").value_or("");
  if (out.continuation.empty()) return incomplete("NextContinuationToken");
  return out;
}

Result<BucketParts> parse_parts(std::string_view xml) {
  BucketParts out;
  TRY(const bool truncated, is_truncated(xml));
  std::size_t at = 0;
  int last = 0;
  while (const auto item = next_element(xml, "Part", at)) {
    BucketPart part;
    part.number = parse_integer<int>(xml_text(*item, "PartNumber").value_or("")).value_or(0);
    // Parts are in order of their numbers, which also makes the pages finite.
    if (part.number <= last || part.number > BucketPart::kNumberMax)
      return incomplete("PartNumber");
    last = part.number;
    TRY(part.size_bytes, size_in(*item));
    part.tag = xml_text(*item, "ETag").value_or("");
    if (part.tag.empty()) return incomplete("ETag");
    part.modified = meta::parse_time(xml_text(*item, "LastModified").value_or("")).value_or({});
    out.parts.push_back(std::move(part));
  }
  if (!truncated) return out;
  if (last == 0) return incomplete("Part");
  out.after = last;
  return out;
}

Result<std::string> parse_upload_id(std::string_view xml) {
  std::string id = xml_text(xml, "UploadId").value_or("");
  if (id.empty()) return incomplete("UploadId");
  return id;
}

std::string write_parts(const std::vector<BucketPart>& parts) {
  std::string out = "<CompleteMultipartUpload>";
  for (const BucketPart& part : parts)
    out += "<Part><PartNumber>" + std::to_string(part.number) + "</PartNumber><ETag>" +
           encode(part.tag) + "</ETag></Part>";
  return out + "</CompleteMultipartUpload>";
}

}  // namespace varda::registry
