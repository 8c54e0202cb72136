#include "meta/patch.h"

#include <algorithm>

#include "base/text.h"
#include "meta/members.h"

namespace varda::meta {
namespace {

constexpr std::size_t kDepthMax = 400;
constexpr std::size_t kCopyBytesMax = 16u
                                      << 20;  // total growth by the `copy` operations of one patch

Error bad_patch(std::string what) { return {Code::kInvalid, std::move(what)}; }

struct Measure {
  std::size_t depth = 1;
  std::size_t bytes = 16;
  std::size_t values = 1;
};

Measure measure(const Json& value) {
  Measure out;
  const auto take = [&](const Json& item, std::size_t extra) {
    const Measure inner = measure(item);
    out.depth = std::max(out.depth, inner.depth + 1);
    out.bytes += inner.bytes + extra;
    out.values += inner.values;
  };
  if (value.is_string()) out.bytes += value.as_string().size();
  for (const Json& item : value.as_array()) take(item, 0);
  for (const auto& [name, member] : value.as_object()) take(member, name.size());
  return out;
}

// RFC 6902 compares numbers by value; our trees distinguish 1 from 1.0.
bool same(const Json& a, const Json& b) {
  if (a.is_number() && b.is_number()) return a == b || a.as_double() == b.as_double();
  return a == b;
}

using Pointer = std::vector<std::string>;

Result<Pointer> parse_pointer(const Json& text, std::string_view member) {
  if (!text.is_string()) return bad_patch("\"" + std::string(member) + "\" must be a string");
  std::string_view rest = text.as_string();
  Pointer out;
  if (rest.empty()) return out;
  if (rest.front() != '/')
    return bad_patch("path \"" + text.as_string() + "\" must start with '/'");
  while (!rest.empty()) {
    rest.remove_prefix(1);
    const auto end = std::min(rest.find('/'), rest.size());
    std::string token;
    for (std::size_t i = 0; i < end; ++i) {
      if (rest[i] != '~') {
        token += rest[i];
      } else if (i + 1 < end && (rest[i + 1] == '0' || rest[i + 1] == '1')) {
        token += rest[++i] == '0' ? '~' : '/';
      } else {
        return bad_patch("path \"" + text.as_string() + "\" has a bad escape");
      }
    }
    out.push_back(std::move(token));
    rest.remove_prefix(end);
  }
  return out;
}

// Negative indexes count from the end: -1 is the last of `size`.
std::optional<std::size_t> array_index(const std::string& token, std::size_t size) {
  const auto number = parse_integer<std::int64_t>(token);
  if (!number) return std::nullopt;
  std::int64_t index = *number;
  if (token.size() > 1 && (token[0] == '0' || token.starts_with("-0"))) return std::nullopt;
  if (index < 0) index += static_cast<std::int64_t>(size);
  if (index < 0 || index >= static_cast<std::int64_t>(size)) return std::nullopt;
  return static_cast<std::size_t>(index);
}

Json* child(Json& parent, const std::string& token) {
  if (parent.is_object()) return parent.find(token);
  if (!parent.is_array()) return nullptr;
  const auto index = array_index(token, parent.size());
  return index ? &parent.array_items()[*index] : nullptr;
}

/// Applies one JSON Patch to one document.
class Patcher {
 public:
  Patcher(Json document, std::size_t work_max)
      : document_(std::move(document)), work_max_(work_max) {}
  Json take() { return std::move(document_); }

  Status apply(const Json& operation) {
    if (!operation.is_object()) return bad_patch("an operation must be an object");
    const std::string& op = operation["op"].as_string();
    TRY(const Pointer path, parse_pointer(operation["path"], "path"));
    if (op == "remove") return remove(path);
    if (op == "add" || op == "replace" || op == "test") {
      const Json* value = operation.find("value");
      if (!value && op != "test") return bad_patch("\"value\" is missing");
      if (op == "add") return add(path, *value, measure(*value));
      if (op == "replace") return replace(path, *value);
      return test(path, value ? *value : Json());
    }
    if (op != "move" && op != "copy") return bad_patch("unknown operation \"" + op + "\"");
    TRY(const Pointer from, parse_pointer(operation["from"], "from"));
    Json* source = find(from);
    if (!source) return bad_patch("\"from\" does not exist");
    const Measure size = measure(*source);
    TRY_VOID(spend(size.values));
    if (op == "copy") {
      copied_bytes_ += size.bytes;
      if (copied_bytes_ > kCopyBytesMax)
        return Error(Code::kExhausted, "the patch copies too much").as_terminal();
      return add(path, *source, size);
    }
    if (path.size() > from.size() && std::equal(from.begin(), from.end(), path.begin()))
      return bad_patch("a value cannot move into itself");
    if (from.empty()) return bad_patch("the whole document cannot be removed");
    Json value = std::move(*source);
    TRY_VOID(remove(from));
    return add(path, std::move(value), size);
  }

