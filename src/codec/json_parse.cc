#include <boost/json/stream_parser.hpp>
#include <simdjson.h>
#include <unordered_map>

#include "codec/json.h"
#include "codec/reported_paths.h"

namespace varda::codec {
namespace {

namespace dom = simdjson::dom;

// Builds a Json from simdjson's tree. The document is already valid JSON.
class Builder {
 public:
  explicit Builder(const ParseOptions& options) : options_(options) {}

  Result<Json> build(const dom::element& element, std::size_t depth) {
    if (++nodes_ > options_.nodes_max)
      return Error(Code::kInvalid, "more than " + std::to_string(options_.nodes_max) + " values");
    switch (element.type()) {
      case dom::element_type::NULL_VALUE:
        return Json();
      case dom::element_type::BOOL:
        return Json(bool(element));
      case dom::element_type::INT64:
        return Json(std::int64_t(element));
      case dom::element_type::UINT64:
        return Json(std::uint64_t(element));
      case dom::element_type::DOUBLE:
        return Json(double(element));
      case dom::element_type::STRING:
        return Json(std::string_view(element));
      case dom::element_type::ARRAY:
        return array(dom::array(element), depth + 1);
      case dom::element_type::OBJECT:
        return object(dom::object(element), depth + 1);
    }
    return Error(Code::kInternal, "unknown JSON type");
  }

 private:
  // Below this size, linear search is faster than hashing.
  static constexpr std::size_t kLinear = 16;

  Status check_depth(std::size_t depth) const {
    if (depth <= options_.depth_max) return {};
    return Error(Code::kInvalid,
                 "nested deeper than " + std::to_string(options_.depth_max) + " levels");
  }

  Result<Json> array(const dom::array& items, std::size_t depth) {
    TRY_VOID(check_depth(depth));
    Json::Array out;
    out.reserve(items.size());
    std::size_t index = 0;
    for (const dom::element item : items) {
      const std::size_t mark = path_.size();
      if (options_.duplicates) path_ += "[" + std::to_string(index++) + "]";
      TRY(Json value, build(item, depth));
      path_.resize(mark);
      out.push_back(std::move(value));
    }
    return Json(std::move(out));
  }

  Result<Json> object(const dom::object& members, std::size_t depth) {
    TRY_VOID(check_depth(depth));
    Json out = Json::object();
    Json::Object& list = out.object_members();
    list.reserve(members.size());
    std::unordered_map<std::string_view, std::size_t> names;  // -> index in `list`
    for (const dom::key_value_pair member : members) {
      const std::size_t mark = path_.size();
      if (options_.duplicates) {
        if (!path_.empty()) path_ += '.';
        path_ += member.key;
      }
      TRY(Json value, build(member.value, depth));
      Json* known = nullptr;
      if (list.size() < kLinear) {
        known = out.find(member.key);
      } else {
        if (names.empty()) {
          // Keys refer to the parser's copies of the names, because `list` moves names when it
          // grows.
          std::size_t place = 0;
          for (const dom::key_value_pair earlier : members) {
            if (earlier.key.data() == member.key.data()) break;
            place += names.emplace(earlier.key, place).second;
          }
        }
        const auto [found, added] = names.emplace(member.key, list.size());
        if (!added) known = &list[found->second].second;
      }
      if (known) {
        if (options_.duplicates) report_path(*options_.duplicates, [this] { return path_; });
        *known = std::move(value);
      } else {
        list.emplace_back(std::string(member.key), std::move(value));
      }
      path_.resize(mark);
    }
    return out;
  }

  const ParseOptions& options_;
  std::size_t nodes_ = 0;
  std::string path_;  // path of the current value, only for duplicates
};

// simdjson reports no offset, so a second parser finds it, only after errors.
Error located(std::string_view text, simdjson::error_code code) {
  boost::json::parse_options relaxed;
  relaxed.max_depth = 1024;
  boost::json::stream_parser parser({}, relaxed);
  boost::json::error_code ec;
  std::size_t offset = 0;
  try {
    offset = parser.write_some(text.data(), text.size(), ec);
    if (!ec) {
      if (offset == text.size() && !parser.done()) parser.finish(ec);
    }
  } catch (...) {  // out of memory or too deep: use the message below
  }
  std::string what = simdjson::error_message(code);
  if (ec) what = ec.message();
  if (offset < text.size() && !ec) what = "unexpected text after the value";
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos)
    what = "unexpected end of JSON input";
  return Error(Code::kInvalid, "offset " + std::to_string(offset) + ": " + what);
}

}  // namespace

Result<Json> parse_json(std::string_view text, const ParseOptions& options) {
  // Kept between calls for its buffers. Reset after a large document, because the buffers take
  // fifteen times its size per thread.
  constexpr std::size_t kKeepBytes = 32 << 10;
  thread_local std::unique_ptr<dom::parser> parser;
  if (!parser) parser = std::make_unique<dom::parser>();
  dom::element root;
  const auto error =
      parser->parse(text.data(), text.size()).get(root);  // copies into a padded buffer
  if (error) return located(text, error);
  Result<Json> out = Builder(options).build(root, 0);
  if (text.size() > kKeepBytes) parser.reset();
  return out;
}

}  // namespace varda::codec
