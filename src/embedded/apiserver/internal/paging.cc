#include "apiserver/internal/paging.h"

#include <algorithm>
#include <limits>

#include "base/text.h"
#include "codec/digest.h"
#include "codec/json.h"

namespace varda::apiserver {

bool truthy(std::optional<std::string_view> text) {
  return text && *text != "false" && *text != "0";
}

Outcome<std::optional<std::int64_t>> query_number(const net::Query& query, std::string_view name) {
  const auto text = query.find(name);
  if (!text || text->empty()) return std::optional<std::int64_t>();
  const auto value = parse_integer<std::int64_t>(*text);
  if (!value)
    return bad_request("strconv.ParseInt: parsing " + in_quotes(*text) + ": invalid syntax");
  return value;
}

Result<std::optional<store::Revision>> parse_version(const net::Query& query) {
  const std::string_view text = query.get("resourceVersion");
  if (text.empty()) return std::optional<store::Revision>();
  const auto value = parse_integer<std::uint64_t>(text);
  if (!value) {
    return Error(Code::kInvalid, "resourceVersion: Invalid value: " + in_quotes(text) +
                                     ": strconv.ParseUint: parsing " + in_quotes(text) +
                                     ": invalid syntax");
  }
  constexpr std::uint64_t kMost = std::numeric_limits<store::Revision>::max();
  return std::optional<store::Revision>(static_cast<store::Revision>(std::min(*value, kMost)));
}

Outcome<void> check_not_future(std::optional<store::Revision> revision, const store::Store& store) {
  if (!revision) return {};
  const store::Revision current = store.revision();
  if (*revision <= current) return {};
  ApiStatus status;
  status.code = 504;
  status.reason = "Timeout";
  status.message = "Timeout: Too large resource version: " + std::to_string(*revision) +
                   ", current: " + std::to_string(current);
  status.causes = {{"ResourceVersionTooLarge", "Too large resource version", ""}};
  status.retry_after_seconds = 1;
  return status;
}

std::string PageStart::token() const {
  std::string out = codec::base64(codec::write_json(
      Json::object({{"v", "meta.k8s.io/v1"}, {"rv", revision}, {"start", after}})));
  for (char& c : out) c = c == '+' ? '-' : c == '/' ? '_' : c;
  while (!out.empty() && out.back() == '=') out.pop_back();
  return out;
}

Outcome<PageStart> PageStart::parse(std::string token) {
  const auto bad = [](std::string_view why) {
    return bad_request("invalid continue token: continue key is not valid: " + std::string(why));
  };
  for (char& c : token) c = c == '-' ? '+' : c == '_' ? '/' : c;
  while (token.size() % 4 != 0) token += '=';
  auto bytes = codec::unbase64(token);
  if (!bytes.ok()) return bad("illegal base64 data");
  auto parsed = codec::parse_json(*bytes);
  if (!parsed.ok()) return bad(parsed.error().message());
  const Json& value = *parsed;
  const std::string& version = value["v"].as_string();
  if (version != "meta.k8s.io/v1")
    return bad("server does not recognize this encoded version " + version);
  PageStart out{.revision = value["rv"].as_integer(), .after = value["start"].as_string()};
  if (out.revision == 0 || out.revision < kLatest)
    return bad("incorrect encoded start resourceVersion (version meta.k8s.io/v1)");
  if (out.after.empty()) return bad("encoded start key empty (version meta.k8s.io/v1)");
  // A key is names between slashes. A part that path cleaning would change could leave the list.
  const std::string framed = "/" + out.after + "/";
  for (const char* part : {"//", "/./", "/../"}) {
    if (framed.find(part) != std::string::npos) return bad(in_quotes(out.after));
  }
  return out;
}

Outcome<ListQuery> ListQuery::parse(const net::Query& query, const store::Store& store) {
  ListQuery out;
  TRY(const std::optional<std::int64_t> limit, query_number(query, "limit"));
  if (limit && *limit > 0) out.limit = static_cast<std::size_t>(*limit);
  const std::string_view text = query.get("resourceVersion");
  const std::string_view match = query.get("resourceVersionMatch");
  const std::string_view token = query.get("continue");

  std::vector<StatusCause> causes;
  if (!match.empty()) {
    constexpr const char* kField = "resourceVersionMatch";
    if (text.empty())
      causes.push_back(forbidden_option(
          kField, "resourceVersionMatch is forbidden unless resourceVersion is provided"));
    if (!token.empty())
      causes.push_back(
          forbidden_option(kField, "resourceVersionMatch is forbidden when continue is provided"));
    if (match != "Exact" && match != "NotOlderThan") {
      causes.push_back({"FieldValueNotSupported",
                        "Unsupported value: " + in_quotes(match) +
                            ": supported values: \"Exact\", \"NotOlderThan\", \"\"",
                        kField});
    }
    if (match == "Exact" && text == "0") {
      causes.push_back(forbidden_option(
          kField, "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""));
    }
  }
  if (query.find("sendInitialEvents")) {
    causes.push_back(
        forbidden_option("sendInitialEvents", "sendInitialEvents is forbidden for list"));
  }
  if (!causes.empty()) return bad_list_options(std::move(causes));

  const auto version = parse_version(query);
  if (!version.ok()) return bad_request("invalid resource version: " + version.error().message());
  TRY_VOID(check_not_future(*version, store));
  const store::Revision requested = version->value_or(0);
  if (!token.empty()) {
    if (requested > 0)
      return bad_request("specifying resource version is not allowed when using continue");
    TRY(PageStart start, PageStart::parse(std::string(token)));
    TRY_VOID(check_not_future(start.revision, store));
    if (start.revision != PageStart::kLatest) out.at = start.revision;
    out.start = std::move(start);
  } else if (requested > 0 && (match == "Exact" || (match.empty() && out.limit > 0))) {
    out.at = requested;
  } else if (*version && requested == 0 && match.empty()) {
    out.limit = 0;  // "any" version: answered without paging, like a watch cache
  }
  return out;
}

ApiStatus list_expired(const std::optional<PageStart>& start) {
  if (!start) return expired("The resourceVersion for the provided list is too old.");
  ApiStatus status = expired(
      "The provided continue parameter is too old to display a consistent list result. You can "
      "start a new list without the "
      "continue parameter, or use the continue token in this response to retrieve the remainder of "
      "the results. Continuing with "
      "the provided token results in an inconsistent list - objects that were created, modified, "
      "or deleted between the time the "
      "first chunk was returned and now may show up in the list.");
  status.list_token = PageStart{.revision = PageStart::kLatest, .after = start->after}.token();
  return status;
}

ApiStatus bad_list_options(std::vector<StatusCause> causes) {
  return invalid("meta.k8s.io", "ListOptions", "", std::move(causes));
}

StatusCause forbidden_option(std::string field, std::string_view why) {
  return {.reason = "FieldValueForbidden",
          .message = "Forbidden: " + std::string(why),
          .field = std::move(field)};
}

}  // namespace varda::apiserver