 private:
  Status spend(std::size_t work) {
    work_ += work;
    if (work_ > work_max_)
      return Error(Code::kExhausted, "the patch needs too much work; use fewer operations")
          .as_terminal();
    return {};
  }

  Json* find(const Pointer& path) {
    Json* at = &document_;
    for (const std::string& token : path) {
      if (at->is_object()) work_ += at->size();
      at = child(*at, token);
      if (!at) return nullptr;
    }
    return at;
  }
  Result<Json*> parent(const Pointer& path) {
    if (path.empty()) return bad_patch("the whole document cannot be removed");
    Json* at = find(Pointer(path.begin(), path.end() - 1));
    if (!at || (!at->is_object() && !at->is_array()))
      return bad_patch("the parent of \"" + path.back() + "\" does not exist");
    return at;
  }

  Status add(const Pointer& path, Json value, const Measure& size) {
    if (path.size() + size.depth > kDepthMax)
      return bad_patch("the result would be nested too deeply");
    if (path.empty()) {
      document_ = std::move(value);
      return {};
    }
    TRY(Json * holder, parent(path));
    TRY_VOID(spend(holder->size()));
    if (holder->is_object()) {
      holder->set(path.back(), std::move(value));
      return {};
    }
    auto& items = holder->array_items();
    const auto index =
        path.back() == "-" ? items.size() : array_index(path.back(), items.size() + 1);
    if (!index) return bad_patch("index \"" + path.back() + "\" is out of range");
    items.insert(items.begin() + static_cast<std::ptrdiff_t>(*index), std::move(value));
    return {};
  }

  Status replace(const Pointer& path, const Json& value) {
    const Measure size = measure(value);
    if (path.empty()) return add(path, value, size);
    TRY(Json * holder, parent(path));
    if (holder->is_object())
      return add(path, value, size);  // also if the member is missing, as in Kubernetes
    Json* old = child(*holder, path.back());
    if (!old) return bad_patch("index \"" + path.back() + "\" is out of range");
    if (path.size() + size.depth > kDepthMax)
      return bad_patch("the result would be nested too deeply");
    *old = value;
    return {};
  }

  Status remove(const Pointer& path) {
    TRY(Json * holder, parent(path));
    TRY_VOID(spend(holder->size()));
    if (holder->is_object()) {
      if (!holder->erase(path.back()))
        return bad_patch("member \"" + path.back() + "\" does not exist");
      return {};
    }
    auto& items = holder->array_items();
    const auto index = array_index(path.back(), items.size());
    if (!index) return bad_patch("index \"" + path.back() + "\" is out of range");
    items.erase(items.begin() + static_cast<std::ptrdiff_t>(*index));
    return {};
  }

  Status test(const Pointer& path, const Json& value) {
    const Json* found = find(path);
    TRY_VOID(spend(0));
    if (found ? same(*found, value) : value.is_null()) return {};
    return bad_patch("the tested value differs or does not exist");
  }

  Json document_;
  std::size_t copied_bytes_ = 0;
  const std::size_t work_max_;
  std::size_t work_ = 0;
};

}  // namespace

Result<Json> apply_json_patch(Json document, const Json& patch, std::size_t operations_max,
                              std::size_t work_max) {
  if (!patch.is_array()) return bad_patch("a JSON patch must be an array of operations");
  if (patch.size() > operations_max) {
    return Error(Code::kExhausted,
                 "a JSON patch may hold " + std::to_string(operations_max) + " operations")
        .as_terminal();
  }
  Patcher patcher(std::move(document), work_max);
  std::size_t index = 0;
  for (const Json& operation : patch.as_array())
    TRY_VOID(patcher.apply(operation).context("operation " + std::to_string(index++)));
  return patcher.take();
}

namespace {

void merge_members(Json& document, const Json& patch) {
  MemberEditor members(document);
  for (const auto& [name, value] : patch.as_object()) {
    if (value.is_null()) {
      members.remove(name);
    } else if (value.is_object()) {
      // Also if the member is missing: nulls inside the patch must not become members.
      Json* old = members.find(name);
      Json merged = apply_merge_patch(old ? std::move(*old) : Json(), value);
      members.set(name, std::move(merged));
    } else {
      members.set(name, value);
    }
  }
}

}  // namespace

Json apply_merge_patch(Json document, const Json& patch) {
  if (!patch.is_object()) return patch;
  if (!document.is_object()) document = Json::object();
  merge_members(document, patch);
  return document;
}

Json make_merge_patch(const Json& from, const Json& to) {
  if (!from.is_object() || !to.is_object()) return to;
  MemberIndex before(from);
  MemberIndex after(to);
  Json patch = Json::object();
  for (const auto& [name, value] : from.as_object()) {
    if (!after.contains(name)) patch.object_members().emplace_back(name, Json());
  }
  for (const auto& [name, value] : to.as_object()) {
    const Json* old = before.find(name);
    if (old && *old == value) continue;
    patch.object_members().emplace_back(name, old ? make_merge_patch(*old, value) : value);
  }
  return patch;
}

}  // namespace varda::meta
